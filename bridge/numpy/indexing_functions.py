"""Indexing by functions: reading and writing at positions along axes."""

from __future__ import annotations

__all__ = ["fill_diagonal", "place", "put", "put_along_axis", "take", "take_along_axis"]

from collections.abc import Hashable
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import is_bool, is_integer, is_unsigned
from tracebridge.core.errors.argument_errors import (
    ArgumentTypeError,
    ArgumentValueError,
    index_of,
    kind_of,
)
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.filtering import hide_internal_frames
from tracebridge.core.errors.shape_errors import IndexingError, RankError, ShapeMismatchError
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.lax.indexing.gather import default_fill
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.remembered import remembered
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.core.symbolic.compare import is_empty
from tracebridge.core.symbolic.dims import Dim
from tracebridge.numpy._losses import warn_of_loss
from tracebridge.numpy._promote import (
    broadcast_shape,
    broadcast_to,
    check_no_out,
    normalize_axis,
)
from tracebridge.numpy._staging import value_of
from tracebridge.numpy.elementwise_logic import truth
from tracebridge.numpy.searching import take_rows

_INT32 = np.dtype(np.int32)
_MODES = ("fill", "drop", "clip", "wrap", "promise_in_bounds", "raise")


def _mode(name: str, mode: str | lax.GatherScatterMode | None) -> str:
    """A mode argument as one of ``_MODES``; also GatherScatterMode objects."""
    if mode is None:
        return "fill"
    text = mode.lower() if isinstance(mode, str) else getattr(mode, "name", str(mode)).lower()
    text = "fill" if text in ("fill_or_drop", "drop") else text
    if text not in _MODES or text == "raise":
        hint = "; indices can't be checked on a device" if text == "raise" else ""
        msg = f"{name}: mode={mode!r}, expected 'fill', 'clip', 'wrap' or 'promise_in_bounds'{hint}"
        raise ArgumentValueError(msg)
    return text


def in_range(name: str, indices: Value, size: Dim, mode: str, wrap_negative: bool = True) -> Any:
    """Integer indices made non-negative, and clamped or wrapped as ``mode`` says."""
    dtype = indices.aval.dtype
    if not is_integer(dtype):
        msg = f"{name} indices must be of integer type, got {indices.aval.dtype.name}"
        raise UnsupportedDtypeError(msg)
    if dtype.itemsize < 4:
        indices = lax.convert_dtype(indices, _INT32)
        dtype = _INT32
    indices = lax.convert_dtype(indices, dtype)
    length = _size_like(size, indices)
    zero = zeros_of(length.aval)
    if mode == "wrap":
        indices = lax.rem(indices, lax.max(length, full_of(zero.aval, 1)))
    if not is_unsigned(dtype) and wrap_negative:
        indices = lax.select_n(lax.lt(indices, zero), indices, lax.add(indices, length))
    return indices


def _size_like(size: Dim, like: Any) -> Any:
    scalar = like.aval.strong.update(shape=())
    if type(size) is int:
        return full_of(scalar, min(size, np.iinfo(scalar.dtype).max))
    return lax.convert_dtype(lax.dimension_size(size), scalar.dtype)


def _gather_mode(mode: str) -> Any:
    modes = lax.GatherScatterMode
    if mode == "clip":
        return modes.CLIP
    return modes.FILL_OR_DROP if mode == "fill" else modes.PROMISE_IN_BOUNDS


def take_rows_of(
    x: Value,
    indices: Value,
    axis: int | None,
    mode: str,
    unique: bool,
    is_sorted: bool,
    fill_value: Value | None,
) -> Any:
    """``take`` while staging."""
    if axis is None:
        x, axis = lax.reshape(x, (x.aval.size,)), 0
    axis = normalize_axis(axis, x.aval.ndim, "take")
    shape = x.aval.shape
    n = indices.aval.ndim
    if is_bool(indices.aval.dtype):
        indices = lax.convert_dtype(indices, np.dtype(np.int32))
    no_elements = is_empty(shape[axis])
    if no_elements and indices.aval.size != 0:
        msg = f"take: axis {axis} of {x.aval.str_short()} has no elements, expected some"
        raise IndexingError(msg)
    if no_elements:
        return zeros_of(
            x.aval.update(shape=(*shape[:axis], *indices.aval.shape, *shape[axis + 1 :]))
        )
    indices = in_range("take", indices, shape[axis], mode, mode != "clip")
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(*range(axis), *range(axis + n, x.aval.ndim - 1 + n)),
        collapsed_slice_dims=(axis,),
        start_index_map=(axis,),
    )
    return lax.gather(
        x,
        lax.reshape(indices, (*indices.aval.shape, 1)),
        numbers,
        tuple([1 if i == axis else d for i, d in enumerate(shape)]),
        unique_indices=unique,
        indices_are_sorted=is_sorted,
        mode=_gather_mode(mode),
        fill_value=fill_value,
    )


