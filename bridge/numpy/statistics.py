"""Statistics: averages, covariance and correlation."""

from __future__ import annotations

__all__ = ["average", "corrcoef", "cov"]

from collections.abc import Sequence
from typing import Any, Literal, overload

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import is_complex, is_float, is_integer, itemsize_bits, real_of
from tracebridge.core.dtypes.finfo import finfo
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.runtime.arrays.argument_types import Axis
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike, DTypeLike
from tracebridge.core.runtime.calls.remembered import remembered
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import (
    as_strong,
    broadcast_operands,
    broadcast_to,
    hashable_axis,
    normalize_axes,
    promote_inexact,
)
from tracebridge.numpy._staging import static_dtype
from tracebridge.numpy.joining import at_least
from tracebridge.numpy.reductions import keep_axes, wide_of

# average -----------------------------------------------------------------------------------------


def _average(*args: Any) -> Any:
    *operands, axis, keepdims, returned = args
    mean, size = _mean_and_size(operands, axis, keepdims)
    return [mean, size] if returned else mean


def _mean_and_size(operands: Sequence[Value], axis: Any, keepdims: bool) -> list[Any]:
    a, *weights = operands
    if not weights:
        (a,) = promote_inexact(as_strong(a))  # reductions are strongly typed
        kind = a.aval.dtype
        a = lax.convert_dtype(a, wide_of(kind))
        axes = normalize_axes(axis, a.aval.ndim, "average")
        count: Any = 1
        for i in axes:
            count = count * a.aval.shape[i]
        total = keep_axes(lax.reduce_sum(a, axes), a, axes, keepdims)
        mean = lax.convert_dtype(lax.div(total, full_of(total.aval, count)), kind)
        large = type(count) is int and is_float(kind) and count > float(finfo(kind).max)
        return [mean, full_of(mean.aval, np.inf if large else count)]
    a, w = map(as_strong, promote_inexact(a, weights[0]))
    kind = a.aval.dtype
    a, w = (lax.convert_dtype(v, wide_of(kind)) for v in (a, w))
    axes = normalize_axes(axis, a.aval.ndim, "average")
    w = fit_weights(a, w, axes, axis)
    a, w = broadcast_operands("average", a, w)
    if not w.aval.ndim:
        w = broadcast_to(w, a.aval.shape)
    size = keep_axes(lax.reduce_sum(w, axes), a, axes, keepdims)
    total = keep_axes(lax.reduce_sum(lax.mul(a, w), axes), a, axes, keepdims)
    return [lax.convert_dtype(v, kind) for v in (lax.div(total, size), size)]


def fit_weights(a: Value, w: Value, axes: tuple[int, ...], axis: int | None) -> Any:
    """Weights of the shape of ``a``, or of its averaged axes, placed along those."""
    if w.aval.shape == a.aval.shape or not w.aval.ndim:
        return w
    order = [axis] if isinstance(axis, int) else list(axis or ())
    wanted = tuple([a.aval.shape[i] for i in order])
    if w.aval.shape != wanted:
        msg = (
            f"average: weights {w.aval.str_short()} have neither the shape of the array "
            f"{a.aval.str_short()} nor that of axis={axis}"
        )
        raise ShapeMismatchError(msg)
    where = [i % a.aval.ndim for i in order]
    w = lax.transpose(w, tuple(np.argsort(where).tolist()))
    return lax.broadcast_in_dim(w, a.aval.shape, axes)


_average_staged = StagedFunction(_average, "average")


@overload
def average(
    a: ArrayLike,
    axis: int | None = None,
    weights: ArrayLike | None = None,
    returned: Literal[False] = False,
    keepdims: bool = False,
) -> Array: ...


@overload
def average(
    a: ArrayLike,
    axis: int | None = None,
    weights: ArrayLike | None = None,
    *,
    returned: Literal[True],
    keepdims: bool = False,
) -> tuple[Array, Array]: ...


