"""torch's autograd over a wrapped function: equal to that of the function written in torch."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

import tracebridge.numpy as tnp
from tests.integration.torch.layer import OURS, check, inputs, squares
from tracebridge.torch import wrap

pytestmark = [
    pytest.mark.torch,
    # torch itself still uses what it deprecates: TorchScript in its forward-mode formulas, and
    # more inside its compiler.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


func = torch.func


def test_forward():
    """Values."""
    check(lambda f: f(*inputs()))


def test_no_graph_without_gradients():
    """Neither under no_grad nor for plain inputs is a graph made."""
    x, w, b = inputs(grad=True)

    with torch.no_grad():
        assert OURS(x, w, b).grad_fn is None
    assert OURS(x.detach(), w.detach(), b.detach()).grad_fn is None
    assert OURS(x, w.detach(), b.detach()).grad_fn is not None


def test_gradient():
    """First order, with respect to all inputs and to some."""
    check(lambda f: torch.autograd.grad(squares(f)(*(t := inputs(grad=True))), t))
    for chosen in range(3):

        def use(f, chosen=chosen):
            t = inputs()
            t[chosen].requires_grad_()
            return torch.autograd.grad(squares(f)(*t), t[chosen])

        check(use)


def test_gradient_orders_two_and_three():
    """create_graph to any depth."""

    def use(f, depth):
        t = inputs(grad=True)
        value = squares(f)(*t)
        for _ in range(depth):
            grads = torch.autograd.grad(value, t, create_graph=True)
            value = sum((g**2).sum() for g in grads)
        return torch.autograd.grad(value, t)

    check(lambda f: use(f, 1))
    check(lambda f: use(f, 2))


def test_gradcheck_and_gradgradcheck():
    """Against finite differences, batched gradients and forward mode included."""
    t = inputs(grad=True)

    assert torch.autograd.gradcheck(OURS, t, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(OURS, t)


def test_gradcheck_complex():
    """The gradient of a function of complex numbers is torch's, not its conjugate."""
    z = torch.randn(3, dtype=torch.complex128, requires_grad=True)
    f = wrap(lambda z: tnp.exp(z) * tnp.conj(z))

    assert torch.autograd.gradcheck(f, z, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(f, z)
    assert torch.autograd.gradcheck(wrap(lambda z: tnp.abs(z) ** 2), z)


def test_real_function_of_complex_and_back():
    """Mixed real and complex inputs and results."""
    z = torch.randn(3, dtype=torch.complex128, requires_grad=True)
    r = torch.randn(3, dtype=torch.float64, requires_grad=True)

    assert torch.autograd.gradcheck(wrap(lambda z, r: (z * r, tnp.real(z) * r)), (z, r))


def test_gradients_accumulate():
    """A second backward adds to .grad."""

    def use(f):
        t = inputs(grad=True)
        squares(f)(*t).backward()
        squares(f)(*t).backward()
        return [x.grad for x in t]

    check(use)


def test_unused_results_and_inputs():
    """A result without a cotangent costs nothing; an unused input has a zero gradient."""
    f = wrap(lambda x, y, unused: (x * y, 1 / x))
    x = torch.zeros(2, requires_grad=True)
    y = torch.ones(2, requires_grad=True)
    unused = torch.ones(2, requires_grad=True)

    # The second result has an infinite derivative at 0: putting in a zero would give nan.
    f(x, y, unused)[0].sum().backward()

    assert [1.0, 1.0] == x.grad.tolist()
    assert [0.0, 0.0] == y.grad.tolist()
    assert unused.grad is None or unused.grad.tolist() == [0.0, 0.0]


def test_integer_results_are_not_differentiable():
    """They carry no graph; the others do."""
    x = torch.randn(5, requires_grad=True)

    index, value = wrap(lambda x: (tnp.argmax(x), tnp.max(x)))(x)
    value.backward()

    assert not index.requires_grad
    assert x.grad[index] == 1.0
    assert x.grad.sum() == 1.0


def test_backward_twice():
    """retain_graph keeps the saved tensors, without it they are freed."""
    t = inputs(grad=True)
    loss = squares(OURS)(*t)
    first = torch.autograd.grad(loss, t, retain_graph=True)
    second = torch.autograd.grad(loss, t)

    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, b)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(loss, t)


