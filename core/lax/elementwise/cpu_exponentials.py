"""Exponentials, log1p and cube roots that are exact to two or three ulps.

XLA's own forms lose digits: a power of two of a product with log 2, log1p of small negative
numbers. ``core/lowering/platforms.py`` puts these in place on
the CPU, where they are faster too. What ``cpu_lowerings.py`` says of XLA holds here.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.ir.values import literal
from tracebridge.core.lax.elementwise.cpu_lowerings import horner, with_sign_of

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)
_BITS: dict[Any, np.dtype[Any]] = {_F32: np.dtype(np.int32), _F64: np.dtype(np.int64)}
_MANTISSA = {_F32: 23, _F64: 52}
_BIAS = {_F32: 127, _F64: 1023}

# (2**r - 1) / r, |r| <= 1/2.
_EXP2 = {
    _F32: (
        1.5297323760701075e-05, 0.0001546144469856913, 0.001333350238616277, 0.009618056678524637,
        0.055504108839096185, 0.24022650922288757, 0.6931471805599453,
    ),
    _F64: (
        2.5729324177362305e-11, 4.4558179083360645e-10, 7.0548973041554995e-09,
        1.0178057087733941e-07, 1.3215486808705563e-06, 1.5252733841556773e-05,
        0.00015403530393370734, 0.001333355814640647, 0.00961812910762848, 0.055504108664821625,
        0.24022650695910072, 0.6931471805599453,
    ),
}  # fmt: skip
# (exp(r) - 1 - r) / r**2 of r as below, from log(3/4) to log(3/2).
_EXPM1 = {
    _F32: (
        0.00020865638, 0.0013920515, 0.008332168, 0.041666564, 0.1666667, 0.5,
    ),
    _F64: (
        2.2016516617638676e-09, 2.5073995957431226e-08, 2.7554771399130994e-07,
        2.7557317970394533e-06, 2.480158936943836e-05, 0.000198412698331423,
        0.0013888888888184266, 0.008333333333336327, 0.04166666666666749, 0.16666666666666666,
        0.5,
    ),
}  # fmt: skip
# (2 atanh(s) / s - 2) / s**2 for (1 + s) / (1 - s) in [sqrt(1/2), sqrt(2)].
_LOG = {
    _F32: (0.29871738, 0.39977542, 0.66666776),
    _F64: (
        0.1461703759429283, 0.1533167402581507, 0.1818289055685574, 0.22222211115141333,
        0.2857142862609592, 0.3999999999989924, 0.666666666666667,
    ),
}  # fmt: skip
# The root of a half, as bits.
_ROOT_HALF = {_F32: 0x3F3504F3, _F64: 0x3FE6A09E667F3BCD}
# log 2 as a sum: the product of the first part and an exponent is exact.
_LOG_2 = {
    _F32: (0.693359375, -2.12194440e-4),
    _F64: (6.93147180369123816490e-01, 1.90821492927058770002e-10),
}
# Exponents of the smallest normal number and of infinity.
_EXP2_ENDS = {_F32: (-126, 128), _F64: (-1022, 1024)}
# Where results have reached their limit, or are infinite.
_EXPM1_ENDS = {_F32: (-20.0, 89.5), _F64: (-40.0, 710.5)}


def _rounded(x: Value) -> Any:
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)


def _bitcast(x: Value, dtype: Any) -> Any:
    """The bits as another dtype, also of 64 bits where users have turned these off."""
    return lax.bitcast_convert_type_p.bind(x, new_dtype=dtype)


def power_of_two(n: Any) -> Any:
    """``2**n`` for whole ``n`` that are exponents of normal floats."""
    dtype = n.aval.dtype
    # By 32 bits, to which floats convert by vector instructions.
    biased = lax.add(lax.convert_dtype(n, np.dtype(np.int32)), _BIAS[dtype])
    bits = lax.convert_dtype(biased, _BITS[dtype])
    return _bitcast(lax.shift_left(bits, _MANTISSA[dtype]), dtype)


def exp2(x: Value) -> Any:
    """Two to the power ``x``; whole powers are exact, subnormal ones are 0."""
    dtype = x.aval.dtype
    low, high = (literal(float(end), dtype) for end in _EXP2_ENDS[dtype])
    inside = lax.clamp(low, x, high)
    n = _rounded(inside)
    r = lax.sub(inside, n)
    value = lax.add(lax.mul(r, horner(r, _EXP2[dtype])), 1.0)
    # At the upper end r is 0, and the exponent becomes that of infinity.
    bits = _bitcast(value, _BITS[dtype])
    exponent = lax.shift_left(lax.convert_dtype(n, _BITS[dtype]), _MANTISSA[dtype])
    value = _bitcast(lax.add(bits, exponent), dtype)
    value = lax.select_n(lax.lt(x, low), value, literal(0.0, dtype))
    return lax.select_n(lax.ne(x, x), value, x)


def expm1_parts(x: Value) -> tuple[Any, Any]:
    """``(n, e)`` with ``x = n log 2 + r`` and ``e = expm1(r)``."""
    dtype = x.aval.dtype
    high, low = _LOG_2[dtype]
    # So that n is 0 up to log(3/2): with n = 1 a result below 1/2 is a difference.
    n = _rounded(lax.sub(lax.mul(x, 1.0 / math.log(2.0)), math.log2(9 / 8) / 2))
    first, second = lax.sub(x, lax.mul(n, high)), lax.mul(n, low)
    r = lax.sub(first, second)
    more = lax.mul(lax.mul(r, r), horner(r, _EXPM1[dtype]))
    # Not from r: its rounding would count beside that of the sum.
    return n, lax.add(first, lax.sub(more, second))


def quarter_expm1(x: Value) -> Any:
    """``expm1(x) / 4``, finite as long as the hyperbolic functions are."""
    dtype = x.aval.dtype
    low, high = _EXPM1_ENDS[dtype]
    n, e = expm1_parts(lax.clamp(literal(low, dtype), x, literal(high, dtype)))
    scale = power_of_two(lax.sub(n, 2.0))
    value = lax.add(lax.mul(scale, e), lax.sub(scale, 0.25))
    return lax.select_n(lax.eq(n, 0.0), value, lax.mul(e, 0.25))


def is_kept(size: Any) -> Any:
    """Where a function is its argument: also of numbers whose quarter would be flushed, and NaN."""
    is_tiny = lax.lt(size, float(np.finfo(size.aval.dtype).eps) / 4)
    return lax.bitwise_or(is_tiny, lax.ne(size, size))


def expm1(x: Value) -> Any:
    """``exp(x) - 1``."""
    value = lax.mul(quarter_expm1(x), 4.0)
    return lax.select_n(is_kept(lax.abs(x)), value, x)


def log_of_normal(x: Value, correction: Any = None, more: Any = None) -> Any:
    """``log(x) + correction + more * log(2)`` of normal numbers above 0."""
    dtype = x.aval.dtype
    integers, width = _BITS[dtype], _MANTISSA[dtype]
    bits = _bitcast(x, integers)
    shifted = lax.sub(bits, literal(_ROOT_HALF[dtype], integers))
    k = lax.shift_right_arithmetic(shifted, literal(width, integers))
    mantissa = lax.sub(bits, lax.shift_left(k, literal(width, integers)))
    f = lax.sub(_bitcast(mantissa, dtype), 1.0)
    # 32 bits hold the exponent, and convert by vector instructions.
    k = lax.convert_dtype(lax.convert_dtype(k, np.dtype(np.int32)), dtype)
    k = k if more is None else lax.add(k, more)
    s = lax.div(f, lax.add(f, 2.0))
    z = lax.mul(s, s)
    series = lax.mul(z, horner(z, _LOG[dtype]))
    half = lax.mul(lax.mul(f, f), 0.5)
    high, low = _LOG_2[dtype]
    small = lax.mul(k, low)
    if correction is not None:
        small = lax.add(small, correction)
    inner = lax.sub(half, lax.add(lax.mul(s, lax.add(half, series)), small))
    return lax.sub(lax.mul(k, high), lax.sub(inner, f))


def one_more(x: Value) -> tuple[Any, Any]:
    """``1 + x`` of numbers above -1, and what its rounding has taken."""
    dtype = x.aval.dtype
    # A one that XLA does not know: it would turn (1 + x) - 1 into x.
    one = lax.select_n(lax.ne(x, x), literal(1.0, dtype), literal(2.0, dtype))
    u = lax.add(one, x)
    lost = lax.select_n(lax.ge(x, 1.0), lax.sub(x, lax.sub(u, one)), lax.sub(one, lax.sub(u, x)))
    return u, lost


def log1p_of_normal(x: Value) -> Any:
    """``log(1 + x)`` of finite numbers above -1."""
    u, lost = one_more(x)
    return log_of_normal(u, lax.div(lost, u))


def log(x: Value) -> Any:
    """The logarithm of float64; subnormal numbers count as 0, as in XLA's."""
    tiny = float(np.finfo(_F64).tiny)
    value = lax.select_n(lax.eq(x, math.inf), log_of_normal(x), x)
    value = lax.select_n(lax.lt(x, tiny), value, literal(-math.inf, _F64))
    return lax.select_n(lax.ge(x, 0.0), literal(math.nan, _F64), value)


