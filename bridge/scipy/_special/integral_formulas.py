"""Formulas of the exponential, sine, cosine and Fresnel integrals and the dilogarithm.

Sources: NIST DLMF 6.2, 6.6, 6.12 (exponential, sine and cosine integrals), 7.2 and 7.5 (Fresnel
integrals), 25.12 and the generating function of the Bernoulli numbers (dilogarithm).
"""

from __future__ import annotations

import math
from typing import Any

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.scipy._special import fits
from tracebridge.scipy._special.elementwise import with_slopes
from tracebridge.scipy._special.series import chebyshev, half_line, horner, less

_EULER = 0.5772156649015329
_EI_ZERO = 0.3725074107813666, 1.3140183414386028e-17
_CI_ZERO = 0.6165054856207163, -4.209920321433186e-17


def _e1(x: Array) -> Any:
    far = x > 0.5
    near = tnp.where(far, 0.5, x)
    small = near * chebyshev(2.0 * near - 1.0, fits.E1_NEAR) - (_EULER + tnp.log(near))
    large = tnp.where(far, x, 0.5)
    tail = tnp.exp(-large) / large * half_line(large, 0.5, 2.5, fits.E1_FAR)
    return tnp.where(x < 0, math.nan, tnp.where(far, tail, small))


def _e1_slope(_: Array, x: Array) -> Any:
    return -tnp.exp(-x) / x


exp1 = with_slopes(_e1, _e1_slope)


def _log_to_zero(x: Array, gap: Array, zero: float) -> Any:
    """``log(x / zero)``, where ``gap`` is ``x - zero``."""
    share = gap / zero
    close = tnp.abs(share) < 0.5
    return tnp.where(close, tnp.log1p(tnp.where(close, share, 0.0)), tnp.log(x / zero))


def _ei(x: Array) -> Any:
    far, negative = x > 6.0, x < 0
    near = tnp.where(far | negative, 1.0, x)
    gap = less(near, *_EI_ZERO)
    small = _log_to_zero(near, gap, _EI_ZERO[0])
    small = small + gap * chebyshev(near / 3.0 - 1.0, fits.EI_NEAR)
    large = tnp.where(far, x, 6.0)
    root = tnp.exp(0.5 * large)  # the whole exponential would overflow before the quotient
    tail = root * half_line(large, 6.0, 30.0, fits.EI_FAR) / large * root
    tail = tnp.where(x == math.inf, x, tail)
    below = -_e1(tnp.where(negative, -x, 1.0))
    return tnp.where(negative, below, tnp.where(far, tail, small))


def _ei_slope(x: Array) -> Any:
    root = tnp.exp(0.5 * x)
    return tnp.where(x == math.inf, x, root / x * root)


# By a rule of its own: of infinite powers differences and quotients are no numbers.
_exp_over = with_slopes(_ei_slope, lambda ans, x: ans * (1.0 - 1.0 / x))
expi = with_slopes(_ei, lambda _, x: _exp_over(x))


def _auxiliary(x: Array) -> tuple[Any, Any]:
    """The functions f and g of the sine and cosine integrals, from 4 on."""
    f = half_line(x, 4.0, 8.0, fits.SICI_F) / x
    return f, half_line(x, 4.0, 8.0, fits.SICI_G) / x / x


def _finite_angle(x: Array) -> Any:
    """``x``, but 0 in the place of infinities, where waves that fade have no angle."""
    return tnp.where(tnp.isinf(x), 0.0, x)


def _si(x: Array) -> Any:
    size = tnp.abs(x)
    far = size > 4.0
    near, large = tnp.where(far, 0.0, x), tnp.where(far, size, 4.0)
    small = near * chebyshev(near * near / 8.0 - 1.0, fits.SI_NEAR)
    f, g = _auxiliary(large)
    angle = _finite_angle(large)
    tail = 0.5 * math.pi - f * tnp.cos(angle) - g * tnp.sin(angle)
    return tnp.where(far, tnp.copysign(tail, x), small)


def _ci(x: Array) -> Any:
    size = tnp.abs(x)
    far = size > 4.0
    near, large = tnp.where(far, 1.0, size), tnp.where(far, size, 4.0)
    gap = less(near, *_CI_ZERO)
    series = chebyshev(near * near / 8.0 - 1.0, fits.CI_NEAR)
    small = _log_to_zero(near, gap, _CI_ZERO[0]) + gap * (near + _CI_ZERO[0]) * series
    f, g = _auxiliary(large)
    angle = _finite_angle(large)
    tail = f * tnp.sin(angle) - g * tnp.cos(angle)
    return tnp.where(x == -math.inf, math.nan, tnp.where(far, tail, small))


_SINC = [(-1) ** k / math.factorial(2 * k + 1) for k in range(12)]


