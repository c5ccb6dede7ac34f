"""Padding: pad with all modes of NumPy."""

from __future__ import annotations

__all__ = ["pad"]

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.canonicalize import default_int, to_inexact
from tracebridge.core.dtypes.dtypes import is_bool, is_complex, is_inexact, is_integer
from tracebridge.core.errors.argument_errors import (
    ArgumentValueError,
    IntegerRangeError,
    index_of,
    size_of,
)
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.ir.operators import EngineValue
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.lax.shape.axes import surely_less
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import broadcast_to, normalize_axis
from tracebridge.numpy._ranges import wrapped
from tracebridge.numpy._staging import value_of
from tracebridge.numpy.quantiles import median_of

# Mode -> the keyword arguments that it takes.
_OPTIONS: dict[str, tuple[str, ...]] = {
    "constant": ("constant_values",),
    "edge": (),
    "empty": (),
    "linear_ramp": ("end_values",),
    "maximum": ("stat_length",),
    "mean": ("stat_length",),
    "median": ("stat_length",),
    "minimum": ("stat_length",),
    "reflect": ("reflect_type",),
    "symmetric": ("reflect_type",),
    "wrap": (),
}

Pairs = tuple[tuple[int, int], ...]


def _pairs(name: str, widths: Any, ndim: int) -> tuple[tuple[Any, Any], ...]:
    """One pair for each axis: from a number, ``(n,)``, ``(before, after)`` or a list of pairs."""
    table = np.asarray(widths, dtype=object)
    if isinstance(widths, dict):
        rows: list[Any] = [(0, 0)] * ndim
        for axis, value in widths.items():
            pair = value if isinstance(value, tuple | list) else (value, value)
            rows[normalize_axis(axis, ndim, "pad")] = pair
        return tuple([(a, b) for a, b in rows])
    try:
        table = np.broadcast_to(table, (ndim, 2))
    except ValueError as error:
        msg = f"pad: {name}={widths!r} does not fit {ndim} axes; expected a number or pairs"
        raise ArgumentValueError(msg) from error
    return tuple([(row[0], row[1]) for row in table])


def _widths(pad_width: Any, ndim: int) -> Pairs:
    host = pad_width if isinstance(pad_width, dict | int) else np.asarray(pad_width).tolist()
    pairs = _pairs("pad_width", host, ndim)
    widths = tuple([(size_of(a, "pad", "a width"), size_of(b, "pad", "a width")) for a, b in pairs])
    if any([surely_less(w, 0) for pair in widths for w in pair]):
        msg = f"pad: widths must not be negative, got {pad_width!r}"
        raise ArgumentValueError(msg)
    return widths


# pieces ------------------------------------------------------------------------------------------


def _part(x: Value | None, axis: int, start: int, stop: int) -> Any:
    return lax.slice_in_dim(x, start, stop, axis=axis)


def _repeated(x: Value, axis: int, count: int) -> Any:
    """A slice of size 1 repeated along ``axis``."""
    shape = tuple([count if i == axis else d for i, d in enumerate(x.aval.shape)])
    return broadcast_to(x, shape)


def _joined(parts: Sequence[Any], axis: int) -> Any:
    parts = [p for p in parts if p is not None and p.aval.shape[axis] != 0]
    return parts[0] if len(parts) == 1 else lax.concatenate(parts, axis)


def _pad_constant(x: Value, widths: Pairs, values: Sequence[Value]) -> Any:
    """``values``: one scalar, or before and after for each axis."""
    if len(values) == 1:
        fill = lax.convert_dtype(values[0], x.aval.dtype, x.aval.weak_type)
        return lax.pad(x, fill, [(a, b, 0) for a, b in widths])
    for axis, (before, after) in enumerate(widths):
        for i, width in enumerate((before, after)):
            fill = lax.convert_dtype(values[2 * axis + i], x.aval.dtype, x.aval.weak_type)
            config = [(0, 0, 0)] * x.aval.ndim
            config[axis] = (width, 0, 0) if i == 0 else (0, width, 0)
            if width:
                x = lax.pad(x, fill, config)
    return x


