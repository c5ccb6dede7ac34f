"""Unique elements: unique and its array-API forms.

The number of unique elements depends on the data. Concrete arrays are therefore handled on the
host; in traced code ``size=`` says how many elements the result has.
"""

from __future__ import annotations

__all__ = ["unique", "unique_all", "unique_counts", "unique_inverse", "unique_values"]

from typing import Any, Literal, NamedTuple, overload

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.canonicalize import default_int
from tracebridge.core.dtypes.dtypes import is_inexact
from tracebridge.core.errors.argument_errors import ArgumentValueError, size_of
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.lax.reduce.positions import true_positions
from tracebridge.core.runtime.arrays.argument_types import Axis, DimLike
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.arrays.transfer import put_numpy
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import broadcast_to, normalize_axis
from tracebridge.numpy._staging import concrete, is_traced, value_of
from tracebridge.numpy.searching import take_rows

_INT32 = np.dtype(np.int32)
_HINT = "pass size="
_WHY = "The number of unique elements is the size of the result"


def _rows_of(x: Value, axis: Axis) -> Any:
    """The elements to compare as rows of a table."""
    if axis is None:
        return lax.reshape(x, (x.aval.size, 1))
    where = normalize_axis(axis, x.aval.ndim, "unique")
    order = (where, *[i for i in range(x.aval.ndim) if i != where])
    x = lax.transpose(x, order)
    size = x.aval.shape[0]
    return lax.reshape(x, (size, x.aval.size // max(size, 1)))


def _changes(rows: Value, equal_nan: bool) -> Any:
    """Whether each sorted row differs from the one before."""
    n = rows.aval.shape[0]
    now, before = lax.slice_in_dim(rows, 1, n), lax.slice_in_dim(rows, 0, n - 1)
    differs = lax.ne(now, before)
    if equal_nan and is_inexact(rows.aval.dtype):
        both = lax.bitwise_and(lax.ne(now, now), lax.ne(before, before))
        differs = lax.bitwise_and(differs, lax.bitwise_not(both))
    changed = lax.reduce_or(differs, (1,))
    first = full_of(changed.aval.update(shape=(1,)), True)
    return lax.concatenate([first, changed], 0)


def _sorted_rows(rows: Value) -> tuple[Any, Any]:
    """Rows in lexicographic order, and where they were."""
    n, m = rows.aval.shape
    iota = lax.iota(_INT32, n)
    if m == 0:
        return rows, iota
    columns = [lax.reshape(lax.slice_in_dim(rows, i, i + 1, axis=1), (n,)) for i in range(m)]
    *columns, order = lax.sort([*columns, iota], 0, True, m)
    table = [lax.reshape(c, (n, 1)) for c in columns]
    return (lax.concatenate(table, 1) if m > 1 else table[0]), order


def _unique_sized(*args: Any) -> list[Any]:
    """Unique rows, where they first are, which unique row each row is, and how often each is."""
    x, *fill, axis, equal_nan, size = args
    rows = _rows_of(x, axis)
    n = rows.aval.shape[0]
    ordered, order = _sorted_rows(rows)
    new = _changes(ordered, equal_nan)
    # One more than asked for: the last count ends where the next value begins.
    starts, total = true_positions(new, size + 1)
    places = lax.slice_in_dim(starts, 0, size)
    steps = lax.iota(_INT32, size)
    missing = lax.ge(steps, total)
    inside = lax.min(places, n - 1)
    values = _take_slices(ordered, inside)
    first = lax.slice_in_dim(values, 0, 1) if size else values
    filler = first if not fill else lax.convert_dtype(fill[0], values.aval.dtype)
    if size:
        wide = lax.broadcast_in_dim(missing, values.aval.shape, (0,))
        values = lax.select_n(wide, values, broadcast_to(filler, values.aval.shape))
    index = take_rows(order, inside)
    start = take_rows(order, full_of(inside.aval, 0)) if size else index
    index = lax.select_n(missing, index, start)
    rank = lax.sub(lax.cumsum(lax.convert_dtype(new, _INT32), 0), 1)
    inverse = _scattered(rank, order, n)
    ends = lax.min(starts, n)
    counts = lax.sub(lax.slice_in_dim(ends, 1, size + 1), lax.slice_in_dim(ends, 0, size))
    counts = lax.select_n(missing, counts, zeros_of(counts.aval))
    return [
        _shaped(values, x, axis, size),
        *[lax.convert_dtype(v, default_int()) for v in (index, inverse, counts)],
    ]


def _shaped(values: Value, x: Value, axis: Axis, size: int) -> Any:
    """Rows of the table as slices along ``axis`` again."""
    if axis is None:
        return lax.reshape(values, (size,))
    where = normalize_axis(axis, x.aval.ndim, "unique")
    rest = [d for i, d in enumerate(x.aval.shape) if i != where]
    out = lax.reshape(values, (size, *rest))
    order = list(range(1, x.aval.ndim))
    order.insert(where, 0)
    return lax.transpose(out, tuple(order))


def _take_slices(table: Value, places: Value) -> Any:
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,)
    )
    columns = lax.reshape(places, (places.aval.size, 1))
    width = table.aval.shape[1]
    return lax.gather(table, columns, numbers, (1, width), mode="promise_in_bounds")


