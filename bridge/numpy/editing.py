"""Repeating, inserting and removing elements: repeat, delete, insert, resize, trim_zeros."""

from __future__ import annotations

__all__ = ["delete", "insert", "repeat", "resize", "rollaxis", "trim_zeros"]

from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import is_bool, is_integer
from tracebridge.core.errors.argument_errors import ArgumentValueError, index_of
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import IndexingError, ShapeMismatchError
from tracebridge.core.ir.operators import EngineValue
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import zeros_of
from tracebridge.core.lax.sharding_constraint import split_result
from tracebridge.core.runtime.arrays.argument_types import ShapeLike, ShardingLike
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.remembered import remembered
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.core.symbolic.dims import Dim
from tracebridge.numpy._promote import broadcast_to, normalize_axis
from tracebridge.numpy._staging import concrete, is_traced, settled, unwrapped, value_of
from tracebridge.numpy.creation import canonical_shape
from tracebridge.numpy.indexing_functions import take
from tracebridge.numpy.searching import search_halving

_INT32 = np.dtype(np.int32)


def _flatten_unless(x: Value, axis: int | None, name: str) -> tuple[Any, int]:
    """``x`` flattened for ``axis=None``, and the axis."""
    if axis is None:
        return _flat_staged((x,)), 0
    return x, normalize_axis(axis, x.aval.ndim, name)


_flat_staged = StagedFunction(lambda x: lax.reshape(x, (x.aval.size,)), "ravel")


# repeat ------------------------------------------------------------------------------------------


def _repeat(x: Value, count: int, axis: int) -> Any:
    shape = x.aval.shape
    wide = (*shape[: axis + 1], count, *shape[axis + 1 :])
    dims = tuple([i if i <= axis else i + 1 for i in range(len(shape))])
    repeated = lax.broadcast_in_dim(x, wide, dims)
    return lax.reshape(repeated, (*shape[:axis], shape[axis] * count, *shape[axis + 1 :]))


_repeat_staged = StagedFunction(_repeat, "repeat")


def _repeat_positions(counts: Value, size: Dim, total: int) -> Any:
    """Which of ``size`` elements stands at each of ``total`` places."""
    counts = lax.convert_dtype(counts, _INT32)
    if not counts.aval.ndim or counts.aval.shape[0] == 1:
        counts = lax.broadcast_in_dim(lax.reshape(counts, ()), (size,), ())
    ends = lax.cumsum(counts, 0)
    found = search_halving(ends, lax.iota(_INT32, total), "right")
    # Places that are left over repeat the last element.
    return lax.min(found, size - 1)


_repeat_positions_staged = StagedFunction(_repeat_positions, "repeat")


