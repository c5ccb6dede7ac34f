"""Arrays as sets: unions, intersections, differences, membership.

The number of unique elements depends on the data. Concrete arrays are therefore handled on the
host; in traced code ``size=`` says how many elements the result has.
"""

from __future__ import annotations

__all__ = ["intersect1d", "isin", "setdiff1d", "setxor1d", "union1d"]

from typing import Any, Literal, overload

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.canonicalize import default_int
from tracebridge.core.errors.argument_errors import ArgumentValueError, IntegerRangeError, size_of
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.lax.reduce.positions import true_positions
from tracebridge.core.runtime.arrays.argument_types import DimLike
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.arrays.transfer import put_canonical, put_numpy
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import as_strong, broadcast_to, promote_dtypes
from tracebridge.numpy._ranges import sides_of, wrapped
from tracebridge.numpy._staging import concrete, is_traced, value_of
from tracebridge.numpy.searching import search_halving, take_rows
from tracebridge.numpy.unique_elements import unique

_INT32, _BOOL = np.dtype(np.int32), np.dtype(np.bool_)
_HINT = "pass size="
_WHY = "The number of unique elements is the size of the result"
# Up to so many test elements, comparing with each is faster than sorting and searching.
_FEW = 32
_METHODS = ("auto", "binary_search", "compare_all", "sort")


def _chosen(values: Value, mask: Value, size: int, fill: Any, default: str) -> list[Any]:
    """The elements under ``mask``, ``size`` of them, and their positions in ``values``."""
    n = values.aval.shape[0]
    places, total = true_positions(mask, size)
    missing = lax.ge(lax.iota(_INT32, size), total)
    inside = lax.min(places, max(n - 1, 0))
    found = take_rows(values, inside)
    if fill is not None and default == "zero":
        filler = lax.convert_dtype(fill, values.aval.dtype)
    elif fill is not None:
        found, filler = promote_dtypes(found, fill)
    elif default == "zero" or not size:
        filler = zeros_of(values.aval.update(shape=()))
    else:
        filler = lax.index_in_dim(found, 0, 0, keepdims=False)
    filler = broadcast_to(filler, found.aval.shape)
    return [lax.select_n(missing, found, filler), places]


def _flat_pair(a: Any, b: Any) -> list[Any]:
    return [lax.reshape(v, (v.aval.size,)) for v in promote_dtypes(a, b)]


def _first_of_runs(x: Value) -> Any:
    """Whether each element of a sorted vector differs from the one before; NaN is one value."""
    n = x.aval.shape[0]
    first = full_of(x.aval.strong.update(shape=(min(n, 1),), dtype=np.dtype(np.bool_)), True)
    if n < 2:
        return first
    here, before = lax.slice_in_dim(x, 1, n), lax.slice_in_dim(x, 0, n - 1)
    both_nan = lax.bitwise_and(lax.ne(here, here), lax.ne(before, before))
    changed = lax.bitwise_and(lax.ne(here, before), lax.bitwise_not(both_nan))
    return lax.concatenate([first, changed], 0)


def union1d(
    ar1: ArrayLike | None,
    ar2: ArrayLike | None,
    *,
    size: DimLike | None = None,
    fill_value: object = None,
) -> Array:
    """The distinct elements of both arrays, sorted; ``size`` and ``fill_value`` as of ``unique``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.union1d(tnp.array([1, 2]), tnp.array([2, 3])).tolist()
    [1, 2, 3]
    """
    try:
        joined = _joined_staged((ar1, ar2))
    except IntegerRangeError:
        pair = wrapped((ar1, ar2))
        if pair is None:
            raise
        joined = _joined_staged(pair)
    return unique(joined, size=size, fill_value=fill_value)


_joined_staged = StagedFunction(lambda a, b: lax.concatenate(_flat_pair(a, b), 0), "union1d")


def _filled(pair: tuple[Value, Value], fill_value: ArrayLike | None, length: int) -> Any:
    """What a function gives that finds nothing: zeros, or the given value."""
    return _filled_staged((*pair, 0 if fill_value is None else fill_value), (length,))


def _filled_as(a: Value, b: Value, fill: Value, length: int) -> Any:
    return broadcast_to(promote_dtypes(_flat_pair(a, b)[0], fill)[1], (length,))


_filled_staged = StagedFunction(_filled_as, "full")


def _with_positions(x: Value) -> tuple[Any, Any]:
    """A vector sorted, and where its elements were."""
    ordered, order = lax.sort_key_val(x, lax.iota(_INT32, x.aval.shape[0]), 0, True)
    return ordered, order


def _intersect(*args: Any) -> list[Any]:
    a, b, *fill, size = args
    n, m = a.aval.size, b.aval.size
    a, b = _flat_pair(a, b)
    left, order = _with_positions(a)
    right, order_right = _with_positions(b)
    positions = search_halving(right, left, "left")
    match = lax.eq(take_rows(right, lax.min(positions, m - 1)), left)
    match = lax.bitwise_and(match, lax.bitwise_and(lax.lt(positions, m), _first_of_runs(left)))
    values, places = _chosen(left, match, size, fill[0] if fill else None, "first")
    missing = lax.ge(places, n)
    inside = lax.min(places, n - 1)
    first = lax.select_n(missing, take_rows(order, inside), full_of(places.aval, n))
    where = take_rows(positions, inside)
    second = take_rows(order_right, lax.min(where, m - 1))
    second = lax.select_n(missing, second, full_of(places.aval, m))
    # What is filled decides about dtypes, the fill is a part of it.
    return [as_strong(values), *[lax.convert_dtype(v, default_int()) for v in (first, second)]]


