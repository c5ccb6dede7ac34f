"""Reductions, running reductions, sorting and positions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from tracebridge.core.dtypes.dtypes import is_bool, is_complex, is_float
from tracebridge.torch._aten.arithmetic import extreme_of_two
from tracebridge.torch._aten.builder import Builder, aten, rule, without_counterpart
from tracebridge.torch._aten.carriers import DType, carrier, is_wide_unsigned, largest, smallest
from tracebridge.torch._aten.integers import in_order, masked


@rule("reduce_sum")
def _sum(b: Builder, x: fx.Proxy, axes: Sequence[int], **_: object) -> Any:
    if not axes:
        return x
    dtype = b.aval.dtype
    total = b.call(aten.sum.dim_IntList, x, list(axes), False, dtype=carrier(dtype))
    return masked(b, total, dtype)


@rule("reduce_prod")
def _prod(b: Builder, x: fx.Proxy, axes: Sequence[int], **_: object) -> Any:
    dtype = b.aval.dtype
    for axis in sorted(axes, reverse=True):
        x = b.call(aten.prod.dim_int, x, axis, False, dtype=carrier(dtype))
    return masked(b, x, dtype)


@rule("reduce_max")
def _reduce_max(b: Builder, x: fx.Proxy, axes: Sequence[int], **_: object) -> Any:
    return extreme(b, x, axes, aten.amax.default, b.avals[0])


@rule("reduce_min")
def _reduce_min(b: Builder, x: fx.Proxy, axes: Sequence[int], **_: object) -> Any:
    return extreme(b, x, axes, aten.amin.default, b.avals[0])


def extreme(b: Builder, x: fx.Proxy, axes: Sequence[int], target: Any, aval: Any) -> Any:
    """The largest or least elements along ``axes``."""
    if not axes:
        return x
    dtype = aval.dtype
    if any([type(aval.shape[a]) is int and aval.shape[a] == 0 for a in axes]):
        none = smallest(dtype) if target is aten.amax.default else largest(dtype)
        kept = [n for i, n in enumerate(aval.shape) if i not in axes]
        if is_wide_unsigned(dtype):
            none = 0 if target is aten.amax.default else -1
        return b.full(b.shape(kept), none, carrier(dtype))
    if is_wide_unsigned(dtype):
        return in_order(b, b.call(target, in_order(b, x), list(axes)))
    if is_complex(dtype):
        return _complex_extreme(b, x, axes, target, aval)
    return b.call(target, x, list(axes))


def _complex_extreme(b: Builder, x: fx.Proxy, axes: Sequence[int], target: Any, aval: Any) -> Any:
    """By real part, then by imaginary part, as the element at its place; NaNs before all."""
    kept = [i for i in range(aval.ndim) if i not in axes]
    x = b.call(aten.permute.default, x, [*kept, *axes])
    x = b.call(aten.flatten.using_ints, x, len(kept), -1)
    still = b.call(aten.detach.default, x)
    real, imag = (b.call(part, still) for part in (aten.real.default, aten.imag.default))
    none = -math.inf if target is aten.amax.default else math.inf
    first = b.call(aten.eq.Tensor, real, b.call(target, real, [-1], True))
    imag = b.call(aten.where.ScalarOther, first, imag, none)
    best = b.call(aten.eq.Tensor, imag, b.call(target, imag, [-1], True))
    best = b.convert(b.call(aten.logical_and.default, first, best), torch.int32)
    best = b.call(aten.masked_fill.Scalar, best, b.call(aten.ne.Tensor, still, still), 2)
    place = b.call(aten.argmax.default, best, -1, True)
    return b.call(aten.squeeze.dim, b.call(aten.gather.default, x, -1, place), -1)


def _all_or_any(b: Builder, x: fx.Proxy, axes: Sequence[int], target: Any, fold: Any) -> Any:
    if not axes:
        return x
    if is_bool(b.aval.dtype):
        return b.call(target, x, list(axes))
    return _by_bits(b, x, axes, fold)


def _by_bits(b: Builder, x: fx.Proxy, axes: Sequence[int], fold: Any) -> Any:
    """Integers reduced bit by bit; ``fold`` reduces arrays of zeros and ones along axes."""
    dtype = b.aval.dtype
    n = 8 * dtype.itemsize
    places = b.arange(n)
    wide = b.call(aten.unsqueeze.default, b.convert(x, torch.int64), -1)
    bits = b.call(aten.bitwise_and.Scalar, b.call(aten.bitwise_right_shift.Tensor, wide, places), 1)
    found = fold(bits, list(axes))
    total = b.call(
        aten.sum.dim_IntList, b.call(aten.bitwise_left_shift.Tensor, found, places), [-1]
    )
    return masked(b, b.convert(total, carrier(dtype)), dtype)


@rule("reduce_and")
def _reduce_and(b: Builder, x: fx.Proxy, axes: Sequence[int], **_: object) -> Any:
    def fold(bits: fx.Proxy, along: list[int]) -> Any:
        return b.convert(b.call(aten.all.dims, b.call(aten.ne.Scalar, bits, 0), along), torch.int64)

    return _all_or_any(b, x, axes, aten.all.dims, fold)


@rule("reduce_or")
def _reduce_or(b: Builder, x: fx.Proxy, axes: Sequence[int], **_: object) -> Any:
    def fold(bits: fx.Proxy, along: list[int]) -> Any:
        return b.convert(b.call(aten.any.dims, b.call(aten.ne.Scalar, bits, 0), along), torch.int64)

    return _all_or_any(b, x, axes, aten.any.dims, fold)


@rule("reduce_xor")
def _reduce_xor(b: Builder, x: fx.Proxy, axes: Sequence[int], **_: object) -> Any:
    def fold(bits: fx.Proxy, along: list[int]) -> Any:
        return b.call(aten.bitwise_and.Scalar, b.call(aten.sum.dim_IntList, bits, along), 1)

    if not axes:
        return x
    if is_bool(b.aval.dtype):
        return b.call(aten.ne.Scalar, fold(b.convert(x, torch.int64), list(axes)), 0)
    return _by_bits(b, x, axes, fold)


@rule("argmax")
def _argmax(b: Builder, x: fx.Proxy, axes: Sequence[int], index_dtype: DType) -> Any:
    return _arg(b, x, axes, index_dtype, aten.argmax.default)


@rule("argmin")
def _argmin(b: Builder, x: fx.Proxy, axes: Sequence[int], index_dtype: DType) -> Any:
    return _arg(b, x, axes, index_dtype, aten.argmin.default)


def _arg(b: Builder, x: fx.Proxy, axes: Sequence[int], index_dtype: DType, target: Any) -> Any:
    dtype = b.avals[0].dtype
    if is_complex(dtype):
        return NotImplemented
    if is_bool(dtype):
        x = b.convert(x, torch.uint8)
    elif is_wide_unsigned(dtype):
        x = in_order(b, x)
    (axis,) = axes
    return b.convert(b.call(target, x, axis), carrier(index_dtype))


# running reductions -------------------------------------------------------------------------------


def _running(b: Builder, x: fx.Proxy, axis: int, reverse: bool, emit: Any) -> Any:
    if reverse:
        x = b.call(aten.flip.default, x, [axis])
    x = emit(x)
    return b.call(aten.flip.default, x, [axis]) if reverse else x


@rule("cumsum")
def _cumsum(b: Builder, x: fx.Proxy, axis: int, reverse: bool) -> Any:
    dtype = b.aval.dtype

    def emit(x: fx.Proxy) -> Any:
        return masked(b, b.call(aten.cumsum.default, x, axis, dtype=carrier(dtype)), dtype)

    return _running(b, x, axis, reverse, emit)


@rule("cumprod")
def _cumprod(b: Builder, x: fx.Proxy, axis: int, reverse: bool) -> Any:
    dtype = b.aval.dtype

    def emit(x: fx.Proxy) -> Any:
        return masked(b, b.call(aten.cumprod.default, x, axis, dtype=carrier(dtype)), dtype)

    return _running(b, x, axis, reverse, emit)


@rule("cummax")
def _cummax(b: Builder, x: fx.Proxy, axis: int, reverse: bool) -> Any:
    return _cumulative_extreme(b, x, axis, reverse, aten.cummax.default)


@rule("cummin")
def _cummin(b: Builder, x: fx.Proxy, axis: int, reverse: bool) -> Any:
    return _cumulative_extreme(b, x, axis, reverse, aten.cummin.default)


def _cumulative_extreme(b: Builder, x: fx.Proxy, axis: int, reverse: bool, target: Any) -> Any:
    dtype = b.aval.dtype
    if is_complex(dtype):
        return _running(
            b,
            x,
            axis,
            reverse,
            lambda x: _by_doubling(b, x, axis, most=target is aten.cummax.default),
        )
    if is_wide_unsigned(dtype):
        x = in_order(b, x)
    found = _running(b, x, axis, reverse, lambda x: b.call_all(target, 2, x, axis)[0])
    return in_order(b, found) if is_wide_unsigned(dtype) else found


def _by_doubling(b: Builder, x: fx.Proxy, axis: int, *, most: bool) -> Any:
    """A running extreme: after each step an element has seen twice as many before it."""
    n, step = b.aval.shape[axis], 1
    if type(n) is not int:
        raise without_counterpart(b.app)
    while step < n:
        head = b.call(aten.slice.Tensor, x, axis, 0, step)
        before = b.call(aten.slice.Tensor, x, axis, 0, n - step)
        own = b.call(aten.slice.Tensor, x, axis, step, n)
        x = b.call(aten.cat.default, [head, extreme_of_two(b, before, own, most=most)], axis)
        step *= 2
    return x


@rule("cumlogsumexp")
def _cumlogsumexp(b: Builder, x: fx.Proxy, axis: int, reverse: bool) -> Any:
    return _running(b, x, axis, reverse, lambda x: b.call(aten.logcumsumexp.default, x, axis))


@rule("linear_recurrence")
def _linear_recurrence(b: Builder, a: fx.Proxy, y: fx.Proxy, axis: int, reverse: bool) -> Any:
    """By doubling: after each step an element has the terms of twice as many before it."""
    n = b.aval.shape[axis]
    if type(n) is not int:
        return NotImplemented
    if reverse:
        a, y = (b.call(aten.flip.default, v, [axis]) for v in (a, y))
    step = 1
    while step < n:
        head = b.call(aten.slice.Tensor, y, axis, 0, step)
        factor = b.call(aten.slice.Tensor, a, axis, step, n)
        before = b.call(aten.slice.Tensor, y, axis, 0, n - step)
        own = b.call(aten.slice.Tensor, y, axis, step, n)
        others = b.call(aten.add.Tensor, own, b.call(aten.mul.Tensor, factor, before))
        y = b.call(aten.cat.default, [head, others], axis)
        first = b.call(aten.slice.Tensor, a, axis, 0, step)
        factor = b.call(aten.mul.Tensor, factor, b.call(aten.slice.Tensor, a, axis, 0, n - step))
        a = b.call(aten.cat.default, [first, factor], axis)
        step *= 2
    return b.call(aten.flip.default, y, [axis]) if reverse else y


# order --------------------------------------------------------------------------------------------


@rule("sort")
def _sort(
    b: Builder, *xs: fx.Proxy, dimension: int, num_keys: int, is_stable: bool = True
) -> list[Any]:
    del is_stable
    axis, order = dimension, None
    if len(xs) == 1 and not is_complex(b.aval.dtype) and not is_wide_unsigned(b.aval.dtype):
        return [b.call_all(aten.sort.stable, 2, xs[0], stable=True, dim=axis)[0]]
    # From the last key to the first: a stable sort keeps the order of those before.
    for x, aval in reversed(list(zip(xs[:num_keys], b.avals[:num_keys], strict=True))):
        for key in reversed(_keys(b, x, aval.dtype)):
            chosen = key if order is None else b.call(aten.gather.default, key, axis, order)
            found = b.call_all(aten.sort.stable, 2, chosen, stable=True, dim=axis)[1]
            order = found if order is None else b.call(aten.gather.default, order, axis, found)
    return [b.call(aten.gather.default, x, axis, order) for x in xs]


def _keys(b: Builder, x: fx.Proxy, dtype: DType) -> list[Any]:
    if is_complex(dtype):
        return [b.call(aten.real.default, x), b.call(aten.imag.default, x)]
    return [in_order(b, x) if is_wide_unsigned(dtype) else x]


@rule("top_k")
def _top_k(b: Builder, x: fx.Proxy, k: int, axis: int, **_: object) -> list[Any]:
    return _best(b, x, k, axis, descending=True)


def _best(b: Builder, x: fx.Proxy, k: int, axis: int, *, descending: bool) -> list[Any]:
    dtype = b.avals[0].dtype
    key = in_order(b, x) if is_wide_unsigned(dtype) else x
    if is_float(dtype) and not descending:
        # NaN is first in both orders.
        key, descending = b.call(aten.neg.default, key), True
    order = b.call_all(
        aten.sort.stable,
        2,
        b.call(aten.detach.default, key) if is_float(dtype) else key,
        stable=True,
        dim=axis,
        descending=descending,
    )[1]
    order = b.call(aten.slice.Tensor, order, axis, 0, b.size(k))
    values = b.call(aten.gather.default, x, axis, order)
    return [values, b.convert(order, carrier(b.outs[1].dtype))]


@rule("approx_top_k")
def _approx_top_k(
    b: Builder, x: fx.Proxy, k: int, reduction_dimension: int, is_max_k: bool, **_: object
) -> list[Any]:
    return _best(b, x, k, reduction_dimension, descending=is_max_k)
