"""Normal numbers between bounds that lie far out on one side.

There the distribution function is 0 or 1 but for a few roundings. The equation for a number
``x = a + t`` above the lower bound ``a`` is written in what is small instead: with Mills' ratio
``m(x) = P(X > x) / density(x)``,

    t (t + 2 a) / 2 + log(m(a) / m(x)) = -log(P(X > x) / P(X > a)),

whose right side a uniform number gives, and whose slope in ``t`` is ``1 / m(x)``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.lax.ad_util import full_of

# Beyond it the distribution function has too few digits, by the size of a float.
_BEGINS = {2: 3.0, 4: 3.0, 8: 6.0}
_FRACTION = 16  # parts of the continued fraction; at 3 it has 17 digits
_STEPS = 4
_FARTHEST = 1e6  # farther bounds have no neighbours within the distribution
_WIDEST = 100.0  # what is farther from the nearer bound does not happen


def may_be_far(dtype: np.dtype[Any], *bounds: object) -> bool:
    """Whether bounds may lie on one side; of traced ones and arrays nothing is known."""
    begin, (lower, upper) = _BEGINS[dtype.itemsize], bounds
    if not (isinstance(lower, int | float) and isinstance(upper, int | float)):
        return True
    return not (lower <= begin and upper >= -begin)


def _mills(x: Any) -> Any:
    """Mills' ratio of numbers from 3 on, by Laplace's continued fraction."""
    below = x
    for k in range(_FRACTION, 0, -1):
        below = lax.add(x, lax.div(full_of(x.aval, k), below))
    return lax.div(full_of(x.aval, 1), below)


def _steps_above(unit: Any, a: Any, b: Any) -> Any:
    """How far numbers lie above ``a``, given that they lie in ``(a, b)``."""
    half, two = full_of(a.aval, 0.5), full_of(a.aval, 2)
    at_a = _mills(a)

    def log_fall(step: Any, ratio: Any) -> Any:
        square = lax.mul(lax.mul(half, step), lax.add(step, lax.mul(two, a)))
        return lax.add(square, lax.log(lax.div(at_a, ratio)))

    chance = lax.expm1(lax.neg(log_fall(lax.sub(b, a), _mills(b))))
    fall = lax.neg(lax.log1p(lax.mul(unit, chance)))
    root = lax.sqrt(lax.add(lax.mul(a, a), lax.mul(two, fall)))
    step = lax.div(lax.mul(two, fall), lax.add(a, root))
    for _ in range(_STEPS):
        # The slope of the solution is that of its last step.
        step = lax.stop_gradient(step)
        ratio = _mills(lax.add(a, step))
        step = lax.sub(step, lax.mul(lax.sub(log_fall(step, ratio), fall), ratio))
    return step


def are_far(lower: Any, upper: Any) -> Any:
    """Whether both bounds are far out on one side."""
    begin = full_of(lower.aval, _BEGINS[lower.aval.dtype.itemsize])
    return lax.bitwise_or(lax.gt(lower, begin), lax.lt(upper, lax.neg(begin)))


def far_normals(unit: Any, lower: Any, upper: Any) -> Any:
    """Numbers between bounds that are far out on one side, of uniform numbers; of one dtype."""
    dtype = unit.aval.dtype
    kind = np.dtype(np.float64 if dtype.itemsize == 8 else np.float32)
    below = lax.lt(upper, full_of(upper.aval, 0))
    first = lax.select(below, lax.neg(upper), lower)
    second = lax.select(below, lax.neg(lower), upper)
    unit, a, b = (lax.convert_dtype(v, kind) for v in (unit, first, second))
    a = lax.clamp(full_of(a.aval, 3), a, full_of(a.aval, _FARTHEST))
    b = lax.clamp(a, b, lax.add(a, full_of(a.aval, _WIDEST)))
    far = lax.convert_dtype(lax.add(a, _steps_above(unit, a, b)), dtype)
    return lax.select(below, lax.neg(far), far)