_intersect_staged = StagedFunction(_intersect, "intersect1d")


@overload
def intersect1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    assume_unique: bool = False,
    return_indices: Literal[False] = False,
    *,
    size: DimLike | None = None,
    fill_value: ArrayLike | None = None,
) -> Array: ...


@overload
def intersect1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    assume_unique: bool = False,
    *,
    return_indices: Literal[True],
    size: DimLike | None = None,
    fill_value: ArrayLike | None = None,
) -> tuple[Array, Array, Array]: ...


@overload
def intersect1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    assume_unique: bool = False,
    return_indices: bool = False,
    *,
    size: DimLike | None = None,
    fill_value: ArrayLike | None = None,
) -> Array | tuple[Array, Array, Array]: ...
def intersect1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    assume_unique: bool = False,
    return_indices: bool = False,
    *,
    size: DimLike | None = None,
    fill_value: ArrayLike | None = None,
) -> Any:
    """The distinct elements that both arrays have, sorted.

    Args:
        ar1: array, flattened.
        ar2: array, flattened.
        assume_unique: a promise that no element is repeated in one array.
        return_indices: also give the first positions in both arrays.
        size: how many to give, needed while tracing.
        fill_value: what to fill with if there are fewer (default: the first).

    >>> import tracebridge.numpy as tnp
    >>> tnp.intersect1d(tnp.array([1, 2, 3]), tnp.array([3, 1])).tolist()
    [1, 3]
    """
    a, b = value_of(ar1), value_of(ar2)
    if size is None:
        pair = _pair_staged((a, b))
        host = [concrete(v, _WHY, _HINT) for v in pair]
        values, first, second = np.intersect1d(
            *host, assume_unique=assume_unique, return_indices=True
        )
        weak = pair[0].aval.weak_type
        shared = pair[0][first] if is_traced(pair[0]) else put_numpy(values, weak_type=weak)
        results = [shared, put_canonical(first), put_canonical(second)]
    elif a.aval.size == 0 or b.aval.size == 0:
        length = size_of(size, "intersect1d", "size")
        nothing = _filled((a, b), fill_value, length)
        # As where fewer elements are found: positions behind the last.
        ends = [np.full((length,), v.aval.size, default_int()) for v in (a, b)]
        results = [nothing, *map(put_numpy, ends)]
    else:
        xs = (a, b) if fill_value is None else (a, b, fill_value)
        results = _intersect_staged(xs, (size_of(size, "intersect1d", "size"),))
    return tuple(results) if return_indices else results[0]


_pair_staged = StagedFunction(lambda a, b: _flat_pair(a, b), "promote")


def _difference(*args: Any) -> Any:
    a, b, *fill, size, assume_unique = args
    kind = a.aval.dtype, a.aval.weak_type
    a, b = _flat_pair(a, b)
    if not assume_unique:
        a = lax.sort(a, 0)
    keep = lax.bitwise_not(_is_member(a, b))
    if not assume_unique:
        keep = lax.bitwise_and(keep, _first_of_runs(a))
    found = _chosen(a, keep, size, fill[0] if fill else None, "zero")[0]
    return lax.convert_dtype(found, *kind)


_difference_staged = StagedFunction(_difference, "setdiff1d")


def setdiff1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    assume_unique: bool = False,
    *,
    size: DimLike | None = None,
    fill_value: ArrayLike | None = None,
) -> Array:
    """The distinct elements of ``ar1`` that ``ar2`` does not have, sorted.

    Args:
        ar1: array, flattened.
        ar2: array, flattened.
        assume_unique: a promise that no element is repeated in one array; keeps the order.
        size: how many to give, needed while tracing.
        fill_value: what to fill with if there are fewer (default 0).

    >>> import tracebridge.numpy as tnp
    >>> tnp.setdiff1d(tnp.array([1, 2, 3]), tnp.array([3, 1])).tolist()
    [2]
    """
    a, b = value_of(ar1), value_of(ar2)
    if size is None:
        pair = _pair_staged((a, b))
        host = [concrete(v, _WHY, _HINT) for v in pair]
        if is_traced(a):
            candidates = pair[0] if assume_unique else unique(pair[0])
            kept = np.flatnonzero(~np.isin(concrete(candidates, _WHY), host[1]))
            return lax.convert_dtype(candidates[kept], a.aval.dtype, a.aval.weak_type)
        difference = np.setdiff1d(*host, assume_unique=assume_unique)
        return put_numpy(difference.astype(a.aval.dtype), weak_type=a.aval.weak_type)
    if a.aval.size == 0:
        nothing = _filled((a, b), fill_value, size_of(size, "setdiff1d", "size"))
        return nothing.astype(_pair_staged((a, b))[0].dtype)
    xs = (a, b) if fill_value is None else (a, b, fill_value)
    return _difference_staged(xs, (size_of(size, "setdiff1d", "size"), bool(assume_unique)))


