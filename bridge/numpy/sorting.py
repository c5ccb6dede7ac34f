"""Sorting: sort, argsort, lexsort, partition, argpartition, sort_complex."""

from __future__ import annotations

__all__ = ["argpartition", "argsort", "lexsort", "partition", "sort", "sort_complex"]

from collections.abc import Sequence
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.canonicalize import default_int, to_inexact
from tracebridge.core.dtypes.dtypes import complex_of, is_complex
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError, index_of
from tracebridge.core.errors.shape_errors import AxisError, IndexingError, RankError
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import zeros_of
from tracebridge.core.runtime.arrays.argument_types import DType
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike, DTypeLike
from tracebridge.core.runtime.calls.remembered import remembered
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import dtype_of_positions, normalize_axis
from tracebridge.numpy._staging import static_dtype, value_of
from tracebridge.numpy.joining import array_sequence

_INT32 = np.dtype(np.int32)


def _axis_of(x: Value, axis: int | None, name: str) -> tuple[Any, int]:
    """``x`` (flattened for ``None``) and the axis to work along."""
    if axis is None:
        return lax.reshape(x, (x.aval.size,)), 0
    if x.aval.ndim == 0:
        raise AxisError(axis, 0, call=name)
    return x, normalize_axis(axis, x.aval.ndim, name)


def _sort(x: Value, axis: int | None, stable: bool, descending: bool) -> Any:
    x, axis = _axis_of(x, axis, "sort")
    out = lax.sort(x, axis, stable)
    return lax.rev(out, (axis,)) if descending else out


def positions(x: Value, axis: int, descending: bool = False) -> Any:
    """The positions that sort ``x`` stably along ``axis`` (while staging)."""
    if descending:
        # Sorted backwards twice: equal elements keep their order, NaNs come first.
        x = lax.rev(x, (axis,))
    kind = dtype_of_positions("argsort", x.aval.shape[axis], _INT32)
    iota = lax.broadcasted_iota(kind, x.aval.shape, axis)
    _, order = lax.sort_key_val(x, iota, axis, True)
    if not descending:
        return order
    return lax.sub(x.aval.shape[axis] - 1, lax.rev(order, (axis,)))


def _argsort(x: Value, axis: int | None, descending: bool, dtype: DType) -> Any:
    x, axis = _axis_of(x, axis, "argsort")
    return lax.convert_dtype(positions(x, axis, descending), dtype or default_int())


_sort_staged = StagedFunction(_sort, "sort")
_argsort_staged = StagedFunction(_argsort, "argsort")


def _axis(axis: int | None) -> int | None:
    return None if axis is None else index_of(axis, "", "axis")


def _check_options(name: str, kind: DType | None, order: Any) -> None:
    if kind not in (None, "quicksort", "mergesort", "heapsort", "stable"):
        msg = f"{name}: kind={kind!r}, expected None; use stable= to choose"
        raise ArgumentValueError(msg)
    if order is not None:
        msg = f"{name}: order={order!r} names fields, which arrays do not have"
        raise ArgumentValueError(msg)


@remembered
def sort(
    a: ArrayLike,
    axis: int | None = -1,
    *,
    kind: None = None,
    order: None = None,
    stable: bool = True,
    descending: bool = False,
) -> Array:
    """The elements in increasing order along an axis.

    Args:
        a: array; NaNs go last, complex numbers are ordered by real part first.
        axis: axis in ``[-ndim, ndim)``; ``None`` flattens first.
        kind: ignored, see ``stable``.
        order: not supported.
        stable: whether equal elements keep their order.
        descending: largest first.

    >>> import tracebridge.numpy as tnp
    >>> tnp.sort(tnp.array([3, 1, 2])).tolist()
    [1, 2, 3]
    """
    _check_options("sort", kind, order)
    return _sort_staged((a,), (_axis(axis), bool(stable), bool(descending)))