def log1p(x: Value) -> Any:
    """``log(1 + x)`` of float64."""
    value = log1p_of_normal(x)
    keeps = lax.bitwise_or(lax.lt(lax.abs(x), 2.0**-54), lax.eq(x, math.inf))
    value = lax.select_n(keeps, value, x)
    value = lax.select_n(lax.eq(x, -1.0), value, literal(-math.inf, _F64))
    return lax.select_n(lax.ge(x, -1.0), literal(math.nan, _F64), value)


def divided(a: Value, b: Value) -> Any:
    """``a / b``; XLA leaves the loop for a quotient of several uses, so this one is chosen."""
    return lax.select_n(lax.ne(b, b), lax.div(a, b), b)


def _halley(y: Value, a: Value) -> Any:
    """One step to the cube root of ``a``, as a quotient that does not underflow."""
    cube = lax.mul(lax.mul(y, y), y)
    above, below = lax.add(cube, lax.mul(a, 2.0)), lax.add(lax.mul(cube, 2.0), a)
    return lax.mul(y, divided(above, below))


def cbrt(x: Value) -> Any:
    """Cube root; the steps are taken in float64."""
    dtype = x.aval.dtype
    size = lax.abs(x)
    # Subnormal operands count as 0: their bits say otherwise, their products do not.
    is_zero = lax.lt(size, float(np.finfo(dtype).tiny))
    keeps = lax.bitwise_or(is_zero, lax.bitwise_not(lax.lt(size, math.inf)))
    size = lax.select_n(is_zero, size, literal(0.0, dtype))
    size = full = lax.convert_dtype(size, _F64)
    # Far from overflow.
    is_large = lax.gt(size, 2.0**900)
    if dtype == _F64:
        size = lax.mul(size, lax.select_n(is_large, literal(1.0, _F64), literal(2.0**-300, _F64)))
    i32, i64 = np.dtype(np.int32), np.dtype(np.int64)
    # A third of the exponent, and of the mantissa as if it were one number.
    word = lax.shift_right_logical(_bitcast(size, i64), literal(32, i64))
    third = lax.div(lax.convert_dtype(word, i32), literal(3, i32))
    third = lax.convert_dtype(lax.add(third, literal(715094163, i32)), i64)
    y = _bitcast(lax.shift_left(third, literal(32, i64)), _F64)
    y = _halley(_halley(y, size), size)
    if dtype == _F64:
        # With 23 bits the square is exact, and one step of Newton's rounds only once.
        bits = _bitcast(y, i64)
        bits = lax.bitwise_and(lax.add(bits, literal(1 << 29, i64)), literal(-(1 << 30), i64))
        t = _bitcast(bits, _F64)
        quotient = divided(size, lax.mul(t, t))
        step = lax.div(lax.sub(quotient, t), lax.add(lax.mul(t, 2.0), quotient))
        y = lax.add(t, lax.mul(t, step))
        y = lax.mul(y, lax.select_n(is_large, literal(1.0, _F64), literal(2.0**100, _F64)))
    return with_sign_of(lax.convert_dtype(lax.select_n(keeps, y, full), dtype), x)


BOTH = (_F32, _F64)
# For large arrays only: XLA's calls the function of libm for one number after another.
CPU_RULES = {"log": (log, (_F64,))}
# Primitive -> (composition, dtypes): for arrays of any size, as the plain operation is less exact.
CPU_EXACT_RULES = {
    "exp2": (exp2, BOTH),
    "expm1": (expm1, BOTH),
    "log1p": (log1p, (_F64,)),
    "cbrt": (cbrt, BOTH),
}
