"""The exponentially scaled modified Bessel function of order zero, as a composition.

Up to 50 the trapezoidal rule on ``I0(x) = mean of exp(x cos t)`` over a period: for periodic
functions it converges faster than any power, and 64 points leave an error below the rounding of
float64. Above 50 the asymptotic series in ``1 / (8 x)``.

Source: Trefethen, Weideman (2014), SIAM Review 56(3); Abramowitz, Stegun, 9.7.1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import full_of
from tracebridge.core.runtime.arrays.argument_types import DType

_SPLIT = 50.0
_POINTS = 64
_TERMS = 12


def bessel_i0e(x: Value) -> Any:
    """``exp(-abs(x)) * I0(x)``, elementwise, of floats (while planning)."""
    size = lax.abs(x)
    scalar = size.aval.update(shape=())
    split = full_of(scalar, _SPLIT)
    near = lax.lt(size, split)
    # Each formula gets arguments of its own range, so that the other's overflow has no gradient.
    small = lax.select_n(near, _filled(size, 0.0), size)
    large = lax.select_n(near, size, _filled(size, _SPLIT))
    return lax.select_n(near, _asymptotic(large), _trapezoid(small))


def _filled(like: Any, value: float) -> Any:
    return full_of(like.aval.strong, value)


def _trapezoid(x: Value) -> Any:
    # cos is even about pi: half of the points, the ends with half of the weight.
    half = _POINTS // 2
    angles = np.arange(half + 1) * (np.pi / half)
    weights = np.full(half + 1, 1.0 / half)
    weights[[0, -1]] /= 2
    dtype = x.aval.dtype
    shape = (*x.aval.shape, half + 1)
    last = (x.aval.ndim,)
    powers = lax.broadcast_in_dim(_constant(np.cos(angles) - 1, dtype), shape, last)
    spread = lax.broadcast_in_dim(x, shape, tuple(range(x.aval.ndim)))
    factors = lax.broadcast_in_dim(_constant(weights, dtype), shape, last)
    return lax.reduce_sum(lax.mul(lax.exp(lax.mul(spread, powers)), factors), last)


def _asymptotic(x: Value) -> Any:
    dtype = x.aval.dtype
    inverse = lax.div(full_of(x.aval.strong.update(shape=()), 0.125), x)
    coefficients = [1.0]
    for k in range(1, _TERMS):
        coefficients.append(coefficients[-1] * (2 * k - 1) ** 2 / k)
    total = _filled(x, coefficients[-1])
    for c in coefficients[-2::-1]:
        total = lax.add(lax.mul(total, inverse), full_of(total.aval.update(shape=()), c))
    root = full_of(x.aval.strong.update(shape=()), np.sqrt(2 * np.pi))
    return lax.convert_dtype(lax.div(total, lax.mul(lax.sqrt(x), root)), dtype)


def _constant(values: np.ndarray[Any, Any], dtype: DType | None) -> Any:
    # Literals keep float64 whatever enable_x64 is; an ndarray operand would be narrowed.
    parts = [full_of(ShapedArray((1,), dtype), float(v)) for v in values]
    return lax.concatenate(parts, 0)
