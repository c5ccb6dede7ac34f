"""The derivative of Hurwitz' zeta function in its exponent, from operations that have derivatives.

The sum of Euler and Maclaurin, term by term. Source: NIST DLMF 25.11.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.finfo import finfo

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value

_F32 = np.dtype(np.float32)


def _where(condition: Any, value: Any, otherwise: float) -> Any:
    return lax.select_n(condition, lax.full_like(value, otherwise), value)


def _tail(s: Value, inverse: Value, numbers: Sequence[float]) -> tuple[Any, Any]:
    """What the sum from ``w = 1 / inverse`` on is over ``w**-s``, less its integral; its slope.

    The slope is that of this factor, in ``s``.
    """
    square = lax.mul(inverse, inverse)
    *rest, last = numbers
    total: Any = lax.full_like(s, last)
    slope: Any = lax.full_like(s, 0.0)
    for k in range(len(rest), 0, -1):
        first, second = lax.add(s, 2.0 * k - 1.0), lax.add(s, 2.0 * k)
        growth = lax.mul(lax.mul(first, second), square)
        change = lax.mul(lax.add(first, second), square)
        slope = lax.add(lax.mul(slope, growth), lax.mul(total, change))
        total = lax.add(lax.mul(total, growth), rest[k - 1])
    by_s = lax.mul(s, inverse)
    slope = lax.add(lax.mul(slope, by_s), lax.mul(total, inverse))
    return lax.add(lax.mul(total, by_s), 0.5), slope


def _of_positive(s: Value, q: Value, terms: int, numbers: Sequence[float]) -> Any:
    """Of positive ``q`` and ``s > 1``, both finite."""
    total: Any = lax.full_like(q, 0.0)
    for n in range(terms):
        place = lax.add(q, float(n))
        term = lax.mul(lax.log(place), lax.pow(place, lax.neg(s)))
        total = lax.add(total, term)
    w = lax.add(q, float(terms))
    log = lax.log(w)
    # Where it counts, s is not much larger than w: there the powers would overflow.
    factor, slope = _tail(_where(lax.lt(s, lax.mul(w, 8.0)), s, 0.0), lax.div(1.0, w), numbers)
    near = lax.mul(lax.pow(w, lax.neg(s)), lax.sub(slope, lax.mul(log, factor)))
    above = lax.div(1.0, lax.sub(s, 1.0))
    integral = lax.mul(lax.mul(lax.pow(w, lax.sub(1.0, s)), above), lax.add(log, above))
    return lax.sub(lax.sub(near, integral), total)


def slope_in_exponent(s: Value, q: Value, terms: int, numbers: Sequence[float]) -> Any:
    """The derivative in ``s``; NaN where powers are not all of positive numbers.

    ``terms`` are summed one by one, ``numbers`` are ``B(2 k) / (2 k)!`` for the rest.
    """
    dtype, shape = q.aval.dtype, s.aval.shape or q.aval.shape
    s, q = [v if v.aval.ndim else lax.broadcast_in_dim(v, shape, ()) for v in (s, q)]
    if finfo(dtype).bits < 32:
        s, q = lax.convert_dtype(s, _F32), lax.convert_dtype(q, _F32)
    elif finfo(dtype).bits == 32:
        numbers = numbers[:6]
    defined = lax.bitwise_and(lax.gt(s, 1.0), lax.gt(q, 0.0))
    ends = lax.bitwise_or(lax.eq(s, math.inf), lax.eq(q, math.inf))
    inside = lax.bitwise_and(defined, lax.bitwise_not(ends))
    value = _of_positive(_where(inside, s, 2.0), _where(inside, q, 1.0), terms, numbers)
    # One power is left at infinity, and that of a number below 1 grows.
    grows = lax.bitwise_and(ends, lax.lt(q, 1.0))
    value = lax.select_n(ends, value, _where(grows, lax.full_like(value, math.inf), 0.0))
    pole = lax.bitwise_and(lax.eq(s, 1.0), lax.gt(q, 0.0))
    outside = _where(pole, lax.full_like(value, -math.inf), math.nan)
    value = lax.select_n(defined, outside, value)
    return lax.convert_dtype(value, dtype)
