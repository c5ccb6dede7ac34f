"""The elements of all windows as arrays: one for each place in a window."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.windows.geometry import Windows, dilated, shape_of_windows

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value


def padded(x: Value, value: Any, windows: Windows) -> Any:
    """The operand with ``value`` around it and in its gaps."""
    config = [
        (low, high, base - 1)
        for (low, high), base in zip(windows.padding, windows.base_dilation, strict=True)
    ]
    return x if not any(map(any, config)) else lax.pad(x, value, config)


def places(windows: Windows) -> Iterator[tuple[int, ...]]:
    """Where the elements of a window are, relative to its first one, in the order of the array."""
    ranges = zip(windows.window_dimensions, windows.window_dilation, strict=True)
    return itertools.product(*[range(0, w * gap, gap) for w, gap in ranges])


def element(x: Value, place: Sequence[int], counts: Sequence[int], windows: Windows) -> Any:
    """One element of each window of the padded operand ``x``."""
    strides = windows.window_strides
    # Sizes that are not known may be 0, where nothing is left out between windows.
    limits = [
        p + n if s == 1 else p + (n - 1) * s + 1
        for p, n, s in zip(place, counts, strides, strict=True)
    ]
    if 0 in counts:  # windows that do not fit
        return zeros_of(x.aval.update(shape=tuple(counts)))
    return lax.slice(x, place, limits, strides)


def elements(x: Value, value: Any, windows: Windows) -> list[Any]:
    """The elements of all windows, an array of one number per window for each place."""
    counts = shape_of_windows(x.aval.shape, windows)
    wide = padded(x, value, windows)
    return [element(wide, place, counts, windows) for place in places(windows)]


def inside(shape: tuple[int, ...], windows: Windows) -> list[Any] | None:
    """For each place which windows have an element of the operand there; None: all have."""
    if not any([n != 0 for pair in windows.padding for n in pair]) and all(
        [base == 1 for base in windows.base_dilation]
    ):
        return None
    flags = ShapedArray(shape, np.dtype(np.bool_))
    outside = full_of(flags.update(shape=()), False)
    return elements(full_of(flags, True), outside, windows)


def spread(parts: Sequence[Any], shape: tuple[int, ...], windows: Windows) -> Any:
    """The transpose of ``elements``: what parts give to each element of an operand of ``shape``."""
    counts = shape_of_windows(shape, windows)
    aval = parts[0].aval.update(shape=shape) if parts else None
    assert aval is not None  # windows of no elements select nothing
    if 0 in counts or 0 in shape:
        return zeros_of(aval)
    zero = full_of(aval.update(shape=()), 0)
    wide = [
        dilated(n, base) + low + high
        for n, base, (low, high) in zip(shape, windows.base_dilation, windows.padding, strict=True)
    ]
    total = None
    for part, place in zip(parts, places(windows), strict=True):
        config = [
            (p, size - p - ((n - 1) * s + 1), s - 1)
            for p, size, n, s in zip(place, wide, counts, windows.window_strides, strict=True)
        ]
        here = lax.pad(part, zero, config)
        total = here if total is None else lax.add(total, here)
    assert total is not None  # there is a place
    config = [(-low, -high, 0) for low, high in windows.padding]
    total = lax.pad(total, zero, config) if any(map(any, config)) else total
    if any([base != 1 for base in windows.base_dilation]):
        total = lax.slice(total, [0] * len(shape), total.aval.shape, windows.base_dilation)
    return total
