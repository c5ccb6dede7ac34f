"""Reductions over windows, and what windows select, as loops that XLA vectorises on the CPU.

XLA's own operations visit the elements of each window one by one. Sums are those of the operation
in another order; maxima, minima and winners are the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import is_float
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.values import literal
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.windows import patches
from tracebridge.core.windows.geometry import Windows

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value

Combine = Callable[[Any, Any], Any]
Arrays = tuple[Any, ...]

_COMBINE: dict[str, Combine] = {
    "sum": lambda a, b: lax.add(a, b),
    "max": lambda a, b: lax.max(a, b),
    "min": lambda a, b: lax.min(a, b),
}
_RUNNING: dict[str, Callable[..., Any]] = {
    "sum": lambda x, axis, reverse: lax.cumsum(x, axis=axis, reverse=reverse),
    "max": lambda x, axis, reverse: lax.cummax(x, axis=axis, reverse=reverse),
    "min": lambda x, axis, reverse: lax.cummin(x, axis=axis, reverse=reverse),
}
MONOIDS = frozenset(_COMBINE)
"""The combinations that have forms here."""

FEW_PLACES = 16
"""How many elements windows have at most that are combined place by place."""


def running_direction(shape: Sequence[int], windows: Windows) -> tuple[int, bool] | None:
    """``(axis, reverse)`` if each window has all elements up to its own, along one axis."""
    axes = [
        d
        for d, (w, stride, pads) in enumerate(
            zip(windows.window_dimensions, windows.window_strides, windows.padding, strict=True)
        )
        if (w, stride, pads) != (1, 1, (0, 0))
    ]
    if len(axes) != 1 or windows.is_dilated:
        return None
    (d,) = axes
    w, pads = windows.window_dimensions[d], windows.padding[d]
    if windows.window_strides[d] != 1 or w < shape[d] or pads not in ((w - 1, 0), (0, w - 1)):
        return None
    return d, pads[0] == 0


def running(x: Value, monoid: str, direction: tuple[int, bool]) -> Any:
    """All elements up to each one, combined."""
    return _RUNNING[monoid](x, *direction)


def by_place(x: Value, monoid: str, windows: Windows, identity: Value) -> Any:
    """The elements at each place of all windows, one place after the other."""
    combine = _COMBINE[monoid]
    total: Any = None
    for element in patches.elements(x, identity, windows):
        total = element if total is None else combine(total, element)
    return total


def by_axis(x: Value, monoid: str, windows: Windows, identity: Value) -> Any:
    """One axis after the other, from windows of 1, 2, 4, ... elements."""
    x = patches.padded(x, identity, windows)
    combine = _COMBINE[monoid]
    repeats = monoid != "sum"  # an element may be combined twice
    for axis, (w, stride, gap) in enumerate(
        zip(windows.window_dimensions, windows.window_strides, windows.window_dilation, strict=True)
    ):
        if w > 1:
            (x,) = _slide((x,), axis, w, gap, lambda a, b: (combine(a[0], b[0]),), repeats)
        if stride > 1:
            x = lax.slice_in_dim(x, 0, x.aval.shape[axis], stride, axis)
    return x


def _slide(
    xs: Arrays,
    axis: int,
    w: int,
    gap: int,
    combine: Callable[[Arrays, Arrays], Arrays],
    repeats: bool,
) -> Arrays:
    """Windows of ``w`` elements along ``axis``, moved by one."""
    count = xs[0].aval.shape[axis] - (w - 1) * gap

    def at(ys: Arrays, start: int, length: int) -> Arrays:
        return tuple([lax.slice_in_dim(y, start, start + length, axis=axis) for y in ys])

    size, offset = 1, 0
    total: Arrays | None = None
    while True:
        if w & size and not repeats:
            here = at(xs, offset * gap, count)
            total = here if total is None else combine(total, here)
            offset += size
        if 2 * size > w:
            break
        n = xs[0].aval.shape[axis] - size * gap
        xs = combine(at(xs, 0, n), at(xs, size * gap, n))
        size *= 2
    if total is not None:
        return total
    first = at(xs, 0, count)
    return first if size == w else combine(first, at(xs, (w - size) * gap, count))


# winners -----------------------------------------------------------------------------------------


def order_keys(x: Value, largest_wins: bool) -> Any:
    """Integers in the order of ``x`` in which a NaN beats all; both zeros are equal.

    Integers are compared faster than floats with their NaNs.
    """
    if not is_float(x.aval.dtype):
        return x
    if x.aval.dtype.itemsize < 4:
        x = lax.convert_dtype(x, np.dtype(np.float32))
    size = x.aval.dtype.itemsize
    integers = np.dtype(f"i{size}")
    x = lax.select(lax.eq(x, 0), zeros_of(x.aval), x)
    bits = lax.bitcast_convert_type_p.bind(x, new_dtype=integers)
    # Negative floats have descending bits.
    sign = lax.shift_right_arithmetic(bits, 8 * size - 1)
    limits = np.iinfo(integers)
    keys = lax.bitwise_xor(bits, lax.bitwise_and(sign, literal(int(limits.max), integers)))
    winner = full_of(keys.aval, int(limits.max if largest_wins else limits.min + 1))
    return lax.select(lax.ne(x, x), winner, keys)


def winning_positions(
    x: Value, worst: Value, beyond: int, windows: Windows, is_better: Combine
) -> Any:
    """The position in the flat operand of the first best element of each window.

    Padding has the position ``beyond`` and does not win. There are no gaps in the operand.
    """
    flags = x.aval.strong.update(dtype=np.dtype(np.int32))
    flat = lax.iota(np.int32, x.aval.size)
    numbers = lax.reshape(flat, flags.shape)
    limit = full_of(flags.update(shape=()), beyond)
    pair: Arrays = (patches.padded(x, worst, windows), patches.padded(numbers, limit, windows))

    def first(a: Arrays, b: Arrays) -> Arrays:
        (u, i), (v, j) = a, b
        missed = lax.bitwise_and(lax.eq(i, beyond), lax.ne(j, beyond))
        takes = lax.bitwise_or(is_better(v, u), missed)
        return lax.select(takes, v, u), lax.select(takes, j, i)

    sizes = list(enumerate(zip(*windows[:2], windows.window_dilation, strict=True)))
    for axis, (w, stride, gap) in reversed(sizes):
        if w > 1:
            pair = _slide(pair, axis, w, gap, first, True)
        if stride > 1:
            pair = tuple([lax.slice_in_dim(v, 0, v.aval.shape[axis], stride, axis) for v in pair])
    return pair[1]


def winning_places(x: Value, windows: Windows, counts: Sequence[int], is_better: Combine) -> Any:
    """The number of each winner's place in its window.

    ``x`` has its padding, of numbers that lose against all others. There are no gaps.
    """
    numbers = ShapedArray(tuple(counts), np.dtype(np.int32))
    # The first place that is not padding wins where nothing is better than padding.
    place = full_of(numbers, 0)
    sizes = windows.window_dimensions
    for d, (low, _) in enumerate(windows.padding):
        if sizes[d] > 1:
            place = lax.mul(place, sizes[d])
        if low > 0:
            start = lax.mul(lax.iota(np.int32, counts[d]), windows.window_strides[d])
            missing = lax.clamp(0, lax.sub(low, start), sizes[d] - 1)
            place = lax.add(place, lax.broadcast_in_dim(missing, numbers.shape, (d,)))
    best: Any = None
    for k, spot in enumerate(patches.places(windows)):
        value = patches.element(x, spot, counts, windows)
        if best is None:
            best = value
            continue
        takes = is_better(value, best)
        best = lax.select(takes, value, best)
        place = lax.select(takes, full_of(numbers, k), place)
    return place


def spread_by_blocks(source: Value, place: Value, shape: Sequence[int], windows: Windows) -> Any:
    """Zeros of ``shape`` plus each element of ``source`` at the place of its window's winner.

    The operand is seen in blocks as long as the strides; the windows that reach into a block begin
    in it or in one of the few before it. There are no gaps.
    """
    sizes, strides = windows.window_dimensions, windows.window_strides
    blocks = [
        max(-(-(n + low) // s), 0)
        for n, (low, _), s in zip(shape, windows.padding, strides, strict=True)
    ]
    ndim = len(shape)
    split = [n for pair in zip(blocks, strides, strict=True) for n in pair]
    wide = source.aval.update(shape=tuple(split))
    inner = tuple([n for s in strides for n in (1, s)])
    numbers = source.aval.strong.update(shape=inner, dtype=np.dtype(np.int32))
    total: Any = zeros_of(wide)
    for back in itertools.product(
        *[range(-(-w // s)) for w, s in zip(sizes, strides, strict=True)]
    ):
        config = [
            (d, n - count - d, 0)
            for d, n, count in zip(back, blocks, place.aval.shape, strict=True)
        ]
        here = lax.pad(place, full_of(place.aval.update(shape=()), -1), config)
        values = lax.pad(source, full_of(source.aval.update(shape=()), 0), config)
        # The place in such a window of each element of a block; -2 behind the window's end.
        local = full_of(numbers, 0)
        behind: Any = None
        for d in range(ndim):
            offset = lax.broadcasted_iota(np.int32, numbers.shape, 2 * d + 1)
            offset = lax.add(offset, back[d] * strides[d])
            local = lax.add(lax.mul(local, sizes[d]), offset)
            is_behind = lax.ge(offset, sizes[d])
            behind = is_behind if behind is None else lax.bitwise_or(behind, is_behind)
        local = lax.select(behind, full_of(numbers, -2), local)
        axes = tuple(range(0, 2 * ndim, 2))
        ours = lax.eq(
            lax.broadcast_in_dim(here, wide.shape, axes),
            lax.broadcast_in_dim(local, wide.shape, tuple(range(2 * ndim))),
        )
        values = lax.broadcast_in_dim(values, wide.shape, axes)
        total = lax.add(total, lax.select(ours, values, zeros_of(wide)))
    total = lax.reshape(total, tuple([n * s for n, s in zip(blocks, strides, strict=True)]))
    config = [
        (-low, n + low - count, 0)
        for n, (low, _), count in zip(shape, windows.padding, total.aval.shape, strict=True)
    ]
    return lax.pad(total, full_of(total.aval.update(shape=()), 0), config)
