"""Attention of torch, translated: all scores at once and by blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

import tracebridge as tb
from tracebridge.nn import _blocks
from tracebridge.torch import from_module, wrap

T, S = 6, 5
SEES = torch.rand(T, S, generator=torch.Generator().manual_seed(1)) < 0.6
SEES[2] = False
LOW = torch.where(SEES, 0.3, -torch.inf)
# Shapes of queries, keys and values; options.
CASES: dict[str, tuple[list[tuple[int, ...]], dict[str, Any]]] = {
    "plain": ([(2, 4, T, 8), (2, 4, S, 8), (2, 4, S, 3)], {}),
    "causal": ([(2, 4, T, 8), (2, 4, S, 8), (2, 4, S, 8)], {"is_causal": True, "scale": 0.5}),
    "groups": ([(2, 4, T, 8), (2, 2, S, 8), (2, 2, S, 8)], {"enable_gqa": True}),
    "bools": ([(2, 4, T, 8), (2, 4, S, 8), (2, 4, S, 8)], {"attn_mask": SEES}),
    "floats": ([(2, 4, T, 8), (2, 4, S, 8), (2, 4, S, 8)], {"attn_mask": LOW}),
    "of_keys": ([(2, 4, T, 8), (2, 4, S, 8), (2, 4, S, 8)],
                {"attn_mask": torch.tensor([[True] * S, [True] * 3 + [False] * 2])[:, None, None]}),
    "of_heads": ([(2, 4, T, 8), (2, 4, S, 8), (2, 4, S, 8)],
                 {"attn_mask": torch.arange(4.0)[:, None, None] * LOW.nan_to_num(0, 0, -1)}),
    "many_axes": ([(2, 3, 2, T, 8), (2, 3, 2, S, 8), (2, 3, 2, S, 8)], {"attn_mask": SEES}),
    "three_axes": ([(4, T, 8), (4, S, 8), (4, S, 8)], {"attn_mask": SEES}),
    "two_axes": ([(T, 8), (S, 8), (S, 3)], {}),
    "one_batch": ([(3, 4, T, 8), (1, 4, S, 8), (1, 1, S, 8)], {}),
}  # fmt: skip
# How many scores are a block, how few queries, and whether blocks of all heads are kernels; None:
# there are none.
BLOCKS = [None, (240, 1, False), (60, 1, False), (15, 2, False), (15, 1, True)]


@pytest.fixture(params=BLOCKS, ids=str)
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few scores."""
    if request.param is not None:
        block, rows, kernels = request.param
        monkeypatch.setattr(_blocks, "_AT_ONCE", 0)
        monkeypatch.setattr(_blocks, "_HEAD", 0)
        monkeypatch.setattr(_blocks, "_PART_OF_HEAD" if kernels else "_BLOCK", block)
        monkeypatch.setattr(_blocks, "_ROWS", rows)
        monkeypatch.setattr(_blocks, "_FEWEST_CAUSAL", 2)
        monkeypatch.setattr(_blocks, "_CAUSAL_ROWS", 1)
        monkeypatch.setattr(_blocks, "_are_kernels", lambda *_: kernels)


class Attention(torch.nn.Module):
    """Attention with options."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, *operands: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(*operands, **self.options)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_torch(name: str) -> None:
    """Masks, groups of heads, shared axes, queries that see no key."""
    shapes, options = CASES[name]
    torch.manual_seed(0)
    operands = [torch.randn(shape, requires_grad=True) for shape in shapes]
    module = Attention(**options)
    wanted = module(*operands)
    cotangent = torch.randn_like(wanted)
    translated = from_module(module, tuple(operands))
    found = wrap(lambda *xs: translated(translated.params, *xs))(*operands)

    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    for x, y in zip(
        torch.autograd.grad(found, operands, cotangent),
        torch.autograd.grad(wanted, operands, cotangent),
        strict=True,
    ):
        torch.testing.assert_close(x, y, rtol=1e-3, atol=1e-4)


@pytest.mark.usefixtures("blocks")
def test_dropout_keeps_the_mean() -> None:
    """Each weight is kept by itself, with the same choice in the backward pass."""
    q = torch.zeros(2, 4, T, 8)
    v = torch.ones(2, 4, 500, 8)
    module = Attention(dropout_p=0.3)
    translated = from_module(module, (q, v, v))

    def attend(v: Any, key: Any) -> Any:
        ones = np.ones((2, 4, 500, 8), np.float32)
        return translated.apply({}, {}, q.numpy(), ones, v, train=True, key=key)[0]

    out = np.asarray(attend(v.numpy(), tb.random.key(0)))
    again = np.asarray(attend(v.numpy(), tb.random.key(0)))
    value, pullback = tb.vjp(lambda v: attend(v, tb.random.key(0)), v.numpy())

    np.testing.assert_array_equal(out, again)
    assert abs(out.mean() - 1) < 0.02
    assert 0.01 < out[..., 0].std() < 0.06  # sqrt(0.3 / 0.7 / 500) is 0.029
    assert len(np.unique(out[..., 0].round(6))) > 20
    (slope,) = pullback(tb.numpy.ones_like(value))
    np.testing.assert_allclose(float((slope * v.numpy()).sum()), float(value.sum()), rtol=1e-4)
