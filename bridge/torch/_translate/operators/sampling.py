"""Values at places between pixels, and sums of rows of tables by bags."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.ir.value import Value
from tracebridge.ops.segments import segment_max, segment_sum
from tracebridge.torch._translate.numbers import Operator, cast, wide
from tracebridge.torch._translate.operators.indexing import trained_by_frequency

_NEAREST, _BICUBIC = 1, 2
_CUBIC = -0.75  # the parameter that torch has
_ZEROS, _BORDER = 0, 1
_SUM, _MEAN = 0, 1


def _reflected(x: Value, twice_low: int, twice_high: int) -> Any:
    """Places mirrored at both ends until they are between them."""
    if twice_low == twice_high:
        return tnp.zeros_like(x)
    low, span = twice_low / 2, (twice_high - twice_low) / 2
    x = tnp.abs(x - low)
    flips, rest = tnp.floor(x / span), tnp.fmod(x, span)
    return tnp.where(lax.stop_gradient(flips) % 2 == 0, rest + low, span - rest + low)


def _unnormalised(grid: Value, size: int, align_corners: bool) -> Any:
    """Numbers of pixels for coordinates in [-1, 1]."""
    return (grid + 1) / 2 * (size - 1) if align_corners else ((grid + 1) * size - 1) / 2


def _padded(x: Value, size: int, padding: int, align_corners: bool) -> Any:
    """Places outside of the pixels as the places that stand for them."""
    if padding == _ZEROS:
        return x
    if padding != _BORDER:
        ends = (0, 2 * (size - 1)) if align_corners else (-1, 2 * size - 1)
        x = _reflected(x, *ends)
    # Torch lets no derivative through where it clips, at the ends neither.
    inside = (x > 0) & (x < size - 1)
    clipped = tnp.clip(x, 0, size - 1)
    return tnp.where(inside, x, lax.stop_gradient(clipped))


def _cubic(t: Value) -> list[Any]:
    """Weights of the pixels before, at, after and behind a place ``t`` after a pixel."""

    def near(d: Any) -> Any:
        return ((_CUBIC + 2) * d - (_CUBIC + 3)) * d * d + 1

    def far(d: Any) -> Any:
        return ((d - 5) * d + 8) * d * _CUBIC - 4 * _CUBIC

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _weighted(
    x: Value, low: Sequence[Any], weights: Sequence[Sequence[Any]], first: int, pad: Any
) -> Any:
    """The sum over neighbours of pixels times the products of weights of their axes."""
    total: Any = 0
    for corner in itertools.product(range(len(weights[0])), repeat=len(low)):
        index = [pad(a + (k + first), n) for a, k, n in zip(low, corner, x.shape[2:], strict=True)]
        one = [w[k] for w, k in zip(weights, corner, strict=True)]
        weight: Any = math.prod(one[1:], start=one[0])
        total = total + _pixels(x, index) * weight[:, None]
    return total


def _pixels(x: Value, index: Sequence[Any]) -> Any:
    """``x[n, :, *index[n]]`` with zeros outside: ``(batch, channels, *places)``."""
    inside: Any = True
    at: list[Any] = []
    for size, i in zip(x.shape[2:], index, strict=True):
        inside = inside & (i >= 0) & (i < size)
        at.append(cast(tnp.clip(i, 0, size - 1), np.dtype(np.int32)))
    # Channels last, so that a gather reads rows of them.
    last = tnp.moveaxis(x, 1, -1)
    batch = tnp.arange(x.shape[0], dtype=np.int32).reshape((-1,) + (1,) * (at[0].ndim - 1))
    found = last[(batch, *at)]
    return tnp.moveaxis(tnp.where(inside[..., None], found, 0), -1, 1)


def _grid_sampler(
    x: Value, grid: Value, interpolation: int, padding: int, align_corners: bool
) -> Any:
    """Samples of ``(batch, channels, *sizes)`` at ``(batch, *places, axes)``."""
    dtype = x.dtype
    x, grid = wide(x), wide(grid)
    sizes = x.shape[2:]
    # The last coordinate is that of the first axis.
    places = [
        _unnormalised(grid[..., len(sizes) - 1 - i], size, align_corners)
        for i, size in enumerate(sizes)
    ]

    def pad(place: Any, size: int) -> Any:
        return _padded(place, size, padding, align_corners)

    if interpolation != _BICUBIC:
        places = [pad(p, n) for p, n in zip(places, sizes, strict=True)]
    if interpolation == _NEAREST:
        return cast(_pixels(x, [tnp.round(p) for p in places]), dtype)
    low = [lax.stop_gradient(tnp.floor(p)) for p in places]
    rest = [p - a for p, a in zip(places, low, strict=True)]
    if interpolation == _BICUBIC:
        return cast(_weighted(x, low, [_cubic(t) for t in rest], -1, pad), dtype)
    return cast(_weighted(x, low, [[1 - t, t] for t in rest], 0, lambda i, n: i), dtype)


def _embedding_bag(
    table: Value,
    indices: Value,
    offsets: Value,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Value | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Any, Any, Any, Any]:
    """Sums, means or maxima of the rows of each bag; the last result is for torch's gradients."""
    del sparse
    n, bags = indices.shape[0], offsets.shape[0] - bool(include_last_offset)
    if scale_grad_by_freq:
        table = trained_by_frequency(table, indices)
    place = tnp.arange(n, dtype=offsets.dtype)
    bag = tnp.searchsorted(offsets[:bags], place, side="right") - 1
    rows = tnp.take(table, indices, axis=0, mode="clip")
    kept = indices != padding_idx
    size = segment_sum(cast(kept, np.dtype(np.int64)), bag, bags)
    if per_sample_weights is not None:
        rows = rows * cast(per_sample_weights, rows.dtype)[:, None]
    if mode in {_SUM, _MEAN}:
        y = segment_sum(tnp.where(kept[:, None], rows, 0), bag, bags)
        if mode == _MEAN:
            y = y / cast(tnp.maximum(size, 1), y.dtype)[:, None]
    else:
        y = segment_max(tnp.where(kept[:, None], rows, -math.inf), bag, bags)
        y = tnp.where(size[:, None] > 0, y, 0)
    return y, cast(bag, np.dtype(np.int64)), size, size


