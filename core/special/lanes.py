"""Random draws with a key for each element: what samplers by rejection are made of.

The numbers are those of the generator threefry2x32 in its partitionable form, here with the two
words of the keys as arrays beside each other.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tracebridge.core import lax
from tracebridge.core.dtypes.dtypes import uint8, uint16, uint32, uint64
from tracebridge.core.dtypes.finfo import finfo
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.lax.ad_util import full_of
from tracebridge.core.runtime.arrays.argument_types import DType

UINTS = {8: uint8, 16: uint16, 32: uint32, 64: uint64}
Keys = tuple[Any, Any]


def encrypt(keys: Keys, high: Any, low: Any) -> Keys:
    """The two words that the keys make of two counters, numbers or words."""
    scalar = keys[0].aval.update(shape=())
    counters = [full_of(scalar, c) if isinstance(c, int) else c for c in (high, low)]
    first, second = lax.threefry2x32_p.bind(*keys, *counters)
    return first, second


def child(keys: Keys, i: Any) -> Keys:
    """Key ``i`` of those into which each key splits."""
    return encrypt(keys, 0, i)


def bits_of(keys: Keys, width: int, high: Any = 0, low: Any = 0) -> Any:
    """One unsigned integer of ``width`` bits from each key, or from each counter of an array."""
    first, second = encrypt(keys, high, low)
    if width == 64:
        return joined(first, second)
    word = lax.bitwise_xor(first, second)
    return word if width == 32 else lax.convert_dtype(word, UINTS[width])


def unit_of(keys: Keys, dtype: DType, high: Any = 0, low: Any = 0) -> Any:
    """A float in [0, 1) from each key, or from each counter."""
    return unit_of_words(bits_of(keys, width_of(dtype), high, low), dtype)


def normal_of(keys: Keys, dtype: DType) -> Any:
    """A standard normal number from each key."""
    return normal_of_unit(unit_of(keys, dtype))


def packed(keys: Keys) -> Any:
    """Keys as one array: loops carry it in one piece, which XLA computes in one pass."""
    return joined(*keys)


def unpacked(keys: Any) -> Keys:
    """The two words of packed keys."""
    distance = full_of(keys.aval.update(shape=()), 32)
    high = lax.shift_right_logical(keys, distance)
    return lax.convert_dtype(high, uint32), lax.convert_dtype(keys, uint32)


def joined(high: Any, low: Any) -> Any:
    """Two words as one of 64 bits."""
    high, low = (lax.convert_dtype(v, uint64) for v in (high, low))
    distance = full_of(high.aval.update(shape=()), 32)
    return lax.bitwise_or(lax.shift_left(high, distance), low)


def width_of(dtype: Any) -> int:
    """How many random bits a float of ``dtype`` is made of.

    Raises:
        UnsupportedDtypeError: there are no integers of its size.
    """
    info = finfo(dtype)
    if info.bits not in UINTS:
        msg = f"{dtype.name} has {info.bits} bits, expected 8, 16, 32 or 64"
        raise UnsupportedDtypeError(msg, hint="convert the result with .astype")
    return 8 if info.nmant < 8 else info.bits


def unit_of_words(words: Any, dtype: DType) -> Any:
    """Multiples of the spacing of floats in [1, 2), in [0, 1), of words of ``width_of(dtype)``."""
    info = finfo(dtype)
    width = width_of(dtype)
    holder = UINTS[info.bits]
    # Random mantissas below the exponent of 1.
    words = lax.convert_dtype(words, holder)
    scalar = words.aval.update(shape=())
    mantissa = lax.shift_right_logical(words, full_of(scalar, width - info.nmant))
    one = int(np.array(1, dtype).view(holder))
    pattern = lax.bitwise_or(mantissa, full_of(scalar, one))
    floats = lax.bitcast_convert_type_p.bind(pattern, new_dtype=dtype)
    return lax.sub(floats, full_of(floats.aval.update(shape=()), 1))


def normal_of_unit(unit: Any) -> Any:
    """Standard normal numbers of uniform ones, by the inverse of the distribution function."""
    dtype = unit.aval.dtype
    scalar = unit.aval.update(shape=())
    lowest = np.nextafter(dtype.type(-1), dtype.type(0))
    bottom = full_of(scalar, float(lowest))
    span = full_of(scalar, float(dtype.type(1) - lowest))
    u = lax.max(bottom, lax.add(lax.mul(unit, span), bottom))
    # XLA's own operation: streams keep their bits.
    return lax.mul(lax.erf_inv_p.bind(u, plain=True), full_of(scalar, math.sqrt(2)))
