"""Hyperbolic functions and their inverses in vectorisable operations, for the CPU.

XLA's own forms take powers of rounded sums, and logarithms that lose digits or, of float64, call
libm. These stay below 2.3 units in the last place and are faster.
``core/lowering/platforms.py`` puts them in place; what ``cpu_lowerings.py`` says of XLA holds here.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.ir.values import literal
from tracebridge.core.lax.elementwise.cpu_exponentials import (
    divided,
    expm1_parts,
    is_kept,
    log1p_of_normal,
    log_of_normal,
    one_more,
    power_of_two,
    quarter_expm1,
)
from tracebridge.core.lax.elementwise.cpu_lowerings import with_sign_of

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)
# Where the hyperbolic cosine is infinite.
_COSH_END = {_F32: 89.5, _F64: 710.5}
# From here on tanh of float64 is 1.
_ONE_FROM = 20.0
# From here on 1 does not count beside the square.
_FAR = {_F32: 2.0**13, _F64: 2.0**28}


def sinh(x: Value) -> Any:
    """Hyperbolic sine: ``h + h / (e + 1)`` of ``e = 2h = expm1(|x|)``."""
    size = lax.abs(x)
    quarter = quarter_expm1(size)
    half = lax.mul(quarter, 2.0)
    value = lax.add(half, lax.div(half, lax.add(lax.mul(quarter, 4.0), 1.0)))
    # Above, the quotient is infinity by infinity.
    value = lax.select_n(lax.gt(size, 40.0), value, half)
    return with_sign_of(lax.select_n(is_kept(size), value, size), x)


def cosh(x: Value) -> Any:
    """Hyperbolic cosine."""
    dtype = x.aval.dtype
    size = lax.min(lax.abs(x), literal(_COSH_END[dtype], dtype))
    n, e = expm1_parts(size)
    scale = power_of_two(lax.sub(n, 2.0))
    # The exact power last, which leaves the others' roundings below its own.
    rest = lax.add(lax.mul(scale, e), lax.div(0.0625, lax.mul(lax.add(e, 1.0), scale)))
    return lax.select_n(lax.ne(x, x), lax.mul(lax.add(scale, rest), 2.0), x)


def tanh(x: Value) -> Any:
    """Hyperbolic tangent of float64: ``e / (e + 2)`` of ``e = expm1(2 |x|)``.

    XLA's quotient of polynomials is 7 ulp off where the result is nearly 1, and no faster.
    """
    size = lax.abs(x)
    n, e = expm1_parts(lax.mul(lax.min(size, literal(_ONE_FROM, _F64)), 2.0))
    scale = power_of_two(n)
    e = lax.add(lax.mul(scale, e), lax.sub(scale, 1.0))
    value = divided(e, lax.add(e, 2.0))
    return with_sign_of(lax.select_n(is_kept(size), value, size), x)


def _log_of_sum(a: Value, b: Value, is_far: Any, far: Value) -> Any:
    """``log(a + b)`` with ``a`` the larger, or where ``is_far`` holds ``log(2 far)``."""
    total = lax.add(a, b)
    return _log_with(total, lax.sub(b, lax.sub(total, a)), is_far, far)


def _log_with(total: Value, lost: Value, is_far: Any, far: Value) -> Any:
    """``log(total + lost)`` with a small ``lost``, or where ``is_far`` holds ``log(2 far)``."""
    dtype = total.aval.dtype
    total = lax.select_n(is_far, total, far)
    correction = lax.select_n(is_far, lax.div(lost, total), literal(0.0, dtype))
    more = lax.select_n(is_far, literal(0.0, dtype), literal(1.0, dtype))
    return log_of_normal(total, correction, more)


def asinh(x: Value) -> Any:
    """Inverse hyperbolic sine: ``log(1 + a + (sqrt(1 + a^2) - 1))``, the sum in two parts."""
    dtype = x.aval.dtype
    size = lax.abs(x)
    is_far = lax.gt(size, _FAR[dtype])
    near = lax.select_n(is_far, size, literal(1.0, dtype))
    square = lax.mul(near, near)
    more = divided(square, lax.add(lax.sqrt(lax.add(square, 1.0)), 1.0))
    first, lost = one_more(near)
    total = lax.add(first, more)
    lost = lax.add(lost, lax.sub(more, lax.sub(total, first)))
    value = _log_with(total, lost, is_far, size)
    keeps = lax.bitwise_or(is_kept(size), lax.eq(size, math.inf))
    return with_sign_of(lax.select_n(keeps, value, size), x)


def acosh(x: Value) -> Any:
    """Inverse hyperbolic cosine: ``log(x + sqrt((x - 1)(x + 1)))``, the sum in two parts."""
    dtype = x.aval.dtype
    is_far = lax.gt(x, _FAR[dtype])
    near = lax.select_n(is_far, x, literal(1.0, dtype))
    less = lax.sub(near, 1.0)
    root = lax.sqrt(lax.add(lax.mul(less, 2.0), lax.mul(less, less)))
    value = _log_of_sum(near, root, is_far, x)
    value = lax.select_n(lax.eq(x, math.inf), value, x)
    return lax.select_n(lax.ge(x, 1.0), literal(math.nan, dtype), value)


def atanh(x: Value) -> Any:
    """Inverse hyperbolic tangent: half of ``log(1 + 2a/(1 - a))``."""
    dtype = x.aval.dtype
    size = lax.abs(x)
    # 2a/(1 - a) of small a needs no digits of 1 - a.
    argument = lax.div(lax.mul(size, 2.0), lax.sub(1.0, size))
    value = lax.mul(log1p_of_normal(argument), 0.5)
    value = lax.select_n(is_kept(size), value, size)
    value = lax.select_n(lax.eq(size, 1.0), value, literal(math.inf, dtype))
    value = lax.select_n(lax.le(size, 1.0), literal(math.nan, dtype), value)
    return with_sign_of(value, x)


BOTH = (_F32, _F64)
# For arrays of any size, as the plain operations are less exact.
CPU_EXACT_RULES = {
    "sinh": (sinh, BOTH),
    "cosh": (cosh, BOTH),
    "tanh": (tanh, (_F64,)),
    "asinh": (asinh, BOTH),
    "acosh": (acosh, BOTH),
    "atanh": (atanh, BOTH),
}
