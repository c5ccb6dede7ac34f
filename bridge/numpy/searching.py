"""Searching: where, positions of extrema, searchsorted."""

from __future__ import annotations

__all__ = ["argmax", "argmin", "nanargmax", "nanargmin", "searchsorted", "where"]

from typing import Any, overload

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.canonicalize import default_int
from tracebridge.core.dtypes.dtypes import is_bool, is_complex, is_inexact
from tracebridge.core.errors.argument_errors import ArgumentValueError, IntegerRangeError, index_of
from tracebridge.core.errors.filtering import hide_internal_frames
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import full_of
from tracebridge.core.runtime.arrays.argument_types import DimLike
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.remembered import remembered
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.core.symbolic.compare import is_empty
from tracebridge.numpy._promote import (
    broadcast_operands,
    check_no_out,
    dtype_of_positions,
    normalize_axis,
    promote_dtypes,
)
from tracebridge.numpy._ranges import integer_limits, side_of, wrapped
from tracebridge.numpy.elementwise_logic import truth
from tracebridge.numpy.positions import nonzero

_INT32 = np.dtype(np.int32)


def _where(condition: Any, x: Any, y: Any) -> Any:
    x, y = promote_dtypes(x, y)
    condition, x, y = broadcast_operands("where", truth(condition), x, y)
    return lax.select_n(condition, y, x)


_where_staged = StagedFunction(_where, "where")


@overload
def where(
    condition: ArrayLike, /, *, size: DimLike | None = None, fill_value: ArrayLike | None = None
) -> tuple[Array, ...]: ...


@overload
def where(condition: ArrayLike, x: ArrayLike, y: ArrayLike, /) -> Array: ...


@overload
def where(
    condition: ArrayLike,
    x: ArrayLike | None = None,
    y: ArrayLike | None = None,
    /,
    *,
    size: DimLike | None = None,
    fill_value: ArrayLike | None = None,
) -> Any: ...
def where(
    condition: ArrayLike,
    x: ArrayLike | None = None,
    y: ArrayLike | None = None,
    /,
    *,
    size: Any = None,
    fill_value: ArrayLike | None = None,
) -> Any:
    """Elements of ``x`` where ``condition`` is true, else of ``y``.

    With ``condition`` alone: the positions of its true elements, see ``nonzero``.

    Args:
        condition: array; numbers count as true where they are not zero.
        x: array or number; all three are broadcast together, ``x`` and ``y`` are promoted. A
            Python int outside the range of the other's integer dtype wraps around, as in NumPy.
        y: likewise.
        size: see ``nonzero``.
        fill_value: see ``nonzero``.

    Raises:
        ArgumentValueError: only one of ``x`` and ``y`` is given, or both and ``size``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.where(tnp.array([True, False]), 1.0, tnp.array([5.0, 6.0])).tolist()
    [1.0, 6.0]
    """
    try:
        if x is None and y is None:
            return nonzero(condition, size=size, fill_value=fill_value)
        if x is None or y is None:
            msg = "where: got one of x and y, expected both or neither"
            raise ArgumentValueError(msg)
        if size is not None or fill_value is not None:
            msg = "where: size and fill_value are for the form with condition alone"
            raise ArgumentValueError(msg)
        try:
            return _where_staged((condition, x, y))
        except IntegerRangeError:
            choices = wrapped((x, y))
            if choices is None:
                raise
        return _where_staged((condition, *choices))
    except Exception as error:
        hide_internal_frames(error, "where")
        raise


# positions of extrema ----------------------------------------------------------------------------


def _arg_extremum(x: Value, name: str, axis: int | None, keepdims: bool) -> Any:
    """The first position of the extremum; NaN counts as extreme, unless ``name`` says otherwise."""
    shape = x.aval.shape
    if axis is None:
        x, where_ = lax.reshape(x, (x.aval.size,)), 0
    else:
        where_ = normalize_axis(axis, x.aval.ndim, name)
    if is_empty(x.aval.shape[where_]):
        msg = (
            f"attempt to get {name.removeprefix('nan')} of an empty sequence: axis {axis} of an "
            f"array of shape {shape} has no elements"
        )
        raise ArgumentValueError(msg)
    if name.startswith("nan") and is_inexact(x.aval.dtype):
        is_nan = lax.ne(x, x)
        worst = -np.inf if name.endswith("max") else np.inf
        x = lax.select_n(is_nan, x, full_of(x.aval, worst))
        index = _search(x, name, where_)
        nothing = lax.reduce_and(is_nan, (where_,))
        index = lax.select_n(nothing, index, full_of(index.aval, -1))
    else:
        index = _search(x, name, where_)
    if not keepdims:
        return index
    kept = [1 if axis is None or i == where_ else d for i, d in enumerate(shape)]
    return lax.reshape(index, tuple(kept))


