"""Differences of neighbours, and integrals and slopes of sampled functions."""

from __future__ import annotations

__all__ = ["diff", "ediff1d", "gradient", "trapezoid", "unwrap"]

from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge._api.custom.custom_jvp import custom_jvp
from tracebridge.core.dtypes.canonicalize import default_float, default_int, to_inexact
from tracebridge.core.dtypes.dtypes import is_bool, is_float, is_inexact, is_unsigned
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError, index_of
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.ir.operators import EngineValue
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.runtime.arrays.argument_types import Axis, DType
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.remembered import remembered
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.core.symbolic.compare import at_least
from tracebridge.numpy._promote import (
    as_strong,
    broadcast_operands,
    members,
    normalize_axis,
    promote_dtypes,
    promote_inexact,
)
from tracebridge.numpy._staging import is_traced, value_of


def _fit_edge(edge: Value, x: Value, axis: int, name: str) -> Any:
    """A scalar repeated to one slice of ``x``; an array as it is."""
    if edge.aval.ndim:
        return edge
    shape = tuple([1 if i == axis else d for i, d in enumerate(x.aval.shape)])
    return lax.broadcast_in_dim(edge, shape, ())


def _neighbours(x: Value, axis: int) -> tuple[Any, Any]:
    """All but the first, and all but the last, along ``axis``."""
    size = x.aval.shape[axis]
    n = at_least(size - 1, 0)

    def part(start: Any, stop: Any) -> Any:
        starts, stops = [0] * x.aval.ndim, list(x.aval.shape)
        starts[axis], stops[axis] = start, stop
        return lax.slice(x, starts, stops)

    return part(size - n, size), part(0, n)


def _diff(*args: Any) -> Any:
    *xs, n, axis, has_prepend = args
    x = xs[0]
    if x.aval.ndim == 0:
        msg = "diff: got an array without axes, expected at least one axis"
        raise RankError(msg)
    axis = normalize_axis(axis, x.aval.ndim, "diff")
    if len(xs) > 1:
        edges = [_fit_edge(e, x, axis, "diff") for e in xs[1:]]
        parts = [edges[0], x, *edges[1:]] if has_prepend else [x, *edges]
        x = lax.concatenate(promote_dtypes(*parts), axis)
    for _ in range(n):
        size = x.aval.shape[axis]
        if type(size) is int and size == 0:
            break
        high, low = _neighbours(x, axis)
        x = lax.ne(high, low) if is_bool(x.aval.dtype) else lax.sub(high, low)
    return x


_diff_staged = StagedFunction(_diff, "diff")


@remembered
def diff(
    a: ArrayLike,
    n: int = 1,
    axis: int = -1,
    prepend: ArrayLike | None = None,
    append: ArrayLike | None = None,
) -> Array:
    """Differences of neighbours along an axis, ``n`` times; bools differ where they change.

    Args:
        a: array with at least one axis.
        n: how often to take differences.
        axis: axis in ``[-ndim, ndim)``.
        prepend: scalar or array to put in front along ``axis`` first.
        append: scalar or array to put behind along ``axis`` first.

    Raises:
        ArgumentValueError: ``n`` is negative.

    >>> import tracebridge.numpy as tnp
    >>> tnp.diff(tnp.array([1, 4, 9, 16])).tolist()
    [3, 5, 7]
    """
    times = index_of(n, "diff", "n")
    if times < 0:
        msg = f"diff: n must not be negative, got {times}"
        raise ArgumentValueError(msg)
    if times == 0:
        return value_of(a)
    edges = [e for e in (prepend, append) if e is not None]
    return _diff_staged((a, *edges), (times, index_of(axis, "diff", "axis"), prepend is not None))


def _ediff1d(*args: Value) -> Any:
    *xs, has_end, has_begin = args
    flat = [lax.reshape(x, (x.aval.size,)) for x in xs]
    inner = _diff(flat[0], 1, 0, False)
    dtype = flat[0].aval.dtype
    edges = [lax.convert_dtype(e, dtype) for e in flat[1:]]
    end = edges[:1] if has_end else []
    begin = edges[-1:] if has_begin else []
    parts = [*begin, inner, *end]
    return lax.concatenate(parts, 0) if len(parts) > 1 else inner


_ediff1d_staged = StagedFunction(_ediff1d, "ediff1d")


@remembered
def ediff1d(
    ary: ArrayLike, to_end: ArrayLike | None = None, to_begin: ArrayLike | None = None
) -> Array:
    """Differences of neighbours of the flattened array, with numbers put around them.

    >>> import tracebridge.numpy as tnp
    >>> tnp.ediff1d(tnp.array([1, 4, 9]), to_begin=-99).tolist()
    [-99, 3, 5]
    """
    edges = [e for e in (to_end, to_begin) if e is not None]
    return _ediff1d_staged((ary, *edges), (to_end is not None, to_begin is not None))


