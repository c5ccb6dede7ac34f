"""Operators that order numbers: medians, running extrema, places among sorted numbers."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.ir.value import Value
from tracebridge.torch._translate.numbers import Operator, axis_of, cast


def _at(x: Value, order: Value, place: Any, axis: int, keepdim: bool) -> tuple[Any, Any]:
    """The element at a place of an order, and its position."""
    index = tnp.take_along_axis(order, place, axis)
    value = tnp.take_along_axis(x, index, axis)
    if not keepdim:
        index, value = tnp.squeeze(index, axis), tnp.squeeze(value, axis)
    return value, cast(index, np.dtype(np.int64))


def _kthvalue(x: Value, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Any, Any]:
    if not x.ndim:
        return x, cast(tnp.zeros_like(x), np.dtype(np.int64))
    axis = axis_of(dim, x.ndim)
    order = tnp.argsort(x, axis, stable=True)
    place = tnp.full([1] * x.ndim, k - 1, order.dtype)
    return _at(x, order, place, axis, keepdim)


def _median_along(*, skips_nan: bool) -> Operator:
    """The lower one of two; a NaN is the median of all, or is left out."""

    def run(x: Value, dim: int, keepdim: bool = False) -> tuple[Any, Any]:
        if not x.ndim:
            return x, cast(tnp.zeros_like(x), np.dtype(np.int64))
        axis = axis_of(dim, x.ndim)
        order = tnp.argsort(x, axis, stable=True)  # NaN at the end
        is_nan = lax.ne(x, x)
        n = tnp.sum(~is_nan, axis, keepdims=True)
        size = x.shape[axis]
        place = tnp.maximum(n - 1, 0) // 2
        if not skips_nan:
            place = tnp.where(n < size, n, place)
        return _at(x, order, cast(place, order.dtype), axis, keepdim)

    return run


def _median_of_all(*, skips_nan: bool) -> Operator:
    along = _median_along(skips_nan=skips_nan)
    return lambda x: along(x.reshape(-1), 0)[0]


def _running_extreme(fun: Any) -> Operator:
    """Running extrema with the last of equal positions; a NaN stays."""

    def run(x: Value, dim: int) -> tuple[Any, Any]:
        if not x.ndim:
            return x, cast(tnp.zeros_like(x), np.dtype(np.int64))
        axis = axis_of(dim, x.ndim)
        ordered = cast(x, np.dtype(np.uint8)) if x.dtype == np.bool_ else x
        best = cast(lax.stop_gradient(fun(ordered, axis=axis)), x.dtype)
        here = cast(lax.broadcasted_iota(np.dtype(np.int32), x.shape, axis), np.dtype(np.int64))
        is_best = (x == best) | lax.ne(x, x)
        index = lax.cummax(tnp.where(is_best, here, cast(0, here.dtype)), axis=axis)
        return tnp.take_along_axis(x, index, axis), index

    return run


def _places(
    edges: Value, x: Value, *, out_int32: bool, right: bool, side: str | None = None
) -> Any:
    """How many edges are in front of each number; NaN are behind all."""
    right = right or side == "right"
    edge, value = edges[..., None, :], cast(x, x.dtype)[..., None]
    in_front = edge <= value if right else edge < value
    in_front = in_front | (lax.ne(value, value) & (lax.eq(edge, edge) | right))
    return cast(tnp.sum(in_front, -1), np.dtype(np.int32 if out_int32 else np.int64))


def _bucketize(x: Value, edges: Value, *, out_int32: bool = False, right: bool = False) -> Any:
    flat = _places(edges, x.reshape(-1), out_int32=out_int32, right=right)
    return flat.reshape(x.shape)


def _bucket_of_one(x: float, edges: Value, **options: Any) -> Any:
    return _bucketize(tnp.asarray(cast(x, edges.dtype)), edges, **options)


def _searchsorted(
    edges: Value,
    x: Value,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Value | None = None,
) -> Any:
    if sorter is not None:
        edges = tnp.take_along_axis(edges, sorter, -1)
    if edges.ndim == 1:
        flat = _places(edges, x.reshape(-1), out_int32=out_int32, right=right, side=side)
        return flat.reshape(x.shape)
    return _places(edges, x, out_int32=out_int32, right=right, side=side)


def _searchsorted_one(edges: Value, x: float, **options: Any) -> Any:
    return _searchsorted(edges, tnp.asarray(cast(x, edges.dtype)), **options)


def _unfold(x: Value, dimension: int, size: int, step: int) -> Any:
    if not x.ndim:
        return tnp.full((1,) * (size > 0), x, x.dtype)
    axis = axis_of(dimension, x.ndim)
    count = (x.shape[axis] - size) // step + 1
    starts = lax.broadcasted_iota(np.dtype(np.int32), (count, size), 0) * step
    index = starts + lax.broadcasted_iota(np.dtype(np.int32), (count, size), 1)
    return tnp.moveaxis(tnp.take(x, index, axis), axis + 1, -1)


def _adaptive_max_pool(n: int) -> Operator:
    """Maxima of windows of almost equal sizes, with their positions among all elements."""

    def run(x: Value, output_size: Any) -> tuple[Any, Any]:
        spatial = x.shape[x.ndim - n :]
        value, index = x, None
        for k in range(n):  # axis by axis, the last one first
            axis = x.ndim - 1 - k
            size, bins = spatial[n - 1 - k], output_size[n - 1 - k]
            parts, places = [], []
            for i in range(bins):
                low, high = i * size // bins, -((-(i + 1) * size) // bins)
                part = lax.slice_in_dim(value, low, high, axis=axis)
                best = tnp.argmax(lax.stop_gradient(part), axis, keepdims=True)
                parts.append(tnp.take_along_axis(part, best, axis))
                own = cast(best, np.dtype(np.int64)) + low
                stride = math.prod(spatial[n - k :])
                if index is None:
                    places.append(own)
                else:
                    window = lax.slice_in_dim(index, low, high, axis=axis)
                    places.append(tnp.take_along_axis(window, best, axis) + own * stride)
            value, index = tnp.concatenate(parts, axis), tnp.concatenate(places, axis)
        return value, index

    return run


def _histc(x: Value, bins: int = 100, min: Any = 0, max: Any = 0) -> Any:
    low, high = cast(min, x.dtype), cast(max, x.dtype)
    if min == max:
        low, high = tnp.min(x), tnp.max(x)
        low, high = tnp.where(low == high, low - 1, low), tnp.where(low == high, high + 1, high)
    place = tnp.floor((x - low) / (high - low) * bins)
    place = tnp.where(x == high, cast(bins - 1, x.dtype), place)
    inside = (x >= low) & (x <= high)
    hot = place.reshape(-1, 1) == tnp.arange(bins, dtype=x.dtype)
    return cast(tnp.sum(hot & inside.reshape(-1, 1), 0), x.dtype)


def _logcumsumexp(x: Value, dim: int) -> Any:
    return lax.cumlogsumexp(x, axis=axis_of(dim, x.ndim)) if x.ndim else x


def _var_mean(
    x: Value, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[Any, Any]:
    axes = None if dim is None or not list(dim) else tuple([axis_of(d, x.ndim) for d in dim])
    ddof = 1 if correction is None else correction
    return tnp.var(x, axes, ddof=ddof, keepdims=keepdim), tnp.mean(x, axes, keepdims=keepdim)


def _mode(x: Value, dim: int = -1, keepdim: bool = False) -> tuple[Any, Any]:
    """The smallest of the most frequent elements, and the last position where it is."""
    if not x.ndim:
        return x, cast(tnp.zeros_like(x), np.dtype(np.int64))
    last = tnp.moveaxis(x, axis_of(dim, x.ndim), -1)
    order = tnp.argsort(last, -1, stable=True)
    ordered = lax.stop_gradient(tnp.take_along_axis(last, order, -1))
    count = tnp.sum(lax.eq(*tnp.broadcast_arrays(ordered[..., None], ordered[..., None, :])), -1)
    size = x.shape[axis_of(dim, x.ndim)]
    # The first of the most frequent ones in the order, then the last that equals it.
    place = tnp.argmax(count, -1, keepdims=True)
    place = place + tnp.maximum(tnp.take_along_axis(count, place, -1), 1) - 1
    index = tnp.take_along_axis(order, tnp.minimum(place, size - 1), -1)
    value = tnp.take_along_axis(last, index, -1)
    index = cast(index, np.dtype(np.int64))
    if keepdim:
        return tnp.moveaxis(value, -1, axis_of(dim, x.ndim)), tnp.moveaxis(
            index, -1, axis_of(dim, x.ndim)
        )
    return value[..., 0], index[..., 0]


ROWS: Final[dict[str, Operator]] = {
    "mode.default": _mode,
    "adaptive_max_pool2d.default": _adaptive_max_pool(2),
    "adaptive_max_pool3d.default": _adaptive_max_pool(3),
    "bucketize.Scalar": _bucket_of_one,
    "bucketize.Tensor": _bucketize,
    "cummax.default": _running_extreme(lax.cummax),
    "cummin.default": _running_extreme(lax.cummin),
    "histc.default": _histc,
    "kthvalue.default": _kthvalue,
    "logcumsumexp.default": _logcumsumexp,
    "median.default": _median_of_all(skips_nan=False),
    "median.dim": _median_along(skips_nan=False),
    "nanmedian.default": _median_of_all(skips_nan=True),
    "nanmedian.dim": _median_along(skips_nan=True),
    "searchsorted.Scalar": _searchsorted_one,
    "searchsorted.Tensor": _searchsorted,
    "unfold.default": _unfold,
    "var_mean.correction": _var_mean,
}
