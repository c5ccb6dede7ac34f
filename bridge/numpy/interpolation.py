"""Piecewise linear interpolation."""

from __future__ import annotations

__all__ = ["interp"]

from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import is_complex
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import as_strong, broadcast_operands, promote_inexact
from tracebridge.numpy._staging import shape_of
from tracebridge.numpy.searching import search_halving, take_rows


def _interp(*args: Any) -> Any:
    x, xp, fp, *bounds_and_statics = args
    *values, left, right, has_period = bounds_and_statics
    if xp.aval.ndim != 1 or xp.aval.shape != fp.aval.shape or xp.aval.shape[0] == 0:
        msg = (
            f"interp: xp and fp must be vectors of one size, not empty, got "
            f"{xp.aval.str_short()} and {fp.aval.str_short()}"
        )
        raise ShapeMismatchError(msg)
    if is_complex(xp.aval.dtype) or is_complex(x.aval.dtype):
        msg = "interp: x and xp must be real"
        raise UnsupportedDtypeError(msg)
    # Integers become floats by themselves first: coordinates and values are two quantities.
    x, xp = promote_inexact(x, xp)
    (fp,) = promote_inexact(fp)
    is_weak = all([v.aval.weak_type for v in (x, xp, fp)])
    fp = promote_inexact(x, xp, fp)[2]
    if has_period:
        x, xp, fp = _periodic(x, xp, fp, lax.abs(lax.convert_dtype(values[-1], x.aval.dtype)))
    n = xp.aval.shape[0]
    upper = search_halving(xp, x, "right")
    upper = lax.max(lax.min(upper, n - 1), 1) if n > 1 else upper
    lower = lax.max(lax.sub(upper, 1), 0)
    upper = lax.min(upper, n - 1)
    x0, x1, f0, f1 = (
        take_rows(v, i) for v, i in ((xp, lower), (xp, upper), (fp, lower), (fp, upper))
    )
    gap = lax.sub(x1, x0)
    zero = zeros_of(gap.aval.update(shape=()))
    flat = lax.eq(gap, zero)
    safe = lax.select_n(flat, gap, full_of(gap.aval, 1))
    weight = lax.convert_dtype(lax.div(lax.sub(x, x0), safe), fp.aval.dtype, x.aval.weak_type)
    out = lax.add(f0, lax.mul(weight, lax.sub(f1, f0)))
    out = lax.select_n(flat, out, f0)
    out = out if is_weak else as_strong(out)
    if has_period:
        return out
    remaining_values = iter(values)
    kind = (fp.aval.dtype, is_weak)
    for side, how in (("left", left), ("right", right)):
        if how == "extrapolate":
            continue
        end = lax.index_in_dim(xp, 0 if side == "left" else n - 1, 0, keepdims=False)
        edge = lax.index_in_dim(fp, 0 if side == "left" else n - 1, 0, keepdims=False)
        value = edge if how is None else lax.convert_dtype(next(remaining_values), *kind)
        outside = lax.lt(x, end) if side == "left" else lax.gt(x, end)
        outside, value, out = broadcast_operands("interp", outside, value, out)
        if outside.aval.ndim and not value.aval.ndim:
            value = lax.broadcast_in_dim(value, outside.aval.shape, ())
        out = lax.select_n(outside, out, value)
    return out


def _periodic(x: Value, xp: Value, fp: Value, period: Value) -> tuple[Any, Any, Any]:
    """Points of one period in order, with the last before and the first after them."""
    x, xp = (_modulo(v, period) for v in (x, xp))
    order = lax.sort_key_val(xp, lax.iota(np.dtype(np.int32), xp.aval.shape[0]))[1]
    xp, fp = take_rows(xp, order), take_rows(fp, order)
    n = xp.aval.shape[0]
    first, last = lax.slice_in_dim(xp, 0, 1), lax.slice_in_dim(xp, n - 1, n)
    xp = lax.concatenate([lax.sub(last, period), xp, lax.add(first, period)], 0)
    ends = lax.slice_in_dim(fp, n - 1, n), lax.slice_in_dim(fp, 0, 1)
    return x, xp, lax.concatenate([ends[0], fp, ends[1]], 0)


def _modulo(v: Value, period: Value) -> Any:
    rest = lax.rem(v, period)
    negative = lax.lt(rest, zeros_of(rest.aval.update(shape=())))
    return lax.select_n(negative, rest, lax.add(rest, period))


_interp_staged = StagedFunction(_interp, "interp")


def interp(
    x: ArrayLike,
    xp: ArrayLike,
    fp: ArrayLike,
    left: ArrayLike | None = None,
    right: ArrayLike | None = None,
    period: ArrayLike | None = None,
) -> Array:
    """The function that is linear between points, at ``x``.

    Args:
        x: where to evaluate.
        xp: first coordinates of the points, in increasing order unless ``period`` is given.
        fp: second coordinates.
        left: value for ``x < xp[0]`` (default ``fp[0]``), or ``"extrapolate"``.
        right: value for ``x > xp[-1]`` (default ``fp[-1]``), or ``"extrapolate"``.
        period: period of the first coordinates.

    Raises:
        ArgumentValueError: ``left`` or ``right`` is another string than ``'extrapolate'``, or
            ``period`` has axes.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.interp(1.5, tnp.array([1.0, 2.0]), tnp.array([10.0, 20.0])))
    15.0
    """
    for name, how in (("left", left), ("right", right)):
        if isinstance(how, str) and how != "extrapolate":
            msg = f"interp: {name}={how!r}, expected a number or 'extrapolate'"
            raise ArgumentValueError(msg)
    if period is not None and shape_of(period):
        msg = f"interp: period must be a scalar; got an array of shape {shape_of(period)}"
        raise ArgumentValueError(msg)
    values = [v for v in (left, right) if v is not None and not isinstance(v, str)]
    forms = [v if v is None or isinstance(v, str) else "value" for v in (left, right)]
    if period is not None:
        values = [*values, period]
    return _interp_staged((x, xp, fp, *values), (*forms, period is not None))
