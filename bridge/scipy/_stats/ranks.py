"""Ranks, the most frequent values, and the standard error of means."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.dtypes.canonicalize import default_float, default_int, to_inexact
from tracebridge.core.dtypes.dtypes import is_inexact
from tracebridge.core.errors.argument_errors import ArgumentValueError, UnsupportedArgumentError
from tracebridge.core.errors.filtering import shield
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.core.util.public_path import public_path
from tracebridge.numpy._promote import hashable_axis, normalize_axis

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value

__all__ = ["ModeResult", "mode", "rankdata", "sem"]

_INT32 = np.dtype(np.int32)
_METHODS = ("average", "min", "max", "dense", "ordinal")


@public_path("tracebridge.scipy.stats")
class ModeResult(NamedTuple):
    """The most frequent values, and how often they occur."""

    mode: Array
    count: Array  # pyright: ignore[reportIncompatibleMethodOverride] - the name of SciPy


def _check_policy(name: str, nan_policy: str) -> None:
    if nan_policy in ("propagate", "omit"):
        return
    if nan_policy == "raise":
        msg = f"{name}: nan_policy='raise', but a traced program raises no errors about values"
        raise UnsupportedArgumentError(msg, hint="look for NaN before the call")
    msg = f"{name}: nan_policy is {nan_policy!r}, expected 'propagate', 'omit' or 'raise'"
    raise ArgumentValueError(msg)


def _runs(ordered: Any) -> tuple[Any, Any, Any]:
    """Of sorted values along the last axis: where runs of equal ones begin, first and last place.

    NaN equals NaN here, as for sorting.
    """
    n = ordered.shape[-1]
    place = tnp.broadcast_to(tnp.arange(n, dtype=_INT32), ordered.shape)
    after, before = ordered[..., 1:], ordered[..., :-1]
    differ = after != before
    if is_inexact(ordered.dtype):
        differ = differ & ~(tnp.isnan(after) & tnp.isnan(before))
    edge = tnp.ones((*ordered.shape[:-1], 1), bool)
    begins = tnp.concatenate([edge, differ], axis=-1)
    ends = tnp.concatenate([differ, edge], axis=-1)
    axis = ordered.ndim - 1
    first = lax.cummax(tnp.where(begins, place, 0), axis)
    last = lax.cummin(tnp.where(ends, place, n), axis, reverse=True)
    return begins, first, last


def _rankdata(a: Value, method: str, axis: int | None, omit: bool) -> Any:
    if axis is None:
        a, axis = tnp.ravel(a), 0
    axis = normalize_axis(axis, a.ndim, "rankdata")
    dtype = default_float()
    if a.size == 0:
        return tnp.zeros(a.shape, dtype)
    rows = tnp.moveaxis(a, axis, -1)
    order = tnp.argsort(rows, axis=-1)
    back = tnp.argsort(order, axis=-1)
    if method == "ordinal":
        ranks = back + 1
    else:
        begins, first, last = _runs(tnp.take_along_axis(rows, order, axis=-1))
        ranks = {
            "average": lambda: 0.5 * (first + last) + 1,
            "min": lambda: first + 1,
            "max": lambda: last + 1,
            "dense": lambda: tnp.cumsum(begins, axis=-1, dtype=_INT32),
        }[method]()
        ranks = tnp.take_along_axis(ranks, back, axis=-1)
    ranks = ranks.astype(dtype)
    if is_inexact(rows.dtype):
        isnan = tnp.isnan(rows)
        ranks = tnp.where(isnan if omit else isnan.any(axis=-1, keepdims=True), math.nan, ranks)
    return tnp.moveaxis(ranks, -1, axis)


def _mode(a: Value, axis: int | None, keepdims: bool, omit: bool) -> list[Any]:
    ndim = a.ndim
    if axis is None:
        a, axis = tnp.ravel(a), 0
        kept = (1,) * max(ndim, 1)
    else:
        a = tnp.atleast_1d(a)
        axis = normalize_axis(axis, a.ndim, "mode")
        kept = (*a.shape[:axis], 1, *a.shape[axis + 1 :])
    rows = tnp.moveaxis(a, axis, -1)
    shape = kept if keepdims else rows.shape[:-1]
    if rows.shape[-1] == 0:
        dtype = a.dtype if is_inexact(a.dtype) else default_float()
        return [tnp.full(shape, math.nan, dtype), tnp.zeros(shape, default_float())]
    ordered = tnp.sort(rows, axis=-1)
    _, first, last = _runs(ordered)
    counts = last - first + 1
    if omit and is_inexact(rows.dtype):
        counts = tnp.where(tnp.isnan(ordered), 0, counts)
    best = tnp.argmax(counts, axis=-1, keepdims=True)
    modes = tnp.take_along_axis(ordered, best, axis=-1)
    count = tnp.take_along_axis(counts, best, axis=-1)
    if omit and is_inexact(rows.dtype):
        modes = tnp.where(count == 0, math.nan, modes)
    return [modes.reshape(shape), count.astype(default_int()).reshape(shape)]


def _sem(a: Value, axis: int | None, ddof: int, keepdims: bool, omit: bool) -> Any:
    if not is_inexact(a.dtype):
        a = a.astype(to_inexact(a.dtype))
    if axis is None:
        axes: Any = tuple(range(a.ndim))
    else:
        axes = normalize_axis(axis, a.ndim, "sem")
    if omit:
        count = (~tnp.isnan(a)).sum(axis=axes, keepdims=keepdims)
        spread = tnp.nanstd(a, axis=axes, ddof=ddof, keepdims=keepdims)
    else:
        count = a.size if axis is None else a.shape[axes]
        spread = tnp.std(a, axis=axes, ddof=ddof, keepdims=keepdims)
    return spread / tnp.sqrt(tnp.asarray(count, spread.dtype))


_rankdata_staged = StagedFunction(_rankdata, "rankdata")
_mode_staged = StagedFunction(_mode, "mode")
_sem_staged = StagedFunction(_sem, "sem")


def rankdata(
    a: ArrayLike,
    method: str = "average",
    *,
    axis: int | None = None,
    nan_policy: str = "propagate",
) -> Array:
    """The place of each element in ascending order, from 1 on.

    Args:
        a: numbers of any shape.
        method: what equal elements get: "average", "min" or "max" of their places, "dense" (the
            next element gets the next number), or "ordinal" (their own places, in order).
        axis: along which elements are ranked; None ranks all, as one vector.
        nan_policy: "propagate": NaN gives NaN for all ranked with it; "omit": for itself.

    Returns:
        Array of the default float and the shape of ``a``; a vector for ``axis=None``.

    Raises:
        ArgumentValueError: no such method or policy.
        UnsupportedArgumentError: ``nan_policy="raise"``.
        AxisError: the axis is out of range.

    >>> import tracebridge as tb
    >>> tb.scipy.stats.rankdata(tb.numpy.array([0.0, 2.0, 3.0, 2.0])).tolist()
    [1.0, 2.5, 4.0, 2.5]
    """
    _check_policy("rankdata", nan_policy)
    if method not in _METHODS:
        msg = f"rankdata: method is {method!r}, expected one of {list(_METHODS)}"
        raise ArgumentValueError(msg)
    return _rankdata_staged((a,), (method, axis, nan_policy == "omit"))


def mode(
    a: ArrayLike, axis: int | None = 0, nan_policy: str = "propagate", keepdims: bool = False
) -> ModeResult:
    """The most frequent values along an axis, the smallest of several, and how often they occur.

    Args:
        a: numbers of any shape.
        axis: along which values are counted; None counts all elements.
        nan_policy: "propagate" counts NaN as a value, as SciPy does; "omit" leaves it out.
        keepdims: whether the axis stays, with size 1.

    Returns:
        ``ModeResult(mode, count)``: values of the dtype of ``a``, and integers. NaN and 0
        where there is nothing to count.

    Raises:
        ArgumentValueError: no such policy.
        UnsupportedArgumentError: ``nan_policy="raise"``.
        AxisError: the axis is out of range.

    >>> import tracebridge as tb
    >>> found = tb.scipy.stats.mode(tb.numpy.array([3, 1, 2, 1]))
    >>> int(found.mode), int(found.count)
    (1, 2)
    """
    _check_policy("mode", nan_policy)
    where = hashable_axis(axis, "mode")
    return ModeResult(*_mode_staged((a,), (where, bool(keepdims), nan_policy == "omit")))


def sem(
    a: ArrayLike,
    axis: int | None = 0,
    ddof: int = 1,
    nan_policy: str = "propagate",
    *,
    keepdims: bool = False,
) -> Array:
    """The standard error of means: the standard deviation over the root of the number of elements.

    Args:
        a: numbers; integers become floats.
        axis: along which means are taken; None takes all elements.
        ddof: what is subtracted from the number of elements in the variance.
        nan_policy: "propagate", or "omit" to leave NaN out.
        keepdims: whether the axis stays, with size 1.

    Returns:
        Array of the shape of ``a`` without the axis. NaN where there are too few elements.

    Raises:
        ArgumentValueError: no such policy.
        UnsupportedArgumentError: ``nan_policy="raise"``.
        AxisError: the axis is out of range.

    >>> import tracebridge as tb
    >>> float(tb.scipy.stats.sem(tb.numpy.array([1.0, 2.0, 3.0, 4.0]), ddof=4 - 5))
    0.5
    """
    _check_policy("sem", nan_policy)
    where = hashable_axis(axis, "sem")
    return _sem_staged((a,), (where, ddof, bool(keepdims), nan_policy == "omit"))


shield(globals(), __name__)
