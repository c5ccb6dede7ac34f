"""Samples have the distribution that the name says: Kolmogorov-Smirnov tests against SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import errors, random

N = 5000
CONTINUOUS: dict[str, tuple[Any, Any]] = {
    "uniform": (lambda k: random.uniform(k, (N,), minval=-1, maxval=3), stats.uniform(-1, 4)),
    "normal": (lambda k: random.normal(k, (N,)), stats.norm()),
    "exponential": (lambda k: random.exponential(k, (N,)), stats.expon()),
    "cauchy": (lambda k: random.cauchy(k, (N,)), stats.cauchy()),
    "laplace": (lambda k: random.laplace(k, (N,)), stats.laplace()),
    "logistic": (lambda k: random.logistic(k, (N,)), stats.logistic()),
    "gumbel": (lambda k: random.gumbel(k, (N,)), stats.gumbel_r()),
    "gumbel high": (lambda k: random.gumbel(k, (N,), mode="high"), stats.gumbel_r()),
    "pareto": (lambda k: random.pareto(k, 2.5, (N,)), stats.pareto(2.5)),
    "rayleigh": (lambda k: random.rayleigh(k, 2.0, (N,)), stats.rayleigh(scale=2)),
    "weibull_min": (
        lambda k: random.weibull_min(k, 3.0, 1.5, (N,)),
        stats.weibull_min(1.5, scale=3),
    ),
    "lognormal": (lambda k: random.lognormal(k, 0.7, (N,)), stats.lognorm(0.7)),
    "triangular": (
        lambda k: random.triangular(k, -1.0, 0.5, 3.0, (N,)),
        stats.triang(1.5 / 4, -1, 4),
    ),
    "wald": (lambda k: random.wald(k, 2.0, (N,)), stats.invgauss(2.0)),
    "truncated_normal": (
        lambda k: random.truncated_normal(k, -0.5, 2.0, (N,)),
        stats.truncnorm(-0.5, 2.0),
    ),
    "maxwell": (lambda k: random.maxwell(k, (N,)), stats.maxwell()),
    "double_sided_maxwell": (
        lambda k: abs(random.double_sided_maxwell(k, 1.0, 2.0, (N,)) - 1),
        stats.maxwell(scale=2),
    ),
}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_samples_follow_the_distribution(name: str) -> None:
    """The chance of a false alarm is one in a million, and the seed is fixed."""
    draw, reference = CONTINUOUS[name]

    sample = np.asarray(draw(random.key(12)), np.float64)

    assert stats.kstest(sample, reference.cdf).pvalue > 1e-6


@pytest.mark.parametrize(
    ("draw", "mean", "variance"),
    [
        (lambda k: random.randint(k, (N,), 0, 10), 4.5, 8.25),
        (lambda k: random.bernoulli(k, 0.3, (N,)), 0.3, 0.21),
        (lambda k: random.rademacher(k, (N,)), 0, 1),
        (lambda k: random.geometric(k, 0.25, (N,)), 4, 12),
        (lambda k: random.poisson(k, 3.0, (N,)), 3, 3),
        (lambda k: random.poisson(k, 200.0, (N,)), 200, 200),
        (lambda k: random.choice(k, 3, (N,), p=np.array([0.5, 0.0, 0.5])), 1, 1),
        (lambda k: random.categorical(k, np.log(np.array([0.2, 0.8])), shape=(N,)), 0.8, 0.16),
    ],
)
def test_discrete_samples_have_their_moments(draw: Any, mean: float, variance: float) -> None:
    """Mean and variance, within five standard errors."""
    sample = np.asarray(draw(random.key(3))).astype(np.float64)

    assert abs(sample.mean() - mean) < 5 * np.sqrt(variance / N)
    assert abs(sample.var() - variance) < 0.15 * variance + 5e-3


@pytest.mark.parametrize(
    "draw",
    [
        lambda k, a: random.pareto(k, a),
        lambda k, a: random.rayleigh(k, a),
        lambda k, a: random.weibull_min(k, a, a, a.shape),
        lambda k, a: random.lognormal(k, a),
        lambda k, a: random.triangular(k, -a, 0.5 * a, a),
        lambda k, a: random.wald(k, a),
        lambda k, a: random.truncated_normal(k, -a, a),
        lambda k, a: random.double_sided_maxwell(k, a, a)[0],
        lambda k, a: random.uniform(k, a.shape, minval=-a, maxval=a),
    ],
)
def test_derivatives_in_the_parameters(draw: Any) -> None:
    """The same key gives a smooth function of the parameters."""
    key, a = random.key(5), np.array([0.7, 1.3, 2.1], np.float32)

    def total(a: Any) -> Any:
        return tnp.sum(tnp.sin(draw(key, a)))

    found = np.asarray(tb.grad(total)(a))

    for i in range(3):
        step = np.zeros(3, np.float32)
        step[i] = 1e-2
        slope = (float(total(a + step)) - float(total(a - step))) / 2e-2
        np.testing.assert_allclose(found[i], slope, rtol=0.05, atol=0.02)


def test_permutations_permute() -> None:
    """Nothing is lost; rows stay whole unless they are shuffled apart."""
    key, x = random.key(0), np.arange(40).reshape(8, 5)

    assert list(range(100)) == sorted(random.permutation(key, 100).tolist())
    rows = random.permutation(key, x).tolist()
    assert x.tolist() == sorted(rows) != rows
    apart = np.asarray(random.permutation(key, x, axis=1, independent=True))
    assert x.tolist() == np.sort(apart, axis=1).tolist()
    assert 1 < len({tuple(np.argsort(row)) for row in apart.tolist()})
    assert [] == random.permutation(key, 0).tolist()
    once = random.choice(key, 10, (10,), replace=False, p=np.full(10, 0.1))
    assert list(range(10)) == sorted(once.tolist())


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda k: random.permutation(k, 1.5), TypeError, "expected an integer"),
        (lambda k: random.permutation(k, np.arange(3), axis=1), errors.AxisError, "axis 1"),
        (lambda k: random.choice(k, 5, (10,), replace=False), ValueError, "replace=True"),
        (lambda k: random.choice(k, 0, (1,)), ValueError, "of none"),
        (lambda k: random.choice(k, 3, (1,), p=np.ones(2)), ValueError, r"expected \(3,\)"),
        (lambda k: random.categorical(k, np.zeros((3, 4)), 5), errors.AxisError, "5"),
        (
            lambda k: random.categorical(k, np.zeros(3), shape=(4,), replace=False),
            ValueError,
            "4 samples",
        ),
        (lambda k: random.gumbel(k, mode="loud"), ValueError, "'low' or 'high'"),
        (lambda k: random.bernoulli(k, 1), TypeError, "expected floating"),
        (lambda k: random.bernoulli(k, 0.5, mode="x"), ValueError, "argument mode"),
        (lambda k: random.rademacher(k, (2,), "uint8"), TypeError, "signed"),
        (lambda k: random.pareto(k, np.ones(3), (2,)), ValueError, "not broadcastable"),
        (lambda k: random.wald(k, 1.0, dtype="int32"), ValueError, "floating dtype"),
        (lambda k: random.geometric(k, 0.5, dtype="float32"), TypeError, "integer dtype"),
        (lambda k: random.poisson(random.key(0, impl="rbg"), 3.0), ValueError, "threefry2x32"),
    ],
)
def test_errors(call: Any, error: type[Exception], words: str) -> None:
    """What is refused, with the way out."""
    with pytest.raises(error, match=words):
        call(random.key(0))
