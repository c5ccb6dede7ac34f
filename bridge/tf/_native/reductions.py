"""Reductions, and running reductions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tracebridge.core.dtypes.dtypes import is_bool, is_complex, is_float
from tracebridge.tf._native.arithmetic import larger, smaller
from tracebridge.tf._native.builder import Builder, DType, Tensor, rule
from tracebridge.tf._native.integers import as_unsigned
from tracebridge.tf._native.shapes import cut
from tracebridge.tf._xla_call_module import tf_dtype


def _folded(target: Any) -> Any:
    """Sums and products, of 16 bits in ``float32``."""

    def emit(b: Builder, x: Tensor, axes: Sequence[int], **_: object) -> Tensor:
        if not axes:
            return x
        if is_float(b.aval.dtype) and b.aval.dtype.itemsize == 2:
            return tf.cast(target(tf.cast(x, tf.float32), list(axes)), x.dtype)
        return target(x, list(axes))

    return emit


rule("reduce_sum")(_folded(tf.reduce_sum))
rule("reduce_prod")(_folded(tf.reduce_prod))


def _extreme(target: Any, of_bools: Any) -> Any:
    def emit(b: Builder, x: Tensor, axes: Sequence[int], **_: object) -> Any:
        if is_complex(b.aval.dtype):
            return NotImplemented
        if not axes:
            return x
        return (of_bools if is_bool(b.aval.dtype) else target)(x, list(axes))

    return emit


rule("reduce_max")(_extreme(tf.reduce_max, tf.reduce_any))
rule("reduce_min")(_extreme(tf.reduce_min, tf.reduce_all))


def _all_ones(x: Tensor, axes: list[int]) -> Tensor:
    return tf.reduce_min(x, axes)


def _any_one(x: Tensor, axes: list[int]) -> Tensor:
    return tf.reduce_max(x, axes)


def _odd_ones(x: Tensor, axes: list[int]) -> Tensor:
    return tf.bitwise.bitwise_and(tf.reduce_sum(x, axes), tf.ones([], x.dtype))


def _by_bits(fold: Callable[[Tensor, list[int]], Tensor]) -> Any:
    """Integers reduced bit by bit; ``fold`` reduces arrays of zeros and ones along axes."""

    def emit(b: Builder, x: Tensor, axes: Sequence[int], **_: object) -> Tensor:
        dtype = b.aval.dtype
        if not axes:
            return x
        if is_bool(dtype):
            return tf.cast(fold(tf.cast(x, tf.int32), list(axes)), tf.bool)
        bits = tf.expand_dims(as_unsigned(x, dtype), -1)
        places = tf.constant(np.arange(8 * dtype.itemsize), bits.dtype)
        ones = tf.bitwise.right_shift(bits, places)
        ones = tf.bitwise.bitwise_and(ones, tf.ones([], bits.dtype))
        found = tf.bitwise.left_shift(fold(ones, list(axes)), places)
        return tf.bitcast(tf.reduce_sum(found, -1), x.dtype)

    return emit


rule("reduce_and")(_by_bits(_all_ones))
rule("reduce_or")(_by_bits(_any_one))
rule("reduce_xor")(_by_bits(_odd_ones))


def _position(target: Any) -> Any:
    def emit(b: Builder, x: Tensor, axes: Sequence[int], index_dtype: DType) -> Any:
        dtype = b.avals[0].dtype
        if is_complex(dtype):
            return NotImplemented
        if is_bool(dtype):
            x = tf.cast(x, tf.uint8)
        (axis,) = axes
        found = target(x, axis, output_type=tf.int32)
        if is_float(dtype):
            # The first NaN is before all numbers.
            nans = tf.math.is_nan(x)
            first = tf.argmax(tf.cast(nans, tf.uint8), axis, output_type=tf.int32)
            found = tf.where(tf.reduce_any(nans, axis), first, found)
        return tf.cast(found, tf_dtype(index_dtype))

    return emit


rule("argmax")(_position(tf.argmax))
rule("argmin")(_position(tf.argmin))


# running reductions -------------------------------------------------------------------------------


def _cumulative(target: Any) -> Any:
    def emit(b: Builder, x: Tensor, axis: int, reverse: bool) -> Any:
        dtype = b.aval.dtype
        if is_float(dtype) and dtype.itemsize == 2:
            return tf.cast(target(tf.cast(x, tf.float32), axis, reverse=reverse), x.dtype)
        return target(x, axis, reverse=reverse)

    return emit


rule("cumsum")(_cumulative(tf.cumsum))
rule("cumprod")(_cumulative(tf.math.cumprod))


@rule("cumlogsumexp")
def _cumlogsumexp(b: Builder, x: Tensor, axis: int, reverse: bool) -> Any:
    if is_complex(b.aval.dtype):
        return NotImplemented
    return _cumulative(tf.math.cumulative_logsumexp)(b, x, axis, reverse)


def _doubling(
    b: Builder, xs: list[Tensor], axis: int, step: Callable[[Tensor, list[Tensor]], list[Tensor]]
) -> list[Tensor]:
    """``step(k, xs)`` for k = 1, 2, 4, ... below the size of the axis."""
    n = b.size(b.aval.shape[axis])
    if isinstance(n, int):
        k = 1
        while k < n:
            xs = step(k, xs)
            k *= 2
        return xs

    def body(k: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
        return (2 * k, *step(k, list(values)))

    shapes = (tf.TensorShape([]), *[x.shape for x in xs])
    found = tf.while_loop(lambda k, *_: k < n, body, (tf.constant(1), *xs), shapes)
    return list(found[1:])


def _running_extreme(combine: Any) -> Any:
    """By doubling: after each step an element stands for twice as many before it."""

    def emit(b: Builder, x: Tensor, axis: int, reverse: bool) -> Tensor:
        dtype = b.aval.dtype
        x = tf.reverse(x, [axis]) if reverse else x

        def step(k: Tensor, xs: list[Tensor]) -> list[Tensor]:
            (v,) = xs
            later = combine(cut(v, axis, k), cut(v, axis, 0, -k), dtype)
            return [tf.ensure_shape(tf.concat([cut(v, axis, 0, k), later], axis), x.shape)]

        (x,) = _doubling(b, [x], axis, step)
        return tf.reverse(x, [axis]) if reverse else x

    return emit


rule("cummax")(_running_extreme(larger))
rule("cummin")(_running_extreme(smaller))


@rule("linear_recurrence")
def _linear_recurrence(b: Builder, a: Tensor, y: Tensor, axis: int, reverse: bool) -> Tensor:
    """By doubling: after each step an element has the terms of twice as many before it."""
    if reverse:
        a, y = tf.reverse(a, [axis]), tf.reverse(y, [axis])

    def step(k: Tensor, xs: list[Tensor]) -> list[Tensor]:
        a, y = xs
        late = cut(a, axis, k)
        sums = cut(y, axis, k) + late * cut(y, axis, 0, -k)
        factors = late * cut(a, axis, 0, -k)
        pairs = ((a, factors), (y, sums))
        return [
            tf.ensure_shape(tf.concat([cut(v, axis, 0, k), w], axis), v.shape) for v, w in pairs
        ]

    y = _doubling(b, [a, y], axis, step)[1]
    return tf.reverse(y, [axis]) if reverse else y
