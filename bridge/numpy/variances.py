"""Variances and standard deviations over axes."""

from __future__ import annotations

__all__ = ["std", "var"]

from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.canonicalize import to_inexact
from tracebridge.core.dtypes.dtypes import is_complex, is_inexact, real_of
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError, kind_of
from tracebridge.core.errors.filtering import hide_internal_frames
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.runtime.arrays.argument_types import Axis, DType
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike, DTypeLike
from tracebridge.core.runtime.calls.remembered import remembered
from tracebridge.numpy._promote import broadcast_to, check_no_out, hashable_axis, normalize_axes
from tracebridge.numpy._reduction import OptionalArrays
from tracebridge.numpy._staging import static_dtype
from tracebridge.numpy.reductions import (
    count_of,
    drop_axes,
    keep_axes,
    mask_of,
    masked_mean,
    mean_of,
    sum_of,
    wide_of,
)


def _var(
    x: Value,
    axis: Axis,
    dtype: DType | None,
    keepdims: bool,
    ddof: Any,
    root: bool,
    where: Value | None,
    mean: Value | None,
    less: Value | None,
) -> Any:
    ddof = ddof if less is None else less
    axes = normalize_axes(axis, x.aval.ndim, "var")
    kind = dtype or x.aval.dtype
    kind = kind if is_inexact(kind) else to_inexact(kind)
    # A variance is real unless a complex dtype is asked for; complex numbers are not made real.
    given = kind if dtype is not None else real_of(kind)
    if is_complex(kind) or not is_complex(x.aval.dtype):
        x = lax.convert_dtype(x, wide_of(kind))
    if where is not None:
        on = broadcast_to(mask_of(where, "var"), x.aval.shape)
        result = masked_spread(x, on, axes, ddof, root, mean)
        return lax.convert_dtype(result if keepdims else drop_axes(result, axes), given)
    if mean is None:
        mean = mean_of(x, axes, None, True, None, None)
    center = lax.sub(x, broadcast_to(lax.convert_dtype(mean, x.aval.dtype), x.aval.shape))
    total = sum_of(_squares(center), axes, None, keepdims, None, None)
    scalar = total.aval.update(shape=())
    if less is None:
        divisor = full_of(scalar, count_of(x, axes) - ddof)
    else:
        divisor = _less(full_of(scalar, count_of(x, axes)), less)
    result = lax.div(total, _positive(divisor))
    return lax.convert_dtype(_root(result) if root else result, given)


def _squares(center: Value) -> Any:
    if not is_complex(center.aval.dtype):
        return lax.square(center)
    return lax.add(lax.square(lax.real(center)), lax.square(lax.imag(center)))


def _less(count: Value, ddof: Any) -> Any:
    """The number of elements less ``ddof``, a number or a scalar that may be traced."""
    if isinstance(getattr(ddof, "aval", None), ShapedArray):
        return lax.sub(count, lax.convert_dtype(ddof, count.aval.dtype))
    return lax.sub(count, full_of(count.aval.update(shape=()), ddof))


def _positive(divisor: Value) -> Any:
    """``divisor``, or NaN where there are too few elements for an estimate."""
    return lax.select_n(lax.le(divisor, 0.0), divisor, full_of(divisor.aval, np.nan))


def _root(x: Value) -> Any:
    """The square root of a variance; 0 has derivative 0, that of equal elements."""
    zero = lax.eq(x, 0.0)
    root = lax.sqrt(lax.select_n(zero, x, full_of(x.aval, 1)))
    return lax.select_n(zero, root, zeros_of(root.aval))


def masked_spread(
    x: Value, on: Value, axes: tuple[int, ...], ddof: Any, root: bool, mean: Value | None = None
) -> Any:
    """The variance, or its root, of the elements that ``on`` selects; reduced axes are kept.

    NaN with too few of them. What is not selected has derivative 0, whatever stands there.
    """
    own_mean, count = masked_mean(x, on, axes)
    mean = own_mean if mean is None else lax.convert_dtype(mean, x.aval.dtype)
    center = lax.sub(x, broadcast_to(mean, x.aval.shape))
    squares = _squares(lax.select_n(on, zeros_of(center.aval), center))
    total = keep_axes(lax.reduce_sum(squares, axes), x, axes, True)
    empty = lax.eq(count, 0.0)
    divisor = _positive(_less(count, ddof))
    result = lax.div(total, lax.select_n(empty, divisor, full_of(divisor.aval, 1)))
    result = _root(result) if root else result
    return lax.select_n(empty, result, full_of(result.aval, np.nan))


_var_staged = OptionalArrays(_var, "var", 3, exact=True)


def static_or_traced(name: str, ddof: Any) -> tuple[Any, Any]:
    """``ddof`` as a number and None, or 0 and the scalar, which may be traced."""
    if isinstance(getattr(ddof, "aval", None), ShapedArray) and not ddof.aval.ndim:
        return 0, ddof
    if not isinstance(ddof, int | float | np.number):
        msg = f"{name}: ddof is {kind_of(ddof)}, expected a number"
        raise ArgumentTypeError(msg)
    return ddof, None


def _variance(
    name: str,
    a: ArrayLike,
    axis: Axis,
    dtype: DTypeLike | None,
    keepdims: bool,
    ddof: Any,
    where: ArrayLike | None,
    mean: ArrayLike | None,
    correction: object,
) -> Any:
    if correction is not None:
        if ddof:
            msg = f"{name}: ddof={ddof} and correction={correction} are two names of one argument"
            raise ArgumentValueError(msg, hint="give one of them")
        ddof = correction
    ddof, less = static_or_traced(name, ddof)
    root = name == "std"
    statics = (hashable_axis(axis, name), static_dtype(name, dtype), bool(keepdims), ddof, root)
    return _var_staged(a, (where, mean, less), statics)


@remembered
def var(
    a: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    ddof: int = 0,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
    correction: float | None = None,
) -> Array:
    """Variance over axes; divides by ``n - ddof`` (``correction`` is another name of ``ddof``).

    ``mean`` is used instead of the mean of ``a`` if given (with reduced axes kept).

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.var(tnp.array([1.0, 3.0])))
    1.0
    """
    try:
        check_no_out("var", out)
        return _variance("var", a, axis, dtype, keepdims, ddof, where, mean, correction)
    except Exception as error:
        hide_internal_frames(error)
        raise


@remembered
def std(
    a: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    ddof: int = 0,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
    correction: float | None = None,
) -> Array:
    """Standard deviation over axes: the square root of ``var``.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.std(tnp.array([1.0, 3.0])))
    1.0
    """
    try:
        check_no_out("std", out)
        return _variance("std", a, axis, dtype, keepdims, ddof, where, mean, correction)
    except Exception as error:
        hide_internal_frames(error, "std")
        raise