def _exclusive(*args: Any) -> Any:
    a, b, *fill, size = args
    a, b = (lax.sort(v, 0) for v in _flat_pair(a, b))
    once_a, once_b = _first_of_runs(a), _first_of_runs(b)
    keep_a = lax.bitwise_and(once_a, lax.bitwise_not(_is_member(a, b)))
    keep_b = lax.bitwise_and(once_b, lax.bitwise_not(_is_member(b, a)))
    values = lax.concatenate([a, b], 0)
    keep = lax.concatenate([keep_a, keep_b], 0)
    values, order = _with_positions(values)
    keep = take_rows(keep, order)
    return as_strong(_chosen(values, keep, size, fill[0] if fill else None, "first")[0])


_exclusive_staged = StagedFunction(_exclusive, "setxor1d")


def setxor1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    assume_unique: bool = False,
    *,
    size: DimLike | None = None,
    fill_value: ArrayLike | None = None,
) -> Array:
    """The distinct elements that exactly one of the arrays has, sorted.

    Args:
        ar1: array, flattened.
        ar2: array, flattened.
        assume_unique: a promise that no element is repeated in one array.
        size: how many to give, needed while tracing.
        fill_value: what to fill with if there are fewer (default: the first).

    >>> import tracebridge.numpy as tnp
    >>> tnp.setxor1d(tnp.array([1, 2, 3]), tnp.array([3, 4])).tolist()
    [1, 2, 4]
    """
    a, b = value_of(ar1), value_of(ar2)
    if size is None:
        pair = _pair_staged((a, b))
        host = [concrete(v, _WHY, _HINT) for v in pair]
        if is_traced(*pair):
            both = _joined_staged(tuple([v if assume_unique else unique(v) for v in pair]))
            values, counts = unique(both, return_counts=True)
            return values[np.flatnonzero(concrete(counts, _WHY) == 1)]
        found = np.setxor1d(*host, assume_unique=assume_unique)
        return put_numpy(found, weak_type=pair[0].aval.weak_type)
    if a.aval.size == 0 and b.aval.size == 0:
        return _filled((a, b), fill_value, size_of(size, "setxor1d", "size"))
    xs = (a, b) if fill_value is None else (a, b, fill_value)
    return _exclusive_staged(xs, (size_of(size, "setxor1d", "size"),))


# membership --------------------------------------------------------------------------------------


def _is_member(x: Value, members: Value) -> Any:
    """Whether each element of ``x`` is in the vector ``members``; NaN never is."""
    n = members.aval.shape[0]
    if n == 0:
        return full_of(x.aval.strong.update(dtype=np.dtype(np.bool_)), False)
    if n <= _FEW:
        shape = (*x.aval.shape, n)
        left = lax.broadcast_in_dim(x, shape, tuple(range(x.aval.ndim)))
        right = lax.broadcast_in_dim(members, shape, (len(shape) - 1,))
        return lax.reduce_or(lax.eq(left, right), (len(shape) - 1,))
    ordered = lax.sort(members, 0)
    found = lax.min(search_halving(ordered, x, "left"), n - 1)
    return lax.eq(take_rows(ordered, found), x)


def _isin(x: Value, members: Value, invert: bool) -> Any:
    x, members = promote_dtypes(x, members)
    x = lax.convert_dtype(x, x.aval.dtype)
    members = lax.convert_dtype(members, x.aval.dtype)
    inside = _is_member(x, lax.reshape(members, (members.aval.size,)))
    return lax.bitwise_not(inside) if invert else inside


_isin_staged = StagedFunction(_isin, "isin")


def isin(
    element: ArrayLike,
    test_elements: ArrayLike,
    assume_unique: bool = False,
    invert: bool = False,
    *,
    method: str = "auto",
) -> Array:
    """Whether each element of an array is one of ``test_elements``.

    Args:
        element: array.
        test_elements: array, flattened. A Python int outside the range of the other's integer
            dtype is in none.
        assume_unique: accepted; makes no difference.
        invert: whether it is none of them.
        method: "auto", "sort", "binary_search" or "compare_all"; the way is chosen by size.

    Raises:
        ArgumentValueError: there is no such method.

    >>> import tracebridge.numpy as tnp
    >>> tnp.isin(tnp.array([1, 2, 3]), tnp.array([3, 5])).tolist()
    [False, False, True]
    """
    del assume_unique
    if method not in _METHODS:
        msg = f"isin: method={method!r}"
        raise ArgumentValueError(msg, expected=f"one of {list(_METHODS)}")
    try:
        return _isin_staged((element, test_elements), (bool(invert),))
    except IntegerRangeError:
        # A Python int that the dtype of the others does not have is none of them.
        if not any(sides_of((element, test_elements))):
            raise
    return lax.full_like(value_of(element), bool(invert), _BOOL)
