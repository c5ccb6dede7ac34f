"""Attention by scaled products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

import tracebridge.nn as nn
import tracebridge.numpy as tnp
from tracebridge.core.ir.value import Value
from tracebridge.nn._blocks import Attend, Layout, Operands, by_blocks, with_heads
from tracebridge.random.transforms import bernoulli
from tracebridge.torch._translate.numbers import Operator, cast, wide


def attention(
    key: Value,
    q: Value,
    k: Value,
    v: Value,
    attn_mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Attention over arrays of shape ``(..., heads, length, size)``."""
    del enable_gqa  # shapes say it
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    heads = max(k.shape[-3] if k.ndim > 2 else 1, v.shape[-3] if v.ndim > 2 else 1)
    n = max(q.shape[-3] if q.ndim > 2 else 1, heads)
    given = [x for x in (q, k, v, attn_mask) if x is not None]
    ndim = max([x.ndim for x in given])
    before = _common([x.shape[:-3] for x in given])
    batch = before or (1,)
    queries = _flat(q, batch, n)
    keys, values = [_flat(x, batch, heads) for x in (k, v)]
    mask = None if attn_mask is None else _of_scores(attn_mask, batch, heads)
    grouped = tnp.reshape(queries, (queries.shape[0], heads, n // heads, *q.shape[-2:]))
    operands = Operands(grouped, keys, values, (mask,), None, key if dropout_p > 0 else None)
    attend = _attend(factor, dropout_p, is_causal)
    is_plain = is_causal and mask is None
    (y,) = by_blocks(attend, Layout("bkgth", "bksh"), operands, is_plain)
    shape = (*before, *((n,) if ndim > 2 else ()), q.shape[-2], v.shape[-1])
    return cast(tnp.reshape(y, shape), v.dtype)


def _attend(factor: Any, dropout_p: float, is_causal: bool) -> Attend:
    """The softmax written out: with dropout, and where a query may see no key at all."""

    def attend(layout: Layout, operands: Operands) -> tuple[Any, ...]:
        q, k, v, (mask,), rows, key = operands
        scores = layout.logits(wide(q), wide(k))
        scores *= cast(factor, scores.dtype)
        if is_causal:
            mask = rows[:, None] >= tnp.arange(scores.shape[-1])
            weights = nn.softmax(tnp.where(mask, scores, cast(-math.inf, scores.dtype)), axis=-1)
        elif mask is None:
            weights = nn.softmax(scores, axis=-1)
        else:
            weights = _masked(scores, mask)
        if dropout_p > 0:
            kept = bernoulli(key, 1 - dropout_p, weights.shape)
            more = 1 / (1 - dropout_p) if dropout_p < 1 else 0
            weights = tnp.where(kept, weights * cast(more, weights.dtype), cast(0, weights.dtype))
        return (layout.average(weights, wide(v)),)

    return attend


def _masked(scores: Value, mask: Value) -> Any:
    """Weights where a query that sees no key gives 0, with derivatives that are numbers."""
    low = cast(-math.inf, scores.dtype)
    if mask.dtype == np.bool_:
        some = tnp.any(mask, axis=-1, keepdims=True)
        scores = tnp.where(mask | ~some, scores, low)
    else:
        mask = cast(mask, scores.dtype)
        some = tnp.any(mask != low, axis=-1, keepdims=True)
        scores = scores + tnp.where(some, mask, cast(0, mask.dtype))
    return tnp.where(some, nn.softmax(scores, axis=-1), cast(0, scores.dtype))


def _common(shapes: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
    """The shape that others are broadcast to; sizes that have a name are not 1."""
    ndim = max([len(shape) for shape in shapes])
    columns = zip(*[(1,) * (ndim - len(shape)) + tuple(shape) for shape in shapes], strict=True)
    return tuple([next((n for n in column if not _is_one(n)), 1) for column in columns])


def _is_one(n: Any) -> bool:
    return type(n) is int and n == 1


def _flat(x: Value, batch: Sequence[Any], heads: Any) -> Any:
    """An array with all of these heads, and one axis for the batch."""
    matrix = x.shape[-2:]
    wanted = (*batch, heads, *matrix)
    if tuple(x.shape) != wanted:
        x = tnp.broadcast_to(x, wanted)
    return x if len(batch) == 1 else tnp.reshape(x, (-1, heads, *matrix))


def _of_scores(mask: Value, batch: Sequence[Any], heads: int) -> Any:
    """A mask with the axes of scores, in full or 1 long."""
    shape = (1,) * (len(batch) + 3 - mask.ndim) + tuple(mask.shape)
    if all([_is_one(n) for n in shape[:-3]]):
        shape = (1, *shape[-3:])
    elif len(batch) > 1:
        mask = tnp.broadcast_to(mask, (*batch, *shape[-3:]))
        shape = (-1, *shape[-3:])
    return with_heads(tnp.reshape(mask, shape), heads)


KEYED_ROWS: Final[dict[str, Operator]] = {
    "scaled_dot_product_attention.default": attention,
}


def draws_in_attention(*args: Any, **kwargs: Any) -> bool:
    """Whether a call of attention draws numbers."""
    given = args[4] if len(args) > 4 else kwargs.get("dropout_p", 0.0)
    return given != 0