def _pad_edge(x: Value, axis: int, before: int, after: int) -> Any:
    size = x.aval.shape[axis]
    first = _repeated(_part(x, axis, 0, 1), axis, before) if before else None
    last = _repeated(_part(x, axis, size - 1, size), axis, after) if after else None
    return _joined([first, x, last], axis)


def _pad_mirrored(x: Value, axis: int, before: int, after: int, mode: str, odd: bool) -> Any:
    """The array reflected at its ends, as often as needed."""
    n = x.aval.shape[axis]
    skip = 1 if mode == "reflect" else 0
    if n == 1 and skip:
        return _pad_edge(x, axis, before, after)
    while before > 0 or after > 0:
        size = x.aval.shape[axis]
        # NumPy reflects at most the period of the original array in one step.
        take_before, take_after = min(before, size - skip), min(after, size - skip)
        head = _mirrored(x, axis, skip, take_before, odd, True) if take_before else None
        tail = _mirrored(x, axis, skip, take_after, odd, False) if take_after else None
        x = _joined([head, x, tail], axis)
        before, after = before - take_before, after - take_after
    return x


def _mirrored(x: Value, axis: int, skip: int, count: int, odd: bool, front: bool) -> Any:
    size = x.aval.shape[axis]
    if front:
        part, edge = _part(x, axis, skip, skip + count), _part(x, axis, 0, 1)
    else:
        part = _part(x, axis, size - skip - count, size - skip)
        edge = _part(x, axis, size - 1, size)
    part = lax.rev(part, (axis,))
    if not odd:
        return part
    kind = default_int() if is_bool(x.aval.dtype) else x.aval.dtype
    part, edge = lax.convert_dtype(part, kind), lax.convert_dtype(edge, kind)
    double = lax.mul(edge, full_of(edge.aval.update(shape=()), 2))
    part = lax.sub(broadcast_to(double, part.aval.shape), part)
    return lax.convert_dtype(part, x.aval.dtype, x.aval.weak_type)


def _pad_wrap(x: Value, axis: int, before: int, after: int) -> Any:
    n = x.aval.shape[axis]
    copies_before, rest_before = divmod(before, n)
    copies_after, rest_after = divmod(after, n)
    head = _part(x, axis, n - rest_before, n) if rest_before else None
    tail = _part(x, axis, 0, rest_after) if rest_after else None
    return _joined([head, *[x] * (copies_before + 1 + copies_after), tail], axis)


def _pad_ramp(x: Value, axis: int, before: int, after: int, ends: Sequence[Value]) -> Any:
    size = x.aval.shape[axis]
    first, last = _part(x, axis, 0, 1), _part(x, axis, size - 1, size)
    head = _ramp(first, axis, before, ends[0]) if before else None
    tail = lax.rev(_ramp(last, axis, after, ends[1]), (axis,)) if after else None
    return _joined([head, x, tail], axis)


def _ramp(edge: Value, axis: int, width: int, end: Value) -> Any:
    """Evenly spaced steps from ``end`` towards ``edge``, which is left out."""
    dtype, weak = edge.aval.dtype, edge.aval.weak_type
    # Integers are computed with exactly: a float just below one would be rounded down.
    kind = default_int() if is_integer(dtype) else to_inexact(dtype)
    start, stop = lax.convert_dtype(end, kind), lax.convert_dtype(edge, kind)
    shape = tuple([width if i == axis else d for i, d in enumerate(edge.aval.shape)])
    steps = lax.iota_of(kind, shape, axis)
    count = full_of(steps.aval.update(shape=()), width)
    gap = broadcast_to(lax.sub(stop, start), shape)
    if is_inexact(kind):
        risen = lax.mul(gap, lax.div(steps, count))
    else:
        risen = lax.mul(gap, steps)
        below = lax.convert_dtype(lax.lt(lax.rem(risen, count), 0), kind)
        risen = lax.sub(lax.div(risen, count), below)
    return lax.convert_dtype(lax.add(risen, start), dtype, weak)