_take_staged = StagedFunction(take_rows_of, "take", exact=False)
_take_filled = StagedFunction(take_rows_of, "take", exact=True)


@remembered
def take(
    a: ArrayLike,
    indices: ArrayLike,
    axis: int | None = None,
    out: None = None,
    mode: str | None = None,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    fill_value: object = None,
) -> Array:
    """Elements at ``indices`` along an axis.

    Args:
        a: array.
        indices: integers of any shape, which replaces the axis; negative ones count from the end.
        axis: axis in ``[-ndim, ndim)``; ``None`` takes from the flattened array.
        out: not supported.
        mode: what to do out of bounds: ``"fill"`` (default) gives ``fill_value``, ``"clip"`` the
            nearest element, ``"wrap"`` counts on from the other end.
        unique_indices: a promise that no index is repeated.
        indices_are_sorted: a promise that indices increase.
        fill_value: default: NaN, or for integers the least (signed) or greatest (unsigned).

    Raises:
        ArgumentTypeError: ``fill_value`` is no number.
        IndexingError: the axis has no elements, but there are indices.

    >>> import tracebridge.numpy as tnp
    >>> tnp.take(tnp.array([10, 20, 30]), tnp.array([2, 0, -1])).tolist()
    [30, 10, 30]
    """
    try:
        check_no_out("take", out)
        where = None if axis is None else index_of(axis, "take", "axis")
        statics = (
            where,
            _mode("take", mode),
            bool(unique_indices),
            bool(indices_are_sorted),
            fill_value,
        )
        if not (fill_value is None or isinstance(fill_value, Hashable)):
            msg = f"take: fill_value is {kind_of(fill_value)}, expected a number"
            raise ArgumentTypeError(msg)
        staged = _take_staged if fill_value is None else _take_filled
        return staged((a, indices), statics)
    except Exception as error:
        hide_internal_frames(error)
        raise


def _along_axis(name: str, x: Value, indices: Value, axis: int | None) -> tuple[Any, Any, int]:
    """Array and indices of one shape but for ``axis``, and the axis."""
    if axis is None:
        if indices.aval.ndim != 1:
            msg = f"{name}: without an axis indices are a vector, got {indices.aval.str_short()}"
            raise RankError(msg)
        return lax.reshape(x, (x.aval.size,)), indices, 0
    if x.aval.ndim != indices.aval.ndim:
        msg = (
            f"{name}: array and indices need the same number of axes, got {x.aval.str_short()} "
            f"and {indices.aval.str_short()}"
        )
        raise RankError(msg)
    axis = normalize_axis(axis, x.aval.ndim, name)
    left, right = ([*v.aval.shape[:axis], 1, *v.aval.shape[axis + 1 :]] for v in (x, indices))
    common = broadcast_shape(name, [left, right])
    x, indices = (
        broadcast_to(v, (*common[:axis], v.aval.shape[axis], *common[axis + 1 :]))
        for v in (x, indices)
    )
    return x, indices, axis


def _take_along_axis(
    x: Value, indices: Value, axis: int, mode: str, fill_value: Value | None, wrap_negative: bool
) -> Any:
    x, indices, axis = _along_axis("take_along_axis", x, indices, axis)
    size = x.aval.shape[axis]
    batch = tuple([i for i in range(x.aval.ndim) if i != axis])
    if x.aval.size == 0 or indices.aval.size == 0:
        fill = default_fill(x.aval.dtype) if fill_value is None else fill_value
        return full_of(x.aval.update(shape=indices.aval.shape), fill)
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(),
        collapsed_slice_dims=(axis,),
        start_index_map=(axis,),
        operand_batching_dims=batch,
        start_indices_batching_dims=batch,
    )
    indices = in_range("take_along_axis", indices, size, mode, wrap_negative)
    return lax.gather(
        x,
        lax.reshape(indices, (*indices.aval.shape, 1)),
        numbers,
        (1,) * x.aval.ndim,
        mode=_gather_mode(mode),
        fill_value=fill_value,
    )


_take_along_axis_staged = StagedFunction(_take_along_axis, "take_along_axis", exact=False)
_take_along_axis_filled = StagedFunction(_take_along_axis, "take_along_axis", exact=True)


