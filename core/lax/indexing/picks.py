"""One element from each row: a gather whose transpose needs no scatter.

What ``take_along_axis`` picks with one index per row goes back by a comparison of positions with
the index. That is elementwise, so it fuses with what reads it, where a scatter fills an array with
zeros first and then writes single elements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracebridge.core import lax
from tracebridge.core.lax.ad_util import zeros_of
from tracebridge.core.mlir.types import is_static

if TYPE_CHECKING:
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.value import Value

_LIMIT = 2**31 - 1


def picked_axis(
    x: ShapedArray,
    indices: ShapedArray,
    *,
    dimension_numbers: Any,
    slice_sizes: tuple[int, ...],
    **_: object,
) -> int | None:
    """The axis of which a gather takes one element in each row, if it does nothing else."""
    numbers = dimension_numbers
    if not (is_static(x) and is_static(indices)):
        return None
    if any([size != 1 for size in slice_sizes]) or len(numbers.start_index_map) != 1:
        return None
    if x.shape == () or max(x.shape) > _LIMIT:
        return None
    # A window of one element may stay an axis of the result: batches of ``x[i]`` are such picks.
    (axis,) = numbers.start_index_map
    others = tuple([d for d in range(x.ndim) if d != axis])
    batch = numbers.start_indices_batching_dims
    aligned = numbers.operand_batching_dims == others and batch == tuple(sorted(batch))
    rows = indices.shape[:-1]
    extra = [n for d, n in enumerate(rows) if d not in batch]
    if not aligned or any([n != 1 for n in extra]):
        return None
    return axis


def put_back(ct: Value, indices: Value, x: ShapedArray, axis: int, mode: Any) -> Any:
    """Zeros like ``x``, with the cotangents of what was picked along ``axis`` in their places.

    Indices that leave the axis match no position, so what they picked is dropped.
    """
    others = tuple([d for d in range(x.ndim) if d != axis])
    rows = tuple([x.shape[d] for d in others])
    index = lax.reshape(indices, rows)
    dtype, size = index.aval.dtype, x.shape[axis]
    if mode is lax.GatherScatterMode.CLIP:
        # The largest number of a narrow dtype may be less than the last position.
        last = min(max(size - 1, 0), np.iinfo(dtype).max)
        index = lax.clamp(lax.full_like(index, 0), index, lax.full_like(index, last))
    elif dtype.itemsize > 4:
        # What is in no place of 64 bits must not come to one of 32.
        before = lax.full_like(index, -1 if dtype.kind == "i" else size)
        inside = lax.bitwise_and(
            lax.ge(index, lax.full_like(index, 0)), lax.lt(index, lax.full_like(index, size))
        )
        index = lax.select(inside, index, before)
    if dtype.itemsize != 4:
        index = lax.convert_element_type(index, np.int32)
    positions = lax.broadcasted_iota(index.aval.dtype, x.shape, axis)
    hits = lax.eq(positions, lax.broadcast_in_dim(index, x.shape, others))
    ct = lax.broadcast_in_dim(lax.reshape(ct, rows), x.shape, others)
    return lax.select(hits, ct, zeros_of(ct.aval))
