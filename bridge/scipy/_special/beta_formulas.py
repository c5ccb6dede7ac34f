"""The beta function and binomial coefficients of positive numbers, by products.

Exponentials of logarithms would lose as many digits as the logarithms are large. The powers here
have exact bases: what rounding has taken off them is a factor of its own.

Sources: NIST DLMF 5.11 (Stirling's series), 5.12 (the beta function).
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.lax.roundings import lost_of_sum
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.special.incomplete_beta import digamma_gap_p
from tracebridge.core.special.lanczos import beta_in_float64, rising_in_float64
from tracebridge.core.special.programs import Expression
from tracebridge.scipy._special import pairs
from tracebridge.scipy._special.elementwise import with_slopes
from tracebridge.scipy._special.gamma_formulas import (
    beyond_stirling,
    gamma_of_positive,
    gamma_pair_below_7,
)
from tracebridge.scipy._special.pairs import Pair, constant, exactly
from tracebridge.scipy._special.series import eps_of

_STIRLING_FROM = 7.0
# What the first floats of these numbers lack comes second.
_E = (2.718281828459045, 1.4456468917292502e-16)
_ROOT_2_PI = (2.5066282746310007, -1.8328579980459167e-16)
_ROOT_E_OVER_2_PI = (0.657744623479457, -3.2776576776307695e-17)


def are_modest(a: Array, b: Array) -> Any:
    """Whether the numbers are positive, and exact products of them neither overflow nor vanish.

    Those of float32 are products of float64, which do not.
    """
    is_wide = eps_of(a) < 1e-10
    end, least = (2.0**900, 2.0**-60) if is_wide else (math.inf, float(tnp.finfo(a.dtype).tiny))
    return (a + b < end) & (a > least) & (b > least)


@dataclasses.dataclass(frozen=True, slots=True)
class _Factors:
    """``beta(a, b)`` is ``rest * root**2``; the square alone may vanish."""

    rest: Pair
    root: Any


def _factors(a: Array, b: Array, sign: int = 1) -> _Factors:
    """Of two numbers that are large, of one, or of none that Stirling's series is for.

    The root has this power: a quotient of its inverses would become one by the square.
    """
    low, top, total = tnp.minimum(a, b), tnp.maximum(a, b), a + b
    missing = lost_of_sum(total, a, b)
    one, both = top >= _STIRLING_FROM, low >= _STIRLING_FROM
    far = total >= _STIRLING_FROM
    large, big = tnp.where(one, top, _STIRLING_FROM), tnp.where(both, low, _STIRLING_FROM)
    whole = Pair(tnp.where(far, total, 2.0 * _STIRLING_FROM), tnp.where(far, missing, 0.0))
    # The powers of the shares of both, or else of the whole, of which e is a factor as often.
    base = pairs.where(both, exactly(big).over(whole), whole.over(constant(low, *_E)))
    exponent = tnp.where(both, low - 0.5, tnp.where(one, -low, 0.5 - whole.head))
    root = lax.pow(base.head, 0.5 * sign * exponent)
    # Small where the result does not vanish; elsewhere its sign would be the result's.
    change = tnp.clip(exponent * (base.rest / base.head), -0.5, 0.5)
    change = change - tnp.where(one, 0.0, whole.rest * tnp.log(base.head))
    # What the first terms of Stirling's series leave of the quotient.
    above = [beyond_stirling(tnp.where(one, large, math.inf))]
    above = [*above, beyond_stirling(tnp.where(both, big, math.inf)), beyond_stirling(whole.head)]
    series = (above[0] + above[1] + above[0] * above[1] - above[2]) / (1.0 + above[2])
    series = series + (1.0 + series) * change
    power = pairs.where(one, _power_of_share(large, whole), constant(low, *_ROOT_E_OVER_2_PI))
    power = power.plus(power.head * series)
    numerator = gamma_pair_below_7(tnp.where(one, 1.0, top))
    numerator = gamma_pair_below_7(tnp.where(both, 1.0, low)).times(numerator)
    numerator = pairs.where(both, constant(low, *_ROOT_2_PI), numerator)
    near = gamma_pair_below_7(tnp.where(far, 1.0, total))
    near = near.plus(near.head * tnp.where(far, 0.0, missing * _digamma_nearly(total)))
    divisor = pairs.where(both, whole.root(), near)
    rest = numerator.times(pairs.where(far, power, exactly(tnp.ones_like(low)))).over(divisor)
    return _Factors(rest, tnp.where(far, root, 1.0))


def _power_of_share(x: Array, whole: Pair) -> Pair:
    """``(x / whole)**(x - 1/2)`` where ``x`` is large."""
    share = exactly(x).over(whole)
    off = share.rest / share.head
    # 1 - off / 2 is as much of a logarithm as there are digits. Larger exponents are beside a power
    # that is 0, and their exponential would be infinite.
    grown = tnp.minimum((x - 0.5) * off * (1.0 - 0.5 * off), 80.0)
    power = lax.pow(share.head, x - 0.5)
    return exactly(power).plus(power * tnp.expm1(grown))


def _digamma_nearly(x: Array) -> Any:
    """With the digits that a rounding of ``x`` needs."""
    far = 1.0 / (x + 2.0)
    return tnp.log(x + 2.0) - far * (0.5 + far * (1 / 12)) - 1.0 / x - 1.0 / (x + 1.0)


def _beta(a: Array, b: Array) -> Any:
    if a.aval.dtype == np.float32:
        return lax.convert_dtype(beta_in_float64(*_in_float64(a, b)).value, a.aval.dtype)
    parts = _factors(a, b)
    root = exactly(parts.root)
    return parts.rest.times(root).times(root).value()


def _in_float64(*xs: Array) -> list[Expression]:
    return [Expression(lax.convert_dtype(x, np.dtype(np.float64))) for x in xs]


def rising_of_float32(z: Array, m: Array) -> Any:
    """``gamma(z + m) / gamma(z)`` of numbers of float32 where both arguments are positive."""
    return lax.convert_dtype(rising_in_float64(*_in_float64(z, m)).value, z.aval.dtype)


beta_of_modest = with_slopes(
    _beta,
    lambda ans, a, b: -ans * digamma_gap_p.bind(a, b),
    lambda ans, a, b: -ans * digamma_gap_p.bind(b, a),
)
"""The beta function of numbers that are modest."""


def rising_by_beta(low: Array, size: Array) -> Any:
    """``gamma(low + size) / gamma(low)`` of modest numbers, where gamma of ``size`` is finite."""
    parts = _factors(low, size, -1)
    return gamma_of_positive(size) / parts.rest.value() * parts.root * parts.root


def rounding_of_end(z: Array, m: Array) -> Any:
    """How much rounding ``z + m`` changes ``log(gamma(z + m) / gamma(z))`` where ``m < 0``."""
    return lost_of_sum(z + m, z, m) * _growth(z + m, -m)


def rounding_of_gap(n: Array, k: Array) -> Any:
    """What rounding has taken off ``n - k + 1``."""
    gap = n - k
    off = lost_of_sum(gap, n, -k) + lost_of_sum(gap + 1.0, gap, tnp.ones_like(gap))
    return lax.stop_gradient(off)


def rounding_of_next(k: Array) -> Any:
    """What rounding has taken off ``k + 1``."""
    return lax.stop_gradient(lost_of_sum(k + 1.0, k, tnp.ones_like(k)))


def _growth(x: Array, y: Array) -> Any:
    """How much more ``log(gamma)`` grows at ``x + y`` than at ``x``, nearly."""
    return tnp.log1p(y / x) + 0.5 / x - 0.5 / (x + y)


def _comb(
    n: Array, k: Array, first: Array, second: Array, first_off: Array, second_off: Array
) -> Any:
    """``comb(n, k)`` by ``first``, which is ``n - k + 1``, ``second``, ``k + 1``, and their errors.

    That is ``1 / ((first + second - 1) beta(first, second))``.
    """
    if n.aval.dtype == np.float32:
        all_of, some_of = _in_float64(n, k)
        count = all_of + 1.0
        inverse = count * beta_in_float64(count - some_of, some_of + 1.0)
        return lax.convert_dtype((1.0 / inverse).value, n.aval.dtype)
    parts = _factors(first, second, -1)
    change = first_off * _growth(first, second) + second_off * _growth(second, first)
    scale = (first + second - 1.0) * parts.rest.value()
    return (1.0 + tnp.clip(change, -0.5, 0.5)) / scale * parts.root * parts.root


def _comb_slope(ans: Array, n: Array, k: Array, first: Array, second: Array, *_: Array) -> Any:
    """In ``k``: of one gap, as the second derivative loses the digits of a difference of two."""
    above, step = first >= second, n - 2.0 * k
    # Not `maximum`, whose slope at 0 is a half.
    up = digamma_gap_p.bind(second, tnp.where(above, step, 0.0))
    down = digamma_gap_p.bind(first, tnp.where(above, 0.0, -step))
    return ans * tnp.where(above, up, -down)


comb_of_modest = with_slopes(
    _comb,
    lambda ans, n, k, first, *_: ans * digamma_gap_p.bind(first, k),
    _comb_slope,
    None,
    None,
    None,
    None,
)
"""Binomial coefficients ``comb(n, k)`` of numbers from 0 on."""
