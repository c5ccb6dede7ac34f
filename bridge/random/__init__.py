"""Random numbers that can be repeated: functions of a key.

>>> import tracebridge as tb
>>> key = tb.random.key(0)
>>> key, own = tb.random.split(key)
>>> tb.random.normal(own, (2, 3)).shape
(2, 3)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracebridge._lazy_names import LazyNames as _LazyNames
from tracebridge.core.errors.filtering import publish as _publish
from tracebridge.core.special.gamma_numbers import random_gamma_p
from tracebridge.random.binomial import binomial, multinomial
from tracebridge.random.counts import geometric, poisson
from tracebridge.random.gamma import (
    ball,
    beta,
    chisquare,
    dirichlet,
    f,
    gamma,
    generalized_normal,
    loggamma,
    t,
)
from tracebridge.random.keys import (
    PRNGKey,
    clone,
    fold_in,
    key,
    key_data,
    key_dtype,
    key_impl,
    split,
    wrap_key_data,
)
from tracebridge.random.parametric import (
    double_sided_maxwell,
    lognormal,
    pareto,
    rayleigh,
    triangular,
    truncated_normal,
    wald,
    weibull_min,
)
from tracebridge.random.selection import categorical, choice, permutation, rademacher
from tracebridge.random.transforms import (
    bernoulli,
    cauchy,
    exponential,
    gumbel,
    laplace,
    logistic,
    maxwell,
)
from tracebridge.random.uniform import bits, normal, randint, uniform

if TYPE_CHECKING:
    from tracebridge.random.matrices import multivariate_normal, orthogonal

# They need the decompositions of core.linalg, which others need not load.
_LATER = _LazyNames(__name__, {"tracebridge.random.matrices": "multivariate_normal orthogonal"})

__all__ = [
    "PRNGKey",
    "ball",
    "bernoulli",
    "beta",
    "binomial",
    "bits",
    "categorical",
    "cauchy",
    "chisquare",
    "choice",
    "clone",
    "dirichlet",
    "double_sided_maxwell",
    "exponential",
    "f",
    "fold_in",
    "gamma",
    "generalized_normal",
    "geometric",
    "gumbel",
    "key",
    "key_data",
    "key_dtype",
    "key_impl",
    "laplace",
    "loggamma",
    "logistic",
    "lognormal",
    "maxwell",
    "multinomial",
    "multivariate_normal",
    "normal",
    "orthogonal",
    "pareto",
    "permutation",
    "poisson",
    "rademacher",
    "randint",
    "random_gamma_p",
    "rayleigh",
    "split",
    "t",
    "triangular",
    "truncated_normal",
    "uniform",
    "wald",
    "weibull_min",
    "wrap_key_data",
]

_publish(globals(), __name__)

if not TYPE_CHECKING:  # a type checker knows the names above

    def __getattr__(name: str) -> object:
        return _LATER.load(globals(), name)