# integrals and derivatives of samples ------------------------------------------------------------


def _trapezoid(y: Value, *spacing_and_statics: Any) -> Any:
    *steps, axis, has_x = spacing_and_statics
    if not has_x:
        # A distance of neighbours is a number that leaves the dtype of samples as it is.
        (y,) = promote_inexact(y)
        y = as_strong(y)
    y, step = promote_inexact(y, steps[0])
    axis = normalize_axis(axis, y.aval.ndim, "trapezoid")
    if has_x:
        if step.aval.ndim == 1:
            step = _diff(step, 1, 0, False)
            shape = [step.aval.size if i == axis else 1 for i in range(y.aval.ndim)]
            step = lax.reshape(step, tuple(shape))
        else:
            step = _diff(step, 1, axis - y.aval.ndim, False)
    length: Any = y.aval.shape[axis]
    if not has_x and step.aval.ndim == 0 and type(length) is int and length > 1:
        alone = y.aval.ndim == 1 and is_float(y.aval.dtype)
        total = _less_half_ends(y) if alone else _sum_with_half_ends(y, axis)
        return as_strong(lax.mul(total, step))
    high, low = _neighbours(y, axis)
    pairs, step = broadcast_operands("trapezoid", lax.add(high, low), step)
    return as_strong(lax.mul(lax.reduce_sum(lax.mul(pairs, step), (axis,)), 0.5))


@custom_jvp
def _less_half_ends(y: Any) -> Any:
    """The sum of a row but for half of its ends; a row of weights would be as long as itself."""
    length = y.aval.shape[0]
    ends = [lax.reshape(lax.slice_in_dim(y, i, i + 1, axis=0), ()) for i in (0, length - 1)]
    half = lax.mul(lax.add(*ends), 0.5)
    # Half of an infinite end is as infinite as the sum.
    half = lax.select(lax.is_finite(half), half, full_of(half.aval, 0))
    return lax.sub(lax.reduce_sum(y, (0,)), half)


@_less_half_ends.defjvp
def _slope_less_half_ends(primals: Any, tangents: Any) -> Any:
    # Its transpose is a row of weights, not a sum of padded ends.
    return _less_half_ends(*primals), _sum_with_half_ends(tangents[0], 0)


def _sum_with_half_ends(y: Value, axis: int) -> Any:
    """The sum along an axis of two elements or more, of both ends by half.

    A product with one row of weights, which is summed without being written.
    """
    length = y.aval.shape[axis]
    row = y.aval.update(shape=(length,), weak_type=False)
    place = lax.broadcasted_iota(np.dtype(np.int32), row.shape, 0)
    at_start = lax.eq(place, full_of(place.aval, 0))
    at_end = lax.eq(place, full_of(place.aval, length - 1))
    weights = lax.select_n(lax.bitwise_or(at_start, at_end), full_of(row, 1), full_of(row, 0.5))
    product = lax.mul(y, lax.broadcast_in_dim(weights, y.aval.shape, (axis,)))
    return lax.reduce_sum(product, (axis,))


_trapezoid_staged = StagedFunction(_trapezoid, "trapezoid", judges=False)


@remembered
def trapezoid(
    y: ArrayLike, x: ArrayLike | None = None, dx: ArrayLike = 1.0, axis: int = -1
) -> Array:
    """The integral of samples along an axis, by the trapezoidal rule.

    Args:
        y: samples.
        x: where they were taken (one axis, or an array that broadcasts against ``y``).
        dx: distance of neighbours if ``x`` is not given.
        axis: axis of ``y`` in ``[-ndim, ndim)``.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.trapezoid(tnp.array([1.0, 2.0, 3.0]), dx=2.0))
    8.0
    """
    step = dx if x is None else x
    return _trapezoid_staged((y, step), (index_of(axis, "trapezoid", "axis"), x is not None))


def _gradient(f: Any, *spacing_and_statics: Any) -> list[Any]:
    *spacing, axes, order = spacing_and_statics
    f, *spacing = promote_inexact(f, *spacing)
    axes = [normalize_axis(a, f.aval.ndim, "gradient") for a in axes]
    if len(set(axes)) != len(axes):
        msg = f"gradient: repeated axis in {axes}"
        raise ArgumentValueError(msg)
    if len(spacing) == 1 and spacing[0].aval.ndim == 0:
        spacing = spacing * len(axes)
    if len(spacing) not in (0, len(axes)):
        msg = f"gradient: got {len(spacing)} spacings, expected none, one or {len(axes)}"
        raise ArgumentTypeError(msg)
    return [
        _gradient_along(f, a, spacing[i] if spacing else None, order) for i, a in enumerate(axes)
    ]


