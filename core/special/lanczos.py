"""The beta function of float32 numbers, in float64 by Lanczos' approximation of the gamma function.

It is one formula for numbers of all sizes, of two logarithms. Those of gamma functions in float32
cost as much, and lose digits where they cancel; by parts that do not, they cost several times that.

Source: Lanczos (1964), J. SIAM Numer. Anal. B 1, 86-96. ``gamma(x) = t**(x - 1/2) exp(-t) s(x)``
with ``t = x + g - 1/2`` for positive ``x``, where ``s`` is nearly a fraction that has the first
poles of gamma. Its coefficients are those with which it is exact at 1, 2, ..., 6 and at infinity;
for this ``g`` its largest relative error is least, 5e-13.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from tracebridge.core import lax
from tracebridge.core.special.programs import Expression, polynomial

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