@remembered
def take_along_axis(
    arr: ArrayLike,
    indices: ArrayLike,
    axis: int | None = -1,
    mode: str | lax.GatherScatterMode | None = None,
    fill_value: ArrayLike | None = None,
    *,
    wrap_negative_indices: bool | None = None,
) -> Array:
    """Elements at ``indices`` along an axis, with own indices for each row.

    Args:
        arr: array.
        indices: integers with as many axes as ``arr``; other axes are broadcast.
        axis: axis in ``[-ndim, ndim)``; ``None`` takes from the flattened array.
        mode: what to do out of bounds, see ``take``; ``"one_hot"`` gives 0 there, as a product
            with one-hot vectors would.
        fill_value: see ``take``.
        wrap_negative_indices: whether negative indices count from the end; ``None`` means yes.

    >>> import tracebridge.numpy as tnp
    >>> x = tnp.array([[30, 10, 20], [5, 6, 4]])
    >>> tnp.take_along_axis(x, tnp.argsort(x, axis=1), axis=1).tolist()
    [[10, 20, 30], [4, 5, 6]]
    """
    where = None if axis is None else index_of(axis, "take_along_axis", "axis")
    if isinstance(mode, str) and mode.lower() == "one_hot":
        mode, fill_value = "fill", 0
    wrap = wrap_negative_indices is None or bool(wrap_negative_indices)
    statics = (where, _mode("take_along_axis", mode), fill_value, wrap)
    staged = _take_along_axis_staged if fill_value is None else _take_along_axis_filled
    return staged((arr, indices), statics)


# writing -----------------------------------------------------------------------------------------


def _not_in_place(name: str, inplace: bool) -> None:
    if inplace:
        msg = f"{name}: arrays are immutable; pass inplace=False and use the result"
        raise ArgumentValueError(msg)


def _put_along_axis(x: Value, indices: Value, values: Value, axis: int, mode: str) -> Any:
    shape = x.aval.shape
    x, indices, where = _along_axis("put_along_axis", x, indices, axis)
    values = broadcast_to(
        lax.convert_dtype(values, x.aval.dtype, x.aval.weak_type), indices.aval.shape
    )
    batch = tuple([i for i in range(x.aval.ndim) if i != where])
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=(),
        inserted_window_dims=(where,),
        scatter_dims_to_operand_dims=(where,),
        operand_batching_dims=batch,
        scatter_indices_batching_dims=batch,
    )
    indices = in_range("put_along_axis", indices, x.aval.shape[where], mode)
    columns = lax.reshape(indices, (*indices.aval.shape, 1))
    out = lax.scatter(x, columns, values, numbers, mode=_gather_mode(mode))
    return lax.reshape(out, shape)


_put_along_axis_staged = StagedFunction(_put_along_axis, "put_along_axis")


@remembered
def put_along_axis(
    arr: ArrayLike,
    indices: ArrayLike,
    values: ArrayLike,
    axis: int | None,
    inplace: bool = True,
    *,
    mode: str | None = None,
) -> Array:
    """A copy of ``arr`` with elements replaced along an axis, with own indices for each row.

    Args:
        arr: array.
        indices: integers with as many axes as ``arr``.
        values: numbers, broadcast to the shape of ``indices``.
        axis: axis in ``[-ndim, ndim)``; ``None`` puts into the flattened array.
        inplace: must be ``False``: arrays are immutable.
        mode: what to do out of bounds: nothing is put there (default), ``"clip"`` or ``"wrap"``.

    >>> import tracebridge.numpy as tnp
    >>> x = tnp.zeros((2, 3))
    >>> tnp.put_along_axis(x, tnp.array([[2], [0]]), 1.0, axis=1, inplace=False).tolist()
    [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """
    _not_in_place("put_along_axis", inplace)
    warn_of_loss("put_along_axis", arr, values)
    where = None if axis is None else index_of(axis, "put_along_axis", "axis")
    return _put_along_axis_staged((arr, indices, values), (where, _mode("put_along_axis", mode)))


def _cycle(values: Value, positions: Value) -> Any:
    """Elements of a vector at positions counted around it."""
    size = values.aval.shape[0]
    return take_rows(values, lax.rem(positions, full_of(positions.aval, size)))


def _put(x: Value, indices: Value, values: Value, mode: str) -> Any:
    flat = lax.reshape(x, (x.aval.size,))
    indices = lax.reshape(indices, (indices.aval.size,))
    if mode == "clip":  # as in NumPy: negative ones are before the start
        indices = lax.max(indices, lax.full_like(indices, 0))
    values = lax.reshape(
        lax.convert_dtype(values, x.aval.dtype, x.aval.weak_type), (values.aval.size,)
    )
    count = indices.aval.shape[0]
    if values.aval.shape[0] != count:
        values = _cycle(values, lax.iota(_INT32, count))
    return lax.reshape(_put_along_axis(flat, indices, values, 0, mode), x.aval.shape)


_put_staged = StagedFunction(_put, "put")


