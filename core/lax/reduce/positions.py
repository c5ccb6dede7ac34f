"""Positions of the true elements along the last axis: what nonzero and compaction are made of."""

from __future__ import annotations

__all__ = ["true_positions", "true_positions_p"]

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tracebridge.core import lax
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.lax.ad_util import full_of
from tracebridge.core.lax.batch_util import move_batch_axis

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Value

_INT32 = np.dtype(np.int32)
_F32 = np.dtype(np.float32)
# Measured on CPU: elements of a block whose ranks are one row of a product with a triangle, and
# from how many elements on that beats the running sum.
_BLOCK = 16
LEAST_PACKED = 2048
_WIDE_BLOCK = 64
# Sums below this are exact in float32.
_EXACT = 1 << 24


@final
class TruePositions(Primitive):
    """Operand ``bool[..., n]``, parameter ``size``.

    Results: int32 positions of the first ``size`` true elements of each row, ``n`` where there
    are fewer, and how many true elements there are.
    """

    name = "true_positions"
    cost = Cost.OTHER
    makes_nan = False
    multiple_results = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> list[ShapedArray]:
        (mask,) = avals
        rows = mask.update(shape=mask.shape[:-1], dtype=_INT32, weak_type=False)
        return [rows.update(shape=(*rows.shape, params["size"])), rows]

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        return ctx.lower_fun(_positions, *operands, **params)

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        del ctx
        (mask,), (d,) = args, dims
        assert d is not None  # the only operand is batched
        return self.bind(move_batch_axis(mask, d, 0), **params), [0, 0]


true_positions_p = TruePositions()

_NUMBERS = lax.ScatterDimensionNumbers(
    update_window_dims=(), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,)
)


def _flat(x: Value) -> Any:
    n = x.aval.size
    return lax.reshape(x, (n,))


def _in_rows(slots: Any, width: int) -> Any:
    """Slots of rows of ``width`` as slots of all rows one after the other."""
    *lead, n = slots.aval.shape
    if not lead:
        return slots
    rows = lax.iota(_INT32, math.prod(lead))
    starts = lax.broadcast_in_dim(lax.mul(rows, width), (rows.aval.size, n), (0,))
    return lax.add(slots, lax.reshape(starts, slots.aval.shape))


def _positions(mask: Value, size: int) -> list[Any]:
    """By a running sum: the k-th true element goes to slot k, false ones out of bounds."""
    *lead, n = mask.aval.shape
    flags = lax.convert_dtype(mask, _INT32)
    axis = len(lead)
    nothing = any([type(d) is int and d == 0 for d in mask.aval.shape])
    if nothing or (type(size) is int and not size):
        none = full_of(flags.aval.update(shape=(*lead, size)), 0)
        zero = full_of(flags.aval.update(shape=tuple(lead)), 0)
        return [none, zero if nothing else lax.reduce_sum(flags, (axis,))]
    ranks = lax.cumsum(flags, axis)
    total = lax.index_in_dim(ranks, n - 1, axis, keepdims=False)
    outside = size * math.prod(lead) if lead else size
    slots = _in_rows(lax.sub(ranks, 1), size)
    inside = lax.bitwise_and(lax.eq(flags, 1), lax.le(ranks, size))
    slots = lax.select_n(inside, full_of(ranks.aval, outside), slots)
    start = full_of(flags.aval.update(shape=(outside,)), n)
    positions = lax.scatter(
        start,
        lax.reshape(_flat(slots), (flags.aval.size, 1)),
        _flat(lax.broadcasted_iota(_INT32, flags.aval.shape, axis)),
        _NUMBERS,
        unique_indices=False,
        mode=lax.GatherScatterMode.FILL_OR_DROP,
    )
    return [lax.reshape(positions, (*lead, size)) if lead else positions, total]