def _scattered(values: Value, places: Value, size: int) -> Any:
    """``out`` with ``out[places] = values``."""
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=(), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,)
    )
    start = zeros_of(values.aval.update(shape=(size,)))
    columns = lax.reshape(places, (places.aval.size, 1))
    mode = lax.GatherScatterMode.PROMISE_IN_BOUNDS
    return lax.scatter(start, columns, values, numbers, unique_indices=True, mode=mode)


_unique_staged = StagedFunction(_unique_sized, "unique")


def _unique_with_nans(x: Any, axis: int) -> tuple[Any, Any, Any, Any]:
    """The same along an axis where NaNs are one number, which NumPy's function does not know."""
    values, index, inverse, counts = _unique_staged((x,), (axis, True, x.aval.shape[axis]))
    count = int(np.count_nonzero(concrete(counts, _WHY)))
    kept = values.take(np.arange(count, dtype=_INT32), axis)
    return kept, index[:count], inverse, counts[:count]


def _unique_of_nothing(
    x: Any, axis: int | None, count: int, fill_value: Any
) -> tuple[Any, Any, Any, Any]:
    """The same of an array without elements: there are no slices, or all of them are equal."""
    slices = 0 if axis is None else x.aval.shape[axis]
    if count and not slices and fill_value is None:
        msg = f"unique: size={count}, but {x.aval.str_short()} has no elements"
        raise ArgumentValueError(msg, hint="pass fill_value=, which fills the result")
    shape = list(x.aval.shape) if axis is not None else [0]
    shape[axis or 0] = count
    filler = value_of(0 if fill_value is None else fill_value)
    values = broadcast_to(filler, tuple(shape)).astype(x.aval.dtype)
    counts = np.zeros((count,), default_int())
    counts[:1] = slices
    index, inverse = np.zeros((count,), default_int()), np.zeros((slices,), default_int())
    return values, put_numpy(index), put_numpy(inverse), put_numpy(counts)


def _unique(
    x: Any, axis: Axis, equal_nan: bool, size: DimLike | None, fill_value: object
) -> tuple[Any, Any, Any, Any]:
    """Values, first positions, inverse (flat) and counts."""
    x = value_of(x)
    where = None if axis is None else normalize_axis(axis, x.aval.ndim, "unique")
    if size is None:
        host = concrete(x, _WHY, _HINT)
        if equal_nan and where is not None and x.aval.ndim > 1 and np.isnan(host).any():
            return _unique_with_nans(x, where)
        unique_parts = np.unique(
            host,
            return_index=True,
            return_inverse=True,
            return_counts=True,
            # NumPy tells NaNs apart along an axis, whatever equal_nan says.
            axis=None if x.aval.ndim == 1 else where,
            equal_nan=equal_nan,
        )
        values, index, inverse, counts = unique_parts
        integers = [
            put_numpy(v.reshape(-1).astype(default_int())) for v in (index, inverse, counts)
        ]
        if is_traced(x):
            # Differentiated at once: the elements taken keep their derivatives.
            taken = x.reshape(-1)[integers[0]] if where is None else x.take(integers[0], where)
            return taken, integers[0], integers[1], integers[2]
        weak = x.aval.weak_type
        return put_numpy(values, weak_type=weak), integers[0], integers[1], integers[2]
    count = size_of(size, "unique", "size")
    if x.aval.size == 0:
        return _unique_of_nothing(x, where, count, fill_value)
    xs = (x,) if fill_value is None else (x, fill_value)
    values, index, inverse, counts = _unique_staged(xs, (where, bool(equal_nan), count))
    return values, index, inverse, counts