def _starts(sample: Value, size: int, count: int, kernel: int) -> Any:
    """Where windows of a fractional pool begin, for each row of ``sample``."""
    last = tnp.full((*sample.shape, 1), size - kernel, np.int32)
    if count == 1:
        return last
    step = cast((size - kernel) / (count - 1), sample.dtype)
    offset = tnp.trunc(sample[..., None] * step)
    first = tnp.arange(count - 1, dtype=sample.dtype) + sample[..., None]
    return tnp.concatenate([cast(tnp.trunc(first * step) - offset, last.dtype), last], -1)


def _fractional_max_pool(n: int) -> Operator:
    """Maxima of windows of one size at places that samples say, with their positions."""

    def run(
        x: Value, kernel: Sequence[int], output: Sequence[int], samples: Value
    ) -> tuple[Any, Any]:
        batched = x if x.ndim == n + 2 else x[None]
        sizes = batched.shape[2:]
        place: Any = 0
        for i, (size, count, k) in enumerate(zip(sizes, output, kernel, strict=True)):
            # Of two axes torch takes the samples in the opposite order.
            sample = samples[..., 1 - i if n == 2 else i]
            at = _starts(sample, size, count, k)[..., None] + tnp.arange(k, dtype=np.int32)
            shape = [1] * (2 * n)
            shape[i], shape[n + i] = count, k
            place = place * size + tnp.reshape(at, (*at.shape[:2], *shape))
        grid = (*place.shape[:2], *output)
        places = tnp.reshape(tnp.broadcast_to(place, (*grid, *kernel)), (*grid[:2], -1))
        flat = tnp.reshape(batched, (*batched.shape[:2], -1))
        places = tnp.broadcast_to(places, (*flat.shape[:2], places.shape[-1]))
        seen = tnp.reshape(tnp.take_along_axis(flat, places, -1), (*flat.shape[:2], *output, -1))
        best = tnp.argmax(lax.stop_gradient(seen), -1, keepdims=True)
        y = tnp.take_along_axis(seen, best, -1)[..., 0]
        index = tnp.take_along_axis(tnp.reshape(places, seen.shape), best, -1)[..., 0]
        index = cast(index, np.dtype(np.int64))
        return (y, index) if batched is x else (y[0], index[0])

    return run


ROWS: Final[dict[str, Operator]] = {
    "grid_sampler_2d.default": _grid_sampler,
    "grid_sampler_3d.default": _grid_sampler,
    "fractional_max_pool2d.default": _fractional_max_pool(2),
    "fractional_max_pool3d.default": _fractional_max_pool(3),
    "_embedding_bag.default": _embedding_bag,
    "_embedding_bag_forward_only.default": _embedding_bag,
}
