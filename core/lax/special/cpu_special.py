"""Special functions that keep their digits where XLA's lose them, for the CPU.

XLA's erf_inv takes the square of its operand from 1, and erfc takes the exponential of a rounded
square and quotients of polynomials that lose a digit beside 1. ``core/lowering/platforms.py`` puts
these in place.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.ir.values import literal
from tracebridge.core.lax.elementwise.cpu_lowerings import horner
from tracebridge.core.lax.special.scaled_erfc import scaled_erfc_of_modest

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)

# Fits with 50 digits, highest power first.
# Of erf_inv(x) / x in w - centre, and beyond some w in sqrt(w) - centre: (centre, coefficients).
# w is -log(1 - x * x). The centres are such that the last coefficients round hardly at all.
_ERF_INV_NEAR = {
    _F32: (2.499751329421997, (
        1.3820484e-10, 4.5937118e-10, -1.1123251e-08, 1.6107638e-08, 4.8035906e-07,
        -3.4246514e-06, -4.9959235e-06, 0.00021826438, -0.0012529185, -0.0041763852,
        0.24664235, 1.501348,
    )),
    _F64: (3.125, (
        3.240704459379902e-21, -1.113483769832702e-21, -3.4996044354754177e-19,
        1.150022252066253e-18, 1.557432024623325e-17, -1.3016928016796445e-16,
        -4.0282154327661744e-17, 6.596407712420834e-15, -4.001237735091896e-14,
        -8.118399443074353e-14, 2.6304834740560442e-12, -1.2976885526532075e-11,
        -5.414287198084716e-11, 1.0512181539804126e-09, -4.11266082002324e-09,
        -2.9070382262927266e-08, 4.234788173782339e-07, -1.3654691850603575e-06,
        -1.3882523394405316e-05, 0.00018673420802464837, -0.000740702534154477,
        -0.00603367087142785, 0.2401581824255883, 1.6536545626831027,
    )),
}  # fmt: skip
_ERF_INV_FAR = {
    _F32: (3.0, (
        0.00011386591283954146, -0.00030985747994197567, -5.1239180461049846e-05,
        0.0014843985763291464, -0.0036017024535339075, 0.005687614254281111,
        -0.007636144438758103, 0.009445170258119773, 1.0016748860194526, 2.832976803830432,
    )),
    _F64: (3.25, (
        -1.3958023542991182e-09, 7.551732458851473e-09, -1.1161361838309655e-08,
        -2.055942099944691e-08, 1.2631199906814287e-07, -2.459149594057554e-07,
        -2.3858260747815218e-08, 1.4818682924574064e-06, -3.987349015665568e-06,
        2.932472486478249e-06, 1.2465481955054665e-05, -4.732065500811663e-05,
        6.828703881132073e-05, 2.4031509089838923e-05, -0.00035503780559854284,
        0.0009532893418980105, -0.00168827553591809, 0.0024914420979433383,
        -0.0037512085082123878, 0.005370914553555258, 1.0052589676941652, 3.0838856104922208,
    )),
}  # fmt: skip
_ERF_INV_FARTHEST = (5.05, (
        -1.543927819720834e-11, 2.8907082659821915e-11, 7.745384761724364e-11,
        -3.868291027600667e-10, 1.0483309310240927e-09, -2.6311132048940673e-09,
        5.805888104528111e-09, -1.1207461299741068e-08, 2.182184091047106e-08,
        -5.493197748316719e-08, 2.0161905521548853e-07, -9.070860240222449e-07,
        4.193853753803148e-06, -1.837453613912565e-05, 7.124031542245362e-05,
        -0.0002003120066802735, -0.00016985809149340308, 1.010285017597772, 4.90042105144364,
    ))  # fmt: skip
_ERF_INV_ENDS = {_F32: 5.0, _F64: 6.25}
# What is left of the mantissa when its lower half is cut off.
_UPPER_HALF = {_F32: (np.dtype(np.int32), -(1 << 12)), _F64: (np.dtype(np.int64), -(1 << 27))}


def _shifted(x: Value, fit: tuple[float, tuple[float, ...]]) -> Any:
    """A polynomial in the distance to its centre."""
    centre, coefficients = fit
    return horner(lax.sub(x, centre), coefficients)


def erf_inv(x: Value) -> Any:
    """The inverse of the error function; infinite at 1 and -1, NaN beyond."""
    dtype = x.aval.dtype
    size = lax.abs(x)
    # 1 - |x| is exact where 1 - x * x is small.
    w = lax.neg(lax.log(lax.mul(lax.sub(1.0, size), lax.add(size, 1.0))))
    root = lax.sqrt(w)
    far = _shifted(root, _ERF_INV_FAR[dtype])
    if dtype == _F64:
        far = lax.select_n(lax.gt(root, 4.0), far, _shifted(root, _ERF_INV_FARTHEST))
    near = _shifted(w, _ERF_INV_NEAR[dtype])
    value = lax.mul(x, lax.select_n(lax.lt(w, _ERF_INV_ENDS[dtype]), far, near))
    return lax.select_n(lax.eq(size, 1.0), value, lax.mul(x, math.inf))


def _lost_of_square(square: Value, size: Value) -> Any:
    """What rounding has taken off the square."""
    dtype = size.aval.dtype
    bits, mask = _UPPER_HALF[dtype]
    word = lax.bitcast_convert_type_p.bind(size, new_dtype=bits)
    high = lax.bitcast_convert_type_p.bind(
        lax.bitwise_and(word, literal(mask, bits)), new_dtype=dtype
    )
    remainder = lax.mul(lax.sub(size, high), lax.add(size, high))
    return lax.add(lax.sub(lax.mul(high, high), square), remainder)


def _tail(size: Value, scaled: Value, factor: float) -> Any:
    """``exp(-factor * size**2) * scaled``, where the factor is a power of two."""
    # Chosen, so that the rounded square is not fused with the difference.
    square = lax.select_n(lax.ne(size, size), lax.mul(size, size), size)
    lost = lax.mul(_lost_of_square(square, size), factor)
    # Not of the product, of which so small a part may be subnormal where the result is not.
    scaled = lax.sub(scaled, lax.mul(scaled, lost))
    return lax.mul(lax.exp(lax.mul(square, -factor)), scaled)


def erfc(x: Value) -> Any:
    """The complement of the error function, also where it is small."""
    # Above 32 nothing is left.
    size = lax.min(lax.abs(x), literal(32.0, x.aval.dtype))
    tail = _tail(size, scaled_erfc_of_modest(size), 1.0)
    return lax.select_n(lax.lt(x, 0.0), tail, lax.sub(2.0, tail))


def ndtr(x: Value) -> Any:
    """The normal distribution function, also where it is small.

    Only the slow factor is of the quotient by the root of 2, whose rounding counts in an exponent.
    """
    size = lax.min(lax.abs(x), literal(45.0, x.aval.dtype))
    scaled = lax.mul(scaled_erfc_of_modest(lax.mul(size, math.sqrt(0.5))), 0.5)
    tail = _tail(size, scaled, 0.5)
    return lax.select_n(lax.lt(x, 0.0), lax.sub(1.0, tail), tail)


BOTH = (_F32, _F64)
# Of arrays of any size.
CPU_EXACT_RULES = {"erf_inv": (erf_inv, BOTH), "erfc": (erfc, BOTH), "ndtr": (ndtr, BOTH)}
