"""Formulas of the gamma function and its logarithm, of real and complex numbers.

Sources: NIST DLMF 5.5 (recurrence and reflection), 5.7 (series), 5.11 (Stirling's series).
"""

from __future__ import annotations

import math
from typing import Any

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.lax.elementwise.cpu_lowerings import horner as highest_first
from tracebridge.core.lax.special.cpu_gamma import SINE
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.special.expansions import zeta_less_1
from tracebridge.scipy._special.elementwise import with_slopes
from tracebridge.scipy._special.pairs import Pair, constant
from tracebridge.scipy._special.series import eps_of, horner

_EULER = 0.5772156649015329
_LOG_ROOT_2_PI = 0.5 * math.log(2.0 * math.pi)
_SHIFT = 10
"""From here on Stirling's series is used; smaller numbers are shifted."""
_BERNOULLI = (
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798,
)  # fmt: skip
# Fits with 60 digits, highest power first, of both dtypes: of gamma(x) in x - 3/2 from 1 to 2,
# and of x (gamma(x) / s - 1) in 1 / x from 6.5 on, where s is the first term of Stirling's series.
_GAMMA = {
    False: (
        -0.010897694155573845, 0.016331659629940987, -0.016257043927907944, 0.02439010888338089,
        -0.03813110291957855, 0.0588039755821228, -0.07751535624265671, 0.14463381469249725,
        -0.1072949692606926, 0.41481369733810425, 0.032338399440050125, 0.8862269520759583,
    ),
    True: (
        0.0001736585029100638, -0.00026048686591686527, 0.000141093980175924,
        -0.0002116366966022488, 0.0004734656764602699, -0.0007101710237414608,
        0.0010096053142759128, -0.0015142364392563075, 0.0022833622890860634,
        -0.0034239612838414227, 0.005131568539695762, -0.007690098921057152, 0.011522520042662803,
        -0.01722245008885133, 0.02583760628007813, -0.03800193529134834, 0.05861030382085454,
        -0.07752305230537157, 0.14464535904458606, -0.107294804564719, 0.41481345368830125,
        0.032338397448884865, 0.886226925452758,
    ),
}  # fmt: skip
_GAMMA_OF_3_HALVES = (0.886226925452758, -3.8332932499128993e-17)
_GAMMA_STIRLING = {
    False: (
        9.457133273826912e-06, -0.0027041416615247726, 0.00347292167134583, 0.0833333283662796,
    ),
    True: (
        -0.0008954671380459877, 0.0010794827567840453, -8.75478040059929e-05,
        -0.0005887563205343938, 6.951970283625848e-05, 0.0007840471923795049,
        -0.00022947227249256124, -0.0026813271584184184, 0.0034722222222127305,
        0.08333333333333334,
    ),
}  # fmt: skip
_STIRLING = [b / (2 * k * (2 * k - 1)) for k, b in enumerate(_BERNOULLI, 1)]
_DIGAMMA = [-b / (2 * k) for k, b in enumerate(_BERNOULLI, 1)]
# Of log(gamma(2 + w)) beside its zero, from w on.
_NEAR_2 = [1.0 - _EULER, *[(-1) ** k * zeta_less_1(k) / k for k in range(2, 32)]]


def sine_of_turns(x: Array) -> Any:
    """``sin(pi x)``, 0 at whole numbers."""
    n = tnp.round(x)
    even = n == 2.0 * tnp.round(0.5 * n)
    r = x - n
    sine = r * highest_first(r * r, SINE[x.aval.dtype])
    return tnp.where(even, sine, -sine)


def gamma_below_7(x: Array) -> Any:
    """Gamma from 0 to 7, by a polynomial from 1 to 2 and products."""
    wide = eps_of(x) < 1e-10
    near, product = tnp.where(x < 1.0, x + 1.0, x), tnp.ones_like(x)
    for step in range(1, 6):
        less = x - step
        product = tnp.where(less >= 1.0, product * less, product)
        near = tnp.where(less >= 1.0, less, near)
    value = highest_first(near - 1.5, _GAMMA[wide])
    return tnp.where(x < 1.0, value / tnp.where(x < 1.0, x, 1.0), value * product)