@remembered
def argsort(
    a: ArrayLike,
    axis: int | None = -1,
    *,
    kind: None = None,
    order: None = None,
    stable: bool = True,
    descending: bool = False,
    dtype: DTypeLike | None = None,
) -> Array:
    """The positions that put elements in increasing order along an axis; always stable.

    Args:
        a: array.
        axis: axis in ``[-ndim, ndim)``; ``None`` flattens first.
        kind: ignored.
        order: not supported.
        stable: accepted; the order of equal elements is kept in any case.
        descending: largest first.
        dtype: dtype of the positions (default: the default integer).

    >>> import tracebridge.numpy as tnp
    >>> tnp.argsort(tnp.array([30, 10, 20])).tolist()
    [1, 2, 0]
    """
    del stable
    _check_options("argsort", kind, order)
    kind_of_positions = static_dtype("argsort", dtype)
    return _argsort_staged((a,), (_axis(axis), bool(descending), kind_of_positions))


def _lexsort(*args: Value) -> Any:
    *keys, axis = args
    first = keys[0].aval
    if first.ndim == 0:
        return zeros_of(first.strong.update(dtype=default_int()))
    axis = normalize_axis(axis, first.ndim, "lexsort")
    kind = dtype_of_positions("lexsort", first.shape[axis], _INT32)
    iota = lax.broadcasted_iota(kind, first.shape, axis)
    *_, order = lax.sort([*reversed(keys), iota], axis, True, len(keys))
    return lax.convert_dtype(order, default_int())


_lexsort_staged = StagedFunction(_lexsort, "lexsort")


def lexsort(keys: ArrayLike | Sequence[ArrayLike], axis: int = -1) -> Array:
    """The positions that sort by several keys: by the last, ties by the one before, and so on.

    >>> import tracebridge.numpy as tnp
    >>> tnp.lexsort([tnp.array([2, 1, 0]), tnp.array([5, 5, 4])]).tolist()
    [2, 1, 0]
    """
    found: Sequence[Any] = array_sequence("lexsort", keys)
    return _lexsort_staged([value_of(k) for k in found], (index_of(axis, "lexsort", "axis"),))


def _check_kth(name: str, a: ArrayLike, kth: Any, axis: int) -> None:
    value = value_of(a)
    size = value.aval.shape[normalize_axis(axis, value.aval.ndim, name)]
    k = index_of(kth, name, "kth")
    if type(size) is int and not -size <= k < size:
        msg = f"{name}: kth={k} is out of bounds for axis {axis} of {value.aval.str_short()}"
        raise IndexingError(msg)
    if is_complex(value.aval.dtype):
        msg = f"{name} works on real numbers, got {value.aval.str_short()}"
        raise ArgumentTypeError(msg)


def partition(a: ArrayLike, kth: int, axis: int = -1) -> Array:
    """The elements along an axis with the ``kth`` in its sorted place, smaller ones before it.

    Here all elements are sorted.

    >>> import tracebridge.numpy as tnp
    >>> int(tnp.partition(tnp.array([5, 1, 4, 2]), 1)[1])
    2
    """
    _check_kth("partition", a, kth, axis)
    return sort(a, axis)


def argpartition(a: ArrayLike, kth: int, axis: int = -1) -> Array:
    """The positions that ``partition`` the elements along an axis.

    >>> import tracebridge.numpy as tnp
    >>> int(tnp.argpartition(tnp.array([5, 1, 4, 2]), 1)[1])
    3
    """
    _check_kth("argpartition", a, kth, axis)
    return argsort(a, axis)


def _sort_complex(x: Value) -> Any:
    if x.aval.ndim == 0:
        msg = "sort_complex: got an array without axes, expected at least one axis"
        raise RankError(msg)
    dtype = complex_of(to_inexact(x.aval.dtype))
    return lax.sort(lax.convert_dtype(x, dtype), x.aval.ndim - 1)


_sort_complex_staged = StagedFunction(_sort_complex, "sort_complex")


@remembered
def sort_complex(a: ArrayLike) -> Array:
    """The elements as complex numbers, sorted by real part, then by imaginary part.

    >>> import tracebridge.numpy as tnp
    >>> tnp.sort_complex(tnp.array([2 + 1j, 1 + 5j, 1 + 2j])).tolist()
    [(1+2j), (1+5j), (2+1j)]
    """
    return _sort_complex_staged((a,))
