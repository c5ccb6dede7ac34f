"""Ways to find the largest elements of rows, for the CPU: XLA has a fast one for float32 alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tracebridge.core import lax
from tracebridge.core.dtypes.dtypes import is_float, itemsize_bits
from tracebridge.core.lax.ad_util import full_of
from tracebridge.core.lax.reduce.sort import ordered_bits, sort_key, sorting_order, take_along_axis

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.value import Value

_INT32 = np.dtype(np.int32)
_INT64 = np.dtype(np.int64)
_FLOAT32 = np.dtype(np.float32)

# Few elements of long rows are found faster by searching the row for each than by sorting it.
_MOST_PASSES = 16
_LONG_ROW = 512

# Sizes of blocks that are searched in one loop, and how much smaller the rest has to be to be
# worth it; measured with 1 to 1000 elements of rows of 1000 to 1e6.
_LEAST_BLOCK, _MOST_BLOCK = 32, 256
_WORTH = 4
# XLA's call for float32 takes 22 us for so many elements and 8 ms to compile, blocks take 100 ms.
_LEAST_IN_BLOCKS = 1 << 14


def block_size(k: int, x: ShapedArray) -> int:
    """The size of blocks for ``by_blocks``, 0 where another way is faster."""
    row = x.shape[-1]
    if not k or itemsize_bits(x.dtype) not in (32, 64) or not row:
        return 0
    if x.dtype == _FLOAT32 and x.size < _LEAST_IN_BLOCKS:
        return 0
    size = 2 ** round(math.log2(2 * math.sqrt(row / k)))
    size = min(max(size, _LEAST_BLOCK), _MOST_BLOCK)
    return size if _WORTH * k * size <= row else 0


def way_on_cpu(k: int, x: ShapedArray) -> Callable[..., Any]:
    """For rows, the last axis, that XLA has no call for and that are not worth blocks."""
    few = 1 <= k <= _MOST_PASSES and x.shape[-1] >= _LONG_ROW
    if not is_float(x.dtype):
        return by_keys if few and x.dtype.itemsize <= 4 else by_sorting
    if x.dtype != _FLOAT32 and itemsize_bits(x.dtype) <= 16:
        return in_float32
    return by_passes if few else by_sorting


def by_blocks(x: Value, k: int, size: int) -> list[Any]:
    """Among the elements of the ``k`` blocks of a row that have the largest maxima.

    The order of elements is by value, then by place; that of blocks is by maximum, then by place:
    each of the largest elements is in one of those blocks. What is behind the last whole block of
    a row is searched too. Maxima are those of integers in the order of the elements: maxima of
    floats don't tell zeros apart, and the loop over NaN is slow.
    """
    *batch, row = x.aval.shape
    axis = len(batch)
    count = row // size
    whole = count * size
    blocks = lax.reshape(lax.slice_in_dim(x, 0, whole, axis=axis), (*batch, count, size))
    _, chosen = lax.top_k(_maxima(blocks), k)
    (chosen,) = lax.sort_p.bind(chosen, dimension=axis, is_stable=False, num_keys=1)
    found = lax.reshape(_blocks_at(blocks, chosen), (*batch, k * size))
    starts = lax.mul(chosen, full_of(chosen.aval, size))
    inside = lax.broadcasted_iota(_INT32, (*batch, k, size), axis + 1)
    starts = lax.broadcast_in_dim(starts, inside.aval.shape, tuple(range(axis + 1)))
    places = lax.reshape(lax.add(starts, inside), found.aval.shape)
    if whole < row:
        rest = lax.broadcasted_iota(_INT32, (*batch, row - whole), axis)
        places = lax.concatenate([places, lax.add(rest, full_of(rest.aval, whole))], axis)
        found = lax.concatenate([found, lax.slice_in_dim(x, whole, row, axis=axis)], axis)
    values, order = lax.top_k(found, k)
    return [values, take_along_axis(places, order, axis)]


def _maxima(blocks: Value) -> Any:
    """Along the last axis; of float32 as floats again, for which XLA has a call."""
    dtype = blocks.aval.dtype
    last = blocks.aval.ndim - 1
    if not is_float(dtype):
        return lax.reduce_max(blocks, (last,))
    maxima = lax.reduce_max(ordered_bits(blocks, equal_zeros=False), (last,))
    if dtype != _FLOAT32:
        return maxima
    flipped = lax.bitwise_xor(maxima, full_of(maxima.aval, 2**31 - 1))
    negative = lax.lt(maxima, full_of(maxima.aval, 0))
    bits = lax.select_n(negative, maxima, flipped)
    return lax.bitcast_convert_type_p.bind(bits, new_dtype=_FLOAT32)


def _blocks_at(blocks: Value, chosen: Value) -> Any:
    """``(*batch, count, size)`` at ``(*batch, k)``: ``(*batch, k, size)``."""
    axis = blocks.aval.ndim - 1
    batch = tuple(range(axis - 1))
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(axis,),
        collapsed_slice_dims=(axis - 1,),
        start_index_map=(axis - 1,),
        operand_batching_dims=batch,
        start_indices_batching_dims=batch,
    )
    indices = lax.reshape(chosen, (*chosen.aval.shape, 1))
    sizes = (1,) * axis + (blocks.aval.shape[axis],)
    return lax.gather(blocks, indices, numbers, sizes, mode="promise_in_bounds")


def without_nan_signs(x: Value) -> Any:
    """All NaN with the sign that XLA sorts behind infinity."""
    return lax.select_n(lax.ne(x, x), x, full_of(x.aval, float("nan")))


def in_float32(x: Value, k: int, axis: int) -> list[Any]:
    """Narrow floats are float32 numbers too."""
    values, positions = lax.top_k_p.bind(lax.convert_dtype(x, _FLOAT32), k=k, axis=axis)
    return [lax.convert_dtype(values, x.aval.dtype), positions]


def by_passes(x: Value, k: int, axis: int) -> list[Any]:
    """By taking the largest out, ``k`` times."""
    key = ordered_bits(x, equal_zeros=False)
    # No float has this key, so what is taken out never comes again.
    taken = full_of(key.aval, int(np.iinfo(key.aval.dtype).min))
    iota = lax.broadcasted_iota(_INT32, x.aval.shape, axis)
    found: list[Any] = []
    for _ in range(k):
        best = lax.argmax(key, axis, _INT32)
        dims = tuple([i for i in range(x.aval.ndim) if i != axis])
        key = lax.select_n(lax.eq(iota, lax.broadcast_in_dim(best, x.aval.shape, dims)), key, taken)
        shape = tuple([1 if i == axis else d for i, d in enumerate(x.aval.shape)])
        found.append(lax.reshape(best, shape))
    positions = lax.concatenate(found, axis) if k > 1 else found[0]
    return [take_along_axis(x, positions, axis), positions]


def by_keys(x: Value, k: int, axis: int) -> list[Any]:
    """By the largest key below the one before: no two elements have one key."""
    size = x.aval.shape[axis]
    wide = lax.convert_dtype(x, _INT64)
    if x.aval.dtype.kind == "u":
        wide = lax.sub(wide, full_of(wide.aval, 2**31))
    wide = lax.shift_left(wide, full_of(wide.aval, 32))
    # Of equal elements the first has the largest key.
    place = lax.broadcasted_iota(_INT32, x.aval.shape, axis)
    place = lax.sub(full_of(place.aval, size - 1), place)
    key = lax.add(wide, lax.convert_dtype(place, _INT64))
    dims = tuple([i for i in range(x.aval.ndim) if i != axis])
    none = full_of(key.aval, int(np.iinfo(_INT64).min))
    shape = tuple([1 if i == axis else d for i, d in enumerate(x.aval.shape)])
    found: list[Any] = []
    below = key
    for _ in range(k):
        best = lax.reduce_max(below, (axis,))
        found.append(lax.reshape(best, shape))
        last = lax.broadcast_in_dim(best, x.aval.shape, dims)
        below = lax.select_n(lax.lt(key, last), none, key)
    keys = lax.concatenate(found, axis) if k > 1 else found[0]
    low = lax.bitwise_and(keys, full_of(keys.aval, 2**32 - 1))
    positions = lax.convert_dtype(lax.sub(full_of(low.aval, size - 1), low), _INT32)
    return [take_along_axis(x, positions, axis), positions]


def by_sorting(x: Value, k: int, axis: int) -> list[Any]:
    """By a stable sort of keys in decreasing order."""
    dtype = x.aval.dtype
    if is_float(dtype):
        key = ordered_bits(x, equal_zeros=False)
    elif dtype.itemsize == 8:
        key = lax.bitcast_convert_type_p.bind(x, new_dtype=_INT64) if dtype.kind == "u" else x
        key = lax.bitwise_xor(key, full_of(key.aval, -(2**63))) if dtype.kind == "u" else key
    else:
        key = sort_key(x)
    size = key.aval.shape[axis]
    if key.aval.dtype != _INT64:
        key = lax.convert_dtype(key, _INT32)
    order = sorting_order(lax.bitwise_not(key), axis)
    first = order if k == size else lax.slice_in_dim(order, 0, k, axis=axis)
    return [take_along_axis(x, first, axis), first]
