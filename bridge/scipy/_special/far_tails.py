"""Logarithms of densities and of tails of gamma and beta numbers, which no underflow reaches.

The fractions stand for points whose tail has underflown, many deviations from the mean: few terms
are exact there. Sources: NIST DLMF 8.9, 8.17.22 and 13.5.
"""

from __future__ import annotations

from typing import Any

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.dtypes.finfo import finfo
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.special.beta_factors import (
    log_factor_of_beta,
    log_large_factor_of_beta,
)
from tracebridge.core.special.expansions import STIRLING_FROM
from tracebridge.core.special.incomplete_beta import digamma_gap_p, rate_of_power
from tracebridge.core.special.incomplete_gamma import log_power_of_gamma, rate_of_gamma_power
from tracebridge.core.special.programs import Expression
from tracebridge.scipy._special.elementwise import with_slopes

# Measured against more digits, for tails below `least_share` of float32 and float64: 6 and 13.
_GAMMA_TERMS = 8
_BETA_TERMS = 15


def _by(formula: Any, *xs: Array) -> Any:
    return formula(*map(Expression, xs)).value


log_gamma_power = with_slopes(
    lambda a, x: _by(log_power_of_gamma, a, x),
    lambda _, a, x: _by(rate_of_gamma_power, a, x),
    lambda _, a, x: (a - x) / x,
)
"""``log(x**a exp(-x) / gamma(a))`` of positive finite numbers."""


def _rate_of_beta(p: Array, q: Array, x: Array, y: Array) -> Any:
    full = Expression(tnp.ones_like(p, dtype=bool))
    return rate_of_power(Expression(p), Expression(q), Expression(x), Expression(y), full).value


# Its last argument is known from the one before.
_log_beta_power = with_slopes(
    lambda a, b, x, y: _by(log_factor_of_beta, a, b, x, y),
    lambda _, a, b, x, y: _rate_of_beta(a, b, x, y),
    lambda _, a, b, x, y: _rate_of_beta(b, a, y, x),
    lambda _, a, b, x, y: a / x - b / y,
    None,
)


# Its slope in the place has less to cancel than that of the power and of the logarithms.
_log_large_density = with_slopes(
    lambda a, b, x: _by(log_large_factor_of_beta, a, b, x, 1 - x) - tnp.log(x) - tnp.log1p(-x),
    lambda _, a, b, x: _rate_of_beta(a, b, x, 1 - x),
    lambda _, a, b, x: _rate_of_beta(b, a, 1 - x, x),
    lambda _, a, b, x: (a - 1) / x - (b - 1) / (1 - x),
)


def least_share(share: Array) -> Any:
    """Below it a probability is about to underflow, as a number of its dtype."""
    limits = finfo(share.dtype)
    return float(limits.tiny) * float(limits.eps) ** -2


def log_gamma_above(a: Array, x: Array) -> Any:
    """Logarithm of the upper incomplete gamma function where it is below ``least_share``."""
    rest = tnp.zeros_like(x)
    for n in range(_GAMMA_TERMS, 0, -1):
        rest = n * (a - n) / (x - a + (2 * n + 1) + rest)
    return log_gamma_power(a, x) - tnp.log(x - a + 1 + rest)


def log_gamma_below(a: Array, x: Array) -> Any:
    """Logarithm of the lower incomplete gamma function where it is below ``least_share``."""
    rest = tnp.zeros_like(x)
    for n in range(_GAMMA_TERMS, 0, -1):
        rest = n * x / (a - x + n + rest)
    return log_gamma_power(a, x) - tnp.log(a - x + rest)


def log_beta_below(a: Array, b: Array, x: Array, y: Array) -> Any:
    """Logarithm of the incomplete beta function below ``least_share``, where ``y = 1 - x``."""
    value = tnp.ones_like(x)
    for m in range(_BETA_TERMS, 0, -1):
        k = m // 2
        top = -(a + k) * ((a + b) + k) if m % 2 else k * (b - k)
        # Quotients of numbers of one size, not products that overflow.
        value = 1 + top / (a + m) * (x / (a + (m - 1))) / value
    return _log_beta_power(a, b, x, y) - tnp.log(a) - tnp.log(value)


def _log_beta_binomial(k: Array, n: Array, a: Array, b: Array) -> Any:
    """Of a binomial number at any share of successes, times a quotient of densities.

    They are those of the share before ``k`` is known and after: at the mean after it no term is
    large.
    """
    c, d = a + k, b + (n - k)
    x, y = c / (c + d), d / (c + d)
    powers = [_log_beta_power(p, q, x, y) for p, q in ((k + 1, n - k + 1), (a, b), (c, d))]
    found = (powers[0] - tnp.log(x) - tnp.log(y) - tnp.log1p(n)) + (powers[1] - powers[2])
    # Of no trials there is one outcome.
    return tnp.where(n == 0, 0, found)


def _gap(start: Array, step: Array) -> Any:
    """How much more digamma is a step later."""
    return digamma_gap_p.bind(start, step)


log_beta_binomial = with_slopes(
    _log_beta_binomial,
    lambda _, k, n, a, b: (
        lax.digamma(k + a) - lax.digamma(k + 1) + lax.digamma(n - k + 1) - lax.digamma(n - k + b)
    ),
    lambda _, k, n, a, b: _gap(n - k + 1, k) - _gap(n - k + b, k + a),
    lambda _, k, n, a, b: _gap(a, b) - _gap(k + a, n - k + b),
    lambda _, k, n, a, b: _gap(b, a) - _gap(n - k + b, k + a),
)
"""Logarithm of the probability of ``k`` of ``n`` successes at a beta number."""


def log_gamma_density(x: Array, a: Array, otherwise: Any) -> Any:
    """Logarithm of the density of gamma numbers of large shapes; of others it is ``otherwise``."""
    large = (a >= STIRLING_FROM) & (x > 0) & tnp.isfinite(a)
    a, x = tnp.where(large, a, STIRLING_FROM), tnp.where(large, x, STIRLING_FROM)
    return tnp.where(large, log_gamma_power(a, x) - tnp.log(x), otherwise)


def log_beta_density(x: Array, a: Array, b: Array, otherwise: Any) -> Any:
    """Logarithm of the density of beta numbers of large parameters, else ``otherwise``."""
    large = (tnp.minimum(a, b) >= STIRLING_FROM) & (x > 0) & (x < 1) & tnp.isfinite(a + b)
    a, b = (tnp.where(large, v, STIRLING_FROM) for v in (a, b))
    return tnp.where(large, _log_large_density(a, b, tnp.where(large, x, 0.5)), otherwise)
