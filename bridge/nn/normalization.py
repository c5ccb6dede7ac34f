"""Functions that normalise over axes: the softmax family, standardize; one_hot beside them."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge._api.custom.custom_jvp import custom_jvp
from tracebridge.core.collectives.axes import axis_size
from tracebridge.core.collectives.axis_index import axis_index
from tracebridge.core.config.state import state
from tracebridge.core.dtypes.canonicalize import to_inexact
from tracebridge.core.errors.argument_errors import ArgumentValueError, size_of
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.lax.reduce.exp_sums import shifted_exp_sum
from tracebridge.core.runtime.arrays.argument_types import Axis
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike, DTypeLike
from tracebridge.core.runtime.calls.remembered import one_program, remembered
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy import _exp_sums
from tracebridge.numpy._promote import normalize_axes, normalize_axis, widened

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value

# Floats whose sums of exponentials may have any shift.
_SHIFTED = frozenset([np.dtype(np.float32), np.dtype(np.float64)])


def logsumexp(
    a: ArrayLike,
    axis: Axis = None,
    b: ArrayLike | None = None,
    keepdims: bool = False,
    return_sign: bool = False,
    where: ArrayLike | None = None,
) -> Any:
    """Log of the sum of exponentials, without overflow.

    Args:
        a: array of numbers.
        axis: axes to reduce; ``None`` reduces all.
        b: factors of the exponentials, broadcastable to ``a``.
        keepdims: keep reduced axes with size 1.
        return_sign: give the log of the absolute sum, and its sign.
        where: which elements take part, broadcastable to ``a``.

    Returns:
        Array, or a pair with ``return_sign``. An empty sum gives minus infinity; a negative one
        NaN.

    >>> import tracebridge as tb
    >>> round(float(tb.nn.logsumexp(tb.numpy.array([1000.0, 1000.0]))), 4)
    1000.6931
    """
    return _exp_sums.logsumexp(a, axis, b, keepdims, return_sign, where)


@one_program
def logmeanexp(
    x: ArrayLike, axis: Axis = None, where: ArrayLike | None = None, keepdims: bool = False
) -> Array:
    """Log of the mean of exponentials, without overflow.

    Args:
        x: array of numbers.
        axis: axes to reduce; ``None`` reduces all.
        where: which elements take part, broadcastable to ``x``.
        keepdims: keep reduced axes with size 1.

    >>> import tracebridge as tb
    >>> float(tb.nn.logmeanexp(tb.numpy.array([1000.0, 1000.0])))
    1000.0
    """

    def mean(x: Any) -> Any:
        total = logsumexp(x, axis, keepdims=keepdims, where=where)
        ones = tnp.ones_like(x, dtype=total.real.dtype)
        return total - tnp.log(tnp.sum(ones, axis=axis, where=where, keepdims=keepdims))

    return widened(mean)(tnp.asarray(x))


@remembered
def log_softmax(x: ArrayLike, axis: Axis = -1, where: ArrayLike | None = None) -> Array:
    """Log of the softmax.

    Args:
        x: array of numbers.
        axis: axes over which the exponentials add up to 1.
        where: which elements take part; the others get minus infinity.

    >>> import tracebridge as tb
    >>> tb.nn.log_softmax(tb.numpy.array([0.0, -1000.0])).tolist()
    [0.0, -1000.0]
    """
    axis = tuple(axis) if isinstance(axis, list) else axis
    if where is None and _is_eager(x):
        return _log_softmax_staged((x,), (axis,))
    x = _inexact(x)
    return _log_softmax_call(x, axis, None if where is None else tnp.asarray(where))


def _is_eager(x: object) -> bool:
    """Whether a function of ``x`` runs at once, by a program for all of it."""
    return type(x) is Array and state() is None


def _inexact(x: ArrayLike) -> Any:
    x = tnp.asarray(x)
    return x if tnp.issubdtype(x.dtype, tnp.inexact) else x.astype(to_inexact(x.dtype))


def _log_softmax(x: Value, axis: Any, where: Any) -> Any:
    if where is None and x.aval.dtype in _SHIFTED:
        axes = normalize_axes(axis, x.aval.ndim)
        rows = tuple([1 if i in axes else n for i, n in enumerate(x.aval.shape)])
        shift, total = [lax.reshape(v, rows) for v in shifted_exp_sum(x, axes)]
        # Rounding makes no probability larger than 1.
        return lax.min(x - shift - tnp.log(total), 0.0)
    # Not the guarded shift of logsumexp: next to infinity all elements are NaN, as in softmax.
    shift = tnp.max(tnp.real(x), axis=axis, where=where, initial=-np.inf, keepdims=True)
    shifted = x - shift if where is None else tnp.where(where, x - shift, 0)
    total = tnp.sum(tnp.exp(shifted), axis=axis, where=where, keepdims=True)
    result = shifted - tnp.log(total)
    return result if where is None else tnp.where(where, result, -np.inf)


_log_softmax_call = custom_jvp(_log_softmax, nondiff_argnums=(1,))


@_log_softmax_call.defjvp
def _log_softmax_jvp(axis: Any, primals: Any, tangents: Any) -> Any:
    """The result is all that the derivative needs, so that nothing else is kept for it."""
    (x, where), (t, _) = primals, tangents
    y = _log_softmax_call(x, axis, where)
    if where is not None:
        t = tnp.where(where, t, 0)
    total = tnp.sum(tnp.exp(y) * t, axis=axis, keepdims=True)
    return y, t - total if where is None else tnp.where(where, t - total, 0)


def _softmax(x: Value, axis: Any, where: Any) -> Any:
    def shares(x: Any) -> Any:
        best = tnp.max(x, axis=axis, where=where, initial=-np.inf, keepdims=True)
        shifted = tnp.exp((x if where is None else tnp.where(where, x, -np.inf)) - best)
        result = shifted / tnp.sum(shifted, axis=axis, where=where, keepdims=True)
        return result if where is None else tnp.where(where, result, 0)

    # Of the differences in 16 bits the exponentials would have few digits.
    return widened(shares)(x)


_softmax_call = custom_jvp(_softmax, nondiff_argnums=(1,))


@_softmax_call.defjvp
def _softmax_jvp(axis: Any, primals: Any, tangents: Any) -> Any:
    (x, where), (t, _) = primals, tangents
    y = _softmax_call(x, axis, where)
    if where is not None:
        t = tnp.where(where, t, 0)
    return y, y * (t - tnp.sum(y * t, axis=axis, keepdims=True))


_log_softmax_staged = StagedFunction(
    lambda x, axis: _log_softmax_call(_inexact(x), axis, None), "log_softmax"
)
_softmax_staged = StagedFunction(lambda x, axis: _softmax_call(_inexact(x), axis, None), "softmax")


@remembered
def softmax(x: ArrayLike, axis: Axis = -1, where: ArrayLike | None = None) -> Array:
    """Exponentials, divided by their sum over axes.

    Args:
        x: array of numbers.
        axis: axes over which the result adds up to 1.
        where: which elements take part; the others get 0.

    >>> import tracebridge as tb
    >>> tb.nn.softmax(tb.numpy.array([1000.0, 1000.0])).tolist()
    [0.5, 0.5]
    """
    axis = tuple(axis) if isinstance(axis, list) else axis
    if where is None and _is_eager(x):
        return _softmax_staged((x,), (axis,))
    x = _inexact(x)
    return _softmax_call(x, axis, None if where is None else tnp.asarray(where))


@one_program
def standardize(
    x: ArrayLike,
    axis: Axis = -1,
    mean: ArrayLike | None = None,
    variance: ArrayLike | None = None,
    epsilon: ArrayLike = 1e-5,
    where: ArrayLike | None = None,
    *,
    algorithm: str = "fast",
) -> Array:
    """Numbers with their mean taken away, divided by their standard deviation.

    Args:
        x: array of numbers.
        axis: axes over which mean and variance are taken.
        mean: the mean, if it is known; broadcastable to ``x``.
        variance: the variance, if it is known; broadcastable to ``x``.
        epsilon: added to the variance.
        where: which elements mean and variance are taken of.
        algorithm: ``"fast"``, the mean of the squares less the square of the mean; or
            ``"stable"``, the mean of the squares of the differences.

    Raises:
        ArgumentValueError: another algorithm.

    >>> import tracebridge as tb
    >>> tb.nn.standardize(tb.numpy.array([1.0, 3.0]), epsilon=0.0).tolist()
    [-1.0, 1.0]
    """
    x = tnp.asarray(x)
    if algorithm not in ("fast", "stable"):
        msg = f"standardize: algorithm is {algorithm!r}"
        raise ArgumentValueError(msg, expected="'fast' or 'stable'")
    kinds = [v for v in (x, mean, variance, epsilon) if v is not None]
    narrow = tnp.issubdtype(x.dtype, tnp.floating) and tnp.finfo(x.dtype).bits < 32
    # Squares overflow in 16 bits, and differences of means of squares have no digits there.
    x = x.astype(tnp.float32) if narrow else x
    if mean is None:
        mean = tnp.mean(x, axis, keepdims=True, where=where)
    center = x - mean
    if variance is None and algorithm == "stable":
        variance = tnp.mean(tnp.square(center), axis, keepdims=True, where=where)
    elif variance is None:
        squares = tnp.mean(tnp.square(x), axis, keepdims=True, where=where)
        # Rounding may make the difference negative.
        variance = tnp.clip(squares - tnp.square(mean), 0)
    scaled = center * lax.rsqrt(tnp.asarray(variance + epsilon))
    return scaled.astype(tnp.result_type(*kinds)) if narrow else scaled


def one_hot(x: Any, num_classes: int, *, dtype: DTypeLike | None = None, axis: Any = -1) -> Array:
    """Vectors with a 1 at the place that an index names, and 0 elsewhere.

    Args:
        x: array of indices; those outside of the classes give zeros.
        num_classes: length of the vectors.
        dtype: of the result; default: the default float.
        axis: where the vectors lie in the result, or the name of a mapped axis of that size.

    Raises:
        ShapeMismatchError: the mapped axis has another size.
        AxisError: no such axis.

    >>> import tracebridge as tb
    >>> tb.nn.one_hot(tb.numpy.array([1, 3]), 3).tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    """
    x = tnp.asarray(x)
    kind = tnp.result_type(float) if dtype is None else dtype
    count = size_of(num_classes, "one_hot", "num_classes")
    try:
        place = operator.index(axis)
    except TypeError:
        if axis_size(axis) != count:
            msg = f"one_hot: num_classes is {count}, the axis {axis!r} has size {axis_size(axis)}"
            raise ShapeMismatchError(msg) from None
        return (x == axis_index(axis)).astype(kind)
    place = normalize_axis(place, x.ndim + 1, "one_hot")
    if _is_eager(x) and type(count) is int:
        return _one_hot_staged((x,), (count, np.dtype(kind), place))
    return _one_hot(x, count, kind, place)


def _one_hot(x: Any, count: Any, kind: Any, place: int) -> Any:
    shape = [1] * (x.ndim + 1)
    shape[place] = count
    if x.dtype == bool:
        x = x.astype(np.int32)
    # Made where it is read: no constant that a compiled program would have to hold.
    classes = lax.broadcasted_iota(x.dtype, shape, place)
    return (tnp.expand_dims(x, place) == classes).astype(kind)


_one_hot_staged = StagedFunction(_one_hot, "one_hot")