@overload
def average(
    a: ArrayLike,
    axis: int | None = None,
    weights: ArrayLike | None = None,
    returned: bool = False,
    keepdims: bool = False,
) -> Array | tuple[Array, Array]: ...
@remembered
def average(
    a: ArrayLike,
    axis: Axis = None,
    weights: ArrayLike | None = None,
    returned: bool = False,
    keepdims: bool = False,
) -> Any:
    """Weighted mean over axes.

    Args:
        a: array.
        axis: axis or axes; ``None`` for all.
        weights: numbers of the shape of ``a``, or of the averaged axes (default: ones).
        returned: also give the sum of the weights.
        keepdims: keep reduced axes with size 1.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.average(tnp.array([1.0, 4.0]), weights=tnp.array([3.0, 1.0])))
    1.75
    """
    xs = (a,) if weights is None else (a, weights)
    statics = hashable_axis(axis, "average"), bool(keepdims), bool(returned)
    found = _average_staged(xs, statics)
    return tuple(found) if returned else found


# covariance --------------------------------------------------------------------------------------


def _cov(*args: Any) -> Any:
    *xs, has_y, has_f, has_a, rowvar, ddof, dtype = args
    m = _observations(xs[0], rowvar)
    optional = list(xs[1:])
    if has_y:
        y = _observations(optional.pop(0), rowvar)
        m, y = promote_inexact(m, y)
        m = lax.concatenate([m, y], 0)
    weighing = optional[-1:] if has_a and dtype is None else []  # counts have no say
    m = promote_inexact(m, *weighing)[0]
    if dtype is not None:
        m = lax.convert_dtype(m, dtype)
    kind = real_of(m.aval.dtype)
    n = m.aval.shape[1]
    if has_f and not is_integer(optional[0].aval.dtype):
        msg = f"cov: fweights counts observations in integers, got {optional[0].aval.str_short()}"
        raise UnsupportedDtypeError(msg, hint="pass weights that are no counts as aweights=")
    frequencies = lax.abs(lax.convert_dtype(optional.pop(0), kind)) if has_f else None
    weights = lax.abs(lax.convert_dtype(optional.pop(0), kind)) if has_a else None
    w = frequencies if weights is None else weights
    if frequencies is not None and weights is not None:
        w = lax.mul(frequencies, weights)
    scalar = m.aval.strong.update(shape=(), dtype=kind)
    if w is None:
        total = full_of(scalar, n)
        factor = full_of(scalar, np.nan if type(n) is int and not n else n - ddof)
        mean = lax.div(lax.reduce_sum(m, (1,)), full_of(m.aval.update(shape=()), n))
        weighted = center = _centered(m, mean)
    else:
        if w.aval.shape != (n,):
            msg = f"cov: got weights {w.aval.str_short()} for {n} observations"
            raise ShapeMismatchError(msg)
        total = lax.reduce_sum(w, (0,))
        wide = broadcast_to(lax.convert_dtype(w, m.aval.dtype), m.aval.shape)
        mean = lax.div(
            lax.reduce_sum(lax.mul(m, wide), (1,)), lax.convert_dtype(total, m.aval.dtype)
        )
        center = _centered(m, mean)
        weighted = lax.mul(center, wide)
        factor = lax.sub(total, full_of(scalar, ddof))
        if weights is not None and ddof:
            # Weights that are not counts: what they add to the sum of their own squares.
            squares = lax.reduce_sum(lax.mul(w, weights), (0,))
            factor = lax.sub(total, lax.mul(full_of(scalar, ddof), lax.div(squares, total)))
    other = lax.conj(center) if is_complex(center.aval.dtype) else center
    product = lax.dot_general(weighted, other, (((1,), (1,)), ((), ())))
    result = lax.div(product, lax.convert_dtype(factor, product.aval.dtype))
    size = result.aval.shape[0]
    return lax.reshape(result, ()) if size == 1 else result