def put(
    a: ArrayLike, ind: ArrayLike, v: ArrayLike, mode: str | None = None, *, inplace: bool = True
) -> Array:
    """A copy of ``a`` with elements of the flattened array replaced.

    Args:
        a: array.
        ind: integers of any shape.
        v: numbers, repeated if there are fewer than indices.
        mode: what to do out of bounds: nothing is put there (default), ``"clip"`` or ``"wrap"``.
        inplace: must be ``False``: arrays are immutable.

    >>> import tracebridge.numpy as tnp
    >>> tnp.put(tnp.arange(4), tnp.array([0, -1]), 9, inplace=False).tolist()
    [9, 1, 2, 9]
    """
    _not_in_place("put", inplace)
    warn_of_loss("put", a, v)
    if 0 in (value_of(ind).aval.size, value_of(v).aval.size):
        return value_of(a)
    return _put_staged((a, ind, v), (_mode("put", mode),))


def _place(x: Value, mask: Value, values: Value) -> Any:
    if x.aval.size != mask.aval.size:
        msg = f"place: array {x.aval.str_short()} and mask {mask.aval.str_short()} differ in size"
        raise ShapeMismatchError(msg)
    mask = lax.reshape(truth(mask), (mask.aval.size,))
    values = lax.reshape(
        lax.convert_dtype(values, x.aval.dtype, x.aval.weak_type), (values.aval.size,)
    )
    rank = lax.sub(lax.cumsum(lax.convert_dtype(mask, _INT32), 0), 1)
    new = _cycle(values, lax.max(rank, 0))
    flat = lax.reshape(x, (x.aval.size,))
    return lax.reshape(lax.select_n(mask, flat, new), x.aval.shape)


_place_staged = StagedFunction(_place, "place")


def place(arr: ArrayLike, mask: ArrayLike, vals: ArrayLike, *, inplace: bool = True) -> Array:
    """A copy of ``arr`` with the elements under ``mask`` replaced by ``vals``, one after another.

    Args:
        arr: array.
        mask: boolean array of as many elements.
        vals: numbers; they start again when they are used up.
        inplace: must be ``False``: arrays are immutable.

    Raises:
        ArgumentValueError: ``vals`` is empty.

    >>> import tracebridge.numpy as tnp
    >>> x = tnp.arange(4)
    >>> tnp.place(x, x > 0, tnp.array([7, 8]), inplace=False).tolist()
    [0, 7, 8, 7]
    """
    _not_in_place("place", inplace)
    warn_of_loss("place", arr, vals)
    if value_of(vals).aval.size == 0:
        msg = "place: vals is empty, expected at least one number"
        raise ArgumentValueError(msg)
    return value_of(arr) if value_of(arr).aval.size == 0 else _place_staged((arr, mask, vals))


def _fill_diagonal(x: Value, values: Value, wrap: bool) -> Any:
    shape = x.aval.shape
    if len(shape) < 2:
        msg = f"fill_diagonal: needs at least two axes, got {x.aval.str_short()}"
        raise RankError(msg)
    if len(shape) > 2 and len(set(shape)) > 1:
        msg = f"fill_diagonal: more than two axes need equal sizes, got {x.aval.str_short()}"
        raise ShapeMismatchError(msg)
    step = 1
    for i in range(1, len(shape)):
        step += int(np.prod(shape[i:]))
    end = x.aval.size if wrap or len(shape) > 2 else shape[1] * shape[1]
    values = lax.reshape(
        lax.convert_dtype(values, x.aval.dtype, x.aval.weak_type), (values.aval.size,)
    )
    flat = lax.iota(_INT32, x.aval.size)
    on = lax.bitwise_and(lax.eq(lax.rem(flat, step), 0), lax.lt(flat, end))
    new = _cycle(values, lax.div(flat, step))
    out = lax.select_n(on, lax.reshape(x, (x.aval.size,)), new)
    return lax.reshape(out, shape)


_fill_diagonal_staged = StagedFunction(_fill_diagonal, "fill_diagonal")


def fill_diagonal(
    a: ArrayLike, val: ArrayLike, wrap: bool = False, *, inplace: bool = True
) -> Array:
    """A copy of ``a`` with the main diagonal replaced.

    Args:
        a: array of at least two axes; of equal sizes if there are more.
        val: numbers, one after another along the diagonal; they start again when used up.
        wrap: in tall matrices, begin again after each square.
        inplace: must be ``False``: arrays are immutable.

    >>> import tracebridge.numpy as tnp
    >>> tnp.fill_diagonal(tnp.zeros((2, 2)), 5.0, inplace=False).tolist()
    [[5.0, 0.0], [0.0, 5.0]]
    """
    _not_in_place("fill_diagonal", inplace)
    warn_of_loss("fill_diagonal", a, val)
    return _fill_diagonal_staged((a, val), (bool(wrap),))
