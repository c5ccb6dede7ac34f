"""Draws whose numbers are written down in streams.json, made with another implementation.

Each takes the module of samplers and a key; nothing of the package is imported here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

SPREAD = np.array([[0.5], [2.0]], np.float32)
ROW = np.array([0.3, 1.5, 12.0], np.float32)

COVARIANCE = np.array([[2.0, 0.5, 0.1], [0.5, 1.0, 0.2], [0.1, 0.2, 0.4]], np.float32)

# The bounds and dtypes of recorded integers are in their names.
BASIC: dict[str, Any] = {
    "split": lambda r, k: r.key_data(r.split(k)),
    "split3": lambda r, k: r.key_data(r.split(k, (2, 3))),
    "fold": lambda r, k: r.key_data(r.fold_in(k, 5)),
    "bits": lambda r, k, dtype, *shape: r.bits(k, shape, dtype),
    "uniform": lambda r, k, dtype, *bounded: (
        r.uniform(k, (2, 3), dtype, -2.0, np.arange(3.0, dtype=np.float32))
        if bounded
        else r.uniform(k, (5,), dtype)
    ),
    "normal": lambda r, k, dtype: r.normal(k, (5,), dtype),
    "randint": lambda r, k, dtype, low, high: r.randint(k, (6,), low, high, dtype),
}
# With 64-bit dtypes; threefry2x32 only.
WIDE: dict[str, Any] = {
    "bits 64": lambda r, k: r.bits(k, (5,), "uint64"),
    "uniform f64": lambda r, k: r.uniform(k, (5,), "float64"),
    "normal f64": lambda r, k: r.normal(k, (5,), "float64"),
    "randint i64": lambda r, k: r.randint(k, (5,), -5, 2**40, "int64"),
    "seed": lambda r, k: r.key_data(r.key(2**40 + 3)),
    "negative seed": lambda r, k: r.key_data(r.key(-3)),
    "gamma f64": lambda r, k: r.gamma(k, ROW, (2, 3), "float64"),
    "loggamma f64": lambda r, k: r.loggamma(k, ROW / 10, dtype="float64"),
    "beta f64": lambda r, k: r.beta(k, ROW, SPREAD, dtype="float64"),
    "dirichlet f64": lambda r, k: r.dirichlet(k, ROW, dtype="float64"),
    "t f64": lambda r, k: r.t(k, ROW, dtype="float64"),
    "ball f64": lambda r, k: r.ball(k, 3, shape=(2,), dtype="float64"),
    "generalized_normal f64": lambda r, k: r.generalized_normal(k, 1.5, (5,), "float64"),
    "binomial f64": lambda r, k: r.binomial(k, 1000.0, 0.3, (3,), "float64"),
    "multinomial f64": lambda r, k: r.multinomial(
        k, 40, np.array([0.1, 0.2, 0.7]), dtype="float64"
    ),
    "multivariate_normal f64": lambda r, k: r.multivariate_normal(
        k, ROW.astype("float64"), COVARIANCE
    ),
    "orthogonal f64": lambda r, k: r.orthogonal(k, 2),
    "poisson f64": lambda r, k: r.poisson(k, np.array([3.7, 88.3]), (2,)),
    "rademacher x64": lambda r, k: r.rademacher(k, (8,)),
}
# With the default dtypes; threefry2x32 only, partitionable only.
DISTRIBUTIONS: dict[str, Any] = {
    "exponential": lambda r, k: r.exponential(k, (5,)),
    "cauchy": lambda r, k: r.cauchy(k, (5,)),
    "laplace": lambda r, k: r.laplace(k, (5,)),
    "logistic": lambda r, k: r.logistic(k, (5,)),
    "gumbel": lambda r, k: r.gumbel(k, (5,)),
    "gumbel high": lambda r, k: r.gumbel(k, (5,), mode="high"),
    "pareto": lambda r, k: r.pareto(k, ROW, (2, 3)),
    "rayleigh": lambda r, k: r.rayleigh(k, ROW),
    "weibull_min": lambda r, k: r.weibull_min(k, SPREAD, ROW, (2, 3)),
    "lognormal": lambda r, k: r.lognormal(k, 0.5, (5,)),
    "triangular": lambda r, k: r.triangular(k, -1.0, ROW, 20.0),
    "wald": lambda r, k: r.wald(k, ROW, (2, 3)),
    "truncated_normal": lambda r, k: r.truncated_normal(k, -SPREAD, ROW),
    "maxwell": lambda r, k: r.maxwell(k, (5,)),
    "double_sided_maxwell": lambda r, k: r.double_sided_maxwell(k, ROW, SPREAD, (2,)),
    "bernoulli": lambda r, k: r.bernoulli(k, 0.3, (8,)),
    "bernoulli high": lambda r, k: r.bernoulli(k, SPREAD / 4, (2, 4), mode="high"),
    "rademacher": lambda r, k: r.rademacher(k, (8,)),
    "rademacher f32": lambda r, k: r.rademacher(k, (8,), "float32"),
    "permutation": lambda r, k: r.permutation(k, 20),
    "permutation large": lambda r, k: r.permutation(k, 3000)[:20],
    "permutation rows": lambda r, k: r.permutation(k, np.arange(12).reshape(4, 3)),
    "permutation columns": lambda r, k: r.permutation(k, np.arange(12).reshape(3, 4), axis=1),
    "permutation apart": lambda r, k: r.permutation(
        k, np.arange(12).reshape(3, 4), -1, independent=True
    ),
    "choice": lambda r, k: r.choice(k, 10, (2, 3)),
    "choice once": lambda r, k: r.choice(k, np.arange(10) * 2.0, (4,), replace=False),
    "choice columns": lambda r, k: r.choice(k, np.arange(12).reshape(3, 4), (2,), axis=1),
    "choice weighted": lambda r, k: r.choice(k, 4, (6,), p=np.array([0.1, 0.2, 0.3, 0.4])),
    "choice weighted once": lambda r, k: r.choice(
        k, 5, (3,), False, np.array([0.1, 0.2, 0.3, 0.2, 0.2])
    ),
    "categorical": lambda r, k: r.categorical(k, np.log(ROW), shape=(6,)),
    "categorical axis": lambda r, k: r.categorical(k, np.log(ROW * SPREAD), axis=0),
    "categorical rows": lambda r, k: r.categorical(k, np.log(ROW * SPREAD), shape=(4, 2)),
    "categorical once": lambda r, k: r.categorical(
        k, np.log(ROW * SPREAD), shape=(2, 2), replace=False
    ),
    "geometric": lambda r, k: r.geometric(k, ROW / 13, (2, 3)),
    "geometric half": lambda r, k: r.geometric(k, 0.5, (5,)),
    "poisson": lambda r, k: r.poisson(k, ROW, (4, 3)),
    "poisson large": lambda r, k: r.poisson(k, 1000.0, (5,)),
    "poisson none": lambda r, k: r.poisson(k, 0.0, (2,)),
    "gamma": lambda r, k: r.gamma(k, ROW, (4, 3)),
    "gamma small": lambda r, k: r.gamma(k, 1e-3, (5,)),
    "loggamma": lambda r, k: r.loggamma(k, ROW / 10),
    "beta": lambda r, k: r.beta(k, ROW, SPREAD),
    "chisquare": lambda r, k: r.chisquare(k, ROW, (2, 3)),
    "dirichlet": lambda r, k: r.dirichlet(k, ROW),
    "dirichlet rows": lambda r, k: r.dirichlet(k, ROW * SPREAD, (3, 2)),
    "f": lambda r, k: r.f(k, ROW, np.float32(3.0)),
    "t": lambda r, k: r.t(k, ROW, (2, 3)),
    "generalized_normal": lambda r, k: r.generalized_normal(k, 1.5, (5,)),
    "ball": lambda r, k: r.ball(k, 3, shape=(2,)),
    "ball 1": lambda r, k: r.ball(k, 3, 1.0, (2,)),
    "binomial": lambda r, k: r.binomial(k, 10, ROW / 20, (3, 3)),
    "binomial many": lambda r, k: r.binomial(k, np.array([100.0, 1e4, 3e6]), 0.4),
    "binomial likely": lambda r, k: r.binomial(k, 50.5, np.array([0.6, 0.99])),
    "multinomial": lambda r, k: r.multinomial(k, 40, np.array([0.1, 0.2, 0.0, 0.7])),
    "multinomial rows": lambda r, k: r.multinomial(
        k, np.array([3, 70]), np.array([0.25, 0.5, 0.25]), shape=(2, 3)
    ),
    "gumbel highest": lambda r, k: r.gumbel(k, (8,), mode="highest"),
    "multivariate_normal": lambda r, k: r.multivariate_normal(k, ROW, COVARIANCE, (2,)),
    "multivariate_normal batch": lambda r, k: r.multivariate_normal(
        k, ROW, COVARIANCE * SPREAD[:, :, None]
    ),
    "multivariate_normal eigh": lambda r, k: r.multivariate_normal(
        k, ROW, np.diag(ROW), method="eigh"
    ),
    "multivariate_normal svd": lambda r, k: r.multivariate_normal(
        k, ROW, np.diag(ROW), (1, 2), "float32", "svd"
    ),
    "orthogonal": lambda r, k: r.orthogonal(k, 3, (2,)),
    "orthogonal wide": lambda r, k: r.orthogonal(k, 2, m=3),
    "orthogonal tall": lambda r, k: r.orthogonal(k, 3, m=2),
    "orthogonal complex": lambda r, k: r.orthogonal(k, 2, dtype="complex64"),
    "poisson odd": lambda r, k: r.poisson(k, np.array([np.nan, 4.0, -1.0]), (3,)),
}


def derivative(transform: Any, r: Any, draw: Any) -> Any:
    """The derivative of a sum of draws in their shapes."""
    return transform(lambda a: draw(r.key(7), a).sum())(ROW)


# Given the module of transformations and the module of samplers; threefry2x32.
TRANSFORMED: dict[str, Any] = {
    "vmap gamma": lambda tb, r: tb.vmap(lambda k, a: r.gamma(k, a, (2,)))(
        r.split(r.key(3), 3), ROW
    ),
    "vmap binomial": lambda tb, r: tb.vmap(lambda k, p: r.binomial(k, 20, p))(
        r.split(r.key(3), 3), ROW / 13
    ),
    "grad gamma": lambda tb, r: derivative(tb.grad, r, r.gamma),
    "grad loggamma": lambda tb, r: derivative(tb.grad, r, r.loggamma),
    "grad beta": lambda tb, r: derivative(tb.grad, r, lambda k, a: r.beta(k, a, 2.0)),
    "grad dirichlet": lambda tb, r: derivative(tb.grad, r, lambda k, a: r.dirichlet(k, a) * ROW),
    "grad t": lambda tb, r: derivative(tb.grad, r, r.t),
}
# Without vmap, which the words of these generators do not survive.
OF_OTHERS: dict[str, Any] = {"gamma": DISTRIBUTIONS["gamma"]}
