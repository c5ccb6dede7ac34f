"""Attention by scaled products."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.config.inner_steps import inner_steps
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.dtype_errors import DtypeMismatchError
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.nn._blocks import Layout, Operands, by_blocks, with_heads
from tracebridge.nn.normalization import logsumexp, softmax
from tracebridge.numpy._promote import as_dtype

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value


@inner_steps()
def dot_product_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    bias: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: ArrayLike | None = None,
    key_value_seq_lengths: ArrayLike | None = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: str | None = None,
    return_residual: bool = False,
) -> Any:
    """Values averaged with weights: the softmax of the products of queries and keys.

    Args:
        query: array of shape ``(batch, t, n, h)`` or ``(t, n, h)``: ``n`` heads of size ``h``.
        key: array of shape ``(batch, s, k, h)`` or ``(s, k, h)``; ``k`` divides ``n``, and each
            head of it serves ``n / k`` heads of the queries.
        value: array like ``key``.
        bias: added to the products; broadcastable to ``(batch, n, t, s)``.
        mask: booleans, broadcastable to ``(batch, n, t, s)``: which products take part.
        scale: factor of the products; default: ``1 / sqrt(h)``.
        is_causal: whether a query sees only keys at its place and before.
        query_seq_lengths: int32 of shape ``(batch,)``: how many queries count; the result is 0
            for the others.
        key_value_seq_lengths: int32 of shape ``(batch,)``: how many keys count.
        local_window_size: how many keys before and after its place a query sees; one number for
            both.
        implementation: ``None`` or ``"xla"``.
        return_residual: give the log of the sums of exponentials too.

    Returns:
        Array of the shape of ``query``; a pair with an array of shape ``(batch, t, n)`` with
        ``return_residual``. The softmax is computed in float32, of float64 in float64.

    Raises:
        RankError: an array of another rank.
        ShapeMismatchError: shapes do not fit.
        DtypeMismatchError: queries, keys and values of two dtypes, or a mask that is not boolean.
        ArgumentValueError: another implementation.

    >>> import tracebridge as tb
    >>> x = tb.numpy.ones((1, 3, 2, 4))
    >>> tb.nn.dot_product_attention(x, x, x, is_causal=True).shape
    (1, 3, 2, 4)
    """
    if implementation not in (None, "xla"):
        msg = f"dot_product_attention: implementation is {implementation!r}"
        raise ArgumentValueError(msg, expected="None or 'xla'")
    shape = tnp.asarray(query).shape
    q, k, v = _with_batch("query", query), _with_batch("key", key), _with_batch("value", value)
    _check(q, k, v)
    batch, t, n, h = q.shape
    heads = k.shape[2]
    kind = tnp.promote_types(q.dtype, tnp.float32)
    factor = as_dtype(tnp.asarray(1 / math.sqrt(max(h, 1)) if scale is None else scale), kind)
    lengths = [_of_batch(x) for x in (query_seq_lengths, key_value_seq_lengths)]
    of_scores = batch, n, t, k.shape[1]
    extras = [
        _of_scores("bias", bias, of_scores, heads),
        _of_scores("mask", mask, of_scores, heads),
    ]

    def attend(layout: Layout, operands: Operands) -> tuple[Any, ...]:
        preferred = None if kind == q.dtype else kind
        logits = layout.logits(operands.q, operands.k, preferred) * factor
        bias, mask, *counts = operands.extras
        if bias is not None:
            logits = as_dtype(logits + bias, kind)
        places = operands.rows[:, None], tnp.arange(logits.shape[-1])[None, :]
        allowed = _allowed(*places, mask, is_causal, counts, local_window_size)
        if allowed is not None:
            # Finite, so that a row in which nothing is allowed has no NaN.
            logits = tnp.where(allowed, logits, 0.7 * float(tnp.finfo(kind).min))
        out = layout.average(as_dtype(softmax(logits, axis=-1), k.dtype), operands.v)
        if not return_residual:
            return (out,)
        residual = lax.stop_gradient(as_dtype(logsumexp(logits, axis=-1), k.dtype))
        return out, tnp.moveaxis(residual, -1, layout.query.index("t"))

    grouped = q.reshape(batch, t, heads, n // max(heads, 1), h)
    operands = Operands(grouped, k, v, (*extras, *lengths), None, None)
    # A row in which nothing is allowed is the mean of all values: others may hide what is left.
    is_plain = is_causal and all([x is None for x in (*extras, *lengths, local_window_size)])
    out, *residual = by_blocks(attend, Layout("btkgh", "bskh"), operands, is_plain)
    out = out.reshape(batch, t, n, h)
    if lengths[0] is not None:
        here = tnp.arange(t)[None, :] < lengths[0][:, :, 0, 0, 0]
        out = out * as_dtype(here[:, :, None, None], out.dtype)
    out = out.reshape(shape)
    return (out, residual[0].reshape(shape[:-1])) if return_residual else out


def _with_batch(name: str, x: ArrayLike) -> Array:
    x = tnp.asarray(x)
    if x.ndim > 4 or (name in ("query", "key", "value") and x.ndim < 3):
        msg = f"dot_product_attention: {name} has shape {x.shape}, expected 3 or 4 axes"
        raise RankError(msg)
    return x.reshape((1,) * (4 - x.ndim) + x.shape)


def _check(q: Value, k: Value, v: Value) -> None:
    shapes = f"query {q.shape}, key {k.shape}, value {v.shape}"
    if k.shape != v.shape or q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        msg = f"dot_product_attention: got {shapes}"
        raise ShapeMismatchError(
            msg, expected="keys and values of one shape, with batch and head size of the queries"
        )
    if q.shape[2] % k.shape[2] if k.shape[2] else q.shape[2]:
        msg = f"dot_product_attention: got {shapes}"
        raise ShapeMismatchError(msg, expected="heads of queries a multiple of heads of keys")
    if not q.dtype == k.dtype == v.dtype:
        msg = f"dot_product_attention: got query {q.dtype}, key {k.dtype}, value {v.dtype}"
        raise DtypeMismatchError(msg, expected="one dtype")


def _of_batch(counts: ArrayLike | None) -> Any:
    """Numbers of the elements of the batch, with the axes of scores."""
    return None if counts is None else tnp.asarray(counts)[:, None, None, None, None]


def _of_scores(name: str, x: Any, shape: tuple[Any, ...], heads: int) -> Any:
    """An array with the axis of heads as two: those of the keys, and those that share one."""
    if x is None:
        return None
    x = _with_batch(name, x)
    if name == "mask" and x.dtype != np.bool_:
        msg = f"dot_product_attention: mask is {x.dtype}, expected bool"
        raise DtypeMismatchError(msg)
    if any([size not in (1, wanted) for size, wanted in zip(x.shape, shape, strict=True)]):
        msg = f"dot_product_attention: {name} has shape {x.shape}"
        raise ShapeMismatchError(msg, expected=f"a shape that broadcasts to {shape}")
    return with_heads(x, heads)


def _allowed(
    row: Any,
    column: Any,
    mask: Any,
    is_causal: bool,
    counts: Any,
    window: int | tuple[int, int] | None,
) -> Any:
    """Which queries see which keys, broadcastable to the scores; None: all see all."""
    parts: list[Any] = [] if mask is None else [mask]
    if is_causal:
        parts.append(column <= row)
    if window is not None:
        before, after = (window, window) if isinstance(window, int) else window
        parts.append((row <= column + before) & (row >= column - after))
    parts += [at < n for at, n in zip((row, column), counts, strict=True) if n is not None]
    if not parts:
        return None
    whole = parts[0]
    for part in parts[1:]:
        whole = whole & part
    return whole
