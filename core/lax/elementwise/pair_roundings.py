"""Rounding of float64 where it is a pair of float32 and the compiler has no operation: TPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.lax.ad_util import full_of

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value

_F32: Final = np.dtype(np.float32)
_F64: Final = np.dtype(np.float64)
_U32: Final = np.dtype(np.uint32)
_STORED_BITS: Final = 23
_EXPONENT: Final = 0x7F800000
_FRACTION: Final = 0x007FFFFF


def rounded_pair(x: Value, exponent_bits: int, mantissa_bits: int) -> Any:
    """``x`` of float64 in a format of fewer bits, by operations of float32 and sums.

    Exact for numbers that are the sum of two of float32, the rest of the larger one.
    """
    upper = lax.convert_dtype(x, _F32)
    lower = lax.convert_dtype(lax.sub(x, lax.convert_dtype(upper, _F64)), _F32)
    kept = min(mantissa_bits, _STORED_BITS)
    high = lax.reduce_precision(upper, min(exponent_bits, 8), kept)
    if mantissa_bits <= _STORED_BITS:
        return lax.convert_dtype(_from_ties(high, upper, lower, mantissa_bits), _F64)
    low = _on_grid(upper, lower, mantissa_bits)
    # Infinite numbers have no rest; nor have zeros, and those that the exponent is too short for.
    whole = lax.bitwise_and(lax.eq(high, upper), lax.is_finite(upper))
    has_rest = lax.bitwise_and(whole, lax.ne(low, _filled(low, 0.0)))
    high = lax.convert_dtype(high, _F64)
    return lax.select(has_rest, lax.add(high, lax.convert_dtype(low, _F64)), high)


def _from_ties(high: Any, upper: Any, lower: Any, mantissa_bits: int) -> Any:
    """The other neighbour where the upper number is in the middle, and the lower one decides."""
    moved = lax.sub(high, upper)
    half = lax.mul(_power(upper), _filled(upper, 2.0 ** -(mantissa_bits + 1)))
    is_tie = lax.eq(lax.abs(moved), half)
    is_wrong = lax.lt(lax.mul(lax.sign(moved), lax.sign(lower)), _filled(upper, 0.0))
    return lax.select(lax.bitwise_and(is_tie, is_wrong), lax.sub(upper, moved), high)


def _on_grid(upper: Any, lower: Any, mantissa_bits: int) -> Any:
    """The lower number rounded to the spacing that the upper one gives the sum."""
    # The sum with a number whose last digit is that spacing is rounded to it.
    shift = lax.mul(_power(upper), _filled(upper, 2.0 ** (_STORED_BITS - mantissa_bits)))
    none = full_of(upper.aval.strong.update(dtype=_U32), 0)
    is_power = lax.eq(_masked(upper, _FRACTION), none)
    opposite = lax.lt(lax.mul(lax.sign(upper), lax.sign(lower)), _filled(upper, 0.0))
    # Below a power of 2 the spacing is half as wide.
    below = lax.bitwise_and(is_power, opposite)
    shift = lax.select(below, lax.mul(shift, _filled(upper, 0.5)), shift)
    # From that number on, all digits are at least as wide.
    has_more = lax.lt(lax.abs(lower), shift)
    shift = lax.mul(shift, lax.sign(lower))
    return lax.select(has_more, lax.sub(lax.add(lower, shift), shift), lower)


def _power(x: Any) -> Any:
    """The power of 2 at or below the size of ``x``."""
    return lax.bitcast_convert_type(_masked(x, _EXPONENT), _F32)


def _masked(x: Any, mask: int) -> Any:
    bits = lax.bitcast_convert_type(x, _U32)
    return lax.bitwise_and(bits, full_of(bits.aval, mask))


def _filled(like: Any, number: float) -> Any:
    return full_of(like.aval.strong, number)
