"""Maxima of arrays that the backward program would compute again, rounded in another way."""

from __future__ import annotations

import pytest

import tracebridge.numpy as tnp

torch = pytest.importorskip("torch")
from tracebridge.torch import wrap  # noqa: E402 - needs torch

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("shape", [(800, 7), (300, 100), (64, 1000)], ids=str)
@pytest.mark.parametrize("compiled", [False, True])
def test_each_row_has_its_gradient(shape, compiled):
    """As torch's; the forward program says which elements equal the maximum."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator)
    b, c = [torch.randn(shape[1], generator=generator) for _ in "bc"]

    def f(x, b, c):
        return tnp.max(c * b + x, -1)

    ours = wrap(f)
    if compiled:
        ours = torch.compile(ours, fullgraph=True, backend="aot_eager")
    arguments = [v.clone().requires_grad_() for v in (x, b, c)]
    ours(*arguments).sum().backward()
    assert int((arguments[0].grad == 0).all(-1).sum()) == 0
    exact = [v.double().requires_grad_() for v in (x, b, c)]
    (exact[2] * exact[1] + exact[0]).amax(-1).sum().backward()
    for a, e in zip(arguments, exact, strict=True):
        torch.testing.assert_close(a.grad.double(), e.grad, rtol=1e-5, atol=1e-5)


def test_a_maximum_beside_its_array():
    """Both are results: the array that is saved may be another one than the maximum is of."""
    x = torch.randn((800, 7), generator=torch.Generator().manual_seed(0)).requires_grad_()
    b, c = torch.linspace(-1, 2, 7), torch.linspace(3, -1.7, 7)
    y, largest = wrap(lambda x, b, c: ((y := c * b + x), tnp.max(y, -1)))(x, b, c)
    (y.sum() * 0 + largest.sum()).backward()

    assert int((x.grad == 0).all(-1).sum()) == 0