def _gradient_along(f: Any, axis: int, h: Any, order: int) -> Any:
    """Central differences inside, one-sided differences of an order at both ends."""
    size = f.aval.shape[axis]
    if type(size) is int and size < order + 1:
        few = "two" if order == 1 else "three"
        msg = f"gradient: axis {axis} of {f.aval.str_short()} has fewer than {few} elements"
        raise ShapeMismatchError(msg)

    def part(start: ArrayLike, stop: ArrayLike) -> Any:
        return lax.slice_in_dim(f, start, stop, axis=axis)

    first = lax.sub(part(1, 2), part(0, 1))
    last = lax.sub(part(size - 1, size), part(size - 2, size - 1))
    if h is None or h.aval.ndim == 0:
        inner = lax.mul(lax.sub(part(2, size), part(0, size - 2)), 0.5)
        if order == 2:
            # Differences of neighbours, carried on in a straight line to the ends.
            second = lax.sub(part(2, 3), part(1, 2))
            before = lax.sub(part(size - 2, size - 1), part(size - 3, size - 2))
            first = lax.sub(lax.mul(first, 1.5), lax.mul(second, 0.5))
            last = lax.sub(lax.mul(last, 1.5), lax.mul(before, 0.5))
        whole = lax.concatenate([first, inner, last], axis)
        if h is None:
            return whole
        return lax.div(whole, lax.convert_dtype(h, f.aval.dtype, h.aval.weak_type))
    if h.aval.shape != (size,):
        msg = f"gradient: got coordinates {h.aval.str_short()} for axis {axis} of size {size}"
        raise ShapeMismatchError(msg)
    steps = _diff(lax.convert_dtype(h, f.aval.dtype, h.aval.weak_type), 1, 0, False)
    left = _along(lax.slice_in_dim(steps, 0, size - 2), f, axis)
    right = _along(lax.slice_in_dim(steps, 1, size - 1), f, axis)
    before = lax.div(lax.sub(part(1, size - 1), part(0, size - 2)), left)
    after = lax.div(lax.sub(part(2, size), part(1, size - 1)), right)
    total = lax.add(left, right)
    inner = lax.add(lax.mul(before, lax.div(right, total)), lax.mul(after, lax.div(left, total)))
    ends = [_along(lax.slice_in_dim(steps, i, i + 1), f, axis) for i in (0, size - 2)]
    first, last = lax.div(first, ends[0]), lax.div(last, ends[1])
    if order == 2:
        # The slope of the parabola through three points: the mean slope of the outer step and
        # the central one lie on a line.
        first = _line(first, lax.slice_in_dim(inner, 0, 1, axis=axis))
        last = _line(last, lax.slice_in_dim(inner, size - 3, size - 2, axis=axis))
    return lax.concatenate([first, inner, last], axis)


def _line(middle: Any, far: Any) -> Any:
    """The value at an end of a step from those in its middle and at its other end."""
    return lax.sub(lax.mul(middle, 2.0), far)


def _along(v: Value, f: Any, axis: int) -> Any:
    """A vector spread over the other axes of ``f``."""
    n = v.aval.shape[0]
    shape = tuple([n if i == axis else d for i, d in enumerate(f.aval.shape)])
    return lax.broadcast_in_dim(v, shape, (axis,))


_gradient_staged = StagedFunction(_gradient, "gradient")


@remembered
def gradient(f: Any, *varargs: ArrayLike, axis: Axis = None, edge_order: int | None = None) -> Any:
    """Derivatives of samples by second-order central differences, one-sided ones at the ends.

    Args:
        f: samples.
        *varargs: distances of neighbours: nothing (1), one number for all axes, or for each axis
            a number or the coordinates.
        axis: axis or axes (default: all).
        edge_order: 1 or 2 (default: 1), the order of the differences at the ends; order 2 takes
            three elements.

    Returns:
        An array for one axis, a list for several.

    Raises:
        ArgumentValueError: ``edge_order`` is not 1 or 2.

    >>> import tracebridge.numpy as tnp
    >>> tnp.gradient(tnp.array([1.0, 4.0, 9.0, 16.0])).tolist()
    [3.0, 4.0, 6.0, 7.0]
    """
    if edge_order not in (None, 1, 2):
        msg = f"gradient: edge_order must be 1 or 2, got {edge_order}"
        raise ArgumentValueError(msg)
    f = value_of(f)
    axes = tuple(range(f.aval.ndim)) if axis is None else axis
    several = members(axes)
    chosen_axes = (axes,) if several is None else several
    spacing = [
        v if issubclass(type(v), EngineValue) or isinstance(v, int | float) else value_of(v)
        for v in varargs
    ]
    slopes = _gradient_staged(
        (f, *spacing),
        (tuple([index_of(a, "gradient", "an axis") for a in chosen_axes]), edge_order or 1),
    )
    return slopes[0] if len(chosen_axes) == 1 else slopes


