"""Functions that no other table of digits has: special ones of several operands, log-densities.

A row has the function, its value in many digits, points, and the largest errors of the value, of
the slopes and of the second derivatives, in units in the last place. ``None`` is not measured.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from mpmath import mp

from tracebridge import nn
from tracebridge.scipy import special as sp
from tracebridge.scipy import stats

Bounds = tuple[float, float | None, float | None]


@dataclasses.dataclass(frozen=True)
class Row:
    """Of the function ``name`` of a module; ``exact`` takes numbers of mpmath."""

    name: str
    fun: Callable[..., Any]
    exact: Callable[..., Any]
    points: tuple[tuple[float, ...], ...]
    bounds: Bounds
    # Operands with a derivative; None means all.
    smooth: tuple[int, ...] | None = None
    # Smaller values, slopes and second derivatives are measured in units of these. The last one is
    # far above what differences of the reference leave of a 0.
    least: tuple[float, float, float] = (0.0, 0.0, 1e-12)

    def __str__(self) -> str:
        return self.name


def pairs(seed: int, *spans: tuple[float, float], count: int = 7) -> tuple[tuple[float, ...], ...]:
    """Random points with uniform logarithms of each operand."""
    random = np.random.default_rng(seed)
    columns = [np.exp2(random.uniform(np.log2(a), np.log2(b), count)) for a, b in spans]
    return tuple([tuple(map(float, p)) for p in zip(*columns, strict=True)])


def _power_less_one(x: Any, power: Any) -> Any:
    return mp.expm1(power * mp.log(x)) / power if power else mp.log(x)


def _log_beta(a: Any, b: Any) -> Any:
    return mp.loggamma(a) + mp.loggamma(b) - mp.loggamma(a + b)


def _owens(h: Any, a: Any) -> Any:
    density = lambda t: mp.exp(-h * h * (1 + t * t) / 2) / (1 + t * t)
    return mp.quad(density, mp.linspace(0, a, 6)) / (2 * mp.pi)


def _elu(x: Any, alpha: Any, scale: Any = 1) -> Any:
    return scale * (x if x > 0 else alpha * mp.expm1(x))


_WIDE, _MODEST = (1e-6, 1e6), (0.1, 20.0)
_BESIDE = ((1.0, 1.0001), (0.7, 1.3), (2.0, 0.55), (3.0, 11.5), (1.5, 5.9))
_SIGNED = ((-6.2,), (-2.5,), (-0.7,), (-1e-3,), (1e-3,), (0.4,), (2.9,), (7.1,))
SPECIAL = (
    Row("special.xlogy", sp.xlogy, lambda x, y: x * mp.log(y), pairs(1, _WIDE, _WIDE), (1.5, 1, 2)),
    Row(
        "special.xlog1py", sp.xlog1py, lambda x, y: x * mp.log1p(y), pairs(2, _WIDE, _WIDE),
        (2, 1.5, 2.5),
    ),
    Row(
        "special.rel_entr", sp.rel_entr, lambda p, q: p * mp.log(p / q),
        pairs(3, _WIDE, _WIDE) + _BESIDE, (1.5, 4.5, 1.5),
    ),
    Row(
        "special.kl_div", sp.kl_div, lambda p, q: p * mp.log(p / q) - p + q,
        pairs(4, _WIDE, _WIDE) + _BESIDE, (1.5, 1.5, 1.5),
    ),
    Row(
        "special.boxcox", sp.boxcox, _power_less_one,
        ((0.3, 0.7), (2.5, -1.3), (40.0, 0.2), (1.001, 2.0), (7.0, 1e-4), (18.65, 1.48847),
         (38.36245, 1.34014), (26.12666, -0.29667)), (2, 5, 20),
    ),
    Row(
        "special.boxcox1p", sp.boxcox1p, lambda x, y: _power_less_one(1 + x, y),
        ((0.3, 0.7), (2.5, -1.3), (40.0, 0.2), (1e-6, 2.0), (7.0, 1e-4), (8.386, 1.354355),
         (37.5506, 1.952268), (17.052097, -1.157528)), (1.5, 3, 6),
    ),
    Row("special.beta", sp.beta, mp.beta, pairs(5, _MODEST, _MODEST), (3, 4, 16)),
    Row(
        "special.beta of large arguments", sp.beta, mp.beta,
        ((45.4, 62.5), (62.5, 45.4), (1005.1, 3.9), (2.4, 1e7)), (3, 4, 16),
    ),
    Row(
        "special.betaln", sp.betaln, _log_beta, pairs(6, (1e-3, 1e3), (1e-3, 1e3)), (2, 2.5, 18),
    ),
    Row(
        "special.comb", sp.comb, mp.binomial,
        ((5.3, 2.1), (12.0, 4.0), (9.7, 9.1), (20.5, 0.3)), (6, 9, 40),
    ),
    Row(
        "special.comb of large arguments", sp.comb, mp.binomial,
        ((63.0, 26.5), (96.4, 35.3), (1000.5, 7.3), (2e7, 1.09)), (6, 11, 30),
    ),
    Row(
        "special.poch of large arguments", sp.poch, mp.rf,
        ((1e5, 3.5), (1e10, 2.25), (1e15, 1.5), (210.0, -9.5), (1000.0, 11.0)), (10, None, None),
    ),
    Row(
        "special.polygamma", sp.polygamma, lambda n, x: mp.psi(int(n), x),
        ((0.0, 2.5), (1.0, 0.3), (2.0, 7.7), (4.0, 60.0)), (5, 5, 7), (1,),
    ),
    Row(
        "special.expn", sp.expn, mp.expint,
        ((0.0, 0.7), (1.0, 0.02), (2.0, 0.9), (3.0, 1.3), (7.0, 20.0), (1.0, 0.9748575996516505)),
        (4, 2, 2), (1,),
    ),
    Row(
        "special.hyp1f1", sp.hyp1f1, mp.hyp1f1,
        ((1.3, 2.2, 0.4), (-1.7, 0.6, 2.5), (4.1, 3.3, -3.2)), (4, 3, 5), (2,),
    ),
    Row(
        "special.hyp2f1", sp.hyp2f1, mp.hyp2f1,
        ((1.3, 0.4, 2.2, 0.4), (-1.7, 0.6, 2.5, 0.8), (2.1, 1.3, 3.3, -1.2)), (8, 6, 5), (3,),
    ),
    Row(
        "special.owens_t", sp.owens_t, _owens, ((0.3, 0.7), (2.1, 0.4), (0.9, 3.1)),
        (12, None, None),
    ),
    Row(
        "special.ndtri", sp.ndtri, lambda p: mp.sqrt(2) * mp.erfinv(2 * p - 1),
        ((1e-30,), (1e-9,), (3e-4,), (0.02,), (0.3,), (0.7,), (0.98,), (0.9995,)), (2, 3, 6),
    ),
    Row(
        "special.fresnel", lambda x: sp.fresnel(x)[0], mp.fresnels, ((0.2,), (0.9,), (1.9,)),
        (2, 2, 2),
    ),
    Row("special.sici", lambda x: sp.sici(x)[0], mp.si, ((0.2,), (0.9,), (5.9,)), (1.5, 1.5, 2)),
    Row(
        "special.gammaincc", sp.gammaincc,
        lambda a, x: mp.gammainc(a, x, mp.inf, regularized=True),
        (
            (2111.6156, 2572.4146), (2993.3264, 3290.4319), (260.5, 255.1),
            (1912.9115688801744, 2051.7231382508935), (927.5192157785117, 1061.5368131709197),
        ),
        (10, None, None),
    ),
)  # fmt: skip
ACTIVATIONS = (
    Row("nn.celu", nn.celu, lambda x: _elu(x, 1), _SIGNED, (1, 1, 1)),
    Row(
        "nn.selu", nn.selu,
        lambda x: _elu(x, mp.mpf("1.6732632423543772848"), mp.mpf("1.0507009873554804934")),
        _SIGNED, (2, 2, 2),
    ),
    Row("nn.soft_sign", nn.soft_sign, lambda x: x / (1 + abs(x)), _SIGNED, (1.5, 4, 6)),
    Row(
        "nn.hard_sigmoid", nn.hard_sigmoid, lambda x: min(max(x + 3, 0), mp.mpf(6)) / 6,
        _SIGNED[1:-1], (1.5, 1, None),
    ),
    Row(
        "nn.hard_silu", nn.hard_silu, lambda x: x * min(max(x + 3, 0), mp.mpf(6)) / 6,
        _SIGNED[1:-1], (2, 1.5, None),
    ),
    Row(
        "nn.sparse_plus", nn.sparse_plus,
        lambda x: x if x >= 1 else (x + 1) ** 2 / 4 if x > -1 else mp.mpf(0), _SIGNED[2:],
        (2, 1, 1),
    ),
    Row(
        "nn.leaky_relu", nn.leaky_relu, lambda x: x if x >= 0 else x * mp.mpf("0.01"), _SIGNED,
        (1.5, 1, None),
    ),
)  # fmt: skip
_LOG_2_PI = mp.log(2 * mp.pi)
DENSITIES = (
    Row("stats.norm.logpdf", stats.norm.logpdf, lambda x: -(x * x + _LOG_2_PI) / 2, _SIGNED,
        (2, 1, 1)),
    Row("stats.cauchy.logpdf", stats.cauchy.logpdf, lambda x: -mp.log(mp.pi * (1 + x * x)),
        _SIGNED, (3, 4, 8)),
    Row("stats.expon.logpdf", stats.expon.logpdf, lambda x: -x, _SIGNED[4:], (0, 0, None)),
    Row("stats.laplace.logpdf", stats.laplace.logpdf, lambda x: -abs(x) - mp.log(2), _SIGNED,
        (1.5, 0, None)),
    Row("stats.logistic.logpdf", stats.logistic.logpdf,
        lambda x: -x - 2 * mp.log1p(mp.exp(-x)), _SIGNED, (2.5, 3, 3), least=(0, 1, 1e-12)),
    Row("stats.gumbel_r.logpdf", stats.gumbel_r.logpdf, lambda x: -x - mp.exp(-x), _SIGNED,
        (2, 2, 2), least=(0, 1, 1e-12)),
    Row("stats.gumbel_l.logpdf", stats.gumbel_l.logpdf, lambda x: x - mp.exp(x), _SIGNED,
        (2, 2, 2), least=(0, 1, 1e-12)),
    Row("stats.gamma.logpdf", stats.gamma.logpdf,
        lambda x, a: (a - 1) * mp.log(x) - x - mp.loggamma(a), pairs(7, _MODEST, _MODEST),
        (8, 8, 8), least=(1, 0.1, 0.1)),
    Row("stats.chi2.logpdf", stats.chi2.logpdf,
        lambda x, n: (n / 2 - 1) * mp.log(x / 2) - x / 2 - mp.loggamma(n / 2) - mp.log(2),
        pairs(8, _MODEST, _MODEST), (8, 8, 8), least=(1, 0.1, 0.1)),
    Row("stats.beta.logpdf", stats.beta.logpdf,
        lambda x, a, b: (a - 1) * mp.log(x) + (b - 1) * mp.log1p(-x) - _log_beta(a, b),
        pairs(9, (0.05, 0.9), _MODEST, _MODEST), (8, 8, 12), least=(1, 0.1, 0.1)),
    Row("stats.gennorm.logpdf", stats.gennorm.logpdf,
        lambda x, b: mp.log(b / 2) - mp.loggamma(1 / b) - abs(x) ** b,
        pairs(10, (0.1, 3.0), (0.5, 4.0)), (8, 8, 12), least=(1, 0.1, 0.1)),
    Row("stats.pareto.logpdf", stats.pareto.logpdf,
        lambda x, b: mp.log(b) - (b + 1) * mp.log(x), pairs(11, (1.1, 30.0), _MODEST),
        (8, 8, 8), least=(1, 0.1, 0.1)),
    Row("stats.t.logpdf", stats.t.logpdf,
        lambda x, n: mp.loggamma((n + 1) / 2) - mp.loggamma(n / 2) - mp.log(n * mp.pi) / 2
        - (n + 1) / 2 * mp.log1p(x * x / n),
        (*pairs(12, _MODEST, _MODEST), (0.37752, 17.93814), (0.183182, 15.75853)),
        (6, 12, 24), least=(1, 0.1, 0.1)),
    Row("stats.truncnorm.logpdf", lambda x: stats.truncnorm.logpdf(x, -1.0, 2.0),
        lambda x: -(x * x + _LOG_2_PI) / 2 - mp.log(mp.ncdf(2) - mp.ncdf(-1)), _SIGNED[2:6],
        (4, 1, 1)),
    Row("stats.uniform.logpdf", stats.uniform.logpdf, lambda x: mp.mpf(0), ((0.3,), (0.8,)),
        (0, None, None)),
    Row("stats.vonmises.logpdf", stats.vonmises.logpdf,
        lambda x, k: k * mp.cos(x) - mp.log(2 * mp.pi * mp.besseli(0, k)),
        pairs(13, (0.1, 3.0), _MODEST), (8, 12, 24), least=(1, 0.1, 1)),
    Row("stats.wrapcauchy.logpdf", stats.wrapcauchy.logpdf,
        lambda x, c: mp.log((1 - c * c) / (2 * mp.pi * (1 + c * c - 2 * c * mp.cos(x)))),
        pairs(14, (0.1, 3.0), (0.05, 0.9)), (8, 24, 24), least=(1, 0.1, 0.1)),
    Row("stats.poisson.logpmf", stats.poisson.logpmf,
        lambda k, m: k * mp.log(m) - m - mp.loggamma(k + 1),
        ((0.0, 0.3), (3.0, 2.5), (17.0, 9.1)), (7, 4, 3), (1,), (1, 0.1, 0.1)),
    Row("stats.bernoulli.logpmf", stats.bernoulli.logpmf,
        lambda k, p: mp.log(p) if k else mp.log1p(-p), ((0.0, 0.3), (1.0, 0.2), (1.0, 0.9)),
        (2, 2, 3), (1,)),
    Row("stats.geom.logpmf", stats.geom.logpmf,
        lambda k, p: (k - 1) * mp.log1p(-p) + mp.log(p), ((1.0, 0.3), (4.0, 0.2), (30.0, 0.7)),
        (3, 6, 6), (1,), (1, 1, 1)),
    Row("stats.binom.logpmf", stats.binom.logpmf,
        lambda k, n, p: mp.log(mp.binomial(n, k)) + k * mp.log(p) + (n - k) * mp.log1p(-p),
        ((0.0, 5.0, 0.3), (4.0, 9.0, 0.2), (30.0, 41.0, 0.7)), (16, 4, 3), (2,), (1, 1, 1)),
    Row("stats.nbinom.logpmf", stats.nbinom.logpmf,
        lambda k, n, p: mp.log(mp.binomial(k + n - 1, k)) + n * mp.log(p) + k * mp.log1p(-p),
        ((0.0, 5.0, 0.3), (4.0, 9.5, 0.2), (30.0, 4.1, 0.7)), (16, 8, 12), (1, 2), (1, 1, 1)),
    Row("stats.betabinom.logpmf", stats.betabinom.logpmf,
        lambda k, n, a, b: mp.log(mp.binomial(n, k)) + _log_beta(k + a, n - k + b)
        - _log_beta(a, b), ((0.0, 5.0, 0.3, 1.2), (4.0, 9.0, 2.5, 7.1)), (16, 12, 40), (2, 3),
        (1, 0.1, 0.1)),
    Row("stats.betabinom.logpmf of large parameters", stats.betabinom.logpmf,
        lambda k, n, a, b: mp.log(mp.binomial(n, k)) + _log_beta(k + a, n - k + b)
        - _log_beta(a, b),
        ((5.0, 10.0, 1e5, 1e5), (7.0, 10.0, 1e6, 3.0), (300.0, 1000.0, 30.0, 2.0)),
        (8, None, None), least=(1, 0.1, 0.1)),
    Row("stats.binom.logpmf of many trials", stats.binom.logpmf,
        lambda k, n, p: mp.log(mp.binomial(n, k)) + k * mp.log(p) + (n - k) * mp.log1p(-p),
        ((500.0, 1000.0, 0.5), (5e5, 1e6, 0.5), (10.0, 1000.0, 0.25)), (4, 4, 4), (2,), (1, 1, 1)),
    Row("stats.nbinom.logpmf of many successes", stats.nbinom.logpmf,
        lambda k, n, p: mp.loggamma(k + n) - mp.loggamma(n) - mp.loggamma(k + 1) + n * mp.log(p)
        + k * mp.log1p(-p),
        ((1000.0, 1000.0, 0.5), (50.0, 60.0, 0.0625), (1e5, 20.0, 0.0078125)), (4, 8, None), (1,),
        (1, 0.1, 1)),
    Row("stats.poisson.logpmf of large rates", stats.poisson.logpmf,
        lambda k, m: k * mp.log(m) - m - mp.loggamma(k + 1),
        ((1e6, 1e6), (100.0, 90.5), (1e5, 100100.0), (10.0, 500.0)), (2, 2, 2), (1,), (1, 1, 1)),
)  # fmt: skip
TABLE = SPECIAL + ACTIVATIONS + DENSITIES
