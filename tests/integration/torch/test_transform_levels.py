"""Levels of torch.func that calls peel off themselves, and calls in graphs that are known."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.torch import wrap
from tracebridge.torch._eager import as_operations
from tracebridge.torch._graphs import known

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
func = torch.func
X = torch.linspace(-1, 1, 6).reshape(2, 3)


@pytest.fixture(autouse=True, params=[as_operations.MAX_OPERATIONS, 0], ids=["small", "program"])
def as_whatever_is_made_of_it(request, monkeypatch):
    """Small functions as torch's operations, or as programs, as larger ones are."""
    monkeypatch.setattr(as_operations, "MAX_OPERATIONS", request.param)


def depth() -> int:
    return torch._C._functorch.get_dynamic_layer_stack_depth()


@pytest.mark.parametrize("transform", [func.vmap, func.grad, lambda f: func.vmap(func.grad(f))])
def test_an_error_leaves_no_level_behind(transform):
    """The stack of torch.func is as before, and the next call works."""

    @wrap
    def fails(x):
        raise ValueError(f"at shape {x.shape}")

    for _ in range(2):
        with pytest.raises(ValueError, match="at shape"):
            transform(fails)(X)
        assert depth() == 0

    assert torch.equal(func.vmap(wrap(lambda x: x * 2))(X), X * 2)


def test_tensors_of_outer_levels_and_of_none():
    """A gradient of one level leaves tensors of others alone, whether they want one or not."""
    f = wrap(lambda x, y: (x * y * y).sum())
    outer = X.clone().requires_grad_()

    inner = func.grad(lambda x: f(x, outer))(X)
    (of_outer,) = torch.autograd.grad(inner.sum(), outer)

    assert torch.allclose(inner, X * 0 + outer.detach() ** 2)
    assert torch.allclose(of_outer, 2 * X)
    both = func.grad(lambda y: func.grad(lambda x: f(x, y))(X).sum())(X)
    assert torch.allclose(both, 2 * X)


def test_no_grad_around_and_inside():
    """As in torch: around a transformation it stops outer gradients, inside it stops the level."""
    f = wrap(lambda x: (x**3).sum())
    x = X.clone().requires_grad_()

    with torch.no_grad():
        around = func.grad(f)(x)

    def inside(x):
        with torch.no_grad():
            return f(x)

    assert not around.requires_grad
    assert torch.allclose(around, 3 * X**2)
    with pytest.raises(RuntimeError):
        torch.autograd.grad(func.grad(inside)(X).sum(), X)
    assert not func.grad(lambda x: inside(x) + x.sum())(X).sub(1).any()


def test_no_grad_inside_holds_for_outer_levels():
    """What is computed in it has no gradient of an outer level either, nor of a leaf of none."""
    f = wrap(lambda x: (x**3).sum())
    leaf = X.clone().requires_grad_()

    def inner(y):
        def loss(x):
            with torch.no_grad():
                scale = f(y)
            return (x * scale).sum()

        return func.grad(loss)(X).sum()

    for _ in range(3):
        assert not func.grad(inner)(X).any()
        assert not inner(leaf).requires_grad


def test_integers_beside_floats():
    """Results of integers have no gradient, mapped or not."""
    f = wrap(lambda x, n: ((x * n).sum(), n + 1))
    n = torch.arange(3)

    gradient, count = func.grad(f, has_aux=True)(X[0], n)
    mapped, counts = func.vmap(func.grad(f, has_aux=True), (0, None))(X, n)

    assert torch.equal(gradient, n.float())
    assert torch.equal(count, n + 1)
    assert torch.equal(mapped, n.float().expand(2, 3))
    assert torch.equal(counts, (n + 1).expand(2, 3))


def test_pullbacks_outlive_their_level():
    """``vjp`` calls backward passes when the level is gone; twice, and inside of vmap."""
    f = wrap(lambda x: tnp.sin(x) * x)
    want = X.cos() * X + X.sin()

    _, pullback = func.vjp(f, X)
    batched = func.vmap(pullback)(torch.stack([torch.ones_like(X), 2 * torch.ones_like(X)]))[0]

    assert torch.allclose(pullback(torch.ones_like(X))[0], want, atol=1e-6)
    assert torch.allclose(batched, torch.stack([want, 2 * want]), atol=1e-6)


