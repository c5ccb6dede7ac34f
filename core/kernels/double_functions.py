"""Exponentials and logarithms of float64 as LLVM's text.

As in ``exponentials.py``, but of float64: polynomials with the least largest relative error, and
what is no number as there. Both are within 1.1 ulp.
"""

from __future__ import annotations

import math

from tracebridge.core.kernels.exponentials import has_registers, scaled
from tracebridge.core.kernels.text import Text

# exp(r) = 1 + r + r^2 P(r) for |r| <= log(2) / 2; relative error 4e-18.
_EXP = (0.5000000000000011, 0.16666666666666413, 0.041666666666530155, 0.008333333333494399,
        0.0013888888943631085, 0.00019841269506688846, 2.4801493097828538e-05,
        2.755758629088442e-06, 2.763024879588082e-07, 2.500008442577437e-08)  # fmt: skip
# 2 artanh(s) = s (2 + z P(z)), z = s^2, for s up to (sqrt(2) - 1) / (sqrt(2) + 1); error 2e-20.
_ARTANH = (0.6666666666666666, 0.40000000000006253, 0.28571428569084467, 0.22222222647010964,
           0.181817756483099, 0.1538709151214291, 0.1325010106023171,
           0.1325148487700807)  # fmt: skip
# log(2) of 32 bits, whose product with an exponent is exact, and the rest.
_LOG2_HIGH = 0.6931471803691238
_LOG2_LOW = 1.9082149292705877e-10
_ROUNDER = 6755399441055744.0  # 1.5 * 2**52: a sum with it has the nearest integer at its end
_FRACTION = 52  # bits
_ONE_BITS = 1023 << _FRACTION
_BOUND = 750.0  # exp of it is infinite, that of its negative 0
_ROOT_HALF_BITS = 0x3FE6A09E667F3BCD
_LEAST_NORMAL = 2.0**-1022


def exp(to: Text, x: str) -> str:
    """Of ``x = n log(2) + r``: ``2^n`` in two factors, since the result may be infinite."""
    for bound, how in ((-_BOUND, "olt"), (_BOUND, "ogt")):
        c = to.constant(bound)
        x = to.select(to.compare(how, x, c), c, x)  # NaN stays
    rounder = to.constant(_ROUNDER)
    n = to.op("fsub", to.fma(x, to.constant(1 / math.log(2)), rounder), rounder)
    r = to.fma(n, to.constant(-_LOG2_HIGH), x)
    r = to.fma(n, to.constant(-_LOG2_LOW), r)
    part = to.fma(to.polynomial(r, _EXP), to.op("fmul", r, r), r)
    y = to.op("fadd", part, to.constant(1.0))
    if has_registers(to):
        return scaled(to, y, n)
    half = to.op("fsub", to.fma(n, to.constant(0.5), rounder), rounder)
    for power in (half, to.op("fsub", n, half)):
        whole = to.bits(to.op("fadd", power, rounder))
        shifted = to.op("shl", whole, to.constant(_FRACTION, "i64"), "i64")
        biased = to.op("add", shifted, to.constant(_ONE_BITS, "i64"), "i64")
        y = to.op("fmul", y, to.of_bits(biased))
    return y


def log(to: Text, x: str) -> str:
    """Of numbers ``m`` times two to the ``e``; ``m`` is between the roots of 1/2 and of 2.

    ``log(1 + f) = 2 artanh(s)`` of ``s = f / (2 + f)``, where ``2 s`` is ``f - s f``, and ``s f``
    the half of ``f^2`` minus ``s f^2 / 2``.
    """
    bits = to.bits(x)
    above = to.op("sub", bits, to.constant(_ROOT_HALF_BITS, "i64"), "i64")
    first = to.op("and", above, to.constant(-1 << _FRACTION, "i64"), "i64")
    e = to.op("ashr", above, to.constant(_FRACTION, "i64"), "i64")
    n = to.widened("sitofp", to.widened("trunc", e, "i64", "i32"), "i32", "double")
    f = to.op("fsub", to.of_bits(to.op("sub", bits, first, "i64")), to.constant(1.0))
    s = to.op("fdiv", f, to.op("fadd", f, to.constant(2.0)))
    z = to.op("fmul", s, s)
    half = to.op("fmul", to.op("fmul", f, f), to.constant(0.5))
    rest = to.fma(z, to.polynomial(z, _ARTANH), half)
    rest = to.fma(s, rest, to.op("fmul", n, to.constant(_LOG2_LOW)))
    y = to.op("fsub", f, to.op("fsub", half, rest))
    y = to.fma(n, to.constant(_LOG2_HIGH), y)
    infinity = to.constant(math.inf)
    y = to.select(to.compare("oeq", x, infinity), infinity, y)
    y = to.select(to.compare("ult", x, to.constant(0.0)), to.constant(math.nan), y)
    is_zero = to.compare("olt", to.call("fabs", x), to.constant(_LEAST_NORMAL))
    return to.select(is_zero, to.constant(-math.inf), y)
