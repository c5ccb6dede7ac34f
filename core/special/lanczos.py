"""The beta function by Lanczos' approximation of the gamma function: of float32 in float64.

It is one formula for numbers of all sizes, of two logarithms. Those of gamma functions in float32
cost as much, and lose digits where they cancel; by parts that do not, they cost several times that.

Source: Lanczos (1964), J. SIAM Numer. Anal. B 1, 86-96. ``gamma(x) = t**(x - 1/2) exp(-t) s(x)``
with ``t = x + g - 1/2`` for positive ``x``, where ``s`` is nearly a fraction that has the first
poles of gamma. Its coefficients are those with which it is exact at 1, 2, ..., 6 and at infinity;
for this ``g`` its largest relative error is least, 5e-13. Numbers of float64 that are not large
have a fraction that is exact at 1, 2, ..., 10, with an error of 4e-17.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from tracebridge.core import lax
from tracebridge.core.special.programs import Expression, polynomial, where

_F64 = np.dtype(np.float64)
_SHIFT = 6.375 - 0.5  # g - 1/2
_NUMERATOR = (
    103553.61457661279,
    105678.3267479762,
    44935.44463129694,
    10190.246685402093,
    1299.8607722986474,
    88.43045113674897,
    2.5066282746310007,
)
_DENOMINATOR = (0.0, 120.0, 274.0, 225.0, 85.0, 15.0, 1.0)
# Of numbers of float64: the shift, and ``exp(-shift) s(x)``.
_WIDE_SHIFT = 10.375
_WIDE_NUMERATOR = (
    1168845.4364885034, 1122730.1523179316, 485304.24416174163, 124313.07527057981,
    20897.607067697052, 2408.9463647207904, 192.84249896399598, 10.585930191171391,
    0.38135723739707333, 0.008141388393284345, 7.821403374999846e-05,
)  # fmt: skip
_WIDE_DENOMINATOR = (
    0.0,
    362880.0,
    1026576.0,
    1172700.0,
    723680.0,
    269325.0,
    63273.0,
    9450.0,
    870.0,
    45.0,
    1.0,
)


def _fraction(x: Expression) -> Expression:
    """``s(x)``."""
    return polynomial(x, _NUMERATOR) / polynomial(x, _DENOMINATOR)


@dataclasses.dataclass(frozen=True, slots=True)
class _Beta:
    """``beta(a, b)`` is ``ratio * exp(exponent - g + 1/2) / sqrt(top)``, all of them in float64."""

    ratio: Expression
    top: Expression
    exponent: Expression


def _beta(a: Expression, b: Expression) -> _Beta:
    low, high = a.of(lax.min, b), a.of(lax.max, b)
    whole = a + b
    base = whole + _SHIFT
    # Each power is over the same one of the whole: no large logarithms cancel.
    exponent = (low - 0.5) * ((low + _SHIFT) / base).of(lax.log)
    exponent = exponent + high * (-low / base).of(lax.log1p)
    return _Beta(_fraction(a) * _fraction(b) / _fraction(whole), high + _SHIFT, exponent)


def log_beta_in_float64(a: Expression, b: Expression) -> Expression:
    """``log(beta(a, b))`` of positive numbers of float32."""
    parts = _beta(*[v.of(lax.convert_dtype, _F64) for v in (a, b)])
    log = (parts.ratio * parts.ratio / parts.top).of(lax.log) * 0.5
    return (log + (parts.exponent - _SHIFT)).of(lax.convert_dtype, a.aval.dtype)


def log_beta_of_modest(low: Expression, high: Expression, whole: Expression) -> Expression:
    """``log(beta(low, high))`` of float64 up to about 10, ``low`` the smaller one.

    Without the logarithms of three gamma functions, which are larger than what they add up to.
    """
    first, second, third = [
        polynomial(x, _WIDE_NUMERATOR) / polynomial(x, _WIDE_DENOMINATOR)
        for x in (low, high, whole)
    ]
    # In this order none overflows where numbers are small.
    ratio, base = second / third * first, whole + _WIDE_SHIFT
    exponent = (low - 0.5) * ((low + _WIDE_SHIFT) / base).of(lax.log)
    exponent = exponent + high * (-low / base).of(lax.log1p)
    ratio = ratio / (high + _WIDE_SHIFT).of(lax.sqrt)
    # It is the inverse of the other number where one is 1, and exactly 1 where both are.
    first_is_1 = low.is_equal(1.0)
    has_1 = first_is_1 | high.is_equal(1.0)
    ratio = where(has_1, 1.0 / where(first_is_1, high, low), ratio)
    return where(has_1, 0.0, exponent) + ratio.of(lax.log)


def beta_in_float64(a: Expression, b: Expression) -> Expression:
    """``beta(a, b)`` of positive numbers in float64 of the size and digits of float32."""
    parts = _beta(a, b)
    return parts.ratio * parts.exponent.of(lax.exp) * (math.exp(-_SHIFT) / parts.top.of(lax.sqrt))


def rising_in_float64(z: Expression, m: Expression) -> Expression:
    """``gamma(z + m) / gamma(z)`` of such numbers, ``z`` and ``z + m`` being positive."""
    end, start = z + m, z + _SHIFT
    # What cancels is no larger than the logarithm of the result.
    exponent = (z - 0.5) * (m / start).of(lax.log1p) + m * ((start + m).of(lax.log) - 1.0)
    return exponent.of(lax.exp) * (_fraction(end) / _fraction(z))