def test_mapped_calls_follow_options():
    """What is remembered of a level belongs to the options under which it was made."""
    f = wrap(lambda x: (x * tnp.arange(3).astype(float)).sum())
    results = []
    for wide in (False, True, False):
        with tb.enable_x64(wide):
            results.append(func.vmap(f)(X).dtype)
            func.grad(f)(X[0])

    assert results == [torch.float32, torch.float64, torch.float32]


def test_known_calls_of_graphs():
    """A graph's call goes straight to its program; who is forgotten is compiled again."""
    f = wrap(lambda x: tnp.tanh(x) * 2)
    compiled = torch.compile(lambda x: f(x) + 1, backend="aot_eager")
    want = X.tanh() * 2 + 1
    assert torch.allclose(compiled(X), want)

    before = len(known.KNOWN)
    assert before
    assert torch.allclose(compiled(X), want)
    assert len(known.KNOWN) == before
    tb.clear_caches()
    assert not len(known.KNOWN)
    assert torch.allclose(compiled(X), want)
    assert torch.allclose(compiled(X.t()), want.t())  # no dense memory
    x = X.clone().requires_grad_()
    assert torch.allclose(torch.autograd.grad(compiled(x).sum(), x)[0], 2 - 2 * X.tanh() ** 2)


def test_calls_outside_of_graphs_keep_nothing():
    """Only graphs, which live as long as the process, are known by name."""

    def local(x):
        return x * 3

    f = wrap(local)
    func.vmap(f)(X)
    func.grad(lambda x, f=f: f(x).sum())(X)
    dead = weakref.ref(local)
    del f, local
    gc.collect()

    assert dead() is None


def test_known_calls_in_levels():
    """What is below a level finds its program by one look, and is what it was in every respect."""
    f = wrap(lambda x: {"y": tnp.tanh(x) * 2})
    imaginary = torch.complex(X, X)
    cases = [X, X.double(), X.t().contiguous().t(), X[:, :2], imaginary, imaginary.conj(), -X]
    for x in cases * 2:
        got = func.vmap(f)(x)
        assert got["y"].dtype == x.dtype
        assert torch.allclose(got["y"], torch.tanh(x) * 2, atol=1e-6)

    leaf = X.clone().requires_grad_()
    for _ in range(2):
        y = func.vmap(f)(leaf)["y"]
        assert torch.allclose(torch.autograd.grad(y.sum(), leaf)[0], 2 - y**2 / 2, atol=1e-6)
        with torch.no_grad():
            assert not func.vmap(f)(leaf)["y"].requires_grad
    with torch.profiler.profile(acc_events=True) as profile:
        func.vmap(f)(X)
    assert any(event.key.startswith("tracebridge::") for event in profile.key_averages())
    tb.clear_caches()
    assert torch.allclose(func.vmap(f)(X)["y"], f(X)["y"])


def test_structures_in_levels():
    """Results have the structure that the function gave when it was traced for these shapes."""
    f = wrap(lambda x: [x + 1] if x.shape[0] == 3 else (x + 1,))

    assert isinstance(func.vmap(f)(X), list)
    assert isinstance(func.vmap(f)(X), list)
    assert isinstance(func.vmap(f)(X[:, :2]), tuple)
    # The same size again: what was traced last in between does not count.
    assert isinstance(func.vmap(f)(X), list)
    assert isinstance(func.grad(lambda x: (f(x)[0].sum(), f(x)), has_aux=True)(X[0])[1], list)
    assert isinstance(func.vmap(f)(X[:, :2]), tuple)


def test_structures_in_graphs():
    f = wrap(lambda x: {"even": x * 2} if x.shape[0] % 2 == 0 else {"odd": x * 3})
    compiled = torch.compile(f, backend="eager", dynamic=False)
    got = [list(compiled(torch.ones(n))) for n in (2, 3, 2, 3)]
    assert got == [["even"], ["odd"]] * 2
    torch._dynamo.reset()
    again = torch.compile(lambda x: f(x), backend="eager", dynamic=False)
    assert [list(again(torch.ones(n))) for n in (3, 2)] == [["odd"], ["even"]]