def _pad_statistic(
    x: Any, axis: int, before: int, after: int, mode: str, lengths: tuple[Any, Any]
) -> Any:
    size = x.aval.shape[axis]
    parts: list[Any] = [None, x, None]
    for i, (width, length) in enumerate(zip((before, after), lengths, strict=True)):
        if not width:
            continue
        n = size if length is None else min(index_of(length, "pad", "stat_length"), size)
        if n <= 0:
            msg = f"pad: stat_length={length}, expected a positive number"
            raise ArgumentValueError(msg)
        chosen = _part(x, axis, 0, n) if i == 0 else _part(x, axis, size - n, size)
        parts[2 * i] = _repeated(_statistic(chosen, axis, mode), axis, width)
    return _joined(parts, axis)


def _statistic(x: Value, axis: int, mode: str) -> Any:
    dtype = x.aval.dtype
    shape = tuple([1 if i == axis else d for i, d in enumerate(x.aval.shape)])
    if mode == "maximum":
        return lax.reshape(lax.reduce_max(x, (axis,)), shape)
    if mode == "minimum":
        return lax.reshape(lax.reduce_min(x, (axis,)), shape)
    kind = dtype if is_inexact(dtype) else to_inexact(dtype)
    wide = lax.convert_dtype(x, kind)
    if mode == "mean":
        total = lax.reduce_sum(wide, (axis,))
        value = lax.div(total, full_of(total.aval.update(shape=()), x.aval.shape[axis]))
    elif is_complex(kind):
        msg = f"pad: mode 'median' takes real numbers, got {x.aval.str_short()}"
        raise UnsupportedDtypeError(msg)
    else:
        value = median_of(wide, (axis,), False)
    if is_integer(dtype):
        value = lax.round(value, lax.RoundingMethod.TO_NEAREST_EVEN)
    return lax.reshape(lax.convert_dtype(value, dtype, x.aval.weak_type), shape)


def _pad(*args: Any) -> Any:
    x, *fill_and_statics = args
    *values, widths, mode, option = fill_and_statics
    if mode in ("constant", "empty"):
        return _pad_constant(x, widths, values or [zeros_of(x.aval.update(shape=()))])
    for axis, (before, after) in enumerate(widths):
        if not (before or after):
            continue
        if x.aval.shape[axis] == 0:
            msg = f"pad: mode {mode!r} needs elements along axis {axis} of {x.aval.str_short()}"
            raise ArgumentValueError(msg)
        if mode == "edge":
            x = _pad_edge(x, axis, before, after)
        elif mode in ("reflect", "symmetric"):
            x = _pad_mirrored(x, axis, before, after, mode, option == "odd")
        elif mode == "wrap":
            x = _pad_wrap(x, axis, before, after)
        elif mode == "linear_ramp":
            x = _pad_ramp(x, axis, before, after, values[2 * axis : 2 * axis + 2])
        else:
            x = _pad_statistic(x, axis, before, after, mode, option[axis])
    return x


_pad_staged = StagedFunction(_pad, "pad")


def _pad_by_function(
    x: Any, widths: Pairs, function: Callable[..., Any], options: Mapping[str, object]
) -> Any:
    """``function(vector, (before, after), axis, options)`` gives each padded vector."""
    x = _pad_staged((x,), (widths, "constant", None))
    for axis in range(x.aval.ndim):
        pair = widths[axis]
        rows = _rows_staged((x,), (axis,))
        padded = [function(row, pair, axis, options) for row in rows]
        found = [
            row if new is None else value_of(new) for row, new in zip(rows, padded, strict=True)
        ]
        x = _from_rows_staged(found, (x.aval.shape, axis, x.aval.dtype))
    return x


def _rows(x: Value, axis: int) -> list[Any]:
    """The vectors along ``axis``."""
    order = (*[i for i in range(x.aval.ndim) if i != axis], axis)
    size = x.aval.shape[axis]
    count = x.aval.size // max(size, 1)
    table = lax.reshape(lax.transpose(x, order), (count, size))
    return [lax.index_in_dim(table, i, 0, keepdims=False) for i in range(count)]


def _from_rows(*args: Any) -> Any:
    *rows, shape, axis, dtype = args
    rest = [d for i, d in enumerate(shape) if i != axis]
    size = shape[axis]
    table = lax.concatenate([lax.reshape(lax.convert_dtype(r, dtype), (1, size)) for r in rows], 0)
    order = list(range(len(rest)))
    order.insert(axis, len(rest))
    return lax.transpose(lax.reshape(table, (*rest, size)), tuple(order))


