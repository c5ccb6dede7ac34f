"""Distributions of whole numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tracebridge.numpy as tnp
from tracebridge.core.dtypes.finfo import finfo
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.scipy._special import far_tails as tails
from tracebridge.scipy._special import formulas as f
from tracebridge.scipy._stats.families import Distribution

_log_beta = f.log_beta_of_positive


def _zero(*shapes: Any) -> Any:
    return 0.0


def _log_choose(n: Array, k: Array) -> Any:
    return -tnp.log1p(n) - _log_beta(n - k + 1, k + 1, n + 2)


def _is_share(p: Array) -> Any:
    return (p >= 0) & (p <= 1)


def _bernoulli_quantile(q: Array, p: Array) -> Any:
    """As SciPy's: below the support at 0, its end at 1."""
    found = tnp.where((q <= 1 - p) & (q < 1), 0, tnp.ones_like(q))
    return tnp.where(q == 0, -1, found)


def _likelier_end(p: Array, last: Any) -> Any:
    """0 or ``last``: the number whose probability does not vanish where ``p`` is 0 or 1."""
    return tnp.where(p > 0.5, last, 0)


def _mass(
    at_edge: Callable[..., Any], log_mass: Callable[..., Any], edges: tuple[float, ...]
) -> Callable[..., Any]:
    """Probabilities by logarithms, but by powers where the last parameter has one of ``edges``.

    There the logarithm has an infinite slope, and the exponential of minus infinity none.
    """

    def mass(k: Array, *shapes: Any) -> Any:
        *rest, p = shapes
        edge: Any = False
        for e in edges:
            edge = (p == e) | edge
        plain = tnp.exp(log_mass(k, *rest, tnp.where(edge, 0.5, p)))
        return tnp.where(edge, at_edge(k, *rest, tnp.where(edge, p, edges[0])), plain)

    return mass


def _log_of_binom(k: Array, n: Array, p: Array) -> Any:
    plain = _log_choose(n, k) + f.xlogy(k, p) + f.xlog1py(n - k, -p)
    # Of many trials it is the density of a beta number, whose large terms cancel in one place.
    return tails.log_beta_density(p, k + 1, n - k + 1, plain + tnp.log1p(n)) - tnp.log1p(n)


def _log_of_geom(k: Array, p: Array) -> Any:
    return f.xlog1py(k - 1, -p) + tnp.log(p)


def _log_of_nbinom(k: Array, n: Array, p: Array) -> Any:
    plain = f.xlogy(n - 1, p) + f.xlog1py(k, -p) - _log_beta(n, k + 1)
    return tails.log_beta_density(p, n, k + 1, plain) + tnp.log(p) - tnp.log(n + k)


def _log_of_poisson(k: Array, mu: Array) -> Any:
    return tails.log_gamma_density(mu, k + 1, f.xlogy(k, mu) - f.gammaln(k + 1) - mu)


def _number(log: Array) -> Any:
    """A number of choices, not infinite: at edges it may be taken times 0."""
    return tnp.exp(tnp.minimum(log, 0.69 * float(finfo(log.aval.dtype).maxexp)))


BERNOULLI = Distribution(
    "bernoulli", "one trial", ("p",),
    lambda k, p: f.xlogy(k, p) + f.xlog1py(1 - k, -p), _is_share, _zero, lambda *s: 1.0,
    lambda p: _likelier_end(p, 1),
    {
        "pmf": lambda k, p: tnp.where(k == 1, p, 1 - p),
        "cdf": lambda k, p: 1 - p + 0 * k,
        "ppf": lambda q, p: _bernoulli_quantile(q, p),
    },
    discrete=True, placed=("loc",),
)  # fmt: skip
BINOM = Distribution(
    "binom", "successes among trials", ("n", "p"),
    _log_of_binom,
    lambda n, p: (n >= 0) & _is_share(p) & (n == tnp.floor(n)), _zero, lambda n, p: n,
    lambda n, p: _likelier_end(p, n),
    {
        "pmf": _mass(
            lambda k, n, p: _number(_log_choose(n, k)) * p**k * (1 - p) ** (n - k),
            _log_of_binom, (0.0, 1.0),
        ),
    },
    discrete=True, placed=("loc",), example="4, 0.3",
)  # fmt: skip
BETABINOM = Distribution(
    "betabinom", "successes at a probability that is a beta number", ("n", "a", "b"),
    tails.log_beta_binomial,
    lambda n, a, b: (n >= 0) & (a > 0) & (b > 0) & (n == tnp.floor(n)),
    _zero, lambda n, a, b: n, _zero,
    discrete=True, placed=("loc",), example="4, 2.0, 3.0",
)  # fmt: skip
GEOM = Distribution(
    "geom", "trials until a success", ("p",),
    _log_of_geom, lambda p: (p > 0) & (p <= 1), lambda *s: 1.0, inner=lambda *s: 1.0,
    functions={"pmf": _mass(lambda k, p: p * (1 - p) ** (k - 1), _log_of_geom, (1.0,))},
    discrete=True, placed=("loc",),
)  # fmt: skip
NBINOM = Distribution(
    "nbinom", "failures until so many successes", ("n", "p"),
    _log_of_nbinom,
    lambda n, p: (n > 0) & (p > 0) & (p <= 1), _zero, inner=_zero,
    functions={
        "pmf": _mass(
            lambda k, n, p: _number(-tnp.log(n + k) - _log_beta(n, k + 1)) * p**n * (1 - p) ** k,
            _log_of_nbinom, (1.0,),
        ),
    },
    discrete=True, placed=("loc",), example="4, 0.3",
)  # fmt: skip
POISSON = Distribution(
    "poisson", "events of a rate", ("mu",),
    _log_of_poisson, lambda mu: mu >= 0, _zero, inner=_zero,
    functions={
        "pmf": _mass(
            lambda k, mu: mu**k * tnp.exp(-f.gammaln(k + 1) - mu), _log_of_poisson, (0.0,)
        ),
        "cdf": lambda k, mu: f.gammaincc(k + 1, mu),
    },
    discrete=True, placed=("loc",),
)  # fmt: skip
