"""The modified Bessel functions of order zero and one, exponentially scaled."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, final

from tracebridge.core import lax
from tracebridge.core.dtypes.finfo import finfo
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.ad_util import full_of
from tracebridge.core.lax.families import FloatUnary
from tracebridge.core.special.expansions import powers_of_chebyshev
from tracebridge.core.special.programs import ByProgram, Expression, polynomial, where

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Operand, Value

_SPLIT = 8.0
# The series in x**2, for numbers up to 1: I0 is 1 at 0 to the last digit.
_POWERS = tuple(1.0 / (4.0**k * math.factorial(k) ** 2) for k in range(10))
# Chebyshev coefficients, computed with 40 digits: of exp(-x) I0(x) in x / 4 - 1 for x up to 8, and
# of sqrt(x) exp(-x) I0(x) in 16 / x - 1 beyond.
_NEAR = (
    0.33839763720473803,
    -0.3046826723431984,
    0.17162090152220877,
    -0.09490109704804764,
    0.04930528423967071,
    -0.02373741480589947,
    0.010546460394594998,
    -0.004324309995050576,
    0.0016394756169413357,
    -0.0005763755745385824,
    0.00018850288509584165,
    -5.754195010082104e-05,
    1.6448448070728896e-05,
    -4.4167383584587505e-06,
    1.1173875391201037e-06,
    -2.670793853940612e-07,
    6.046995022541919e-08,
    -1.300025009986248e-08,
    2.6598237246823866e-09,
    -5.189795601635263e-10,
    9.675809035373237e-11,
    -1.726826291441556e-11,
    2.95505266312964e-12,
    -4.856446783111929e-13,
    7.676185498604936e-14,
    -1.1685332877993451e-14,
    1.715391285555133e-15,
    -2.431279846547955e-16,
    3.3307945188222384e-17,
    -4.4153416464793395e-18,
    5.669178006921496e-19,
)
_FAR = (
    0.4022452055070544,
    0.0033691164782556943,
    6.889758346916825e-05,
    2.8913705208347567e-06,
    2.0489185894690638e-07,
    2.266668990498178e-08,
    3.3962320257083865e-09,
    4.94060238822497e-10,
    1.1889147107846439e-11,
    -3.1499165279632416e-11,
    -1.3215811840447713e-11,
    -1.7941785315068062e-12,
    7.180124451383666e-13,
    3.8527783827421426e-13,
    1.54008621752141e-14,
    -4.150569347287222e-14,
    -9.554846698828307e-15,
    3.8116806693526224e-15,
    1.7725601330565263e-15,
    -3.425485619677219e-16,
    -2.8276239805165836e-16,
    3.461222867697461e-17,
    4.46562142029676e-17,
    -4.830504485944182e-18,
    -7.233180487874754e-18,
    1.193650890845982e-18,
)

# The same of (1 + x)**2 exp(-x) (I0(x) - I1(x)), and beyond with x**(3/2) as first factor.
_GAP_NEAR = (
    0.8293772140958222, -0.16444889102381224, 0.10386712737115726, -0.0003765017469703159,
    -0.035847269221588776, 0.03290973715886875, -0.019131919664760643, 0.00811076006368687,
    -0.0023929594627845716, 0.00027362257498727866, 0.0002173427502008506,
    -0.00020044497900270882, 0.00010798554595905552, -4.609820567614283e-05,
    1.6907908254051046e-05, -5.5217864434386736e-06, 1.6380020585796565e-06,
    -4.4706516056233523e-07, 1.1328942697008152e-07, -2.6837416911794728e-08,
    5.975452934662311e-09, -1.256022332416684e-09, 2.5016655003600134e-10, -4.736352055084109e-11,
    8.547516652723166e-12, -1.473917682885264e-12, 2.4337965796081193e-13, -3.855831247636016e-14,
    5.871365978969027e-15, -8.606848167667598e-16, 1.2163842025029635e-16,
    -1.6596093346558246e-17, 2.188727243266264e-18,
)  # fmt: skip
_GAP_FAR = (
    0.2046391449198604, 0.005348526093538557, 0.00019150500095126415, 1.2032615976256658e-05,
    1.1956976470208373e-06, 1.716841771873406e-07, 2.8338106568544693e-08, 3.051206849093951e-09,
    -7.434135453836242e-10, -5.767283909234434e-10, -1.5193610828268228e-10,
    5.668790622840184e-12, 1.804470061607724e-11, 4.253572073419977e-12, -1.1555903826473055e-12,
    -7.770703288312627e-13, 1.4368043830095462e-14, 1.0913028331644427e-13,
    1.1406069274284166e-14, -1.5049144790858717e-14, -2.855581070480806e-15,
    2.2314974017002202e-15, 5.27225879781459e-16, -3.6885258885159443e-16, -8.535599196679049e-17,
    6.754931522630683e-17, 1.1811455208497869e-17, -1.322521233011223e-17,
    -1.0505875289155333e-18, 2.6372007052489706e-18,
)  # fmt: skip

# The series of I1(x) / x in x**2, for numbers up to 1.
_I1_POWERS = tuple(0.5 / (4.0**k * math.factorial(k) * math.factorial(k + 1)) for k in range(10))
# The same of exp(-x) I1(x) in (x - 0.5) / 4 - 1 for x up to 8, and beyond of sqrt(x) exp(-x) I1(x).
_I1_NEAR = (
    0.16867019116854332, -0.035981169407546955, -0.010679312184266711, 0.015384305622490853,
    -0.010929125047722301, 0.006152728206525674, -0.002995167419972682, 0.0013018811705072099,
    -0.0005135296114523298, 0.00018569505147285147, -6.200625579613571e-05,
    1.9229069543890332e-05, -5.564682019463132e-06, 1.5089268220235773e-06,
    -3.847828570119102e-07, 9.257403329713627e-08, -2.1074481459180956e-08,
    4.551668269224278e-09, -9.34935575854365e-10, 1.8304335492725756e-10, -3.42274188970693e-11,
    6.12435754886994e-12, -1.05043800523675e-12, 1.7298420565117507e-13, -2.739189515697041e-14,
    4.176633837574132e-15, -6.140282143222598e-16, 8.714456042882512e-17,
    -1.1953125810367454e-17, 1.586283691397443e-18,
)  # fmt: skip
_I1_FAR = (
    0.38928811750914005, -0.009761097491361469, -0.00011058893876262371, -3.882564808877691e-06,
    -2.512236237870209e-07, -2.6314688468895196e-08, -3.835380385964237e-09,
    -5.589743462196584e-10, -1.8974958123505413e-11, 3.2526035830154884e-11,
    1.4125807436613782e-11, 2.0356285441470896e-12, -7.198551776245908e-13,
    -4.0835511110921974e-13, -2.1015418427726643e-14, 4.272440016711951e-14,
    1.0420276984128802e-14, -3.8144030724370075e-15, -1.8803547755107825e-15,
    3.3082023109209285e-16, 2.96262899764595e-16, -3.209525921993424e-17, -4.6503053684893586e-17,
    4.414348323071708e-18, 7.517296310842105e-18, -9.314178867326884e-19, -1.242193275194891e-18,
)  # fmt: skip


def _chebyshev(t: Expression, coefficients: tuple[float, ...]) -> Expression:
    """A sum of Chebyshev polynomials; terms below the rounding of the dtype are left out."""
    least = t.eps() * 1e-2
    kept = [c for i, c in enumerate(coefficients) if i == 0 or abs(c) > least]
    return polynomial(t, powers_of_chebyshev(tuple(kept)))


def _i0e(x: Expression) -> Expression:
    size = x.of(lax.abs)
    far = size > _SPLIT
    tiny = where(size < 1.0, size, 0.0)
    power = polynomial(tiny * tiny, _POWERS) * (-tiny).of(lax.exp)
    near = _chebyshev(where(far, _SPLIT, size) * 0.25 - 1.0, _NEAR)
    large = where(far, size, _SPLIT)
    beyond = _chebyshev(16.0 / large - 1.0, _FAR) / large.of(lax.sqrt)
    return where(x.is_nan(), x, where(far, beyond, where(size < 1.0, power, near)))


@final
class BesselI0e(ByProgram, FloatUnary):
    name = "bessel_i0e"
    cost = Cost.EXPENSIVE

    def formula(self, *xs: Expression) -> Expression:
        return _i0e(*xs)

    def derivative(self, x: Value, ans: Value, **params: object) -> Any:
        return lax.neg(lax.mul(lax.sign(x), bessel_gap_p.bind(x)))


@final
class BesselGap(ByProgram, FloatUnary):
    """``exp(-abs(x)) (I0(x) - I1(abs(x)))``, where far out both are nearly the same."""

    name = "bessel_gap"
    cost = Cost.EXPENSIVE

    def formula(self, *xs: Expression) -> Expression:
        (x,) = xs
        size = x.of(lax.abs)
        far = size > _SPLIT
        modest = where(far, _SPLIT, size)
        near = _chebyshev(modest * 0.25 - 1.0, _GAP_NEAR) / (modest + 1.0) / (modest + 1.0)
        large = where(far, size, _SPLIT)
        beyond = _chebyshev(16.0 / large - 1.0, _GAP_FAR) / large.of(lax.sqrt) / large
        return where(x.is_nan(), x, where(far, beyond, near))

    def derivative(self, x: Value, ans: Value, **params: object) -> Any:
        size = lax.abs(_strong(x))
        near, small, safe = _apart(size)
        share = lax.mul(lax.exp(lax.neg(small)), _series(small, _SHARE))
        share = lax.select(near, share, lax.div(bessel_i1e(safe), safe))
        far = lax.gt(size, _FALL_BEYOND)
        slope = lax.select(far, _fall_of_gap(size, far, ans), lax.sub(share, lax.mul(ans, 2.0)))
        return lax.mul(lax.sign(x), slope)


@final
class BesselI1e(ByProgram, FloatUnary):
    name = "bessel_i1e"
    cost = Cost.EXPENSIVE

    def formula(self, *xs: Expression) -> Expression:
        (x,) = xs
        size = x.of(lax.abs)
        far = size > _SPLIT
        modest = where(far, _SPLIT, size)
        near = _chebyshev(modest * 0.25 - 1.125, _I1_NEAR)
        tiny = where(size < 1.0, size, 0.0)
        power = tiny * (polynomial(tiny * tiny, _I1_POWERS) * (-tiny).of(lax.exp))
        large = where(far, size, _SPLIT)
        beyond = _chebyshev(16.0 / large - 1.0, _I1_FAR) / large.of(lax.sqrt)
        found = where(far, beyond, where(size < 1.0, power, near))
        return where(x.is_nan() | x.is_equal(0.0), x, where(x < 0.0, -found, found))

    def derivative(self, x: Value, ans: Value, **params: object) -> Any:
        near, small, safe = _apart(_strong(x))
        slope = lax.sub(bessel_gap_p.bind(safe), lax.div(ans, safe))
        size = lax.abs(small)
        series = lax.sub(_series(small, _SLOPE), lax.mul(size, _series(small, _SHARE)))
        return lax.select(near, lax.mul(lax.exp(lax.neg(size)), series), slope)


def _strong(x: Value) -> Any:
    return lax.convert_dtype(x, x.aval.dtype)


_SERIES_BELOW = 0.5
# Of the powers of x**2 in I1(x) / x, and in the derivative of I1.
_SHARE = _I1_POWERS[:8]
_SLOPE = tuple([(2 * k + 1) * c for k, c in enumerate(_SHARE)])


def _apart(x: Value) -> tuple[Any, Any, Any]:
    """Where ``x`` is near 0, ``x`` where it is and 0 elsewhere, ``x`` where it is not and 1.

    Near 0 quotients by ``x`` lose all digits in derivatives, and series do not.
    """
    near = lax.lt(lax.abs(x), _SERIES_BELOW)
    zero, one = [full_of(x.aval, v) for v in (0.0, 1.0)]
    return near, lax.select(near, x, zero), lax.select(near, one, x)


def _series(x: Value, coefficients: tuple[float, ...]) -> Any:
    """A polynomial of ``x**2``."""
    return _horner(lax.square(x), coefficients)


def _horner(x: Value, coefficients: tuple[float, ...]) -> Any:
    total = full_of(x.aval, coefficients[-1])
    for c in coefficients[-2::-1]:
        total = lax.add(lax.mul(total, x), c)
    return total


# There the slope of the gap as a difference loses as many digits as ``x`` has.
_FALL_BEYOND = 8.5


def _fall_of_gap(size: Value, far: Value, gap: Value) -> Any:
    """The derivative of the gap where ``far``, by that of the sum of which it is made there."""
    x = lax.select(far, size, full_of(size.aval, _FALL_BEYOND))
    least = float(finfo(size.aval.dtype).eps) * 1e-3
    kept = tuple([c for i, c in enumerate(_GAP_FAR) if i < 2 or abs(c) > least])
    slopes = tuple([k * c for k, c in enumerate(powers_of_chebyshev(kept))][1:])
    inverse = lax.div(16.0, x)
    own = lax.div(lax.mul(inverse, _horner(lax.sub(inverse, 1.0), slopes)), lax.sqrt(x))
    return lax.neg(lax.div(lax.add(lax.mul(gap, 1.5), lax.div(own, x)), x))


def _scaled(x: Expression, scaled: Expression) -> Expression:
    """``exp(abs(x)) * scaled``: that of a smaller number overflows no earlier than the result.

    The difference is exact, and of the exponential less 1 no digits are lost where it is large.
    """
    size = x.of(lax.abs)
    far = size > _SPLIT
    power = where(far, size - _SPLIT, size).of(lax.expm1) + 1.0
    # A product with 0 would be NaN where the exponential has overflowed.
    result = (scaled * where(far, math.exp(_SPLIT), power.filled(1.0))) * power
    return where(scaled.is_equal(0.0), scaled, result)


@final
class BesselI0(ByProgram, FloatUnary):
    """The function itself; its derivative is that of order one, finite as long as it is."""

    name = "bessel_i0"
    cost = Cost.EXPENSIVE

    def formula(self, *xs: Expression) -> Expression:
        (x,) = xs
        size = x.of(lax.abs)
        tiny = where(size < 1.0, x, 0.0)
        large = where(size >= math.inf, math.inf, _scaled(x, _i0e(x)))
        return where(size < 1.0, polynomial(tiny * tiny, _POWERS), large)

    def derivative(self, x: Value, ans: Value, **params: object) -> Any:
        return bessel_i1_p.bind(x)


@final
class BesselI1(ByProgram, FloatUnary):
    name = "bessel_i1"
    cost = Cost.EXPENSIVE

    def formula(self, *xs: Expression) -> Expression:
        (x,) = xs
        inside = _scaled(x, x.of(bessel_i1e_p.bind))
        return where(x.of(lax.abs) >= math.inf, x, inside)

    def derivative(self, x: Value, ans: Value, **params: object) -> Any:
        near, small, rest = _apart(_strong(x))
        size = lax.abs(_strong(x))
        # There all derivatives are infinite.
        far = lax.gt(size, math.log(float(finfo(x.aval.dtype).max)) + 4.5)
        safe = lax.select(far, full_of(rest.aval, 1.0), rest)
        # Divided first: the quotient of two infinities has no value.
        slope = lax.mul(bessel_i0_p.bind(safe), _share(safe))
        beyond = lax.select(far, size, full_of(size.aval, 1.0))
        slope = lax.select(far, lax.mul(beyond, math.inf), slope)
        return lax.select(near, _series(small, _SLOPE), slope)


def _share(x: Value) -> Any:
    """The derivative of I1 over I0: ``1 - I1 / (x I0)``."""
    ratio = lax.div(bessel_i1e(x), bessel_i0e(x))
    far = lax.eq(lax.abs(x), math.inf)
    ratio = lax.select(far, lax.sign(x), ratio)  # both have vanished
    return lax.sub(1.0, lax.div(ratio, x))


bessel_i0_p = BesselI0()
bessel_i1_p = BesselI1()
bessel_i0e_p = BesselI0e()
bessel_i1e_p = BesselI1e()
bessel_gap_p = BesselGap()


def bessel_i0e(x: Operand) -> Any:
    """``exp(-abs(x))`` times the modified Bessel function of order zero, elementwise, of floats.

    >>> import tracebridge as tb
    >>> float(tb.lax.bessel_i0e(1.0))
    0.465759...
    """
    return bessel_i0e_p.bind(as_value(x, "bessel_i0e"))


def bessel_i1e(x: Operand) -> Any:
    """``exp(-abs(x))`` times the modified Bessel function of order one, elementwise, of floats.

    >>> import tracebridge as tb
    >>> float(tb.lax.bessel_i1e(1.0))
    0.207910...
    """
    return bessel_i1e_p.bind(as_value(x, "bessel_i1e"))


def bessel_i0(x: Operand) -> Any:
    """The modified Bessel function of order zero, elementwise, of floats."""
    return bessel_i0_p.bind(as_value(x, "bessel_i0"))


def bessel_i1(x: Operand) -> Any:
    """The modified Bessel function of order one, elementwise, of floats."""
    return bessel_i1_p.bind(as_value(x, "bessel_i1"))
