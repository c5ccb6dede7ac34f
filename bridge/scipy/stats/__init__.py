"""Statistics of SciPy: each module has functions of one distribution; loaded at first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracebridge._lazy_names import LazyNames as _LazyNames

if TYPE_CHECKING:
    from tracebridge.scipy._stats.kde import gaussian_kde as gaussian_kde
    from tracebridge.scipy._stats.ranks import mode as mode
    from tracebridge.scipy._stats.ranks import rankdata as rankdata
    from tracebridge.scipy._stats.ranks import sem as sem
    from tracebridge.scipy.stats import bernoulli as bernoulli
    from tracebridge.scipy.stats import beta as beta
    from tracebridge.scipy.stats import betabinom as betabinom
    from tracebridge.scipy.stats import binom as binom
    from tracebridge.scipy.stats import cauchy as cauchy
    from tracebridge.scipy.stats import chi2 as chi2
    from tracebridge.scipy.stats import dirichlet as dirichlet
    from tracebridge.scipy.stats import expon as expon
    from tracebridge.scipy.stats import gamma as gamma
    from tracebridge.scipy.stats import gennorm as gennorm
    from tracebridge.scipy.stats import geom as geom
    from tracebridge.scipy.stats import gumbel_l as gumbel_l
    from tracebridge.scipy.stats import gumbel_r as gumbel_r
    from tracebridge.scipy.stats import laplace as laplace
    from tracebridge.scipy.stats import logistic as logistic
    from tracebridge.scipy.stats import multinomial as multinomial
    from tracebridge.scipy.stats import multivariate_normal as multivariate_normal
    from tracebridge.scipy.stats import nbinom as nbinom
    from tracebridge.scipy.stats import norm as norm
    from tracebridge.scipy.stats import pareto as pareto
    from tracebridge.scipy.stats import poisson as poisson
    from tracebridge.scipy.stats import t as t
    from tracebridge.scipy.stats import truncnorm as truncnorm
    from tracebridge.scipy.stats import uniform as uniform
    from tracebridge.scipy.stats import vonmises as vonmises
    from tracebridge.scipy.stats import wrapcauchy as wrapcauchy

_LATER = _LazyNames(
    __name__,
    {
        "tracebridge.scipy._stats.kde": "gaussian_kde",
        "tracebridge.scipy._stats.ranks": "mode rankdata sem",
    },
    submodules=(
        "bernoulli",
        "beta",
        "betabinom",
        "binom",
        "cauchy",
        "chi2",
        "dirichlet",
        "expon",
        "gamma",
        "gennorm",
        "geom",
        "gumbel_l",
        "gumbel_r",
        "laplace",
        "logistic",
        "multinomial",
        "multivariate_normal",
        "nbinom",
        "norm",
        "pareto",
        "poisson",
        "t",
        "truncnorm",
        "uniform",
        "vonmises",
        "wrapcauchy",
    ),
)

__all__ = _LATER.names()  # pyright: ignore[reportUnsupportedDunderAll]  # noqa: PLE0605 - the table is the list


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:  # a type checker knows the names above

    def __getattr__(name: str) -> object:
        return _LATER.load(globals(), name)