def _search(x: Value, name: str, axis: int) -> Any:
    """The first extremum or NaN; complex numbers are ordered by their real parts first."""
    biggest = name.endswith("max")
    kind = dtype_of_positions(name, x.aval.shape[axis])
    if not is_complex(x.aval.dtype):
        return (lax.argmax if biggest else lax.argmin)(x, axis, kind)
    reduce = lax.reduce_max if biggest else lax.reduce_min
    best = lax.expand_dims(reduce(x, (axis,)), (axis,))
    best = lax.broadcast_in_dim(best, x.aval.shape, tuple(range(x.aval.ndim)))
    found = lax.bitwise_or(lax.eq(x, best), lax.ne(x, x))
    return lax.argmax(found, axis, kind)


_arg_staged = {
    name: StagedFunction(_arg_extremum, name)
    for name in ("argmax", "argmin", "nanargmax", "nanargmin")
}


def _arg(name: str, a: ArrayLike, axis: int | None, out: object, keepdims: object) -> Any:
    check_no_out(name, out)
    where_ = None if axis is None else index_of(axis, name, "axis")
    return _arg_staged[name]((a,), (name, where_, bool(keepdims)))


def argmax(
    a: ArrayLike, axis: int | None = None, out: None = None, keepdims: bool | None = None
) -> Array:
    """Position of the first largest element; the first NaN counts as the largest.

    Args:
        a: real or boolean array.
        axis: axis to search; ``None`` searches the flattened array.
        out: not supported.
        keepdims: keep the axis with size 1.

    Raises:
        ValueError: there are no elements.

    >>> import tracebridge.numpy as tnp
    >>> int(tnp.argmax(tnp.array([2.0, 7.0, 7.0])))
    1
    """
    try:
        return _arg("argmax", a, axis, out, keepdims)
    except Exception as error:
        hide_internal_frames(error)
        raise


def argmin(
    a: ArrayLike, axis: int | None = None, out: None = None, keepdims: bool | None = None
) -> Array:
    """Position of the first smallest element; arguments as of ``argmax``.

    >>> import tracebridge.numpy as tnp
    >>> int(tnp.argmin(tnp.array([2.0, 1.0, 1.0])))
    1
    """
    try:
        return _arg("argmin", a, axis, out, keepdims)
    except Exception as error:
        hide_internal_frames(error)
        raise


def nanargmax(
    a: ArrayLike, axis: int | None = None, out: None = None, keepdims: bool | None = None
) -> Array:
    """Position of the first largest number, NaNs left out; -1 where there are only NaNs.

    >>> import tracebridge.numpy as tnp
    >>> int(tnp.nanargmax(tnp.array([2.0, tnp.nan, 7.0])))
    2
    """
    return _arg("nanargmax", a, axis, out, keepdims)


def nanargmin(
    a: ArrayLike, axis: int | None = None, out: None = None, keepdims: bool | None = None
) -> Array:
    """Position of the first smallest number, NaNs left out; -1 where there are only NaNs.

    >>> import tracebridge.numpy as tnp
    >>> int(tnp.nanargmin(tnp.array([2.0, tnp.nan, 7.0])))
    0
    """
    return _arg("nanargmin", a, axis, out, keepdims)


# searchsorted ------------------------------------------------------------------------------------


def take_rows(x: Value, positions: Value) -> Any:
    """``x[positions]`` for a vector; positions out of bounds are clamped."""
    if not positions.aval.ndim:
        return lax.reshape(lax.dynamic_slice(x, [positions], (1,)), ())
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,)
    )
    columns = lax.reshape(positions, (*positions.aval.shape, 1))
    return lax.gather(x, columns, numbers, (1,), mode=lax.GatherScatterMode.CLIP)


def _before(x: Value, y: Value) -> Any:
    """Whether ``x`` is sorted before ``y``: NaN is last, as in NumPy."""
    if is_complex(x.aval.dtype):
        (a, b), (c, d) = ((lax.real(v), lax.imag(v)) for v in (x, y))
        first = lax.bitwise_not(lax.bitwise_or(_before(a, c), _before(c, a)))
        return lax.bitwise_or(_before(a, c), lax.bitwise_and(first, _before(b, d)))
    less = lax.lt(x, y)
    if not is_inexact(x.aval.dtype):
        return less
    return lax.bitwise_or(less, lax.bitwise_and(lax.ne(y, y), lax.eq(x, x)))


