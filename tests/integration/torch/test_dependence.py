"""Which results want gradients, and which inputs get None: the same as with functions of torch."""

from __future__ import annotations

import pytest
import torch

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.torch import Module, from_torch, wrap

pytestmark = [
    pytest.mark.torch,
    # torch's own, of its forward mode.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def ours_mixed(x, y):
    return x * 2, tnp.sin(y), x * y, tnp.ones(2), tnp.argmax(x), x > y, tnp.floor(x)


def native_mixed(x, y):
    return x * 2, y.sin(), x * y, torch.ones(2), x.argmax(), x > y, x.floor()


def ours_loop(x, y):
    return tb.lax.fori_loop(0, 3, lambda i, v: v * x, x), y * 1


def native_loop(x, y):
    return x**4, y * 1


PAIRS = {
    "unused input": (lambda x, y: x * 2, lambda x, y: x * 2),
    "constant": (lambda x, y: tnp.ones(2), lambda x, y: torch.ones(2)),
    "integers": (lambda x, y: tnp.argsort(x), lambda x, y: torch.argsort(x)),
    "through bools": (lambda x, y: (x > 0) * y, lambda x, y: (x > 0) * y),
    "stopped": (lambda x, y: tb.lax.stop_gradient(x) + y, lambda x, y: x.detach() + y),
    "all stopped": (lambda x, y: tb.lax.stop_gradient(x), lambda x, y: x.detach()),
    "zero derivative": (lambda x, y: tnp.round(x), lambda x, y: torch.round(x)),
    "results of their own inputs": (lambda x, y: (x * 1, y * 1), lambda x, y: (x * 1, y * 1)),
    "inside jit": (
        lambda x, y: tb.jit(lambda a, b: (tnp.tanh(a), b))(x, y),
        lambda x, y: (torch.tanh(x), y * 1),
    ),
    "inside a loop": (ours_loop, native_loop),
    "mixed": (ours_mixed, native_mixed),
}


def observe(f, wants, *, create_graph=False):
    """Which results want gradients; per such result, and for all together, the gradients."""
    xs = [
        torch.tensor(values, dtype=torch.float64, requires_grad=w)
        for values, w in zip(([1.5, 2.5], [3.0, 2.0]), wants, strict=True)
    ]
    found = f(*xs)
    outs = found if isinstance(found, tuple) else (found,)
    sources = [x for x in xs if x.requires_grad]
    attached = [o for o in outs if o.requires_grad]
    asked = [[o] for o in attached] + ([attached] if attached else [])
    seen = [[o.requires_grad for o in outs]]
    for some in asked:
        # As much of the history as torch's own function has.
        grads = torch.autograd.grad(
            sum([o.sum() for o in some]), sources, allow_unused=True, retain_graph=True,
            create_graph=create_graph,
        )  # fmt: skip
        seen.append([None if g is None else g.numpy(force=True).round(9).tolist() for g in grads])
    return seen


@pytest.mark.parametrize("wants", [(True, True), (True, False), (False, True)], ids=str)
@pytest.mark.parametrize("name", PAIRS)
def test_as_in_torch(name, wants):
    """Eagerly, also in a graph that is to be differentiated again."""
    ours, native = PAIRS[name]
    f = wrap(ours)

    expected = observe(native, wants)

    assert expected == observe(f, wants)
    assert expected == observe(f, wants, create_graph=True)


@pytest.mark.parametrize("name", ["unused input", "mixed", "all stopped", "constant"])
def test_in_compiled_graphs(name):
    """The fake rule and the node of the operator agree with eager calls, sizes known or not."""
    ours, native = PAIRS[name]
    f = wrap(ours)

    for dynamic in (False, True):
        torch._dynamo.reset()
        options = {"backend": "aot_eager", "fullgraph": True, "dynamic": dynamic}
        compiled = torch.compile(lambda x, y: f(x, y), **options)
        # A graph has cotangents of all its results: gradients of the others are zeros in it.
        reference = torch.compile(lambda x, y: native(x, y), **options)
        for wants in ((True, True), (False, True)):
            assert observe(reference, wants) == observe(compiled, wants), (dynamic, wants)


def test_functional_gradients_of_unused_inputs_are_zeros():
    """torch.func gives zeros there for its own functions too; jvp has zero tangents."""
    f, native = (wrap(lambda x, y: tnp.sum(x**2)), lambda x, y: (x**2).sum())
    x, y = torch.tensor([1.0, 2.0]), torch.tensor([3.0])

    for use in (
        lambda g: torch.func.grad(g, argnums=(0, 1))(x, y),
        lambda g: torch.func.jacrev(g, argnums=(0, 1))(x, y),
        lambda g: torch.func.jvp(g, (x, y), (torch.ones(2), torch.ones(1))),
        lambda g: torch.func.hessian(g, argnums=(0, 1))(x, y),
        lambda g: torch.func.vmap(torch.func.grad(g))(x, y.expand(2)),
    ):
        torch.testing.assert_close(use(f), use(native))


def test_second_derivatives_of_linear_functions():
    """The gradient of a linear function does not depend on where it was taken."""
    for f in (wrap(lambda x, w: x * w), lambda x, w: x * w):
        x, w = torch.ones(3, requires_grad=True), torch.full((3,), 2.0, requires_grad=True)
        gx, gw = torch.autograd.grad(f(x, w).sum(), (x, w), create_graph=True)

        assert (True, True) == (gx.requires_grad, gw.requires_grad)
        assert torch.autograd.grad(gx.sum(), (x, w), allow_unused=True)[0] is None

    for f in (wrap(lambda x: x * 3), lambda x: x * 3):
        x = torch.ones(3, requires_grad=True)
        (g,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
        assert not g.requires_grad


def test_gradcheck():
    """torch's own check of first and second derivatives, results of mixed dependence included."""
    f = wrap(lambda x, y, z: (x * y, tnp.sin(y), tnp.ones(2), tnp.sum(x**3)))
    xs = [torch.rand(2, dtype=torch.float64, requires_grad=True) for _ in range(3)]

    assert torch.autograd.gradcheck(f, xs)
    assert torch.autograd.gradgradcheck(f, xs)


def test_optimizers_skip_unused_parameters():
    """AdamW decays what has a gradient of zeros, and leaves alone what has none."""
    model = Module(lambda p, x: p["used"] * x, {"used": tnp.ones(2), "unused": tnp.ones(2)})
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)

    model(torch.ones(2)).sum().backward()
    optimizer.step()

    assert model.unused.grad is None
    assert [1.0, 1.0] == model.unused.tolist()
    assert (model.used < 1).all()


# tensors that a function closes over ------------------------------------------------------------

CLOSURES = {
    "asarray": lambda v, p: v * tnp.asarray(p),
    "array": lambda v, p: v * tnp.array(p),
    "from_torch": lambda v, p: v * from_torch(p),
    "from_torch of a tree": lambda v, p: v * from_torch({"p": p})["p"],
    "from_dlpack": lambda v, p: v * tb.dlpack.from_dlpack(p),
    "full": lambda v, p: v * tnp.full(2, p),
    "list": lambda v, p: v * tnp.array([p[0], p[1]]),
    "noncontiguous": lambda v, p: v * tnp.asarray(p.expand(3, 2).T)[:, 0],
}
TRANSFORMED = {
    "wrap": lambda f: wrap(f)(torch.ones(2)),
    "jit": lambda f: tb.jit(f)(tnp.ones(2)),
    "grad": lambda f: tb.grad(lambda v: tnp.sum(f(v)))(tnp.ones(2)),
    "vmap": lambda f: tb.vmap(f)(tnp.ones((3, 2))),
    "scan": lambda f: tb.lax.scan(lambda c, _: (f(c), None), tnp.ones(2), None, length=2),
    "jit of wrap": lambda f: tb.jit(wrap(f))(tnp.ones(2)),
}


@pytest.mark.parametrize("how", TRANSFORMED)
@pytest.mark.parametrize("what", CLOSURES)
def test_tensors_that_want_gradients_are_not_frozen(what, how):
    """An error says to pass them as arguments; a constant on purpose is detached."""
    from tracebridge.errors import ExchangeError

    p = torch.nn.Parameter(torch.ones(2))

    for tensor in (p, p * 2):
        for enabled in (True, False):
            with torch.set_grad_enabled(enabled), pytest.raises(ExchangeError, match="pass it as"):
                TRANSFORMED[how](lambda v, t=tensor: CLOSURES[what](v, t))
    TRANSFORMED[how](lambda v: CLOSURES[what](v, p.detach()))


def test_tensors_that_want_gradients_become_arrays_outside_of_functions():
    """Their history stays behind, as the documentation says."""
    p = torch.nn.Parameter(torch.ones(2))

    assert [1.0, 1.0] == tnp.asarray(p).tolist() == from_torch(p).tolist()