def gamma_pair_below_7(x: Array) -> Pair:
    """Gamma from 0 to 7, with the digits that rounding the products takes."""
    wide = eps_of(x) < 1e-10
    small, one, zero = x < 1.0, tnp.ones_like(x), tnp.zeros_like(x)
    near, product = x - 0.5, Pair(one, zero)
    for step in range(1, 6):
        # Exact, and less 3/2 too; a sum of a small number and 1 would not be.
        less = x - step
        more = less >= 1.0
        product = product.times(Pair(tnp.where(more, less, 1.0), zero))
        near = tnp.where(more, less - 1.5, near)
    near = tnp.where(small | (x >= 2.0), near, x - 1.5)
    value = constant(x, *_GAMMA_OF_3_HALVES).plus(near * highest_first(near, _GAMMA[wide][:-1]))
    return value.times(product).over(Pair(tnp.where(small, x, 1.0), zero))


def beyond_stirling(x: Array) -> Any:
    """What the first term of Stirling's series is to be multiplied by, less 1, from 7 on."""
    inverse = 1.0 / x
    return inverse * highest_first(inverse, _GAMMA_STIRLING[eps_of(x) < 1e-10])


def gamma_of_positive(x: Array) -> Any:
    """Gamma by a polynomial from 1 to 2 and products, or Stirling's series."""
    wide = eps_of(x) < 1e-10
    value = gamma_below_7(x)
    # Beyond, the result is infinite in any case, and its factors would be.
    large = tnp.clip(x, 7.0, 180.0 if wide else 40.0)
    # The power by halves: it overflows before the quotient does. The exponential of one sum would
    # lose the digits that its argument has in front of the point.
    root = lax.pow(large, 0.5 * large - 0.25)
    stirling = math.sqrt(2.0 * math.pi) * root * tnp.exp(-large) * root
    stirling = stirling + stirling * beyond_stirling(large)
    value = tnp.where(x < 7.0, value, stirling)
    whole = (x == tnp.floor(x)) & (value < 2.0**22)
    return tnp.where(whole, tnp.round(value), value)


def _gamma(x: Array) -> Any:
    size = tnp.abs(x)
    value = gamma_of_positive(size)
    wave = (size * value) * sine_of_turns(tnp.where(x < 0, size, 0.5))
    value = tnp.where(x < 0, -math.pi / wave, value)
    pole = (x < 0) & (x == tnp.floor(x))
    value = tnp.where(pole, math.nan, tnp.where(x == 0, tnp.copysign(math.inf, x), value))
    return tnp.where(tnp.isnan(x) | (x == -math.inf), math.nan, value)


def _digamma(x: Array) -> Any:
    return tnp.where(x == 0, tnp.copysign(math.inf, -x), lax.digamma(x))


# The derivative of gammaln, infinite at 0.
digamma = with_slopes(_digamma, lambda _, x: lax.polygamma(tnp.ones_like(x), x))


gamma = with_slopes(_gamma, lambda ans, x: ans * digamma(x))


def _stirling(w: Array) -> Any:
    """``log(gamma(w))`` where ``abs(w) >= 10``, but not beside the negative axis."""
    inverse = 1.0 / w
    return (
        (w - 0.5) * tnp.log(w)
        - w
        + (_LOG_ROOT_2_PI + inverse * horner(inverse * inverse, _STIRLING))
    )


def _log_of_rising(x: Array, y: Array, steps: Array) -> tuple[Any, Any]:
    """Real and imaginary part of ``log(z (z + 1) ... (z + n - 1))``, n the number of steps.

    Above the axis the angle of the product grows by less than a half turn with each factor: it goes
    round once for each time that the imaginary part becomes negative.
    """
    a, b, rounds = tnp.ones_like(x), tnp.zeros_like(x), tnp.zeros_like(x)
    for k in range(_SHIFT):
        use = steps > k
        c, d = a * (x + k) - b * y, a * y + b * (x + k)
        rounds = rounds + tnp.where(use & (b >= 0) & (d < 0), 1.0, 0.0)
        a, b = tnp.where(use, c, a), tnp.where(use, d, b)
    return tnp.log(tnp.hypot(a, b)), tnp.arctan2(b, a) + 2.0 * math.pi * rounds


def _log_of_sine(x: Array, y: Array) -> tuple[Any, Any]:
    """Real and imaginary part of ``log(sin(pi z))``, continued from above to the axis."""
    # sin(pi z) = i / 2 exp(-i pi z) (1 - exp(2 pi i z))
    r = x - tnp.round(x)
    decay = tnp.exp(-2.0 * math.pi * y)
    sine = tnp.sin(math.pi * r)
    a = 2.0 * decay * sine * sine - tnp.expm1(-2.0 * math.pi * y)
    b = -decay * tnp.sin(2.0 * math.pi * r)
    real = math.pi * y - math.log(2.0) + tnp.log(tnp.hypot(a, b))
    return real, math.pi * (0.5 - x) + tnp.arctan2(b, a)


