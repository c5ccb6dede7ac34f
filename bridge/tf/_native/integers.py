"""Integers: what shifts and divides as XLA does it, bits, and the order of elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tracebridge.core.dtypes import dtypes as d
from tracebridge.core.dtypes.dtypes import is_bool, is_float
from tracebridge.tf._native.builder import Builder, DType, Tensor, number, rule

SIGNED = {1: tf.int8, 2: tf.int16, 4: tf.int32, 8: tf.int64}
UNSIGNED = {1: tf.uint8, 2: tf.uint16, 4: tf.uint32, 8: tf.uint64}


# bitwise ------------------------------------------------------------------------------------------


def _bitwise(of_bools: Any, of_bits: Any) -> Any:
    def emit(b: Builder, *xs: Tensor) -> Tensor:
        return of_bools(*xs) if is_bool(b.aval.dtype) else of_bits(*xs)

    return emit


rule("and")(_bitwise(tf.logical_and, tf.bitwise.bitwise_and))
rule("or")(_bitwise(tf.logical_or, tf.bitwise.bitwise_or))
rule("xor")(_bitwise(tf.math.logical_xor, tf.bitwise.bitwise_xor))
rule("not")(_bitwise(tf.logical_not, tf.bitwise.invert))


def as_unsigned(x: Tensor, dtype: DType) -> Tensor:
    """The same bits as unsigned numbers."""
    return x if d.is_unsigned(dtype) else tf.bitcast(x, UNSIGNED[dtype.itemsize])


def _counts(b: Builder, count: Tensor) -> tuple[Tensor, Tensor]:
    """Whether counts of bits are below the width, and the counts with 0 where they are not."""
    dtype = b.aval.dtype
    unsigned = as_unsigned(count, dtype)
    inside = unsigned < number(unsigned, 8 * dtype.itemsize)
    return inside, tf.where(inside, count, tf.zeros_like(count))


@rule("shift_left")
def _shift_left(b: Builder, x: Tensor, count: Tensor) -> Tensor:
    inside, count = _counts(b, count)
    dtype = b.aval.dtype
    bits = tf.bitwise.left_shift(as_unsigned(x, dtype), as_unsigned(count, dtype))
    return tf.where(inside, tf.bitcast(bits, x.dtype), tf.zeros_like(x))


@rule("shift_right_logical")
def _shift_right_logical(b: Builder, x: Tensor, count: Tensor) -> Tensor:
    inside, count = _counts(b, count)
    dtype = b.aval.dtype
    bits = tf.bitwise.right_shift(as_unsigned(x, dtype), as_unsigned(count, dtype))
    return tf.where(inside, tf.bitcast(bits, x.dtype), tf.zeros_like(x))


@rule("shift_right_arithmetic")
def _shift_right_arithmetic(b: Builder, x: Tensor, count: Tensor) -> Tensor:
    inside, count = _counts(b, count)
    dtype = b.aval.dtype
    count = tf.where(inside, count, number(count, 8 * dtype.itemsize - 1))
    # The top bit is a sign here, of unsigned numbers too.
    kind = SIGNED[dtype.itemsize]
    moved = tf.bitwise.right_shift(tf.bitcast(x, kind), tf.bitcast(count, kind))
    return tf.bitcast(moved, x.dtype)


@rule("population_count")
def _population_count(b: Builder, x: Tensor) -> Tensor:
    return tf.cast(tf.raw_ops.PopulationCount(x=x), x.dtype)


@rule("clz")
def _clz(b: Builder, x: Tensor) -> Tensor:
    width = 8 * b.aval.dtype.itemsize
    bits = as_unsigned(x, b.aval.dtype)
    for count in (1, 2, 4, 8, 16, 32):
        if count < width:
            moved = tf.bitwise.right_shift(bits, number(bits, count))
            bits = tf.bitwise.bitwise_or(bits, moved)
    ones = tf.cast(tf.raw_ops.PopulationCount(x=bits), x.dtype)
    return number(x, width) - ones


# products, powers and quotients -------------------------------------------------------------------


@rule("mulhi")
def _mulhi(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    dtype = b.aval.dtype
    bits = 8 * dtype.itemsize
    unsigned = d.is_unsigned(dtype)
    if bits < 64:
        wide = tf.uint64 if unsigned else tf.int64
        product = tf.cast(x, wide) * tf.cast(y, wide)
        return tf.cast(tf.bitwise.right_shift(product, number(product, bits)), x.dtype)
    high = _unsigned_mulhi(as_unsigned(x, dtype), as_unsigned(y, dtype))
    high = tf.bitcast(high, x.dtype)
    if unsigned:
        return high
    for a, c in ((x, y), (y, x)):
        # A negative factor counts 2**64 too much in unsigned numbers.
        high -= tf.where(a < 0, c, tf.zeros_like(c))
    return high


def _unsigned_mulhi(x: Tensor, y: Tensor) -> Tensor:
    half = tf.constant(32, tf.uint64)
    low = tf.constant(2**32 - 1, tf.uint64)
    shift, keep = tf.bitwise.right_shift, tf.bitwise.bitwise_and
    x0, x1, y0, y1 = keep(x, low), shift(x, half), keep(y, low), shift(y, half)
    middle = x1 * y0 + shift(x0 * y0, half)
    part = x0 * y1 + keep(middle, low)
    return x1 * y1 + shift(middle, half) + shift(part, half)


def negated(x: Tensor) -> Tensor:
    """The unsigned numbers of which the sums with ``x`` are 0."""
    return tf.bitwise.invert(x) + number(x, 1)


def powered(x: Tensor, y: Tensor, dtype: DType, exponent: DType) -> Tensor:
    """Powers of integers by squaring; of negative exponents as XLA has them."""
    bits = as_unsigned(y, exponent)
    result, power = tf.ones_like(x), x
    for place in range(8 * exponent.itemsize):
        one = number(bits, 1)
        moved = tf.bitwise.right_shift(bits, number(bits, place))
        chosen = tf.equal(tf.bitwise.bitwise_and(moved, one), one)
        result = tf.where(chosen, result * power, result)
        power = power * power
    if d.is_unsigned(exponent):
        return result
    # 1 / x ** -y, rounded to 0 but for 1 and -1.
    odd = tf.not_equal(tf.bitwise.bitwise_and(y, number(y, 1)), number(y, 0))
    of_minus = tf.where(odd, x, tf.ones_like(x))
    inverse = tf.where(tf.equal(x, tf.ones_like(x)), x, tf.zeros_like(x))
    if not d.is_unsigned(dtype):
        inverse = tf.where(tf.equal(x, -tf.ones_like(x)), of_minus, inverse)
    return tf.where(y < 0, inverse, result)


def _safe(x: Tensor, y: Tensor, dtype: DType) -> tuple[Tensor, Tensor, Tensor]:
    """Divisors by which TensorFlow divides; where they are 0 and where -1 in truth."""
    zero = tf.equal(y, tf.zeros_like(y))
    minus = tf.zeros_like(zero) if d.is_unsigned(dtype) else tf.equal(y, -tf.ones_like(y))
    return tf.where(zero | minus, tf.ones_like(y), y), zero, minus


def divided(x: Tensor, y: Tensor, dtype: DType) -> Tensor:
    """The quotient towards zero; all bits are set where the divisor is 0."""
    safe, zero, minus = _safe(x, y, dtype)
    quotient = tf.truncatediv(x, safe)
    if not d.is_unsigned(dtype):
        # The least number has no negative: its quotient by -1 is itself.
        quotient = tf.where(minus, -quotient, quotient)
    ones = int(np.iinfo(dtype).max) if d.is_unsigned(dtype) else -1
    return tf.where(zero, number(x, ones), quotient)


def remainder(x: Tensor, y: Tensor, dtype: DType) -> Tensor:
    """The remainder with the sign of ``x``; ``x`` itself where the divisor is 0."""
    safe, zero, _ = _safe(x, y, dtype)
    return tf.where(zero, x, x - tf.truncatediv(x, safe) * safe)


# order --------------------------------------------------------------------------------------------


def total_order(x: Tensor, dtype: DType) -> Tensor:
    """Integers in the order of the elements: of floats by sign and size, NaNs outermost."""
    if is_bool(dtype):
        return tf.cast(x, tf.uint8)
    if not is_float(dtype):
        return x
    kind = SIGNED[dtype.itemsize]
    bits = tf.bitcast(x, kind)
    flip = tf.constant(2 ** (8 * dtype.itemsize - 1) - 1, kind)
    return tf.where(bits < 0, tf.bitwise.bitwise_xor(bits, flip), bits)


def sort_key(x: Tensor, dtype: DType) -> Tensor:
    """Integers in the order of sorting: zeros are equal, and NaNs are, behind all numbers."""
    if is_float(dtype):
        x = tf.where(tf.equal(x, tf.zeros_like(x)), tf.zeros_like(x), x)
        x = tf.where(tf.math.is_nan(x), tf.constant(np.nan, x.dtype), x)
    key = total_order(x, dtype)
    if dtype.itemsize < 4:
        return tf.cast(key, tf.int32)
    if not d.is_unsigned(dtype):
        return key
    least = tf.constant(2 ** (8 * dtype.itemsize - 1), key.dtype)
    return tf.bitcast(tf.bitwise.bitwise_xor(key, least), SIGNED[dtype.itemsize])
