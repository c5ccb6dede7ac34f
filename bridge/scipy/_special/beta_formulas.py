"""The beta function and binomial coefficients of positive numbers, by products.

Exponentials of logarithms would lose as many digits as the logarithms are large. The powers here
have exact bases: what rounding has taken off them is a factor of its own.

Sources: NIST DLMF 5.11 (Stirling's series), 5.12 (the beta function); Dekker (1971), Numer. Math.
18, the exact product; Knuth, The Art of Computer Programming, volume 2, the exact sum.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.special.incomplete_beta import digamma_gap_p
from tracebridge.scipy._special.elementwise import with_slopes
from tracebridge.scipy._special.gamma_formulas import (
    beyond_stirling,
    gamma_below_7,
    gamma_of_positive,
)
from tracebridge.scipy._special.series import eps_of

_STIRLING_FROM = 7.0


def are_modest(a: Array, b: Array) -> Any:
    """Whether the numbers are positive, and exact products of them neither overflow nor vanish."""
    end = 2.0**900 if eps_of(a) < 1e-10 else 2.0**100
    modest: Any = a + b < end
    for x in (a, b):
        modest = modest & (x > 2.0**-60)
    return modest


def _upper_half(x: Array) -> Any:
    product = x * (2.0**27 + 1.0 if eps_of(x) < 1e-10 else 2.0**12 + 1.0)
    # Chosen, so that the difference is not simplified.
    return product - tnp.where(tnp.isnan(x), x, product - x)


def _missing_of_product(product: Array, x: Array, y: Array) -> Any:
    """``x * y`` less what it is rounded to."""
    a, c = _upper_half(x), _upper_half(y)
    b, d = x - a, y - c
    return ((a * c - product) + a * d + b * c) + b * d


def _missing_of_sum(total: Array, x: Array, y: Array) -> Any:
    """``x + y`` less what it is rounded to."""
    rest = total - x
    return (x - (total - rest)) + (y - rest)


@dataclasses.dataclass(frozen=True, slots=True)
class _Factors:
    """``beta(a, b)`` is ``rest * share * root**2``; the square alone may vanish."""

    rest: Any
    root: Any
    share: Any


def _factors(a: Array, b: Array, sign: int = 1) -> _Factors:
    """Of two numbers that are large, of one, or of none that Stirling's series is for.

    The root has this power: a quotient of its inverses would become one by the square.
    """
    low, top, total = tnp.minimum(a, b), tnp.maximum(a, b), a + b
    missing = _missing_of_sum(total, a, b)
    one, both = top >= _STIRLING_FROM, low >= _STIRLING_FROM
    far = total >= _STIRLING_FROM
    large, big = tnp.where(one, top, _STIRLING_FROM), tnp.where(both, low, _STIRLING_FROM)
    whole = tnp.where(far, total, 2.0 * _STIRLING_FROM)
    missing = tnp.where(far, missing, 0.0)
    # Of the larger one; 1 - off / 2 is as much of a logarithm as there are digits.
    size, off = _share(large, whole, missing)
    # Larger exponents are beside a power that is 0, and their exponential would be infinite.
    grown = tnp.minimum(large * off * (1.0 - 0.5 * off), 80.0)
    flat = lax.pow(size, large) * tnp.exp(grown)
    # Of the smaller one: the power has one factor less, which is the last share.
    share, off = _share(big, whole, missing)
    exponent = tnp.where(both, low - 1.0, tnp.where(one, 1.0 - low, 0.5 - whole))
    change = tnp.where(one, 1.0 - low, 0.5 - tnp.log(whole) * whole) * (missing / whole)
    # Small where the result does not vanish; elsewhere its sign would be the result's.
    change = tnp.where(both, tnp.clip((low - 1.0) * off, -0.5, 0.5), change)
    root = lax.pow(tnp.where(both, share, whole), 0.5 * sign * exponent)
    series = _stirling_of_all(
        tnp.where(one, large, math.inf), tnp.where(both, big, math.inf), whole
    )
    series = series + series * change
    gammas = gamma_below_7(tnp.where(both, 1.0, low)) * gamma_below_7(tnp.where(one, 1.0, top))
    growth = tnp.exp(tnp.where(both, 0.0, tnp.where(one, low, whole)))
    width = whole / large
    width = lax.sqrt(tnp.where(both, 2.0 * math.pi * width / big, width))
    rest = gammas * (series * growth * tnp.where(one, width * flat, 1.0 / math.sqrt(2.0 * math.pi)))
    near = gammas / gamma_below_7(tnp.where(far, 1.0, total))
    return _Factors(
        tnp.where(far, rest, near),
        tnp.where(far, root, 1.0),
        tnp.where(both, share + share * off, tnp.where(one, 1.0 / whole, 1.0)),
    )


def _stirling_of_all(large: Array, big: Array, whole: Array) -> Any:
    """What the first terms of Stirling's series leave of the quotient."""
    above = (1.0 + beyond_stirling(large)) * (1.0 + beyond_stirling(big))
    return above / (1.0 + beyond_stirling(whole))