def test_batched_gradients():
    """is_grads_batched and vectorized Jacobians use a vmap of their own."""
    seeds = torch.eye(20, dtype=torch.float64).reshape(20, 4, 5)

    check(
        lambda f: torch.autograd.grad(f(*(t := inputs(grad=True))), t, seeds, is_grads_batched=True)
    )
    functional = torch.autograd.functional
    check(lambda f: functional.jacobian(f, tuple(inputs()), vectorize=True))
    check(lambda f: functional.jacobian(f, tuple(inputs()), create_graph=True))
    check(lambda f: functional.hessian(squares(f), tuple(inputs())))
    check(lambda f: functional.jvp(f, tuple(inputs()), tuple(inputs())))


def test_forward_mode_duals():
    """Tangents at some inputs, and a second level through reverse mode."""

    def use(f):
        x, w, b = inputs(grad=True)
        with forward_ad.dual_level():
            y = f(forward_ad.make_dual(x, torch.ones_like(x)), w, forward_ad.make_dual(b, b * 2))
            value, tangent = forward_ad.unpack_dual(y)
        return value, tangent, torch.autograd.grad(tangent.sum(), (x, w))

    check(use)


def test_duals_through_a_backward_pass():
    """Forward over reverse: gradients of duals are duals, with or without a further graph."""

    def use(f):
        x, w, b = inputs(grad=True)
        cotangent = torch.ones(4, 5, dtype=torch.float64, requires_grad=True)
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, x.detach().sin())
            grads = torch.autograd.grad(f(dual, w, b), (dual, w), cotangent, create_graph=True)
            tangents = [forward_ad.unpack_dual(g).tangent for g in grads]
            again = torch.autograd.grad(tangents[0].sum(), (x, w, cotangent))
            (grad,) = torch.autograd.grad(f(dual, w.detach(), b), dual, cotangent)
            return *tangents, *again, forward_ad.unpack_dual(grad).tangent

    check(use)


def test_duals_of_several_results():
    """Results of integers have no tangent, floats have, also where a graph is made."""
    f = wrap(lambda x: (x * x, x.astype(tnp.int32), tnp.sin(x)))
    x = torch.linspace(0.0, 2.0, 3, requires_grad=True)

    with forward_ad.dual_level():
        outs = f(forward_ad.make_dual(x, torch.ones(3)))
        tangents = [forward_ad.unpack_dual(o).tangent for o in outs]

    torch.testing.assert_close(tangents[0], 2 * x)
    assert tangents[1] is None
    torch.testing.assert_close(tangents[2], torch.cos(x))


def test_batches_of_tangents():
    """torch's older vmap over tangents alone, as gradcheck uses it."""
    f = wrap(lambda x: tnp.sin(x) * x)
    x = torch.linspace(0.0, 2.0, 3, dtype=torch.float64)

    assert torch.autograd.gradcheck(
        f, x.clone().requires_grad_(), check_forward_ad=True, check_batched_forward_grad=True
    )

    def push(tangent):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(f(forward_ad.make_dual(x, tangent))).tangent

    torch.testing.assert_close(
        torch._vmap_internals._vmap(push)(torch.eye(3, dtype=torch.float64)),
        torch.diag(torch.cos(x) * x + torch.sin(x)),
    )


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(reentrant):
    """Activation checkpointing runs the function again in the backward pass."""

    def use(f):
        t = inputs(grad=True)
        checkpoint(squares(f), *t, use_reentrant=reentrant).backward()
        return [x.grad for x in t]

    check(use)


def test_saved_tensor_hooks():
    """What is saved for the backward pass goes through hooks."""
    seen = []

    def pack(t):
        seen.append(tuple(t.shape))
        return t.clone()

    def use(f):
        t = inputs(grad=True)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t.t().clone().t()):
            loss = f(*t)
        return torch.autograd.grad(loss.sum(), t)

    def offload(f):
        t = inputs(grad=True)
        with torch.autograd.graph.save_on_cpu():
            loss = squares(f)(*t)
        return torch.autograd.grad(loss, t)

    check(use)
    check(offload)
    assert (4, 3) in seen


def test_inference_mode():
    """Inference tensors in and out."""

    def use(f):
        with torch.inference_mode():
            return f(*[t.clone() for t in inputs()]).clone()

    check(use)


def test_autocast_casts_nothing():
    """The policy: a program computes in the dtypes that it gets."""
    x, w, b = [t.float() for t in inputs()]

    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = OURS(x, w, b)
        mixed = OURS(x @ w, torch.eye(5).bfloat16(), b.bfloat16())

    assert out.dtype == torch.float32
    assert mixed.dtype == torch.bfloat16