KNOWN = {
    "grad": lambda f: func.grad(f)(X[0], X[1]),
    "grad of the second": lambda f: func.grad(f, argnums=1)(X[0], X[1]),
    "grad of both": lambda f: func.grad(f, argnums=(0, 1))(X[0], X[1]),
    "grad and value": lambda f: func.grad_and_value(f)(X[0], X[1]),
    "in double": lambda f: func.grad(f)(X[0].double(), X[1].double()),
    "other sizes": lambda f: func.grad(f)(X[0, :2], X[1, :2]),
    "strided": lambda f: func.grad(f)(X.t()[0], X.t()[1]),
    "vmap": lambda f: func.vmap(f)(X, X),
    "vmap of the first": lambda f: func.vmap(f, (0, None))(X, X[1]),
    "vmap along the last": lambda f: func.vmap(f, (1, 1))(X, X),
    "vmap of grad": lambda f: func.vmap(func.grad(f))(X, X),
    "grad of vmap": lambda f: func.grad(lambda x: func.vmap(f)(x, X).sum())(X),
    "grad of grad": lambda f: func.grad(lambda x: func.grad(f)(x, X[1]).sum())(X[0]),
    "grad of a mixed grad": lambda f: func.grad(lambda y: func.grad(f)(X[0], y).sum())(X[1]),
    "jvp of grad": lambda f: func.jvp(lambda x: func.grad(f)(x, X[1]), (X[0],), (X[1],)),
    "grad of jvp": lambda f: func.grad(lambda x: func.jvp(lambda y: f(y, X[1]), (x,), (X[1],))[1])(
        X[0]
    ),
    "jacrev": lambda f: func.jacrev(lambda x: f(x, X[1]) * x)(X[0]),
    "hessian": lambda f: func.hessian(f)(X[0], X[1]),
    "a leaf inside": lambda f: torch.autograd.grad(
        func.grad(f)(X[0], LEAF).sum(), LEAF, retain_graph=True
    ),
    "half of it": lambda f: func.grad(lambda x: 0.5 * f(x, X[1]))(X[0]),
    "twice": lambda f: func.grad(lambda x: f(x, X[1]) * f(x, x))(X[0]),
    "gradients inside": lambda f: func.grad(
        lambda x: (torch.autograd.grad(f(x, X[1]), x, create_graph=True)[0] ** 2).sum()
    )(X[0]),
}
LEAF = X[1].clone().requires_grad_()


def test_known_levels_are_those_of_torch():
    """All kinds of calls of one function in turn, three times: none is taken for another one."""
    f = wrap(lambda x, y: tnp.sum(tnp.sin(x) * y * x))
    want = {name: call(lambda x, y: (x.sin() * y * x).sum()) for name, call in KNOWN.items()}

    for _ in range(3):
        for name, call in KNOWN.items():
            # The order of sums differs.
            torch.testing.assert_close(call(f), want[name], rtol=1e-5, atol=1e-6, msg=name)
    assert depth() == 0


def test_known_levels_with_trees():
    """Arguments in a dict and by name are found as positional ones are, results as they were."""
    f = wrap(lambda p, *, y: {"out": tnp.sum(p["a"] * y), "n": p["a"] + 1})

    for _ in range(3):
        gradient, kept = func.grad(lambda p: (f(p, y=X)["out"], f(p, y=X)["n"]), has_aux=True)(
            {"a": X}
        )
        assert torch.equal(gradient["a"], X)
        assert torch.equal(kept, X + 1)
        assert torch.equal(func.vmap(lambda a: f({"a": a}, y=X[0])["n"])(X), X + 1)


def test_known_levels_keep_no_tensor():
    """Neither the look at tensors nor the node holds them when the call is over."""
    f = wrap(lambda x: tnp.sum(x * x))
    x = X.clone()
    for _ in range(3):
        func.grad(f)(x)
        func.vmap(f)(x)
    alive = weakref.ref(x)
    del x

    assert alive() is None