def _is_left(a: Value, v: Value, side: str) -> Any:
    """Whether an element ``a`` stays left of where ``v`` is put in."""
    return _before(a, v) if side == "left" else lax.bitwise_not(_before(v, a))


def search_halving(a: Value, v: Value, side: str) -> Any:
    """By halves: as many elements are left of ``v`` as ``found``, and at most ``length`` more.

    All reads are in bounds, whatever has been found.
    """
    length = a.aval.shape[0]
    found = full_of(v.aval.update(dtype=_INT32, weak_type=False), 0)
    while length:
        half = (length + 1) // 2
        element = take_rows(a, lax.add(found, half - 1))
        go = _is_left(element, v, side)
        found = lax.select_n(go, found, lax.add(found, half))
        length -= half
    return found


def _search_comparing(a: Value, v: Value, side: str) -> Any:
    """By counting: compares every element with every number."""
    n = a.aval.shape[0]
    shape = (n, *v.aval.shape)
    elements = lax.broadcast_in_dim(a, shape, (0,))
    numbers = lax.broadcast_in_dim(v, shape, tuple(range(1, len(shape))))
    left = lax.convert_dtype(_is_left(elements, numbers, side), _INT32)
    return lax.reduce_sum(left, (0,))


def _searchsorted(*args: Any) -> Any:
    *xs, side, method = args
    a, v = promote_dtypes(*xs[:2])
    if a.aval.ndim != 1:
        msg = f"searchsorted: the sorted array must have one axis, got {a.aval.str_short()}"
        raise ShapeMismatchError(msg)
    if is_bool(a.aval.dtype):
        a, v = (lax.convert_dtype(x, _INT32) for x in (a, v))
    a, v = (lax.convert_dtype(x, x.aval.dtype, False) for x in (a, v))
    if len(xs) > 2:
        a = take_rows(a, xs[2])
    if a.aval.shape[0] == 0:
        positions = full_of(v.aval.update(dtype=_INT32), 0)
    elif method == "compare_all":
        positions = _search_comparing(a, v, side)
    else:
        positions = search_halving(a, v, side)
    n = a.aval.shape[0]
    # Positions need 64 bits only where there are as many.
    return lax.convert_dtype(positions, _INT32 if type(n) is int and n < 2**31 else default_int())


_searchsorted_staged = StagedFunction(_searchsorted, "searchsorted")
SEARCH_METHODS = ("scan", "scan_unrolled", "sort", "compare_all", "default")


@remembered
def searchsorted(
    a: ArrayLike,
    v: ArrayLike,
    side: str = "left",
    sorter: ArrayLike | None = None,
    *,
    method: str = "scan",
) -> Array:
    """Positions at which numbers can be put into a sorted vector so that it stays sorted.

    Args:
        a: sorted vector; NaNs are last.
        v: numbers to look for, of any shape; a Python int may lie outside the range of ``a``'s
            dtype.
        side: ``"left"`` for the first such position, ``"right"`` for the last.
        sorter: indices that sort ``a`` if it is not sorted.
        method: ``"compare_all"`` compares every pair, all other names halve intervals.

    Raises:
        ShapeMismatchError: ``a`` is not a vector.
        ArgumentValueError: ``side`` or ``method`` is unknown.

    >>> import tracebridge.numpy as tnp
    >>> tnp.searchsorted(tnp.array([1.0, 3.0, 5.0]), tnp.array([0.0, 3.0, 9.0])).tolist()
    [0, 1, 3]
    """
    if side not in ("left", "right"):
        msg = f"searchsorted: side must be 'left' or 'right', got {side!r}"
        raise ArgumentValueError(msg)
    if method not in SEARCH_METHODS:
        msg = f"searchsorted: method must be one of {SEARCH_METHODS}, got {method!r}"
        raise ArgumentValueError(msg)
    xs = (a, v) if sorter is None else (a, v, sorter)
    try:
        return _searchsorted_staged(xs, (side, method))
    except IntegerRangeError:
        limits = integer_limits((a, v))
        beyond = side_of(v, limits)
        if limits is None or not beyond:
            raise
    # Behind all elements is right of the largest number, before them left of the smallest.
    v, side = (limits[1], "right") if beyond > 0 else (limits[0], "left")
    return _searchsorted_staged((a, v, *xs[2:]), (side, method))