def _observations(x: Value, rowvar: bool) -> Any:
    """Variables as rows, observations as columns."""
    if x.aval.ndim > 2:
        msg = f"cov: needs at most two axes, got {x.aval.str_short()}"
        raise RankError(msg)
    wide = at_least(x, 2)
    return lax.transpose(wide, (1, 0)) if not rowvar and wide.aval.shape[0] != 1 else wide


def _centered(m: Value, mean: Value) -> Any:
    return lax.sub(m, lax.broadcast_in_dim(mean, m.aval.shape, (0,)))


_cov_staged = StagedFunction(_cov, "cov", exact=True)


@remembered
def cov(
    m: ArrayLike,
    y: ArrayLike | None = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: ArrayLike | None = None,
    aweights: ArrayLike | None = None,
    dtype: DTypeLike | None = None,
) -> Array:
    """The covariance matrix of variables.

    Args:
        m: variables in rows, observations in columns; or one variable.
        y: more variables.
        rowvar: ``False`` if the variables are in columns.
        bias: divide by the number of observations instead of one less.
        ddof: divide by the number of observations less this.
        fweights: how often each observation was made, integers; signs are left out.
        aweights: how much each observation counts; signs are left out.
        dtype: dtype of the result.

    Raises:
        ArgumentValueError: ``ddof`` is no integer.
        UnsupportedDtypeError: ``fweights`` holds no integers.

    >>> import tracebridge.numpy as tnp
    >>> tnp.cov(tnp.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    if ddof is not None and int(ddof) != ddof:
        msg = f"cov: ddof must be an integer, got {ddof}"
        raise ArgumentValueError(msg)
    less = (0 if bias else 1) if ddof is None else int(ddof)
    xs = [as_value(m, "cov"), *[x for x in (y, fweights, aweights) if x is not None]]
    present = (y is not None, fweights is not None, aweights is not None)
    statics = (*present, bool(rowvar), less, static_dtype("cov", dtype))
    return _cov_staged(xs, statics)


def _corrcoef(*args: Any) -> Any:
    *xs, rowvar, dtype = args
    kind = promote_inexact(*xs)[0].aval.dtype if dtype is None else dtype
    if itemsize_bits(kind) < 32:
        # Variances need twice the exponents, coefficients do not.
        return lax.convert_dtype(_corrcoef(*xs, rowvar, np.dtype(np.float32)), kind)
    c = _cov(*xs, len(xs) > 1, False, False, rowvar, 1, dtype)
    if not c.aval.ndim:
        return lax.div(c, c)
    n = c.aval.shape[0]
    eye = lax.eq(
        lax.broadcasted_iota(np.dtype(np.int32), (n, n), 0),
        lax.broadcasted_iota(np.dtype(np.int32), (n, n), 1),
    )
    real = lax.real(c) if is_complex(c.aval.dtype) else c
    variances = lax.reduce_sum(lax.select_n(eye, zeros_of(real.aval), real), (1,))
    deviation = lax.convert_dtype(lax.sqrt(variances), c.aval.dtype)
    for axis in (0, 1):
        c = lax.div(c, lax.broadcast_in_dim(deviation, (n, n), (axis,)))
    if is_complex(c.aval.dtype):
        return lax.complex(_unit(lax.real(c)), _unit(lax.imag(c)))
    return _unit(c)


def _unit(x: Value) -> Any:
    """Rounding may leave [-1, 1]."""
    scalar = x.aval.update(shape=())
    return lax.max(lax.min(x, full_of(scalar, 1.0)), full_of(scalar, -1.0))


_corrcoef_staged = StagedFunction(_corrcoef, "corrcoef")


@remembered
def corrcoef(
    x: ArrayLike, y: ArrayLike | None = None, rowvar: bool = True, dtype: DTypeLike | None = None
) -> Array:
    """The matrix of correlation coefficients of variables; arguments as of ``cov``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.corrcoef(tnp.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    xs = (x,) if y is None else (x, y)
    return _corrcoef_staged(xs, (bool(rowvar), static_dtype("corrcoef", dtype)))