def _share(x: Array, whole: Array, missing: Array) -> tuple[Any, Any]:
    """``x / (whole + missing)``, rounded, and its relative error."""
    share = x / whole
    product = share * whole
    lost = (x - product) - _missing_of_product(product, share, whole) - share * missing
    return share, lost / x


def _beta(a: Array, b: Array) -> Any:
    parts = _factors(a, b)
    return parts.rest * parts.root * parts.share * parts.root


beta_of_modest = with_slopes(
    _beta,
    lambda ans, a, b: -ans * digamma_gap_p.bind(a, b),
    lambda ans, a, b: -ans * digamma_gap_p.bind(b, a),
)
"""The beta function of numbers that are modest."""


def rising_by_beta(low: Array, size: Array) -> Any:
    """``gamma(low + size) / gamma(low)`` of modest numbers, where gamma of ``size`` is finite."""
    parts = _factors(low, size, -1)
    return gamma_of_positive(size) / parts.share / parts.rest * parts.root * parts.root


def rounding_of_end(z: Array, m: Array) -> Any:
    """How much rounding ``z + m`` changes ``log(gamma(z + m) / gamma(z))`` where ``m < 0``."""
    return _missing_of_sum(z + m, z, m) * _growth(z + m, -m)


def rounding_of_gap(n: Array, k: Array) -> Any:
    """What rounding has taken off ``n - k + 1``."""
    gap = n - k
    off = _missing_of_sum(gap, n, -k) + _missing_of_sum(gap + 1.0, gap, tnp.ones_like(gap))
    return lax.stop_gradient(off)


def rounding_of_next(k: Array) -> Any:
    """What rounding has taken off ``k + 1``."""
    return lax.stop_gradient(_missing_of_sum(k + 1.0, k, tnp.ones_like(k)))


def _growth(x: Array, y: Array) -> Any:
    """How much more ``log(gamma)`` grows at ``x + y`` than at ``x``, nearly."""
    return tnp.log1p(y / x) + 0.5 / x - 0.5 / (x + y)


def _comb(first: Array, second: Array, first_off: Array, second_off: Array) -> Any:
    """``1 / ((first + second - 1) beta(first, second))``, for numbers with what is off them."""
    parts = _factors(first, second, -1)
    change = first_off * _growth(first, second) + second_off * _growth(second, first)
    scale = (first + second - 1.0) * parts.share * parts.rest
    return (1.0 + tnp.clip(change, -0.5, 0.5)) / scale * parts.root * parts.root


def _comb_slope(ans: Array, own: Array, other: Array, other_off: Array) -> Any:
    # A gap of a step less 1: the difference of a gap and of what the last step adds loses digits.
    step = (other - 1.0) + lax.stop_gradient(other_off)
    # Not `maximum`, whose slope at 0, where ``k`` is 0 or ``n``, is a half.
    return ans * digamma_gap_p.bind(own, tnp.where(step < 0.0, 0.0, step))


comb_of_modest = with_slopes(
    _comb,
    lambda ans, a, b, _, b_off: _comb_slope(ans, a, b, b_off),
    lambda ans, a, b, a_off, _: _comb_slope(ans, b, a, a_off),
    None,
    None,
)
"""Binomial coefficients ``comb(first + second - 2, second - 1)`` of numbers from 1 on."""