@overload
def unique(
    ar: ArrayLike | None,
    return_index: Literal[False] = False,
    return_inverse: Literal[False] = False,
    return_counts: Literal[False] = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    size: DimLike | None = None,
    fill_value: object = None,
    sorted: bool = True,
) -> Array: ...


@overload
def unique(
    ar: ArrayLike | None,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    size: DimLike | None = None,
    fill_value: object = None,
    sorted: bool = True,
) -> Any: ...
def unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    size: DimLike | None = None,
    fill_value: object = None,
    sorted: bool = True,
) -> Any:
    """The distinct elements in increasing order.

    Args:
        ar: array, flattened unless ``axis`` is given.
        return_index: also give the first position of each.
        return_inverse: also give, for each element, which of the distinct ones it is.
        return_counts: also give how often each occurs.
        axis: compare the slices along this axis.
        equal_nan: whether all NaNs are one.
        size: how many to give, needed while tracing. Further ones are left out.
        fill_value: what to fill with if there are fewer (default: the first).
        sorted: accepted; the result is always sorted.

    Raises:
        ConcretizationTypeError: ``ar`` is traced and ``size`` is not given.

    >>> import tracebridge.numpy as tnp
    >>> values, counts = tnp.unique(tnp.array([3, 1, 3]), return_counts=True)
    >>> values.tolist(), counts.tolist()
    ([1, 3], [1, 2])
    """
    del sorted
    values, index, inverse, counts = _unique(ar, axis, equal_nan, size, fill_value)
    if axis is None:
        shape = value_of(ar).aval.shape
        inverse = inverse.reshape(shape) if return_inverse else inverse
    extra = [
        v
        for v, wanted in (
            (index, return_index),
            (inverse, return_inverse),
            (counts, return_counts),
        )
        if wanted
    ]
    return (values, *extra) if extra else values


class UniqueAll(NamedTuple):
    """Result of ``unique_all``."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    """Result of ``unique_counts``."""

    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    """Result of ``unique_inverse``."""

    values: Array
    inverse_indices: Array


def unique_all(x: Any, /, *, size: DimLike | None = None, fill_value: Any = None) -> UniqueAll:
    """Distinct elements with positions, inverse and counts; NaNs are all distinct.

    >>> import tracebridge.numpy as tnp
    >>> tnp.unique_all(tnp.array([3, 1, 3])).indices.tolist()
    [1, 0]
    """
    return UniqueAll(
        *unique(x, True, True, True, equal_nan=False, size=size, fill_value=fill_value)
    )


def unique_counts(
    x: Any, /, *, size: DimLike | None = None, fill_value: Any = None
) -> UniqueCounts:
    """Distinct elements with counts; NaNs are all distinct.

    >>> import tracebridge.numpy as tnp
    >>> tnp.unique_counts(tnp.array([3, 1, 3])).counts.tolist()
    [1, 2]
    """
    return UniqueCounts(
        *unique(x, return_counts=True, equal_nan=False, size=size, fill_value=fill_value)
    )


def unique_inverse(
    x: Any, /, *, size: DimLike | None = None, fill_value: Any = None
) -> UniqueInverse:
    """Distinct elements with the inverse; NaNs are all distinct.

    >>> import tracebridge.numpy as tnp
    >>> tnp.unique_inverse(tnp.array([3, 1, 3])).inverse_indices.tolist()
    [1, 0, 1]
    """
    return UniqueInverse(
        *unique(x, return_inverse=True, equal_nan=False, size=size, fill_value=fill_value)
    )


def unique_values(x: Any, /, *, size: DimLike | None = None, fill_value: Any = None) -> Array:
    """Distinct elements; NaNs are all distinct.

    >>> import tracebridge.numpy as tnp
    >>> tnp.unique_values(tnp.array([3, 1, 3])).tolist()
    [1, 3]
    """
    return unique(x, equal_nan=False, size=size, fill_value=fill_value)
