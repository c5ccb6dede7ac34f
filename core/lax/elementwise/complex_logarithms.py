"""Logarithms of complex numbers, for the CPU: every digit of both parts, beside the circle too.

Where the size of ``z`` is about 1, its logarithm is that of ``|z|**2``, less 1, a sum of squares
that cancels: it is formed from exact products. XLA takes its own log1p of that sum, which is
wrong by 115 ulps in float64 where the size is about 0.77.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.ir.values import literal
from tracebridge.core.lax.roundings import exact_product, exact_sum

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value

_F64 = np.dtype(np.float64)


def _sum_of_squares(first: Any, x: Any, y: Any) -> Any:
    """``first + x * x + y * y``, where the first one may cancel the squares."""
    if x.aval.dtype != _F64:
        # There squares are exact, and the first sum is, where it cancels.
        first, x, y = (lax.convert_dtype(v, _F64) for v in (first, x, y))
        a, b = lax.mul(x, x), lax.mul(y, y)
        total = lax.add(lax.add(first, lax.max(a, b)), lax.min(a, b))
        return lax.convert_dtype(total, np.dtype(np.float32))
    (a, lost_a), (b, lost_b) = exact_product(x, x), exact_product(y, y)
    total, lost = exact_sum(first, lax.max(a, b))
    total, rest = exact_sum(total, lax.min(a, b))
    return lax.add(total, lax.add(lax.add(lost, rest), lax.add(lost_a, lost_b)))


def _log_size(x: Any, y: Any, excess: Any) -> Any:
    """``log |x + iy|``, where ``excess`` is the square of the size, less 1, if that is small."""
    x, y = lax.abs(x), lax.abs(y)
    large, small = lax.max(x, y), lax.min(x, y)
    near = lax.lt(lax.abs(excess), 0.5)
    one = literal(1.0, large.aval.dtype)
    ratio = lax.select_n(lax.eq(small, large), lax.div(small, large), one)
    # One call for both kinds of arguments.
    size = lax.mul(lax.log1p(lax.select_n(near, lax.mul(ratio, ratio), excess)), 0.5)
    scale = lax.select_n(near, lax.log(large), literal(0.0, large.aval.dtype))
    far = lax.bitwise_or(lax.eq(x, math.inf), lax.eq(y, math.inf))
    return lax.select_n(far, lax.add(scale, size), literal(math.inf, large.aval.dtype))


def log(z: Value) -> Any:
    """The logarithm; beside the negative axis the sign of 0 says on which side."""
    x, y = lax.real(z), lax.imag(z)
    # A number that XLA does not know: it would add it to itself before the squares.
    less = lax.select_n(lax.ne(x, x), literal(-1.0, x.aval.dtype), literal(-2.0, x.aval.dtype))
    excess = _sum_of_squares(less, x, y)
    return lax.complex(_log_size(x, y, excess), lax.atan2(y, x))


def log1p(z: Value) -> Any:
    """``log(1 + z)``, with every digit of a small ``z``."""
    x, y = lax.real(z), lax.imag(z)
    excess = _sum_of_squares(lax.mul(x, 2.0), x, y)
    above = lax.add(x, 1.0)
    return lax.complex(_log_size(above, y, excess), lax.atan2(y, above))