def _si_slope(_: Array, x: Array) -> Any:
    near = tnp.abs(x) < 1.0
    series = horner(tnp.square(tnp.where(near, x, 0.0)), _SINC)
    far = tnp.where(near, 1.0, x)
    return tnp.where(near, series, tnp.sin(_finite_angle(far)) / far)


def _ci_slope(_: Array, x: Array) -> Any:
    return tnp.cos(_finite_angle(x)) / x


sine_integral = with_slopes(_si, _si_slope)
cosine_integral = with_slopes(_ci, _ci_slope)


def _quarter_turns(x: Array) -> Any:
    """``x**2`` modulo 4, exact but for the last digit.

    With the nearest integer n and the rest r, ``x**2 = n**2 + 2 n r + r**2``: the digits of n and r
    are those of x together, so that ``n r`` is exact.
    """
    n = tnp.round(x)
    r = x - n
    odd = n - 2.0 * tnp.floor(0.5 * n)
    return odd + (2.0 * lax.rem(n * r, tnp.full_like(x, 2.0)) + r * r)


def _sine_of_square(x: Array) -> Any:
    return tnp.sin(0.5 * math.pi * _quarter_turns(x))


def _cosine_of_square(x: Array) -> Any:
    return tnp.cos(0.5 * math.pi * _quarter_turns(x))


# sin and cos of pi x**2 / 2; their derivatives are each other's.
sine_of_square = with_slopes(_sine_of_square, lambda _, x: math.pi * x * cosine_of_square(x))
cosine_of_square = with_slopes(_cosine_of_square, lambda _, x: -math.pi * x * sine_of_square(x))


def _fresnel_far(x: Array) -> tuple[Any, Any]:
    """``1/2 - S`` and ``1/2 - C`` from 1.5 on."""
    square = tnp.minimum(x, 1e15) ** 2  # a larger one has no effect, and would overflow
    f = half_line(square, 2.25, 4.0, fits.FRESNEL_F) / (math.pi * x)
    g = half_line(square, 2.25, 4.0, fits.FRESNEL_G) / (math.pi * x) / (math.pi * x) / x
    turns = _quarter_turns(_finite_angle(x))
    sin, cos = tnp.sin(0.5 * math.pi * turns), tnp.cos(0.5 * math.pi * turns)
    return f * cos + g * sin, g * cos - f * sin


def _fresnel(x: Array, sine: bool) -> Any:
    size = tnp.abs(x)
    far = size > 1.5
    near = tnp.where(far, 0.0, x)
    square = near * near
    t = square * square * (2.0 / 1.5**4) - 1.0
    factor, coefficients = (near * square, fits.S_NEAR) if sine else (near, fits.C_NEAR)
    small = factor * chebyshev(t, coefficients)
    tail = 0.5 - _fresnel_far(tnp.where(far, size, 2.0))[0 if sine else 1]
    return tnp.where(far, tnp.copysign(tail, x), small)


fresnel_s = with_slopes(lambda x: _fresnel(x, True), lambda _, x: sine_of_square(x))
fresnel_c = with_slopes(lambda x: _fresnel(x, False), lambda _, x: cosine_of_square(x))

# B_n / (n + 1)! for n = 2, 4, ...: the dilogarithm of 1 - exp(-u) over u is 1 - u / 4 + ...
_EVEN_BERNOULLI = [
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798,
    -174611 / 330,
]  # fmt: skip
_DEBYE = [b / math.factorial(2 * i + 3) for i, b in enumerate(_EVEN_BERNOULLI)]


def _spence(x: Array) -> Any:
    low, high = x < 0.5, x > 2.0
    small = tnp.where(low, x, tnp.where(high, 1.0 / x, 0.25))
    log, log_rest = tnp.log(small), tnp.log1p(-small)
    u = tnp.where(low | high, -log_rest, -tnp.log(tnp.where(low | high, 1.0, x)))
    square = u * u
    core = u - 0.25 * square + u * square * horner(square, _DEBYE)
    core = tnp.where(u == 0, 0.0, core)  # of either sign
    product = tnp.where(small == 0, 0.0, log * log_rest)
    first = math.pi**2 / 6 - product - core
    second = product + core - math.pi**2 / 6 - 0.5 * log * log
    found = tnp.where(low, first, tnp.where(high, second, core))
    return tnp.where(x < 0, math.nan, tnp.where(x == math.inf, -math.inf, found))


_LOG_SERIES = [-1.0 / k for k in range(1, 18)]


def _spence_slope(_: Array, x: Array) -> Any:
    """``log(x) / (1 - x)``, by its series around 1."""
    near = tnp.abs(x - 1.0) < 0.1
    w = tnp.where(near, 1.0 - x, 0.0)
    far = tnp.where(near, 2.0, x)
    slope = tnp.where(near, horner(w, _LOG_SERIES), tnp.log(far) / (1.0 - far))
    return tnp.where(x == math.inf, 0.0, slope)


spence = with_slopes(_spence, _spence_slope)
