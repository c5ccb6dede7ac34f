"""The error function and its complement as LLVM's text, fitted as in ``exponentials.py``.

``erf`` is within 1.1 ulp, ``erfc`` within 2.5, also where it is small.
"""

from __future__ import annotations

from tracebridge.core.kernels.exponentials import exp_parts, small_exp, times_power
from tracebridge.core.kernels.text import Text

# erf(x) = x + x P(x^2) for |x| <= 7/8; relative error 1.6e-8.
_NEAR = (0.12837915122509003, -0.37612515687942505, 0.11282145977020264,
         -0.026781361550092697, 0.005018302705138922, -0.0006135187577456236)  # fmt: skip
_NEAR_BOUND = 0.875
# log(1 - erf(x)) = P(x) from there to 3.95; error 2e-9 of erf(x).
_FAR = (-0.0001335040433332324, -1.1279364824295044, -0.6367365121841431,
        -0.10432825237512589, 0.022420642897486687, -0.0030924181919544935,
        0.00020101155678275973)  # fmt: skip
_FAR_BOUND = 4.0
# erfc(x) exp(x^2) = q P(q - 7/32), q = 1 / (x + 7/4), for x from 0 to 10.2; relative error 2e-9.
_COMPLEMENT = (0.8651145696640015, 1.8252906799316406, 2.2425613403320312, 0.24392811954021454,
               -3.4382495880126953, -1.490207314491272, 8.11172866821289, 1.3982495069503784,
               -23.639684677124023, 18.97207260131836, 22.441679000854492,
               -32.04954528808594)  # fmt: skip
_ADDED, _CENTRE = 1.75, 0.21875
_VANISHES = 10.5  # erfc of it is less than the least subnormal number


def erf(to: Text, x: str) -> str:
    """A polynomial near 0, elsewhere 1 minus the exponential of one."""
    size, squared = to.call("fabs", x), to.op("fmul", x, x)
    near = to.fma(x, to.polynomial(squared, _NEAR), x)
    rest = small_exp(to, to.polynomial(_at_most(to, size, _FAR_BOUND), _FAR))
    far = to.op("fsub", to.constant(1.0), rest)
    y = to.select(to.compare("olt", size, to.constant(_NEAR_BOUND)), near, far)
    return to.call("copysign", y, x)  # NaN stays


def erfc(to: Text, x: str) -> str:
    """``exp(-x^2)`` times a polynomial of an inverse, both with what rounding has lost.

    Of numbers below 0 it is 2 minus that of the positive one.
    """
    size = _at_most(to, to.call("fabs", x), _VANISHES)
    inverse, lost = _inverse(to, size)
    centred = to.op("fadd", to.op("fsub", inverse, to.constant(_CENTRE)), lost)
    p = to.polynomial(centred, _COMPLEMENT)
    square = to.op("fmul", size, size)
    of_square = to.fma(size, size, _negated(to, square))
    shifted, part = exp_parts(to, _negated(to, square))
    p = to.fma(p, part, p)
    factor = to.fma(_negated(to, of_square), inverse, lost)
    y = times_power(to, to.fma(p, inverse, to.op("fmul", p, factor)), shifted)
    is_negative = to.compare("olt", x, to.constant(0.0))
    return to.select(is_negative, to.op("fsub", to.constant(2.0), y), y)


def _inverse(to: Text, size: str) -> tuple[str, str]:
    """``1 / (size + 7/4)``, and what it lacks after both roundings."""
    one, added = to.constant(1.0), to.constant(_ADDED)
    total = to.op("fadd", size, added)
    rounded = to.op("fsub", size, to.op("fsub", total, added))
    inverse = to.op("fdiv", one, total)
    error = to.fma(_negated(to, total), inverse, one)
    error = to.fma(_negated(to, rounded), inverse, error)
    return inverse, to.op("fmul", inverse, error)


def _at_most(to: Text, x: str, bound: float) -> str:
    c = to.constant(bound)
    return to.select(to.compare("ogt", x, c), c, x)  # NaN stays


def _negated(to: Text, x: str) -> str:
    return to.line(f"fneg {to.type('float')} {x}")