def test_a_change_in_place_between_the_passes():
    """A backward pass of a tensor that was changed since is an error, as with torch."""
    f = wrap(lambda x: tnp.sum(x * x))

    def loss(x):
        y = x * 2
        value = f(y)
        y.add_(1)
        return value

    for _ in range(3):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            func.grad(loss)(X)
        assert torch.equal(func.grad(f)(X), 2 * X)


def test_a_change_of_what_no_gradient_reads():
    """An input that the pullback does not read may change between the passes, as with torch."""
    f = wrap(lambda x, y: tnp.sum(x**2 + y))

    def loss(x):
        y = X * 1
        value = f(x, y)
        y.add_(1)
        return value

    for _ in range(2):
        assert torch.equal(func.grad(loss)(X), 2 * X)
        assert torch.equal(func.grad(lambda x: func.grad(loss)(x).sum())(X), torch.full_like(X, 2))


def test_options_between_the_passes():
    """A pullback is of the program of its forward pass, whatever has been set since."""
    f = wrap(lambda x: tnp.sum(x * tnp.arange(3).astype(float)))
    for _ in range(2):
        func.grad(f)(X[0])
    value, pullback = func.vjp(f, X[0])

    tb.config.update("enable_x64", True)
    try:
        (gradient,) = pullback(torch.ones(()))
        assert func.vmap(f)(X).dtype == torch.float64
    finally:
        tb.config.update("enable_x64", False)

    assert (torch.float32, torch.float32) == (value.dtype, gradient.dtype)
    assert torch.equal(gradient, torch.arange(3.0))
    assert func.vmap(f)(X).dtype == torch.float32


def leaked_from_grad(x):
    """``x``, wrapped by a level that is over."""
    leaked = []

    def keeps(z):
        leaked.append(z)
        return (z * z).sum()

    func.grad(keeps)(x)
    return leaked[0]


LEAKS = {
    "nowhere": lambda f: f(leaked_from_grad(X), X),
    "vmap, after it was known unmapped": lambda f: func.vmap(
        lambda y: (f(X[0], y), f(leaked_from_grad(y), y))
    )(X),
    "vmap over it": lambda f: func.vmap(f)(leaked_from_grad(X), X),
    "grad beside it": lambda f: func.grad(lambda y: f(leaked_from_grad(X), y).sum())(X),
    "grad of it": lambda f: func.grad(lambda x: f(x, X).sum())(leaked_from_grad(X)),
    "grad, after it was known of an outer level": lambda f: func.grad(
        lambda x: func.grad(lambda y: (f(x, y) + f(leaked_from_grad(y), y)).sum())(x * 2).sum()
    )(X),
}


@pytest.mark.parametrize("name", LEAKS)
def test_wrappers_of_levels_that_are_over(name):
    """Whoever kept a tensor of a level that is over has the tensor that was given to it."""
    f = wrap(lambda x, y: x * x * y)
    want = LEAKS[name](lambda x, y: x * x * y)

    for _ in range(3):
        torch.testing.assert_close(LEAKS[name](f), want)
    assert depth() == 0


def test_tensors_of_inference_mode_in_levels():
    """They are constants of a level that records, as with torch's own functions."""
    f = wrap(lambda x, y: tnp.sum(x * x * y))
    with torch.inference_mode():
        constant = X + 2

    for _ in range(3):
        for y in (constant, X + 2):
            assert torch.allclose(func.grad(lambda x, y=y: f(x, y))(X), 2 * X * y)
        nested = func.grad(lambda x: func.grad(lambda x: f(x, constant))(x).sum())(X)
        assert torch.allclose(nested, 2 * constant)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_in_levels():
    """The error says what is wrong with the tensor, known calls or not."""
    f = wrap(lambda x: tnp.sum(x * x))
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])

    for _ in range(2):
        func.grad(f)(X[0])
        with pytest.raises(tb.errors.ExchangeError, match="is nested"):
            func.grad(lambda x: f(nested) + x.sum())(X)
