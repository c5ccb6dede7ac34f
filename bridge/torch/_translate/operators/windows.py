"""Convolutions, pools and changes of resolution."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

import tracebridge.core.lax as lax
import tracebridge.lax as public
import tracebridge.numpy as tnp
from tracebridge.core.ir.value import Value
from tracebridge.torch._translate.numbers import Operator, cast, wide

INDEX = np.dtype(np.int64)


def _each(values: Any, count: int) -> list[Any]:
    """One value for each axis of a window; one given is that of all."""
    values = list(values) if isinstance(values, list | tuple) else [values]
    return values * count if len(values) == 1 else values


def _convolution(
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    n = weight.ndim - 2
    strides, pads, dilations = [_each(v, n) for v in (stride, padding, dilation)]
    if transposed:
        y = _transposed(x, weight, strides, pads, dilations, _each(output_padding, n), groups)
    else:
        y = public.conv_general_dilated(
            x,
            weight,
            strides,
            [(p, p) for p in pads],
            rhs_dilation=dilations,
            feature_group_count=groups,
        )
    return y if bias is None else y + tnp.reshape(bias, (1, -1) + (1,) * n)


def _transposed(
    x: Value,
    weight: Value,
    strides: list[int],
    pads: list[int],
    dilations: list[int],
    more: list[int],
    groups: int,
) -> Any:
    """The transpose of a convolution: one over an input with holes, by the flipped kernel."""
    inputs, outputs, *kernel = weight.shape
    weight = tnp.reshape(weight, (groups, inputs // groups, outputs, *kernel))
    weight = tnp.reshape(tnp.swapaxes(weight, 1, 2), (groups * outputs, inputs // groups, *kernel))
    weight = tnp.flip(weight, tuple(range(2, weight.ndim)))
    reach = [d * (k - 1) - p for d, k, p in zip(dilations, kernel, pads, strict=True)]
    return public.conv_general_dilated(
        x,
        weight,
        [1] * len(kernel),
        [(r, r + m) for r, m in zip(reach, more, strict=True)],
        lhs_dilation=strides,
        rhs_dilation=dilations,
        feature_group_count=groups,
    )


# pools ----------------------------------------------------------------------------------------


def _count(size: Any, kernel: int, stride: int, pad: int, dilation: int, ceil_mode: bool) -> Any:
    """How many windows there are along an axis."""
    room = size + 2 * pad - dilation * (kernel - 1) - 1
    count = (room + (stride - 1 if ceil_mode else 0)) // stride + 1
    if ceil_mode and stride > 1 and isinstance(size, int) and (count - 1) * stride >= size + pad:
        count -= 1  # the last window must begin inside the input or its left padding
    return count


def _pool_pads(
    shape: Sequence[Any], windows: list[tuple[int, int, int, int]], ceil_mode: bool
) -> list[tuple[Any, Any]]:
    """Padding that makes exactly the windows that torch has."""
    pads: list[tuple[Any, Any]] = []
    for size, (kernel, stride, pad, dilation) in zip(shape, windows, strict=True):
        count = _count(size, kernel, stride, pad, dilation, ceil_mode)
        if ceil_mode:
            high = (count - 1) * stride + dilation * (kernel - 1) + 1 - size - pad
            pads.append((pad, max(high, 0) if isinstance(high, int) else high))
        else:
            pads.append((pad, pad))
    return pads


def _windows(
    x: Value, n: int, kernel: Any, stride: Any, padding: Any, dilation: Any = 1
) -> list[tuple[int, int, int, int]]:
    kernels = _each(kernel, n)
    rows = [kernels, _each(stride or kernels, n), _each(padding, n), _each(dilation, n)]
    return list(zip(*rows, strict=True))


def _max_pool(n: int) -> Operator:
    def run(
        x: Value,
        kernel: Any,
        stride: Any = (),
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> tuple[Any, Any]:
        windows = _windows(x, n, kernel, stride, padding, dilation)
        pads = _pool_pads(x.shape[-n:], windows, ceil_mode)
        low = -math.inf if x.dtype.kind != "i" else np.iinfo(x.dtype).min
        front = x.ndim - n
        values = public.reduce_window(
            x,
            cast(low, x.dtype),
            lambda a, b: lax.max(a, b),
            (1,) * front + tuple([w[0] for w in windows]),
            (1,) * front + tuple([w[1] for w in windows]),
            [(0, 0)] * front + pads,
            window_dilation=(1,) * front + tuple([w[3] for w in windows]),
        )
        return values, _winners(lax.stop_gradient(x), windows, pads, low)

    return run


def _winners(
    x: Value, windows: list[tuple[int, int, int, int]], pads: list[tuple[Any, Any]], low: Any
) -> Any:
    """Places of the largest elements in the flat input; dropped where nobody asks for them."""
    n = len(windows)
    front = x.ndim - n
    sizes = x.shape[front:]
    places = tnp.reshape(tnp.arange(math.prod(sizes), dtype=INDEX), sizes)
    padded = lax.pad(x, cast(low, x.dtype), [(0, 0, 0)] * front + [(*p, 0) for p in pads])
    padded_places = lax.pad(places, cast(-1, INDEX), [(*p, 0) for p in pads])
    best = best_places = None
    for offsets in itertools.product(*[range(w[0]) for w in windows]):
        cut = tuple(
            [
                slice(o * d, o * d + (size + sum(p) - d * (k - 1) - 1) // s * s + 1, s)
                for o, (k, s, _, d), p, size in zip(offsets, windows, pads, sizes, strict=True)
            ]
        )
        values, here = padded[(slice(None),) * front + cut], padded_places[cut]
        here = tnp.broadcast_to(here, values.shape)
        if best is None or best_places is None:
            best, best_places = values, here
            continue
        wins = ((values > best) | tnp.isnan(values) | (best_places < 0)) & (here >= 0)
        best, best_places = tnp.where(wins, values, best), tnp.where(wins, here, best_places)
    return best_places


def _avg_pool(n: int) -> Operator:
    def run(
        x: Value,
        kernel: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        windows = _windows(x, n, kernel, stride, padding)
        pads = _pool_pads(x.shape[-n:], windows, ceil_mode)
        total = _window_sums(x, windows, pads)
        if divisor_override is not None:
            return total / cast(divisor_override, x.dtype)
        if all([isinstance(v, int) and v == 0 for p in pads for v in p]):
            return total / cast(math.prod([w[0] for w in windows]), x.dtype)
        # Elements of the input count, and with ``count_include_pad`` those of its padding.
        own = [(w[2], w[2]) if count_include_pad else (0, 0) for w in windows]
        ones = tnp.ones([s + sum(p) for s, p in zip(x.shape[-n:], own, strict=True)], x.dtype)
        beyond = [(p[0] - o[0], p[1] - o[1]) for p, o in zip(pads, own, strict=True)]
        return total / _window_sums(ones, windows, beyond)

    return run


def _window_sums(
    x: Value, windows: list[tuple[int, int, int, int]], pads: list[tuple[Any, Any]]
) -> Any:
    front = x.ndim - len(windows)
    return public.reduce_window(
        x,
        cast(0, x.dtype),
        lambda a, b: lax.add(a, b),
        (1,) * front + tuple([w[0] for w in windows]),
        (1,) * front + tuple([w[1] for w in windows]),
        [(0, 0)] * front + pads,
    )


def _adaptive_avg_pool(n: int) -> Operator:
    def run(x: Value, output_size: Sequence[int]) -> Any:
        for i, count in enumerate(output_size):
            axis = x.ndim - n + i
            weights = cast(_bins(x.shape[axis], count), x.dtype)
            # The axis goes last, where a product contracts it with the bins.
            x = tnp.moveaxis(tnp.matmul(tnp.moveaxis(x, axis, -1), weights.T), -1, axis)
        return x

    return run


def _bins(size: int, count: int) -> np.ndarray[Any, Any]:
    """The matrix that averages ``size`` elements in ``count`` bins."""
    weights = np.zeros((count, size))
    for i in range(count):
        start, end = i * size // count, -(-(i + 1) * size // count)
        weights[i, start:end] = 1 / (end - start)
    return weights


# resolution -----------------------------------------------------------------------------------


def _sizes(x: Value, output_size: Any, factors: Any) -> tuple[list[Any], list[float | None]]:
    """New sizes, and the factors where those are given."""
    if output_size is not None:
        return list(output_size), [None] * len(output_size)
    shape = x.shape[x.ndim - len(factors) :]
    return [int(s * f) for s, f in zip(shape, factors, strict=True)], list(factors)


def _nearest(x: Value, output_size: Any, factors: Any) -> Any:
    sizes, scales = _sizes(x, output_size, factors)
    for i, (size, scale) in enumerate(zip(sizes, scales, strict=True)):
        axis = x.ndim - len(sizes) + i
        step = np.float32(x.shape[axis] / size if scale is None else 1 / scale)
        places = np.floor(np.arange(size, dtype=np.float32) * step).astype(np.int64)
        x = tnp.take(x, np.minimum(places, x.shape[axis] - 1), axis=axis)
    return x


def _linear(x: Value, output_size: Any, align_corners: bool, factors: Any) -> Any:
    sizes, scales = _sizes(x, output_size, factors)
    for i, (size, scale) in enumerate(zip(sizes, scales, strict=True)):
        axis = x.ndim - len(sizes) + i
        old = x.shape[axis]
        if align_corners:
            at = np.arange(size) * ((old - 1) / (size - 1) if size > 1 else 0)
        else:
            at = (np.arange(size) + 0.5) * (old / size if scale is None else 1 / scale) - 0.5
            at = np.maximum(at, 0)
        low = np.minimum(np.floor(at).astype(np.int64), old - 1)
        shape = (-1,) + (1,) * (x.ndim - 1 - axis)
        part = tnp.asarray((at - low).astype(x.dtype).reshape(shape))
        first, second = [tnp.take(x, p, axis=axis) for p in (low, np.minimum(low + 1, old - 1))]
        x = first * (1 - part) + second * part
    return x


def _smooth(reach: int, filter_of: Callable[[Any], Any]) -> Operator:
    """Resampling by a filter that is as wide as a new pixel where there are fewer of them."""

    def weights_of(old: int, size: int, scale: float) -> np.ndarray[Any, Any]:
        wide_scale = max(scale, 1.0)
        centre = scale * (np.arange(size) + 0.5)
        support = reach / 2 * wide_scale
        low = np.maximum((centre - support + 0.5).astype(np.int64), 0)
        high = np.minimum((centre + support + 0.5).astype(np.int64), old)
        places = np.arange(old)
        values = filter_of((places + 0.5 - centre[:, None]) / wide_scale)
        seen = (places >= low[:, None]) & (places < high[:, None])
        values = np.where(seen, values, 0.0)
        return values / np.sum(values, axis=1, keepdims=True)

    def run(x: Value, sizes: Sequence[int], align_corners: bool, *factors: float | None) -> Any:
        exact = wide(x)
        for i, size in enumerate(sizes):
            axis = x.ndim - len(sizes) + i
            old = x.shape[axis]
            factor = factors[i] if i < len(factors) else None
            scale = old / size if factor is None else 1 / factor
            if align_corners:
                scale = (old - 1) / (size - 1) if size > 1 else 0.0
            weights = cast(weights_of(old, size, scale), exact.dtype)
            product = tnp.matmul(tnp.moveaxis(exact, axis, -1), weights.T)
            exact = tnp.moveaxis(product, -1, axis)
        return cast(exact, x.dtype)

    return run


def _max_unpool(n: int) -> Operator:
    """Each element at its place among zeros. Of several at one place each has the derivative."""

    def run(x: Value, indices: Value, output_size: Sequence[Any], *_: object) -> Any:
        lead = x.shape[:-n]
        flat = tnp.reshape(x, (math.prod(lead), math.prod(x.shape[-n:])))
        at = tnp.arange(flat.shape[0], dtype=INDEX)[:, None], tnp.reshape(indices, flat.shape)
        zeros = tnp.zeros((flat.shape[0], math.prod(output_size)), x.dtype)
        values = zeros.at[at].set(lax.stop_gradient(flat))
        moving = tnp.where(tnp.isfinite(flat), flat, cast(0, x.dtype))
        slopes = zeros.at[at].add(moving - lax.stop_gradient(moving))
        return tnp.reshape(values + slopes, (*lead, *output_size))

    return run


def _hat(t: Any) -> Any:
    return np.maximum(1 - np.abs(t), 0)


def _cubic(t: Any) -> Any:
    """The cubic filter that Pillow has, with the parameter -1/2."""
    t = np.abs(t)
    near = (1.5 * t - 2.5) * t * t + 1
    far = ((-0.5 * t + 2.5) * t - 4) * t + 2
    return np.where(t < 1, near, np.where(t < 2, far, 0))


ROWS: Final[dict[str, Operator]] = {
    "_upsample_bicubic2d_aa.default": _smooth(4, _cubic),
    "_upsample_bilinear2d_aa.default": _smooth(2, _hat),
    "_adaptive_avg_pool2d.default": _adaptive_avg_pool(2),
    "_adaptive_avg_pool3d.default": _adaptive_avg_pool(3),
    "avg_pool1d.default": _avg_pool(1),
    "avg_pool2d.default": _avg_pool(2),
    "avg_pool3d.default": _avg_pool(3),
    "convolution.default": _convolution,
    "max_pool2d_with_indices.default": _max_pool(2),
    "max_pool3d_with_indices.default": _max_pool(3),
    "max_unpool2d.default": _max_unpool(2),
    "max_unpool3d.default": _max_unpool(3),
    "upsample_bilinear2d.vec": _linear,
    "upsample_linear1d.vec": _linear,
    "upsample_nearest1d.vec": _nearest,
    "upsample_nearest2d.vec": _nearest,
    "upsample_nearest3d.vec": _nearest,
    "upsample_trilinear3d.vec": _linear,
}
