"""Attention that is written as products: its scores are computed again, not kept."""

from __future__ import annotations

import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.kernels.plain_form import needs_kernels
from tracebridge import nn
from tracebridge._derived import pieces
from tracebridge._derived.pieces import split_pieces
from tracebridge._derived.residuals import split_for_backward

torch = pytest.importorskip("torch")
from tracebridge.torch import wrap  # noqa: E402 - needs torch

pytestmark = pytest.mark.torch

LARGE = (5, 461, 33)  # more than a million scores


def attention(q, k, v):
    """Heads of one sequence: (head, time, feature)."""
    return nn.softmax(q @ tnp.swapaxes(k, -1, -2) / q.shape[-1] ** 0.5) @ v


def reference(q, k, v):
    return torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1) @ v


def operands(*shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(*shape, generator=generator, dtype=dtype).requires_grad_() for _ in "qkv"]


def split(*shape, dtype="float32"):
    """What a forward pass keeps beside its inputs and results, and its backward program."""
    avals = [tb.ShapeDtypeStruct(shape, dtype)] * 3
    primal = tb.make_jaxpr(attention)(*avals).jaxpr
    joint = tb.make_jaxpr(lambda *xs: (attention(*xs[:3]), *tb.vjp(attention, *xs[:3])[1](xs[3])))
    return split_for_backward(joint(*avals, avals[0]).jaxpr, primal, (True,))


def sizes_kept(*shape, dtype="float32"):
    return [a.size for a in split(*shape, dtype=dtype).forward.out_avals[1:]]


def test_large_scores_are_not_kept():
    """Of each query the largest score and the sum of its exponentials are."""
    assert sizes_kept(*LARGE) == [5 * 461] * 2


@pytest.mark.parametrize("shape", [(5, 300, 33), (5, 461, 65), (5, 461, 128)])
def test_small_scores_and_those_of_long_sums_are_kept(shape):
    """Their memory is little, or their time is long."""
    assert shape[0] * shape[1] ** 2 in sizes_kept(*shape)


def test_double_precision_keeps_scores():
    """Kernels do not have it: products that are written take as long again."""
    with tb.enable_x64(True):
        assert 5 * 461**2 in sizes_kept(*LARGE, dtype="float64")


@needs_kernels
def test_scores_do_not_cross_a_cut(monkeypatch):
    """What a kernel makes and reads is in no memory, but it would be between two pieces."""
    monkeypatch.setattr(pieces, "_LEAST_BYTES", 0)
    parts = split(8, 512, 64)
    assert split_pieces(parts.backward, parts.backward.n_in - 1, ()) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_with_a_graph_that_is_retained(dtype):
    """Twice the same, and those of double precision within its rounding."""
    arguments = operands(*LARGE, dtype=dtype)
    out = wrap(attention)(*arguments)
    ct = torch.randn_like(out)
    first = torch.autograd.grad(out, arguments, ct, retain_graph=True)
    second = torch.autograd.grad(out, arguments, ct)
    exact = [x.detach().double().requires_grad_() for x in arguments]
    expected = reference(*exact)
    grads = torch.autograd.grad(expected, exact, ct.double())
    tolerance = 2e-6 if dtype == torch.float32 else 1e-12
    for a, b in zip((out, *first), (expected, *grads), strict=True):
        torch.testing.assert_close(a.double(), b, rtol=tolerance, atol=tolerance)
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a, b)


def test_second_order_and_functions_of_torch():
    """Gradients of a norm of gradients, and `torch.func.grad`."""
    arguments = operands(2, 730, 8)

    def norm(f, q, k, v):
        grads = torch.autograd.grad(f(q, k, v).square().sum(), (q, k, v), create_graph=True)
        return sum(g.square().sum() for g in grads)

    ours, theirs = [
        torch.autograd.grad(norm(f, *arguments), arguments) for f in (wrap(attention), reference)
    ]
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    ours, theirs = [
        torch.func.grad(lambda q, f=f: f(q, *arguments[1:]).square().sum())(arguments[0])
        for f in (wrap(attention), reference)
    ]
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