def packed_positions(mask: Any, size: int) -> list[Any]:
    """The same without a test for each element, for the CPU.

    Every element goes to the slot of the next true one, where the largest position wins: among
    those of one slot the true one is the last. Ranks within blocks are products with a triangle
    of ones, exact in float32.
    """
    *lead, n = mask.aval.shape
    axis = len(lead)
    blocks = -(-n // _BLOCK)
    counts = lax.stored(_counts_before(lax.convert_dtype(mask, _F32), _BLOCK))
    counts = lax.convert_dtype(counts, _INT32)
    within = lax.slice_in_dim(counts, 0, _BLOCK, axis=axis + 1)
    starts, total = _starts(lax.index_in_dim(counts, _BLOCK, axis + 1, keepdims=False))
    ranks = lax.add(within, lax.broadcast_in_dim(starts, within.aval.shape, tuple(range(axis + 1))))
    # One slot more takes what is beyond the last.
    slots = lax.reshape(lax.min(ranks, size), (*lead, blocks * _BLOCK))
    slots = _in_rows(slots, size + 1)
    positions = lax.broadcasted_iota(_INT32, slots.aval.shape, axis)
    packed = lax.scatter_max(
        full_of(slots.aval.update(shape=(math.prod(lead) * (size + 1),)), 0),
        lax.reshape(_flat(slots), (slots.aval.size, 1)),
        _flat(positions),
        _NUMBERS,
        unique_indices=False,
        mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS,
    )
    packed = lax.slice_in_dim(lax.reshape(packed, (*lead, size + 1)), 0, size, axis=axis)
    every = lax.broadcast_in_dim(total, packed.aval.shape, tuple(range(axis)))
    missing = lax.ge(lax.broadcasted_iota(_INT32, packed.aval.shape, axis), every)
    return [lax.select_n(missing, packed, full_of(packed.aval, n)), total]


def _counts_before(x: Value, block: int) -> Any:
    """Sums of the elements before each, and of all, in blocks of the last axis.

    Zeros fill the last block. The result has an axis of blocks and one of ``block + 1`` sums.
    """
    *lead, n = x.aval.shape
    count = -(-n // block)
    padding = [(0, 0, 0)] * len(lead) + [(0, count * block - n, 0)]
    x = lax.pad(x, full_of(x.aval.update(shape=()), 0), padding)
    shape = (block, block + 1)
    rows, columns = (lax.broadcasted_iota(_INT32, shape, i) for i in range(2))
    triangle = lax.convert_dtype(lax.lt(rows, columns), _F32)
    sums = lax.dot(lax.reshape(x, (math.prod(lead) * count, block)), triangle)
    return lax.reshape(sums, (*lead, count, block + 1))


def _starts(sizes: Any) -> tuple[Any, Any]:
    """Sums of the integers before each one along the last axis, and of all of them."""
    *lead, n = sizes.aval.shape
    axis = len(lead)
    if n * _BLOCK >= _EXACT:
        ends = lax.stored(lax.cumsum(sizes, axis))
        return lax.sub(ends, sizes), lax.index_in_dim(ends, n - 1, axis, keepdims=False)
    block = min(n, _WIDE_BLOCK)
    sums = lax.stored(_counts_before(lax.convert_dtype(sizes, _F32), block))
    sums = lax.convert_dtype(sums, _INT32)
    within = lax.slice_in_dim(sums, 0, block, axis=axis + 1)
    ends = lax.index_in_dim(sums, block, axis + 1, keepdims=False)
    if n <= block:
        return lax.reshape(within, (*lead, n)), lax.reshape(ends, tuple(lead))
    outer, total = _starts(ends)
    whole = lax.add(within, lax.broadcast_in_dim(outer, within.aval.shape, tuple(range(axis + 1))))
    flat = lax.reshape(whole, (*lead, whole.aval.shape[axis] * block))
    return lax.slice_in_dim(flat, 0, n, axis=axis), total


def true_positions(mask: Value, size: Any) -> tuple[Any, Any]:
    """Positions of the first ``size`` true elements of an array in row-major order.

    Returns:
        int32 positions of shape ``(size,)``, the number of elements where there are fewer (garbage
        for an empty array), and how many true elements there are.
    """
    flat = _flat(mask)
    if type(size) is int and type(flat.aval.size) is int:
        positions, total = true_positions_p.bind(flat, size=size)
    else:
        positions, total = _positions(flat, size)
    return positions, total
