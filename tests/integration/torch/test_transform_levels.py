"""Levels of torch.func that calls peel off themselves, and calls in graphs that are known."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.torch import wrap
from tracebridge.torch._graphs import known

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
func = torch.func
X = torch.linspace(-1, 1, 6).reshape(2, 3)


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
    with torch.profiler.profile() as profile:
        func.vmap(f)(X)
    assert any(event.key.startswith("tracebridge::") for event in profile.key_averages())
    tb.clear_caches()
    assert torch.equal(func.vmap(f)(X)["y"], f(X)["y"])


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