def _log_gamma_upper(x: Array, y: Array) -> tuple[Any, Any]:
    """Real and imaginary part of ``log(gamma(x + i y))`` for ``y >= 0``."""
    high = y >= _SHIFT
    turned = (x < 0.5) & ~high
    # Beside the axis the other point is 1 - z; above it is its conjugate, 1 - x + i y.
    a = tnp.where(turned, 1.0 - x, x)
    steps = tnp.where(high, 0.0, tnp.maximum(0.0, tnp.ceil(_SHIFT - a)))
    log, angle = _log_of_rising(tnp.where(steps > 0, a, 1.0), tnp.where(steps > 0, y, 0.0), steps)
    whole = _stirling(lax.complex(a + steps, y))
    real, imaginary = lax.real(whole) - log, lax.imag(whole) - angle
    sine_real, sine_imaginary = _log_of_sine(tnp.where(turned, x, 0.25), tnp.where(turned, y, 0.0))
    real = tnp.where(turned, math.log(math.pi) - sine_real - real, real)
    # log(gamma(1 - z)) is the conjugate of that above the axis.
    imaginary = tnp.where(turned, imaginary - sine_imaginary, imaginary)
    return real, tnp.where((y == 0) & (x > 0), 0.0, imaginary)


def _log_gamma(z: Array) -> Any:
    x, size = lax.real(z), tnp.abs(lax.imag(z))
    real, imaginary = _log_gamma_upper(x, size)
    # Beside the zeros at 1 and 2 a series.
    at_1 = (tnp.abs(x - 1.0) <= 0.5) & (size < 0.3)
    near = at_1 | ((tnp.abs(x - 2.0) < 0.5) & (size < 0.3))
    u, v = tnp.where(near, x - tnp.where(at_1, 1.0, 2.0), 0.0), tnp.where(near, size, 0.0)
    w = lax.complex(u, v)
    series = w * horner(w, _NEAR_2)
    log = 0.5 * tnp.log1p(u * (2.0 + u) + v * v), tnp.arctan2(v, 1.0 + u)
    parts = [lax.real(series), lax.imag(series)]
    parts = [tnp.where(at_1, p - q, p) for p, q in zip(parts, log, strict=True)]
    real, imaginary = tnp.where(near, parts[0], real), tnp.where(near, parts[1], imaginary)
    pole = (size == 0) & (x <= 0) & (x == tnp.floor(x))
    nowhere = pole | ~(tnp.isfinite(x) & tnp.isfinite(size))
    real, imaginary = (tnp.where(nowhere, math.nan, v) for v in (real, imaginary))
    return lax.complex(real, tnp.where(tnp.signbit(lax.imag(z)), -imaginary, imaginary))


def _digamma_of_complex(z: Array) -> Any:
    """Analytic in each of its pieces: derivatives of any order follow from it."""
    low = (lax.real(z) < 0.5) & (tnp.abs(lax.imag(z)) < _SHIFT)
    turned = tnp.where(low, 1.0 - z, z)
    small = (lax.real(turned) < _SHIFT) & (tnp.abs(lax.imag(turned)) < _SHIFT)
    total: Any = tnp.zeros_like(z)
    safe = tnp.where(small, turned, 1.0)
    for k in range(_SHIFT):
        total = total + 1.0 / (safe + k)
    w = tnp.where(small, turned + _SHIFT, turned)
    inverse = 1.0 / w
    square = inverse * inverse
    psi = tnp.log(w) - 0.5 * inverse + square * horner(square, _DIGAMMA)
    psi = tnp.where(small, psi - total, psi)
    part = tnp.where(low, z, 0.25)
    whole = lax.stop_gradient(tnp.round(lax.real(part)))
    angle = math.pi * (part - lax.complex(whole, tnp.zeros_like(whole)))
    return tnp.where(low, psi - math.pi / tnp.tan(angle), psi)


log_gamma_of_complex = with_slopes(_log_gamma, lambda _, z: _digamma_of_complex(z))


def gamma_of_complex(z: Array) -> Any:
    """The exponential of the logarithm."""
    return tnp.exp(log_gamma_of_complex(z))
