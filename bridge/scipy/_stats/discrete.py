"""Distributions of whole numbers."""

from __future__ import annotations

from typing import Any

import tracebridge.numpy as tnp
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.scipy._special import formulas as f
from tracebridge.scipy._stats.families import Distribution


def _zero(*shapes: Any) -> Any:
    return 0.0


def _log_choose(n: Array, k: Array) -> Any:
    return -tnp.log1p(n) - f.log_beta(n - k + 1, k + 1)


def _is_share(p: Array) -> Any:
    return (p >= 0) & (p <= 1)


def _bernoulli_quantile(q: Array, p: Array) -> Any:
    """As SciPy's: below the support at 0, its end at 1."""
    found = tnp.where((q <= 1 - p) & (q < 1), 0, tnp.ones_like(q))
    return tnp.where(q == 0, -1, found)


BERNOULLI = Distribution(
    "bernoulli", "one trial", ("p",),
    lambda k, p: f.xlogy(k, p) + f.xlog1py(1 - k, -p), _is_share, _zero, lambda *s: 1.0, _zero,
    {
        "cdf": lambda k, p: 1 - p + 0 * k,
        "ppf": lambda q, p: _bernoulli_quantile(q, p),
    },
    discrete=True, placed=("loc",),
)  # fmt: skip
BINOM = Distribution(
    "binom", "successes among trials", ("n", "p"),
    lambda k, n, p: _log_choose(n, k) + f.xlogy(k, p) + f.xlog1py(n - k, -p),
    lambda n, p: (n >= 0) & _is_share(p) & (n == tnp.floor(n)), _zero, lambda n, p: n, _zero,
    discrete=True, placed=("loc",), example="4, 0.3",
)  # fmt: skip
BETABINOM = Distribution(
    "betabinom", "successes at a probability that is a beta number", ("n", "a", "b"),
    lambda k, n, a, b: _log_choose(n, k) + f.log_beta(k + a, n - k + b) - f.log_beta(a, b),
    lambda n, a, b: (n >= 0) & (a > 0) & (b > 0) & (n == tnp.floor(n)),
    _zero, lambda n, a, b: n, _zero,
    discrete=True, placed=("loc",), example="4, 2.0, 3.0",
)  # fmt: skip
GEOM = Distribution(
    "geom", "trials until a success", ("p",),
    lambda k, p: f.xlog1py(k - 1, -p) + tnp.log(p), lambda p: (p > 0) & (p <= 1),
    lambda *s: 1.0, inner=lambda *s: 1.0, discrete=True, placed=("loc",),
)  # fmt: skip
NBINOM = Distribution(
    "nbinom", "failures until so many successes", ("n", "p"),
    lambda k, n, p: -tnp.log(n + k) - f.log_beta(n, k + 1) + f.xlogy(n, p) + f.xlog1py(k, -p),
    lambda n, p: (n > 0) & (p > 0) & (p <= 1), _zero, inner=_zero,
    discrete=True, placed=("loc",), example="4, 0.3",
)  # fmt: skip
POISSON = Distribution(
    "poisson", "events of a rate", ("mu",),
    lambda k, mu: f.xlogy(k, mu) - f.gammaln(k + 1) - mu, lambda mu: mu >= 0, _zero, inner=_zero,
    functions={"cdf": lambda k, mu: f.gammaincc(k + 1, mu)}, discrete=True, placed=("loc",),
)  # fmt: skip
