"""Sine, cosine and tangent of near angles on the CPU: fewer steps than for any angle.

``cpu_lowerings.py`` has the forms of float32 for any angle; those of float64 are XLA's own, which
calls the scalar functions of libm. A million elements on two cores take, in milliseconds:

| function | any angle | near angles |
|---|---|---|
| sin, cos of float32 | 1.0 | 0.19 |
| tan of float32 | 0.92 | 0.37 |
| sin, cos of float64 | 5.5 | 0.6 |

``core/lowering/rewrites/waves.py`` chooses.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.lax.elementwise import cpu_lowerings
from tracebridge.core.lax.elementwise.cpu_lowerings import (
    horner,
    of_quadrant,
    sin_cos_polynomials,
    to_integer,
)

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value

_F32 = np.dtype(np.float32)
_F64 = np.dtype(np.float64)

# Up to these sizes products of quadrants and the parts below are exact.
NEAR = {_F32: 65536.0, _F64: 524288.0}

# pi/2 in parts of few bits, the last ones of all bits that remain. Those of float32 are exact
# with fused operations and without.
_HALF_PI_PARTS = (1.5703125, 4.837512969970703e-4, 7.549533620476723e-8, 2.5633440957e-12)
_WIDE_PARTS = (1.57079632673412561417, 6.07710050630396597660e-11, 2.02226624879595063154e-21)
# Beside it the last bit of a number is worth one, so that it holds a quadrant. Conversions to
# integers take longer, as they treat what is no integer.
_ONES_LAST = {_F32: 1.5 * 2**23, _F64: 1.5 * 2**52}

# (sin r / r - 1) / z and (cos r - 1 + z/2) / z**2 with z = r*r, |r| <= pi/4, highest power first.
_SIN = (
    1.5917867766668515e-10, -2.5051128211606765e-08, 2.7557316085102772e-06,
    -0.00019841269836724904, 0.008333333333330925, -0.16666666666666666,
)  # fmt: skip
_COS = (
    -1.1382468673319114e-11, 2.0876143992977275e-09, -2.755731726079865e-07,
    2.4801587298744584e-05, -0.0013888888888887382, 0.041666666666666664,
)  # fmt: skip


def are_surely_near(*angles: Value) -> Any:
    """Whether the sums of the squares of all angles show that each of them is near.

    Products run four times as fast as comparisons of all elements.
    """
    near: Any = True
    for x in angles:
        flat = lax.reshape(x, (x.aval.size,))
        squares = lax.dot_general(flat, flat, (((0,), (0,)), ((), ())))
        # The sum of positive numbers is no smaller than one of them but for a rounding.
        near = lax.bitwise_and(lax.lt(squares, 0.99 * NEAR[x.aval.dtype] ** 2), near)
    return near


def are_near(*angles: Value) -> Any:
    """Whether no finite angle is too large for the functions below."""
    near: Any = True
    for x in angles:
        size = lax.abs(x)
        far = lax.bitwise_and(lax.gt(size, NEAR[x.aval.dtype]), lax.lt(size, math.inf))
        # Sums of float32 are those that are fast.
        far = lax.reshape(lax.convert_dtype(far, _F32), (x.aval.size,))
        near = lax.bitwise_and(lax.eq(lax.reduce_sum(far, (0,)), 0.0), near)
    return near


def _quadrant(q: Any, quarter: int = 0) -> Any:
    """The last bits of the integer ``q + quarter``."""
    dtype = q.aval.dtype
    bits = np.dtype(f"i{dtype.itemsize}")
    return lax.bitcast_convert_type_p.bind(lax.add(q, _ONES_LAST[dtype] + quarter), new_dtype=bits)


def _narrow_value(x: Any, quarter: int) -> Any:
    """The sine of ``x + quarter * pi/2``, all in float32."""
    q = to_integer(lax.mul(x, 2 / math.pi))
    t = x
    for part in _HALF_PI_PARTS:
        t = lax.sub(t, lax.mul(q, part))
    return of_quadrant(_quadrant(q, quarter), *sin_cos_polynomials(t))


def _wide_value(x: Any, quarter: int) -> Any:
    """The same in float64: the rest of the angle, and the rest of that."""
    high, middle, low = _WIDE_PARTS
    q = to_integer(lax.mul(x, 2 / math.pi))
    first = lax.sub(x, lax.mul(q, high))
    second = lax.mul(q, middle)
    near = lax.sub(first, second)
    left = lax.sub(lax.sub(lax.sub(first, near), second), lax.mul(q, low))
    # Where the first two parts cancel, the last one is larger than what they leave.
    r = lax.add(near, left)
    left = lax.add(lax.sub(near, r), left)
    z = lax.mul(r, r)
    sine = lax.add(r, lax.add(lax.mul(lax.mul(r, z), horner(z, _SIN)), left))
    half = lax.mul(z, 0.5)
    top = lax.sub(1.0, half)
    small = lax.sub(lax.mul(lax.mul(z, z), horner(z, _COS)), lax.mul(r, left))
    cosine = lax.add(top, lax.add(lax.sub(lax.sub(1.0, top), half), small))
    return of_quadrant(_quadrant(q, quarter), sine, cosine)


def _value(x: Value, quarter: int) -> Any:
    return (_narrow_value if x.aval.dtype == _F32 else _wide_value)(x, quarter)


def near_sin(x: Value) -> Any:
    """Sine where no finite angle is far."""
    return lax.select_n(lax.eq(x, 0.0), _value(x, 0), x)


def near_cos(x: Value) -> Any:
    """Cosine where no finite angle is far."""
    return _value(x, 1)


def near_tan(x: Value) -> Any:
    """Tangent of float32 where no finite angle is far; all but the quadrant in float64."""
    wide = lax.convert_dtype(x, _F64)
    q = to_integer(lax.mul(wide, 2 / math.pi))
    high, low, _ = _WIDE_PARTS
    t = lax.sub(lax.sub(wide, lax.mul(q, high)), lax.mul(q, low))
    sine, cosine = sin_cos_polynomials(t)
    is_odd = lax.ne(lax.bitwise_and(_quadrant(q), 1), 0)
    above = lax.select_n(is_odd, sine, lax.neg(cosine))
    below = lax.select_n(is_odd, cosine, sine)
    value = lax.convert_dtype(lax.div(above, below), _F32)
    return lax.select_n(lax.eq(x, 0.0), value, x)


# (primitive, dtype) -> the form for near angles, the form for any angle (None: the operation)
FORMS: dict[tuple[Any, Any], tuple[Callable[..., Any], Callable[..., Any] | None]] = {
    (lax.sin_p, _F32): (near_sin, cpu_lowerings.sin),
    (lax.cos_p, _F32): (near_cos, cpu_lowerings.cos),
    (lax.tan_p, _F32): (near_tan, cpu_lowerings.tan),
    (lax.sin_p, _F64): (near_sin, None),
    (lax.cos_p, _F64): (near_cos, None),
}