def _unwrap(p: Any, *operands_and_statics: Any) -> Any:
    """Adds multiples of the period so that neighbours differ by at most half of it."""
    *numbers, axis, period, has_discont = operands_and_statics
    if period is None:
        period = numbers.pop()
    discont = numbers[0] if has_discont else None
    axis = normalize_axis(axis, p.aval.ndim, "unwrap")
    if p.aval.size == 0:
        return lax.convert_dtype(promote_inexact(p)[0], to_inexact(p.aval.dtype))
    dtype = default_int() if is_bool(p.aval.dtype) else p.aval.dtype
    if not is_inexact(dtype) and not _is_whole(period):
        dtype = default_float()
    if is_unsigned(dtype):
        # Differences have signs; the result is right but for multiples of the dtype's range.
        wide = np.dtype(np.int32) if dtype.itemsize < 4 else default_int()
        angles = _unwrap(lax.convert_dtype(p, wide), *operands_and_statics)
        return lax.convert_dtype(angles, dtype)
    p = lax.convert_dtype(p, dtype)
    exact = is_inexact(dtype)
    whole, half, unclear = _of_period(period, dtype)
    change = _diff(p, 1, axis, False)
    low: Any = -half if isinstance(half, int | float) else lax.neg(half)
    shifted = lax.sub(change, low)
    wrapped = lax.rem(shifted, whole)
    negative = lax.lt(wrapped, zeros_of(wrapped.aval.update(shape=())))
    wrapped = lax.add(lax.select_n(negative, wrapped, lax.add(wrapped, whole)), low)
    if unclear is not False:
        at_low = lax.bitwise_and(lax.eq(wrapped, low), lax.gt(change, 0 if not exact else 0.0))
        if unclear is not True:
            at_low = lax.bitwise_and(at_low, unclear)
        wrapped = lax.select_n(at_low, wrapped, lax.add(zeros_of(wrapped.aval), half))
    correction = lax.sub(wrapped, change)
    limit = half if discont is None else lax.convert_dtype(discont, dtype)
    small = lax.lt(lax.abs(change), limit)
    correction = lax.select_n(small, correction, zeros_of(correction.aval))
    first = lax.slice_in_dim(p, 0, 1, axis=axis)
    rest_ = lax.slice_in_dim(p, 1, p.aval.shape[axis], axis=axis)
    return lax.concatenate([first, lax.add(rest_, lax.cumsum(correction, axis))], axis)


def _is_whole(period: Any) -> bool:
    aval = getattr(period, "aval", None)
    return not isinstance(period, float) if aval is None else not is_inexact(aval.dtype)


def _of_period(period: Any, dtype: DType) -> tuple[Any, Any, Any]:
    """A period, its half, and whether half a period up and down are different multiples of it."""
    exact = is_inexact(dtype)
    if isinstance(period, int | float):
        whole: Any = period if exact else int(period)
        return whole, whole / 2 if exact else whole // 2, exact or whole % 2 == 0
    whole = lax.convert_dtype(period, dtype)
    if exact:
        return whole, lax.mul(whole, 0.5), True
    rest = lax.bitwise_and(whole, full_of(whole.aval, 1))
    half = lax.shift_right_arithmetic(whole, full_of(whole.aval, 1))
    return whole, half, lax.eq(rest, zeros_of(rest.aval))


_unwrap_staged = StagedFunction(_unwrap, "unwrap", exact=True)


@remembered
def unwrap(
    p: ArrayLike, discont: ArrayLike | None = None, axis: int = -1, period: Any = 6.283185307179586
) -> Array:
    """Angles without jumps: multiples of ``period`` are added where neighbours differ too much.

    Args:
        p: angles.
        discont: largest difference that is left alone (default: half the period).
        axis: axis in ``[-ndim, ndim)``.
        period: the period, a number.

    >>> import tracebridge.numpy as tnp
    >>> tnp.unwrap(tnp.array([0.0, 3.0, 6.0, 1.0]), period=6.0).tolist()
    [0.0, 3.0, 6.0, 7.0]
    """
    numbers = () if discont is None else (discont,)
    length: Any = None
    if is_traced(period):
        numbers = (*numbers, period)
    else:
        length = period if isinstance(period, int) else float(period)
    return _unwrap_staged(
        (p, *numbers), (index_of(axis, "unwrap", "axis"), length, discont is not None)
    )
