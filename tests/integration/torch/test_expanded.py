"""Cotangents that torch has expanded from one value: they enter a backward pass as that value."""

from __future__ import annotations

import pytest
import torch

import tracebridge.numpy as tnp
from tracebridge.torch import wrap

pytestmark = pytest.mark.torch

N = 2520  # elements: more than 4 KB of each dtype
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.complex64]
SHAPES = [(torch.float32, (N,)), (torch.float32, (1, N, 1)), *[(d, (63, 40)) for d in DTYPES]]


def matrix(dtype=torch.float64):
    """An argument that wants a gradient."""
    return torch.linspace(-2, 2, N, dtype=torch.float64).reshape(63, 40).to(dtype).requires_grad_()


def largest_allocation(run):
    """The most bytes that torch allocates at once while it runs; memory of XLA is not counted."""
    with torch.autograd.profiler.profile(profile_memory=True) as profile:
        run()
    return max([event.self_cpu_memory_usage for event in profile.function_events], default=0)


def test_the_measure():
    """A copy is seen."""
    x = torch.ones(()).expand(N)

    assert 4 * N == largest_allocation(x.contiguous)


@pytest.mark.parametrize(("dtype", "shape"), SHAPES, ids=str)
def test_sums_need_no_memory(dtype, shape):
    """A backward pass from a sum allocates no cotangent of the size of the result."""
    f = wrap(lambda x: tnp.reshape(tnp.sin(x), shape))
    x = matrix(dtype)
    f(x).sum().backward(torch.tensor(3.0, dtype=dtype))
    x.grad = None
    total = f(x).sum()

    largest = largest_allocation(lambda: total.backward(torch.tensor(3.0, dtype=dtype)))

    assert largest < N
    native = matrix(dtype)
    native.sin().sum().backward(torch.tensor(3.0, dtype=dtype))
    torch.testing.assert_close(x.grad, native.grad)


def test_other_paths_need_no_memory():
    """Where some results have no cotangent, integers are among them, or an argument is a number."""
    f = wrap(lambda x, n: (x**n, tnp.argmax(x), tnp.cos(x), tnp.exp(x)))

    def loss(x):
        out = f(x, 2.0)
        return out[0].sum() * 2 + out[3].sum() * 5

    x = matrix()
    loss(x).backward()
    x.grad = None
    total = loss(x)

    assert largest_allocation(total.backward) < N
    v = x.detach()
    torch.testing.assert_close(x.grad, 4 * v + 5 * v.exp())


def numbers(*shape):
    return torch.linspace(0.5, 1.5, shape[0] * shape[1], dtype=torch.float64).reshape(shape)