_rows_staged = StagedFunction(_rows, "pad")
_from_rows_staged = StagedFunction(_from_rows, "pad")


def pad(
    array: ArrayLike, pad_width: object, mode: str | None = "constant", **kwargs: object
) -> Array:
    """``array`` with elements put around it.

    Args:
        array: array.
        pad_width: how many: a number, a pair ``(before, after)``, a pair for each axis, or a dict
            from axes to them.
        mode: ``"constant"``, ``"edge"``, ``"empty"`` (zeros), ``"linear_ramp"``, ``"maximum"``,
            ``"mean"``, ``"median"``, ``"minimum"``, ``"reflect"``, ``"symmetric"``, ``"wrap"``, or
            a function of a padded vector, its widths, the axis and ``kwargs`` that gives the
            vector to use.
        **kwargs: ``constant_values``, ``end_values`` (of the ramp), ``stat_length`` (how many
            elements at the end count), ``reflect_type`` (``"even"`` or ``"odd"``). In an unsigned
            dtype, Python ints among ``constant_values`` wrap around, as in NumPy.

    Raises:
        ValueError: the widths do not fit, or an option is not one of the mode.
        ArgumentValueError: ``mode`` is unknown, or has no such option.

    >>> import tracebridge.numpy as tnp
    >>> tnp.pad(tnp.array([1, 2, 3]), (1, 2), mode="reflect").tolist()
    [2, 1, 2, 3, 2, 1]
    """
    x = value_of(array)
    widths = _widths(pad_width, x.aval.ndim)
    if callable(mode):
        return _pad_by_function(x, widths, mode, kwargs)
    if mode not in _OPTIONS:
        msg = f"pad: mode={mode!r}, expected one of {', '.join(map(repr, _OPTIONS))} or a function"
        raise ArgumentValueError(msg)
    unknown = sorted(set(kwargs) - set(_OPTIONS[mode]))
    if unknown:
        msg = f"pad: unsupported keyword arguments for mode '{mode}': {', '.join(unknown)}"
        raise ArgumentValueError(msg)
    values, option = _option_values(mode, kwargs, x.aval.ndim)
    try:
        return _pad_staged((x, *values), (widths, mode, option))
    except IntegerRangeError:
        # Around signed integers NumPy refuses them.
        fills = wrapped((x, *values)) if x.aval.dtype.kind == "u" else None
        if fills is None:
            raise
    return _pad_staged(fills, (widths, mode, option))


def _option_values(mode: str, kwargs: dict[str, Any], ndim: int) -> tuple[list[Any], Any]:
    """Options that are operands, and those that are static."""
    if mode in ("constant", "linear_ramp"):
        option_value = kwargs.get("constant_values" if mode == "constant" else "end_values", 0)
        if mode == "constant" and (
            not hasattr(option_value, "__len__") or getattr(option_value, "ndim", 1) == 0
        ):
            return [option_value], None
        if issubclass(type(option_value), EngineValue) and option_value.aval.ndim:
            option_value = _pairs_of_array(option_value, ndim)
            return option_value, None
        pairs = _pairs(
            "constant_values" if mode == "constant" else "end_values", option_value, ndim
        )
        return [v for pair in pairs for v in pair], None
    if mode in ("maximum", "mean", "median", "minimum"):
        return [], _pairs("stat_length", kwargs.get("stat_length"), ndim)
    if mode in ("reflect", "symmetric"):
        kind = kwargs.get("reflect_type", "even")
        if kind not in ("even", "odd"):
            msg = f"pad: reflect_type={kind!r}, expected 'even' or 'odd'"
            raise ArgumentValueError(msg)
        return [], kind
    return [], None


def _pairs_of_array(values: ArrayLike, ndim: int) -> list[Any]:
    """The ``2 * ndim`` scalars of an array of values, by axis."""
    return _scalars_staged((values,), (ndim,))


def _scalars(values: Value, ndim: int) -> list[Any]:
    flat = lax.reshape(broadcast_to(values, (ndim, 2)), (2 * ndim,))
    return [lax.index_in_dim(flat, i, 0, keepdims=False) for i in range(2 * ndim)]


_scalars_staged = StagedFunction(_scalars, "pad")
