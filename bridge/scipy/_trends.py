"""Trends of signals."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.errors.argument_errors import ArgumentValueError, index_of
from tracebridge.core.ir.value import Value
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import hashable_axis, normalize_axis, promote_inexact
from tracebridge.scipy._nested import of_lists


def _detrend(x: Value, axis: int, kind: str, breaks: tuple[int, ...]) -> Any:
    (x,) = promote_inexact(x)
    axis = normalize_axis(axis, x.aval.ndim, "detrend")
    n = x.aval.shape[axis]
    edges = sorted({0, *breaks, n}) if kind == "linear" else [0, n]
    if edges[0] < 0 or edges[-1] > n:
        msg = f"detrend: bp={breaks}, expected positions in the {n} samples"
        raise ArgumentValueError(msg)
    moved = tnp.moveaxis(x, axis, -1)
    parts = [_without_trend(moved[..., i:j], kind) for i, j in itertools.pairwise(edges)]
    if not parts:
        return x
    rest = tnp.moveaxis(tnp.concatenate(parts, -1), -1, axis)
    # Lines are made of arrays, but they fit the signal, which may be weak.
    weak = x.aval.weak_type and kind == "linear"
    return lax.convert_dtype(rest, x.aval.dtype, weak)


def _without_trend(x: Value, kind: str) -> Any:
    x = x - x.mean(-1, keepdims=True)
    n = x.shape[-1]
    if kind == "constant" or n < 2:
        return x
    t = np.arange(n) - (n - 1) / 2
    t = tnp.asarray((t / np.sqrt(np.sum(t * t))).astype(tnp.real(x).dtype))
    return x - (x * t).sum(-1, keepdims=True) * t


_detrend_staged = of_lists(StagedFunction(_detrend, "detrend"))


def detrend(
    data: ArrayLike,
    axis: int = -1,
    type: str = "linear",
    bp: int | Sequence[int] | np.ndarray[Any, Any] = 0,
    overwrite_data: None = None,
) -> Array:
    """A signal without its mean, or without the line that fits it best.

    Args:
        data: array.
        axis: axis in ``[-ndim, ndim)``.
        type: "linear" or "constant".
        bp: positions between which lines are fitted alone.
        overwrite_data: not used; arrays are immutable.

    Raises:
        ArgumentValueError: no such type, or a position outside.
        AxisError: no such axis.

    >>> import tracebridge as tb
    >>> tb.scipy.signal.detrend(tb.numpy.array([1.0, 3.0]), type="constant").tolist()
    [-1.0, 1.0]
    """
    del overwrite_data
    if type not in ("linear", "constant"):
        msg = f"detrend: type is {type!r}, expected 'linear' or 'constant'"
        raise ArgumentValueError(msg)
    breaks = hashable_axis(np.atleast_1d(bp).tolist(), "detrend")
    return _detrend_staged((data,), (index_of(axis, "detrend", "axis"), type, breaks))


def detrender(name: str, how: Any, axis: int) -> Callable[[Any], Any]:
    if callable(how):
        function: Callable[[Any], Any] = how
        return (
            function
            if axis == -1
            else lambda x: tnp.moveaxis(function(tnp.moveaxis(x, -1, axis)), axis, -1)
        )
    if isinstance(how, str):
        return lambda x: detrend(x, type=how)
    if not how:
        return lambda x: x
    msg = f"{name}: detrend is {how!r}, expected 'linear', 'constant', a function or False"
    raise ArgumentValueError(msg)