def repeat(
    a: ArrayLike,
    repeats: ArrayLike,
    axis: int | None = None,
    *,
    total_repeat_length: int | None = None,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Each element repeated along an axis.

    Args:
        a: array.
        repeats: how often: a number, or one for each element along the axis.
        axis: axis in ``[-ndim, ndim)``; ``None`` flattens first.
        total_repeat_length: size of the result along the axis; needed if ``repeats`` is traced.
            The last element is repeated, or the end cut off, to reach it.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    Raises:
        ConcretizationTypeError: ``repeats`` is traced and the length is not given.
        UnsupportedDtypeError: ``repeats`` does not hold integers.
        ShapeMismatchError: ``repeats`` does not fit the axis.

    >>> import tracebridge.numpy as tnp
    >>> tnp.repeat(tnp.array([1, 2]), tnp.array([1, 3])).tolist()
    [1, 2, 2, 2]
    """
    if out_sharding is not None:
        return split_result(
            "repeat",
            out_sharding,
            repeat,
            a,
            repeats,
            axis,
            total_repeat_length=total_repeat_length,
        )
    x = value_of(a)
    if x.aval.ndim == 0:
        # NumPy takes a scalar for a vector of one element.
        x = _flat_staged((x,))
    x, where = _flatten_unless(x, axis, "repeat")
    is_size = getattr(repeats, "is_symbolic_dim", False) or isinstance(repeats, int)
    if is_size and total_repeat_length is None:
        return _repeat_staged((x,), (repeats, where))
    counts: Any = (
        repeats if issubclass(type(repeats), EngineValue) else value_of(np.asarray(repeats))
    )
    size = x.aval.shape[where]
    if not is_integer(counts.aval.dtype) and not is_bool(counts.aval.dtype):
        msg = f"repeat: repeats must be integers, got {counts.aval.str_short()}"
        raise UnsupportedDtypeError(msg)
    if counts.aval.ndim > 1 or (counts.aval.ndim and counts.aval.shape[0] not in (1, size)):
        msg = (
            f"repeat: got {counts.aval.str_short()} as repeats for axis {where} of size {size} of "
            f"{x.aval.str_short()}, expected a number or a vector of that size"
        )
        raise ShapeMismatchError(msg)
    if total_repeat_length is not None:
        total = index_of(total_repeat_length, "repeat", "total_repeat_length")
        places = _repeat_positions_staged((counts,), (size, total))
        return take(x, places, where, mode="clip", indices_are_sorted=True)
    host = concrete(counts, "It decides the size of the result", "pass total_repeat_length=")
    if host.size == 1:
        return _repeat_staged((x,), (int(host.reshape(())), where))
    places = np.repeat(np.arange(size, dtype=np.int32), host.astype(np.int64))
    return take(x, places, where, mode="promise_in_bounds", indices_are_sorted=True)


# delete ------------------------------------------------------------------------------------------


def _places_without(obj: Value, size: int) -> Any:
    """Positions of an axis of ``size`` without those in ``obj``, which are distinct."""
    removed = lax.sort(_clamped(lax.reshape(obj, (obj.aval.size,)), size, size - 1))
    count = removed.aval.shape[0]
    shifted = lax.sub(removed, lax.iota(_INT32, count))
    kept = lax.iota(_INT32, size - count)
    return lax.add(kept, search_halving(shifted, kept, "right"))


_places_without_staged = StagedFunction(_places_without, "delete")


def _without_one(x: Value, place: Value, axis: int) -> Any:
    """``x`` without the row at a place: what is after it moves up."""
    size = x.aval.shape[axis]
    place = _clamped(place, size, size - 1)
    before = lax.slice_in_dim(x, 0, size - 1, axis=axis)
    after = lax.slice_in_dim(x, 1, size, axis=axis)
    where = lax.broadcasted_iota(_INT32, before.aval.shape, axis)
    return lax.select(lax.lt(where, place), before, after)


_without_one_staged = StagedFunction(_without_one, "delete")


def delete(
    arr: ArrayLike, obj: Any, axis: int | None = None, *, assume_unique_indices: bool = False
) -> Array:
    """``arr`` without some of its elements along an axis.

    Args:
        arr: array.
        obj: what to remove: an integer, a slice, integers or a boolean mask.
        axis: axis in ``[-ndim, ndim)``; ``None`` flattens first.
        assume_unique_indices: a promise that no index is repeated; needed for traced vectors.

    Raises:
        IndexingError: an integer is out of bounds.

    >>> import tracebridge.numpy as tnp
    >>> tnp.delete(tnp.array([10, 20, 30, 40]), tnp.array([0, 2])).tolist()
    [20, 40]
    """
    x, where = _flatten_unless(value_of(arr), axis, "delete")
    size = x.aval.shape[where]
    obj = settled(unwrapped(obj))
    if is_traced(obj):
        if (obj.aval.ndim and not assume_unique_indices) or not is_integer(obj.aval.dtype):
            concrete(
                obj,
                "How many positions it has decides the size of the result",
                "pass integers and assume_unique_indices=True",
            )
        if not obj.aval.ndim and size != 0:
            return _without_one_staged((x, obj), (where,))
        places = _places_without_staged((obj,), (size,))
        return take(x, places, where, mode="clip", indices_are_sorted=True)
    keep = np.ones(size, bool)
    if isinstance(obj, slice):
        keep[obj] = False
    else:
        host = np.asarray(obj)
        host = host.astype(np.intp) if host.size == 0 and host.dtype != bool else host
        try:
            keep[host] = False
        except IndexError as error:
            msg = f"delete: obj does not fit axis {where} of {x.aval.str_short()}: {error}"
            raise IndexingError(msg) from error
        if host.ndim == 0 and host.dtype != bool:
            return _without_one_staged((x, int(host)), (where,))
    places = np.flatnonzero(keep).astype(np.int32)
    return take(x, places, where, mode="promise_in_bounds", indices_are_sorted=True)


# insert ------------------------------------------------------------------------------------------


def _put_in(x: Value, values: Value, place: Value, axis: int, is_scalar: bool, n: int) -> Any:
    """``n`` new rows before one place: what is after it moves on."""
    shape = x.aval.shape
    values = _rows_of(x, values, axis, n, is_scalar)
    place = _clamped(place, shape[axis], shape[axis])
    edges = [(0, 0, 0)] * len(shape)
    zero = zeros_of(x.aval.update(shape=()))
    before = lax.pad(x, zero, [*edges[:axis], (0, n, 0), *edges[axis + 1 :]])
    after = lax.pad(x, zero, [*edges[:axis], (n, 0, 0), *edges[axis + 1 :]])
    where = lax.broadcasted_iota(_INT32, before.aval.shape, axis)
    moved = lax.select(lax.lt(where, place), before, after)
    out = lax.dynamic_update_slice_in_dim(moved, values, place, axis)
    return lax.convert_dtype(out, x.aval.dtype, x.aval.weak_type)


_put_in_staged = StagedFunction(_put_in, "insert")


def _clamped(place: Value, size: Any, last: Any) -> Any:
    """A place along an axis of ``size``, from its end if it is negative, in ``[0, last]``.

    Both may be sizes that are known at run time only.
    """
    place = lax.convert_dtype(place, _INT32)
    place = lax.select_n(lax.lt(place, 0), place, lax.add(place, size))
    return lax.max(lax.min(place, last), 0)


def _merge_order(obj: Value, size: int) -> Any:
    """The order of ``size`` elements and new ones behind them, each new one before ``obj``."""
    obj = _clamped(obj, size, size)
    count = obj.aval.shape[0]
    numbers = lax.iota(_INT32, count)
    # New ones in their order: each is moved on by those before it.
    ends, order = lax.sort_key_val(obj, numbers, 0, True)
    ends = lax.add(ends, numbers)
    every = lax.iota(_INT32, size + count)
    before = search_halving(ends, every, "right")
    last = lax.max(lax.sub(before, 1), 0)
    at, number = [take(v, last, 0, mode="promise_in_bounds") for v in (ends, order)]
    is_new = lax.bitwise_and(lax.eq(at, every), lax.gt(before, 0))
    return lax.select(is_new, lax.add(number, size), lax.sub(every, before))


_merge_order_staged = StagedFunction(_merge_order, "insert")


def _rows_of(x: Value, values: Value, axis: int, count: int, is_scalar: bool) -> Any:
    """The new rows, as many as ``count`` says."""
    shape = x.aval.shape
    values = lax.convert_dtype(values, x.aval.dtype, x.aval.weak_type)
    n = values.aval.ndim
    if n < len(shape):
        values = lax.reshape(values, (*(1,) * (len(shape) - n), *values.aval.shape))
    if is_scalar:
        # NumPy's rule: at a single position, the first axis of the values is that of the new rows.
        axes = list(range(1, len(shape)))
        axes.insert(axis, 0)
        values = lax.transpose(values, tuple(axes))
    return broadcast_to(values, (*shape[:axis], count, *shape[axis + 1 :]))


def _merge(x: Value, values: Value, order: Any, axis: int, count: int, is_scalar: bool) -> Any:
    shape = x.aval.shape
    joined = lax.concatenate([x, _rows_of(x, values, axis, count, is_scalar)], axis)
    numbers = lax.GatherDimensionNumbers(
        offset_dims=tuple([i for i in range(len(shape)) if i != axis]),
        collapsed_slice_dims=(axis,),
        start_index_map=(axis,),
    )
    sizes = tuple([1 if i == axis else d for i, d in enumerate(shape)])
    places = lax.reshape(order, (order.aval.size, 1))
    return lax.gather(joined, places, numbers, sizes, unique_indices=True)


_merge_staged = StagedFunction(_merge, "insert")


def insert(arr: ArrayLike, obj: Any, values: ArrayLike, axis: int | None = None) -> Array:
    """``arr`` with values put in before positions along an axis.

    Args:
        arr: array.
        obj: positions: an integer, a slice, integers or a boolean mask.
        values: numbers, broadcast to the new rows and converted to the dtype of ``arr``.
        axis: axis in ``[-ndim, ndim)``; ``None`` flattens first.

    Raises:
        IndexingError: a position is out of bounds.

    >>> import tracebridge.numpy as tnp
    >>> tnp.insert(tnp.array([1, 2, 3]), 1, 9).tolist()
    [1, 9, 2, 3]
    """
    x, where = _flatten_unless(value_of(arr), axis, "insert")
    size = x.aval.shape[where]
    new = value_of(values)
    if isinstance(obj, slice):
        obj = np.arange(size, dtype=np.int32)[obj]
    obj = unwrapped(obj)
    places = settled(value_of(obj if issubclass(type(obj), EngineValue) else np.asarray(obj)))
    if places.aval.size == 0:
        return x
    if is_bool(places.aval.dtype):
        host = concrete(places, "The number of true elements is the number of new rows")
        places = value_of(np.flatnonzero(host).astype(np.int32))
    if not is_traced(places):
        host = np.asarray(places)
        if host.size and not (host.min() >= -size and host.max() <= size):
            msg = f"insert: a position is out of bounds for axis {where} of {x.aval.str_short()}"
            raise IndexingError(msg)
    is_scalar = places.aval.ndim == 0
    count = places.aval.size
    if count == 1:
        # One position takes any number of rows.
        rank = new.aval.ndim - x.aval.ndim
        axis_of_rows = (0 if is_scalar else where) + rank
        count = new.aval.shape[axis_of_rows] if axis_of_rows >= 0 else 1
        place = _scalar_staged((places,))
        return _put_in_staged((x, new, place), (where, is_scalar, count))
    order = _merge_order_staged((_flat_staged((places,)),), (size,))
    return _merge_staged((x, new, order), (where, count, is_scalar))


_scalar_staged = StagedFunction(lambda p: lax.reshape(p, ()), "insert")


# resize, trim_zeros ------------------------------------------------------------------------------


def _resize(x: Value, shape: tuple[int, ...]) -> Any:
    size = 1
    for d in shape:
        size *= d
    n = x.aval.size
    if n == 0 or size == 0:
        return zeros_of(x.aval.update(shape=shape))
    flat = lax.reshape(x, (n,))
    times = -(-size // n)
    if times > 1:
        flat = lax.reshape(lax.broadcast_in_dim(flat, (times, n), (1,)), (times * n,))
    return lax.reshape(lax.slice_in_dim(flat, 0, size), shape)


_resize_staged = StagedFunction(_resize, "resize")


@remembered
def resize(a: ArrayLike, new_shape: ShapeLike) -> Array:
    """The elements in another shape: repeated from the start, or cut off, to fill it.

    >>> import tracebridge.numpy as tnp
    >>> tnp.resize(tnp.array([1, 2, 3]), (2, 2)).tolist()
    [[1, 2], [3, 1]]
    """
    return _resize_staged((a,), (canonical_shape(new_shape, "resize"),))


def trim_zeros(filt: Any, trim: Any = "fb", axis: Any = None) -> Array:
    """``filt`` without the zeros at its ends; the array must be concrete.

    Args:
        filt: array.
        trim: ``"f"`` for the front, ``"b"`` for the back, ``"fb"`` for both.
        axis: axes to trim (default: all).

    Raises:
        ArgumentValueError: ``trim`` has other letters than ``f`` and ``b``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.trim_zeros(tnp.array([0, 0, 1, 0, 2, 0])).tolist()
    [1, 0, 2]
    """
    if not isinstance(trim, str) or set(trim.lower()) - set("fb"):
        msg = f"trim_zeros: trim={trim!r}, expected 'f', 'b' or 'fb'"
        raise ArgumentValueError(msg)
    x = value_of(filt)
    host = concrete(x, "The number of zeros at the ends decides the size of the result")
    if not x.aval.ndim:
        return x
    axes = range(x.aval.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    index: list[slice] = [slice(None)] * x.aval.ndim
    for a in axes:
        where = normalize_axis(a, x.aval.ndim, "trim_zeros")
        others = tuple([i for i in range(x.aval.ndim) if i != where])
        rows = np.flatnonzero((host != 0).any(axis=others))
        size = x.aval.shape[where]
        first = (rows[0] if rows.size else size) if "f" in trim.lower() else 0
        last = (rows[-1] + 1 if rows.size else 0) if "b" in trim.lower() else size
        index[where] = slice(int(first), max(int(last), int(first)))
    return x[tuple(index)]


def _roll_axis(x: Value, axis: int, start: int) -> Any:
    ndim = x.aval.ndim
    source = normalize_axis(axis, ndim, "rollaxis")
    if not -ndim <= start <= ndim:
        msg = f"rollaxis: start={start} is out of bounds for an array with {ndim} axes"
        raise ArgumentValueError(msg)
    target = start + ndim if start < 0 else start
    target -= source < target
    order = [i for i in range(ndim) if i != source]
    order.insert(target, source)
    return lax.transpose(x, tuple(order))


_roll_axis_staged = StagedFunction(_roll_axis, "rollaxis")


@remembered
def rollaxis(a: ArrayLike, axis: int, start: int = 0) -> Array:
    """``a`` with ``axis`` moved before the axis ``start``; ``moveaxis`` reads better.

    >>> import tracebridge.numpy as tnp
    >>> tnp.rollaxis(tnp.ones((2, 3, 4)), 2).shape
    (4, 2, 3)
    """
    return _roll_axis_staged(
        (a,), (index_of(axis, "rollaxis", "axis"), index_of(start, "rollaxis", "start"))
    )
