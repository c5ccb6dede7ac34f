"""torch.func over a wrapped function: equal to that of the function written in torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.integration.torch.layer import B, W, X, check, inputs, squares
from tracebridge.errors import CustomRuleError
from tracebridge.experimental import io_callback
from tracebridge.torch import wrap

pytestmark = [
    pytest.mark.torch,
    # torch itself still uses what it deprecates: TorchScript in its forward-mode formulas, and
    # more inside its compiler.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
func = torch.func


FUNCTIONAL = {
    "grad": lambda f: func.grad(squares(f), argnums=(0, 1, 2))(X, W, B),
    "vjp": lambda f: func.vjp(f, X, W, B)[1](torch.ones(4, 5, dtype=torch.float64)),
    "jvp": lambda f: func.jvp(f, (X, W, B), (X, W, B)),
    "jacrev": lambda f: func.jacrev(f, argnums=(0, 1))(X, W, B),
    "jacfwd": lambda f: func.jacfwd(f, argnums=(0, 1))(X, W, B),
    "hessian": lambda f: func.hessian(squares(f))(X, W, B),
    "linearize": lambda f: func.linearize(f, X, W, B)[1](X, W, B),
    "vmap": lambda f: func.vmap(f, (0, None, None))(X, W, B),
    "vmap other axis": lambda f: func.vmap(f, (1, None, 0), 1)(
        X[:, None].expand(4, 2, 3), W, B.expand(2, 5)
    ),
    "vmap of vmap": lambda f: func.vmap(func.vmap(f, (0, None, None)), (None, None, 0))(
        X, W, B.expand(2, 5)
    ),
    "vmap chunks": lambda f: func.vmap(f, (0, None, None), chunk_size=2)(X, W, B),
    "vmap of grad": lambda f: func.vmap(func.grad(squares(f)), (0, None, None))(X, W, B),
    "grad of vmap": lambda f: func.grad(lambda *a: (func.vmap(f, (0, None, None))(*a) ** 2).sum())(
        X, W, B
    ),
    "grad of grad": lambda f: func.grad(lambda x: func.grad(squares(f))(x, W, B).pow(2).sum())(X),
    "jacrev of jacrev": lambda f: func.jacrev(func.jacrev(squares(f)))(X, W, B),
    "jacfwd of jacrev": lambda f: func.jacfwd(func.jacrev(squares(f), 1), 0)(X, W, B),
    "jvp of grad": lambda f: func.jvp(lambda x: func.grad(squares(f))(x, W, B), (X,), (X,)),
    "grad of jvp": lambda f: func.grad(
        lambda x: func.jvp(lambda x: f(x, W, B), (x,), (x,))[1].pow(2).sum()
    )(X),
    "jvp of jvp": lambda f: func.jvp(
        lambda x: func.jvp(lambda x: f(x, W, B), (x,), (x,))[1],
        (X,),
        (X,),
    ),
    "backward through func.grad": lambda f: torch.autograd.grad(
        func.grad(squares(f))(*(t := inputs(grad=True))).pow(2).sum(), t
    ),
}


# Inserted by torch.func.linearize itself, for native functions too.
@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node:UserWarning")
@pytest.mark.parametrize("name", FUNCTIONAL)
def test_torch_func(name):
    """The transformations of torch.func, alone and nested."""
    check(FUNCTIONAL[name])


def test_forward_mode_over_rules_of_reverse_mode():
    """A custom_vjp function has no forward mode, but its rules have: jacfwd of jacrev works."""

    @tb.custom_vjp
    def third(x):
        return x**3

    # A factor 2 shows that the rule is used.
    third.defvjp(lambda x: (x**3, x), lambda x, ct: (2 * 3 * x**2 * ct,))
    f = wrap(lambda x: tnp.sum(third(x)))
    x = torch.arange(1.0, 4.0)

    torch.testing.assert_close(func.hessian(f)(x), torch.diag(2 * 6 * x))
    torch.testing.assert_close(func.jvp(func.grad(f), (x,), (x,))[1], 2 * 6 * x * x)
    values, pullback = func.vjp(f, x)
    torch.testing.assert_close(values, (x**3).sum())
    torch.testing.assert_close(pullback(torch.tensor(1.0))[0], 2 * 3 * x**2)
    with pytest.raises(CustomRuleError, match=r"third: .* forward-mode"):
        func.jvp(f, (x,), (x,))


def test_functional_call_and_stacked_modules():
    """An ensemble: vmap over stacked parameters of a module that calls a wrapped function."""

    class Layer(torch.nn.Module):
        def __init__(self, f):
            super().__init__()
            self.f = f
            g = torch.Generator().manual_seed(1)
            self.w = torch.nn.Parameter(torch.randn(3, 5, dtype=torch.float64, generator=g))
            self.b = torch.nn.Parameter(torch.randn(5, dtype=torch.float64, generator=g))

        def forward(self, x):
            return self.f(x, self.w, self.b)

    def use(f):
        layers = [Layer(f), Layer(f)]
        params, buffers = func.stack_module_state(layers)

        def call(p, b, x):
            return func.functional_call(layers[0], (p, b), (x,))

        return func.vmap(call, (0, 0, None))(params, buffers, X)

    check(use)


def test_effects_happen_once_where_gradients_compute_a_function_again():
    """Callbacks belong to the forward pass; each level used to repeat them."""
    seen = []

    @wrap
    def watched(x):
        tb.debug.callback(seen.append, x)
        return tnp.sum(tnp.sin(x))

    def calls(use):
        seen.clear()
        use()
        return len(seen)

    x = torch.tensor([0.5, 1.0])
    wanted = x.clone().requires_grad_()
    grad = torch.func.grad
    assert 1 == calls(lambda: grad(watched)(x))
    assert 1 == calls(lambda: grad(lambda x: grad(watched)(x).sum())(x))
    assert 2 == calls(lambda: torch.func.vmap(grad(watched))(torch.stack([x, x])))
    assert 1 == calls(lambda: torch.autograd.grad(watched(wanted), wanted, create_graph=True))


def test_gradients_have_no_effects_again() -> None:
    """A call of the host whose result the gradient does not need is made once."""
    seen = []

    def noted(x):
        seen.append(1)
        return np.asarray(x) * 2

    def fun(x):
        like = tb.ShapeDtypeStruct((3,), np.float32)
        return tnp.sum(x**2), io_callback(noted, like, tb.lax.stop_gradient(x))

    slope, doubled = torch.func.grad(wrap(fun), has_aux=True)(torch.ones(3))

    assert seen == [1]
    assert (slope.tolist(), doubled.tolist()) == ([2.0] * 3, [2.0] * 3)
