"""Formulas of values: what public functions and distributions are made of."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.control.branches.switch import cond
from tracebridge.core.dtypes.dtypes import is_complex
from tracebridge.core.lax.roundings import lost_of_sum
from tracebridge.core.lax.special.scaled_erfc import scaled_erfc
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.special.beta_factors import power_of
from tracebridge.core.special.incomplete_beta import betainc, digamma_gap_p, log_beta_p
from tracebridge.core.special.incomplete_gamma import igamma, igammac
from tracebridge.core.special.programs import Expression
from tracebridge.numpy._promote import widened
from tracebridge.scipy._special import beta_formulas
from tracebridge.scipy._special.elementwise import with_slopes
from tracebridge.scipy._special.entropies import share_of
from tracebridge.scipy._special.gamma_formulas import gamma_of_positive
from tracebridge.scipy._special.normal_tails import TAIL, tail_fraction, tail_quantile
from tracebridge.scipy._special.series import eps_of, exp_of_square

LOG_ROOT_2_PI = 0.5 * math.log(2 * math.pi)
_ROOT_2 = math.sqrt(2)


def _xlogy(x: Array, y: Array) -> Any:
    return tnp.where((x == 0) & ~tnp.isnan(y), tnp.zeros_like(x * y), x * tnp.log(y))


def _xlog1py(x: Array, y: Array) -> Any:
    return tnp.where((x == 0) & ~tnp.isnan(y), tnp.zeros_like(x * y), x * tnp.log1p(y))


xlogy = with_slopes(_xlogy, lambda _, x, y: tnp.log(y), lambda _, x, y: share_of(x, y))
xlog1py = with_slopes(_xlog1py, lambda _, x, y: tnp.log1p(y), lambda _, x, y: share_of(x, 1 + y))


def gammaln(x: Array) -> Any:
    """Logarithm of the size of the gamma function."""
    return lax.lgamma(x)


def gammasgn(x: Array) -> Any:
    """Its sign."""
    whole = tnp.floor(x)
    half = tnp.where(tnp.isfinite(whole), whole, 0) / 2
    sign = tnp.where((x < 0) & (half != tnp.floor(half)), -1, tnp.ones_like(x))
    sign = tnp.where((x < 0) & (x == whole), math.nan, sign)
    sign = tnp.where(x == 0, tnp.copysign(1, x).astype(x.dtype), sign)
    return tnp.where(tnp.isnan(x), x, sign)


def log_beta_of_positive(a: Array, b: Array, total: Array | None = None) -> Any:
    """Logarithm of the beta function of numbers that are not negative, without the reflection.

    ``total`` is ``a + b``: one number where that is known to be the same for all elements.
    """
    # Level there: no product of the other's infinite slope and 0.
    ends = [a == math.inf, b == math.inf]
    end = ((a > 0) & ends[1]) | ((b > 0) & ends[0])
    # A number beside an array stays one: its gamma function is computed once.
    has_number = a.ndim != b.ndim
    which = ends if has_number else [end, end]
    first, second = (tnp.where(e, 1, v) for e, v in zip(which, (a, b), strict=True))
    total = first + second if total is None else total
    log = log_beta_p.bind(first, second, lax.stop_gradient(total))
    if has_number:
        log = tnp.where(ends[0] | ends[1], math.nan, log)
    return tnp.where(end, -math.inf, log)


def log_beta(a: Array, b: Array) -> Any:
    """Logarithm of the size of the beta function.

    Of negative numbers by reflection (NIST DLMF 5.5.3): what is left is positive, and large
    parameters do not cancel as the logarithms of three gamma functions would.
    """
    small, large = tnp.minimum(a, b), tnp.maximum(a, b)
    total = small + large
    mixed = (small < 0) & (total > 0) & (large < math.inf)
    turned = (small < 0) & (total <= 0) & (large >= 0)
    below = large < 0
    first, second = tnp.where(mixed | below, 1 - small, a), tnp.where(mixed, total, b)
    first, second = tnp.where(turned, large, first), tnp.where(turned, 1 - total, second)
    second = tnp.where(below, 1 - large, second)
    log = log_beta_of_positive(first, second)
    value = cond(
        tnp.any(mixed | turned | below),
        _reflected_log_beta,
        lambda log, *_: log,
        *(log, small, large, total, mixed, turned, below),
    )
    return tnp.where((small < 0) & (small > -math.inf) & (large == math.inf), math.inf, value)


def _reflected_log_beta(
    log: Array, small: Array, large: Array, total: Array, *regions: Array
) -> Any:
    mixed, turned, below = regions
    near = tnp.where(mixed | turned | below, small, 0.5)
    far = tnp.where(mixed | below, large, -0.5)
    both = tnp.where(turned | below, total, 0.5)
    waves = [_log_of_wave(x) for x in (near, far, both)]
    by_one = math.log(math.pi) - waves[0]
    # Whole numbers leave the sine as it is, also where it is 0.
    shift = tnp.where(large == tnp.floor(large), 0, waves[2] - tnp.where(turned, waves[0], 0))
    by_two = by_one - waves[1] + waves[2]
    by_two = tnp.where(_is_pole(near) | _is_pole(far), math.inf, by_two)
    value = tnp.where(mixed, by_one - tnp.log(tnp.where(mixed, large, 1)) - log, log)
    value = tnp.where(turned, shift + log, value)
    return tnp.where(below, by_two - tnp.log(tnp.where(below, 1 - total, 1)) - log, value)


def _log_of_wave(x: Array) -> Any:
    """``log(abs(sin(pi * x)))``."""
    rest = x - lax.stop_gradient(tnp.round(x))
    return tnp.log(tnp.abs(tnp.sin(math.pi * rest)))


def bell(x: Array) -> Any:
    """The normal density."""
    return exp_of_square(x, -0.5) * (1.0 / math.sqrt(2.0 * math.pi))


ndtr = widened(with_slopes(lambda x: lax.ndtr(x), lambda _, x: bell(x)))
"""The normal distribution function."""


def _log_ndtr(x: Array) -> Any:
    low, high = x < -TAIL, x > 0
    far = tnp.where(low, -x, TAIL)
    least = ndtr(-tnp.abs(tnp.where(low, 0, x)))
    # One logarithm for both.
    log = tnp.log(tnp.where(low, tail_fraction(far), least))
    lower = -0.5 * far * far - LOG_ROOT_2_PI - log
    inside = tnp.where(high, tnp.log1p(-least), log)
    return tnp.where(low, tnp.where(tnp.isinf(x), -math.inf, lower), inside)


def _log_ndtr_slope(_: Any, x: Array) -> Any:
    """The density over the function, which is ``-x`` far out."""
    far = tnp.where(x < -TAIL, -x, TAIL)
    near = tnp.where(x < -TAIL, 0, x)
    inside = bell(near) / ndtr(near)
    return tnp.where(x < -TAIL, tail_fraction(far), inside)


log_ndtr = with_slopes(_log_ndtr, _log_ndtr_slope)


def _ndtri(p: Array) -> Any:
    upper = p > 0.5
    q = tnp.where(upper, 1 - p, p)
    tail = (q < 0.1) & (q > 0)
    y = tail_quantile(tnp.log(tnp.where(tail, q, 0.05)))
    centre = _ROOT_2 * lax.erf_inv(2 * p - 1)
    found = tnp.where(tail, tnp.where(upper, y, -y), centre)
    found = tnp.where(p == 0, -math.inf, tnp.where(p == 1, math.inf, found))
    return tnp.where((p < 0) | (p > 1) | tnp.isnan(p), math.nan, found)


def _inverse_density(y: Array, p: Array) -> Any:
    """``sqrt(2 pi) exp(y**2 / 2)``: the tail beyond ``y`` over the density, and over the tail."""
    tail = tnp.where(p > 0.5, 1 - p, p)
    share = scaled_erfc(tnp.abs(y) * math.sqrt(0.5)) * math.sqrt(0.5 * math.pi)
    return tnp.where(tail == 0, math.inf, share / tail)


# In terms of the quantile: the probability is there for its digits, which the square would lose.
_slope_of_quantile = with_slopes(_inverse_density, lambda ans, y, p: ans * y, None)
ndtri = widened(with_slopes(_ndtri, lambda y, p: _slope_of_quantile(y, p)))
"""Its inverse."""


def gammainc(a: Array, x: Array) -> Any:
    """The lower incomplete gamma function."""
    return igamma(a, x)


def gammaincc(a: Array, x: Array) -> Any:
    """The upper one."""
    return igammac(a, x)


def incomplete_beta(a: Array, b: Array, x: Array) -> Any:
    """The regularized incomplete beta function."""
    return betainc(a, b, x)


def _entr(x: Array) -> Any:
    return tnp.where(x < 0, -math.inf, -_xlogy(x, x))


entr = with_slopes(_entr, lambda _, x: -tnp.log(x) - 1)


# By vector instructions, which XLA's powers are not.
_raised = with_slopes(
    lambda x, power: power_of(Expression(x), Expression(power)).value,
    lambda _, x, power: power * tnp.power(x, power - 1),
    lambda ans, x, power: ans * tnp.log(x),
)


class _Boxed:
    """``base**power`` and its logarithm, of ``x`` or of ``1 + x`` with the digits of ``x``."""

    def __init__(self, x: Array, power: Array, *, one_more: bool) -> None:
        self.power, self.is_real = power, not is_complex(x.aval.dtype)
        self.log = tnp.log1p(x) if one_more else tnp.log(x)
        self.base: Any = 1 + x if one_more else x
        self.lost: Any = tnp.zeros_like(self.base)
        if one_more and self.is_real:
            known = tnp.isfinite(self.base) & (self.base > 0)
            lost = lost_of_sum(self.base, x, tnp.ones_like(x))
            self.lost = tnp.where(known, lost / tnp.where(known, self.base, 1), 0)

    def grown(self, u: Any, least: float, otherwise: Any, less: float) -> Any:
        """The power less ``less`` where its logarithm ``u`` is above ``least``, else ``otherwise``.

        The exponential of a large logarithm would lose digits.
        """
        if not self.is_real:
            return otherwise
        modest = (u < 750.0) & (self.base > 2.0**-100) & (self.base < 2.0**100)
        where = (u > least) & modest
        base, power = tnp.where(where, self.base, 1), tnp.where(where, self.power, 1)
        value = _raised(base, power)
        value = value + tnp.where(value < math.inf, value, 0) * (power * self.lost)
        return tnp.where(where, value - less, otherwise)

    def less_one(self) -> Any:
        """``(base**power - 1) / power``, the logarithm at power 0."""
        # Of a power whose product with the logarithm may vanish too.
        none = (self.power == 0) | (tnp.abs(self.power * self.log) < 0.25 * eps_of(self.base))
        safe = tnp.where(none, 1, self.power)
        u = safe * self.log
        return tnp.where(none, self.log, self.grown(u, 0.7, tnp.expm1(u), 1.0) / safe)

    def slope(self) -> Any:
        """``base**(power - 1)``, with what rounding takes off the exponent."""
        less = self.power - 1
        value = tnp.power(self.base, less)
        if not self.is_real:
            return value
        off = lost_of_sum(less, self.power, tnp.full_like(self.power, -1.0))
        change = less * self.lost + off * self.log
        known = tnp.isfinite(change) & (self.base > 0) & (value < math.inf)
        return value * lax.stop_gradient(1 + tnp.where(known, change, 0))


def _slope_in_power(box: _Boxed) -> Any:
    """``(exp(u) (u - 1) + 1) / power**2`` with ``u = power * log``; by its series for small u."""
    power, log = box.power, box.log
    u = power * log
    small = tnp.abs(u) < 1
    near, far = tnp.where(small, u, 0), tnp.where(small, 1, tnp.maximum(u, -800.0))
    series = tnp.zeros_like(u)
    for k in range(18, -1, -1):
        series = series * near + 1 / (math.factorial(k) * (k + 2))
    series = series * tnp.square(tnp.where(small, log, 0))
    safe = tnp.where(small, 1, power)
    grown = box.grown(far, 1.0, tnp.exp(far), 0.0)
    return tnp.where(small, series, (grown * (far - 1) + 1) / tnp.square(safe))


def _boxed(*, one_more: bool) -> Any:
    def of(x: Array, power: Array) -> _Boxed:
        return _Boxed(x, power, one_more=one_more)

    return with_slopes(
        lambda x, power: of(x, power).less_one(),
        lambda _, x, power: of(x, power).slope(),
        lambda _, x, power: _slope_in_power(of(x, power)),
    )


boxcox, boxcox1p = _boxed(one_more=False), _boxed(one_more=True)


def _logit(p: Array) -> Any:
    if is_complex(p.aval.dtype):
        return tnp.log(p) - tnp.log1p(-p)
    # How much the odds, or their inverse, are above 1: a difference without rounding near 1/2.
    more = tnp.abs(2 * p - 1) / tnp.abs(tnp.minimum(p, 1 - p))
    odds = tnp.where((p < 0) | (p > 1), math.nan, 1 + more)
    # What rounding has taken off the odds: as exact as log1p, in half of its time.
    lost = tnp.where(more < 1 / eps_of(p), more - (odds - 1), 0)
    size = tnp.log(odds) + lost / odds
    return tnp.where(p < 0.5, -size, size)


# The logarithm of the odds.
logit = with_slopes(_logit, lambda _, p: 1 / (p * (1 - p)))


def _rising_by_log(z: Array, m: Array) -> Any:
    if z.aval.dtype == np.float32:
        return beta_formulas.rising_of_float32(z, m)
    below, size = m < 0, tnp.abs(m)
    low = tnp.minimum(z, z + m)
    # The beta function has the digits that a difference of large logarithms loses.
    log = gammaln(size) - log_beta(low, size)
    # A product has those that the exponential loses.
    short = size < (150.0 if eps_of(z) < 1e-10 else 28.0)
    short = short & beta_formulas.are_modest(low, size)
    start, steps = tnp.where(short, low, 1), tnp.where(short, size, 1)
    product = beta_formulas.rising_by_beta(start, steps)
    shorter = short & below
    shift = beta_formulas.rounding_of_end(tnp.where(shorter, z, 2), tnp.where(shorter, m, -1))
    product = tnp.where(below, (1 - shift) / product, product)
    return tnp.where(short, product, tnp.exp(tnp.where(below, -log, log)))


def _rising_by_gammas(z: Array, m: Array) -> Any:
    end = z + m
    step = end - z
    lost = tnp.where(end > 1, (z - (end - step)) + (m - step), 0)
    ratio = gamma_of_positive(end) / gamma_of_positive(z)
    return ratio + ratio * (lost * _log_growth(end))


def _log_growth(x: Array) -> Any:
    """The derivative of the logarithm of gamma, nearly, where the rounding of ``x`` counts."""
    return tnp.log(x) - 0.5 / x


def _are_modest(*xs: Array) -> Any:
    """Whether gamma of positive numbers neither overflows nor has a pole nearby.

    A quotient of them has digits that an exponential of logarithms loses.
    """
    limit = 170.0 if eps_of(xs[0]) < 1e-10 else 34.0
    modest: Any = True
    for x in xs:
        modest = modest & (x < limit) & (x > 1 / limit)
    return modest


def _where_modest(
    modest: Array, plain: Callable[..., Any], anywhere: Callable[..., Any], *xs: Array
) -> Any:
    """``plain`` where ``modest``, else ``anywhere``, which costs nothing if that is nowhere."""
    inner = plain(*[tnp.where(modest, x, 1) for x in xs])
    other = cond(
        tnp.all(modest),
        lambda *vs: tnp.zeros_like(inner),
        lambda *vs: anywhere(*vs),
        *[tnp.where(modest, 1, x) for x in xs],
    )
    return tnp.where(modest, inner, other)


def _rising_in_start(ans: Array, z: Array, m: Array) -> Any:
    below = m < 0
    gap = digamma_gap_p.bind(tnp.where(below, z + m, z), tnp.where(below, -m, m))
    return ans * tnp.where(below, -gap, gap)


def _rising_in_step(ans: Array, z: Array, m: Array) -> Any:
    return ans * lax.digamma(z + m)


# ``gamma(z + m) / gamma(z)`` of positive numbers.
_rising = with_slopes(_rising_by_log, _rising_in_start, _rising_in_step)
_rising_of_modest = with_slopes(_rising_by_gammas, _rising_in_start, _rising_in_step)


def poch(z: Array, m: Array) -> Any:
    """``gamma(z + m) / gamma(z)``, or its limit for this ``m`` where gamma has poles."""
    if z.aval.dtype == np.float32:
        known = (z > 0) & (z + m > 0) & (z + m < math.inf) & (m > -math.inf)
        return _where_modest(known, _rising, _poch_anywhere, z, m)
    return _where_modest(_are_modest(z, z + m), _rising_of_modest, _poch_anywhere, z, m)


def _poch_anywhere(z: Array, m: Array) -> Any:
    end = z + m
    start_pole, end_pole = _is_pole(z), _is_pole(end)
    # Both poles cancel, for whole m: (-1)**m gamma(1 - z) / gamma(1 - end) has none.
    both = start_pole & end_pole
    start, stop = tnp.where(both, 1 - end, z), tnp.where(both, 1 - z, end)
    positive = (start > 0) & (stop > 0) & (m != 0) & (tnp.maximum(start, stop) < math.inf)
    first, step = tnp.where(positive, start, 1), tnp.where(positive, m, 1)
    rising = _rising(first, step) * _alternating(tnp.where(both, m, 0))
    far_out = (z == math.inf) & (tnp.abs(m) < math.inf)
    regular = ~start_pole & ~end_pole & ~positive & ~far_out
    a, b = tnp.where(regular, z, 1), tnp.where(regular, end, 1)
    ratio = gammasgn(a) * gammasgn(b) * tnp.exp(gammaln(b) - gammaln(a))
    ratio = tnp.where(positive, rising, tnp.where(both, 1, ratio))
    # 1 / gamma(z) = gamma(1 - z) sin(pi z) / pi has a zero.
    only_start = start_pole & ~end_pole
    a, b = tnp.where(only_start, z, 0), tnp.where(only_start, end, 1)
    whole = lax.stop_gradient(tnp.round(a))
    sine = _alternating(whole) * tnp.sin(math.pi * (a - whole)) / math.pi
    zero = gammasgn(b) * tnp.exp(gammaln(b) + gammaln(1 - a)) * sine
    value = tnp.where(only_start, zero, ratio)
    value = tnp.where(end_pole & ~start_pole, math.inf, value)
    far = tnp.where(m > 0, math.inf, tnp.where(m < 0, 0, 1))
    return tnp.where(far_out, far, value)


def _is_pole(x: Array) -> Any:
    """Whether gamma has a pole there. Subnormal numbers are 0, as in what is computed of them."""
    tiny = tnp.abs(x) < tnp.finfo(x.dtype).tiny
    return ((x <= 0) & (x == tnp.floor(x)) & (x > -math.inf)) | tiny


def _alternating(n: Array) -> Any:
    """``(-1)**n`` of whole numbers."""
    return lax.stop_gradient(1 - 2 * tnp.abs(tnp.remainder(n, 2)))


def _comb_anywhere(n: Array, k: Array, first: Array, second: Array, *rounding: Array) -> Any:
    return tnp.exp(-tnp.log(first + second - 1) - log_beta(first, second))


def comb(n: Array, k: Array) -> Any:
    """Binomial coefficients of numbers that need not be whole."""
    weak = n.aval.weak_type and k.aval.weak_type
    inside = (k >= 0) & (k <= n) & (n >= 0)
    endless = (n == math.inf) & (k < math.inf) & inside
    of_endless = tnp.where(k == 0, 1, math.inf)
    finite = inside & ~endless
    n, k = tnp.where(finite, n, 1), tnp.where(finite, k, 1)
    first, second = n - k + 1, k + 1
    rounding = [beta_formulas.rounding_of_gap(n, k), beta_formulas.rounding_of_next(k)]
    numbers = (n, k, first, second, *rounding)
    if n.aval.dtype == np.float32:
        value = beta_formulas.comb_of_modest(*numbers)
    else:
        modest = beta_formulas.are_modest(first, second)
        value = _where_modest(modest, beta_formulas.comb_of_modest, _comb_anywhere, *numbers)
    # Of fewer units in the last place than a half, the numbers being whole.
    exact = 2.0**48 if eps_of(value) < 1e-10 else 2.0**20
    whole = (n == tnp.floor(n)) & (k == tnp.floor(k)) & (value < exact)
    # Whole numbers give whole numbers; the derivative is that of the smooth function.
    rounded = value + lax.stop_gradient(tnp.where(whole, tnp.round(value) - value, 0))
    result = tnp.where(endless, of_endless, tnp.where(inside, rounded, 0))
    return lax.convert_dtype(result, result.aval.dtype, weak)


def loggamma(x: Array) -> Any:
    """The logarithm itself, which has no real value below 0."""
    return tnp.where(x < 0, math.nan, gammaln(x))


def _beta_anywhere(a: Array, b: Array) -> Any:
    """The beta function, by its logarithm."""
    sign = _sign_or_one(a) * _sign_or_one(b) * _sign_or_one(a + b)
    # Of a pole and a whole number: the sines cancel but for their signs.
    whole, pole = tnp.maximum(a, b), tnp.minimum(a, b)
    at_pole = _is_pole(pole) & (whole > 0) & (whole == tnp.floor(whole)) & (pole + whole <= 0)
    other = (pole < 0) & (_is_pole(pole) | _is_pole(whole)) & (whole != 0)
    sign = tnp.where(other, 1, sign)
    sign = tnp.where(at_pole, _alternating(tnp.where(at_pole, whole, 0)), sign)
    return sign * tnp.exp(log_beta(a, b))


def beta(a: Array, b: Array) -> Any:
    """The beta function."""
    modest = beta_formulas.are_modest(a, b)
    return _where_modest(modest, beta_formulas.beta_of_modest, _beta_anywhere, a, b)


def _sign_or_one(x: Array) -> Any:
    """The sign of gamma, 1 at its poles."""
    return tnp.where(_is_pole(x), 1, gammasgn(x))
