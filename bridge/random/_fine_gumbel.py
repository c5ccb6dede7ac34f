"""Gumbel numbers from 64 random bits each, as float32."""

from __future__ import annotations

from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.ir.value import Value
from tracebridge.random._streams import Stream, constant

_U32 = np.dtype(np.uint32)
_F32 = np.dtype(np.float32)


def fine_gumbels(stream: Stream, shape: tuple[int, ...]) -> Any:
    """Gumbel numbers; the uniform number has 24 digits however small it or its rest is."""
    pair = stream.bits(32, (2, *shape))
    high, low = (
        lax.reshape(lax.slice(pair, (i, *[0] * len(shape)), (i + 1, *shape)), shape)
        for i in range(2)
    )

    def word(x: int) -> Any:
        return constant(x, shape, _U32)

    # From 1/2 on the rest is taken: 1 less the number, of 64 digits behind the point.
    below = lax.lt(high, word(1 << 31))
    carry = lax.convert_dtype(lax.eq(low, word(0)), _U32)
    # The low word is inverted and 1 added; only a word of zeros carries over.
    other_high = lax.add(lax.bitwise_not(high), carry)
    other_low = lax.add(lax.bitwise_not(low), word(1))
    x = _fraction(lax.select(below, high, other_high), lax.select(below, low, other_low), word)
    logs = lax.select(below, lax.log1p(lax.neg(x)), lax.log(x))
    return lax.neg(lax.log(lax.neg(logs)))


def _fraction(high: Value, low: Value, word: Any) -> Any:
    """``(high * 2**32 + low) / 2**64``, cut off to 24 digits."""
    skip_high, skip_low = lax.clz(high), lax.clz(low)
    empty = lax.eq(skip_high, word(32))
    low_digits = lax.select(
        empty,
        lax.shift_left(low, skip_low),
        lax.shift_right_logical(low, lax.sub(word(32), skip_high)),
    )
    mantissa = lax.bitwise_or(lax.shift_left(high, skip_high), low_digits)
    mantissa = lax.bitwise_and(lax.shift_right_logical(mantissa, word(8)), word((1 << 23) - 1))
    skipped = lax.select(empty, lax.add(word(32), skip_low), skip_high)
    exponent = lax.shift_left(lax.sub(word(126), skipped), word(23))
    exponent = lax.bitwise_and(exponent, word((1 << 30) - (1 << 22)))
    pattern = lax.bitwise_or(exponent, mantissa)
    return lax.bitcast_convert_type_p.bind(pattern, new_dtype=_F32)