# Losses of two matrices; what reaches the backward program is expanded whole, in part, or not.
LOSSES = {
    "both are sums": lambda a, b: a.sum() + 3 * b.sum(),
    "one is a sum": lambda a, b: a.sum() + (b * numbers(63, 40)).sum(),
    "the other one": lambda a, b: (a * numbers(63, 40)).sum() - b.sum(),
    "only one": lambda a, b: b.sum() * 2,
    "sums along an axis": lambda a, b: a.sum(0).square().sum() + b.sum(1).square().sum(),
    "means": lambda a, b: a.mean() * b.mean(),
    "products of sums": lambda a, b: a.sum() * b.sum() / N,
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_gradients_of_losses(loss):
    """They are those of torch, whatever is expanded; so are gradients of gradients."""
    f = wrap(lambda x, y: (tnp.tanh(x) * y, x * x + y))
    native = lambda x, y: (torch.tanh(x) * y, x * x + y)
    found = []
    for g in (f, native):
        x, y = matrix(), numbers(63, 40).requires_grad_()
        plain = torch.autograd.grad(loss(*g(x, y)), (x, y))
        graph = torch.autograd.grad(loss(*g(x, y)), (x, y), create_graph=True)
        total = sum([(c * numbers(63, 40)).sum() + c.sum() for c in graph])
        again = torch.autograd.grad(total, (x, y), allow_unused=True, materialize_grads=True)
        found.append([*plain, *graph, *again])

    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


# Cotangents for a matrix of 63 x 40.
COTANGENTS = {
    "inside of other memory": lambda: numbers(5, 5)[2, 3].expand(63, 40),
    "an axis": lambda: numbers(1, 40).expand(63, 40),
    "the other axis": lambda: numbers(63, 1).expand(63, 40),
    "transposed": lambda: numbers(40, 63).T,
    "dense": lambda: numbers(63, 40),
    "negated": lambda: torch._neg_view(numbers(5, 5)[2, 3]).expand(63, 40),
}


@pytest.mark.parametrize("make", COTANGENTS.values(), ids=COTANGENTS)
def test_given_cotangents(make):
    """Cotangents with any strides, one after the other at one program."""
    f = wrap(lambda x: tnp.sin(x))
    for cotangent in (make(), torch.tensor(2.0, dtype=torch.float64).expand(63, 40), make()):
        x = matrix()
        f(x).backward(cotangent)
        torch.testing.assert_close(x.grad, x.detach().cos() * cotangent)


def test_cotangents_that_are_differentiated():
    """The gradient of a gradient with respect to the one value of the cotangent."""
    x, scale = matrix(), torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    f = wrap(lambda x: tnp.sin(x))

    (g,) = torch.autograd.grad(f(x), x, scale.expand(63, 40), create_graph=True)
    (back,) = torch.autograd.grad(g.square().sum(), scale)

    torch.testing.assert_close(back, 2 * scale.detach() * x.detach().cos().square().sum())


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 0.0])
def test_infinite_cotangents(value):
    """They give what they give when they are dense."""
    f = wrap(lambda x: tnp.where(x > 0, x, x * 0) * x)
    x = matrix()
    cotangent = torch.tensor(value, dtype=torch.float64).expand(63, 40)

    (found,) = torch.autograd.grad(f(x), x, cotangent)

    (expected,) = torch.autograd.grad(f(x), x, cotangent.contiguous())
    torch.testing.assert_close(found, expected, equal_nan=True)
    torch.testing.assert_close(found[40:], 2 * x[40:].detach() * value, equal_nan=True)


def test_conjugated_cotangents():
    """The one value of a complex cotangent may be marked as conjugated."""
    x = matrix(torch.complex128)
    value = torch.tensor(1 + 2j, dtype=torch.complex128)

    wrap(lambda x: x * 3)(x).backward(value.conj().expand(63, 40))

    torch.testing.assert_close(x.grad, torch.full_like(x, 3 - 6j))


@pytest.mark.parametrize("shape", [(0, 2000), (2000, 0), (), (1,), (1, 1), (3, 2)], ids=str)
def test_small_and_empty_results(shape):
    """Empty results and results of one element have gradients of their shape."""
    x = torch.full(shape, 2.0, requires_grad=True)

    wrap(lambda x: x * x)(x).sum().backward()

    torch.testing.assert_close(x.grad, torch.full(shape, 4.0))


def test_more_results_than_are_written_out():
    """Calls of hundreds of tensors, some of whose cotangents are expanded."""
    f = wrap(lambda xs: [2 * x for x in xs])
    xs = [torch.ones(1100, requires_grad=True) for _ in range(202)]
    outs = f(xs)

    sum([out.sum() if i % 2 else (out * out).sum() for i, out in enumerate(outs)]).backward()

    expected = [2.0 if i % 2 else 8.0 for i in range(202)]
    assert expected == [float(x.grad[7]) for x in xs]
    assert expected == [float(x.grad.mean()) for x in xs]


def test_value_whose_memory_is_gone():
    """A cotangent over a storage that has been given back is refused."""
    value = torch.ones(1)
    cotangent = value.expand(N)
    x = torch.ones(N, requires_grad=True)
    out = wrap(lambda x: x * 2)(x)
    value.untyped_storage().resize_(0)

    with pytest.raises(Exception, match="storage"):
        out.backward(cotangent)
