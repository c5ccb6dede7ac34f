"""scipy.stats beyond distributions of numbers: ranks, vectors, estimated densities, entropy."""

from __future__ import annotations

import inspect
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import stats as reference

import tracebridge as tb
from tracebridge.scipy import stats

NAN = np.nan
NUMBERS = np.array([[1, 2.0, 2, 5, NAN], [3, 3, 1, 0, -np.inf]])
POINTS = np.random.RandomState(0).randn(2, 12)
WEIGHTS = np.arange(1.0, 13)


def check_slopes(f: Any, *args: Any) -> None:
    """Derivatives, of few programs, agree with differences."""
    tb.testing.check_grads(tb.jit(f), args, order=1, rtol=1e-4)


def agree(actual: Any, expected: Any, rtol: float = 1e-12) -> None:
    """The same shape and, up to rounding, values."""
    assert np.shape(actual) == np.shape(expected)

    np.testing.assert_allclose(np.asarray(actual), expected, rtol=rtol, atol=1e-14)


@pytest.mark.parametrize("method", ["average", "min", "max", "dense", "ordinal"])
@pytest.mark.parametrize("axis", [None, 1])
def test_ranks(method: str, axis: int | None) -> None:
    """Of ties and infinities; NaN spreads over what is ranked together, or stands for itself."""
    for policy in ("propagate", "omit"):
        given = {"axis": axis, "nan_policy": policy}
        with tb.enable_x64():
            found = stats.rankdata(NUMBERS, method, **given)

        agree(found, reference.rankdata(NUMBERS, method, **given))


def test_ranks_of_other_things() -> None:
    """Whole numbers, nothing, and along mapped axes."""
    assert stats.rankdata(np.array([3, 1, 1])).tolist() == [3.0, 1.5, 1.5]
    assert stats.rankdata(np.zeros((2, 0)), axis=1).shape == (2, 0)
    rows = tb.vmap(stats.rankdata)(NUMBERS)
    assert rows.tolist()[1] == [4.5, 4.5, 3.0, 2.0, 1.0]


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("keepdims", [False, True])
def test_modes(axis: int | None, keepdims: bool) -> None:
    """The smallest of the most frequent, with NaN as a value or left out."""
    for policy in ("propagate", "omit"):
        given = {"axis": axis, "keepdims": keepdims, "nan_policy": policy}
        found = stats.mode(NUMBERS, **given)
        expected = reference.mode(NUMBERS, **given)

        agree(found.mode, expected.mode)
        agree(found.count, expected.count)
    assert stats.mode(np.zeros((0, 2))).mode.shape == (2,)


def test_modes_of_a_number() -> None:
    """It has one axis, which may stay."""
    for axis in (None, 0):
        for keepdims in (False, True):
            found = stats.mode(np.float32(3), axis, keepdims=keepdims)
            agree(found.mode, reference.mode(np.float32(3), axis, keepdims=keepdims).mode)
            assert found.mode.shape == found.count.shape


def test_errors_of_means() -> None:
    """As SciPy's, with any number of degrees of freedom, and with a gradient."""
    clean = NUMBERS[:, :4]
    with tb.enable_x64():
        for given in ({}, {"axis": 1, "ddof": 0, "keepdims": True}, {"axis": None}):
            agree(stats.sem(clean, **given), reference.sem(clean, **given))
        agree(
            stats.sem(NUMBERS[0], nan_policy="omit"), reference.sem(NUMBERS[0], nan_policy="omit")
        )
        check_slopes(lambda x: stats.sem(x, 1), clean)


def test_policies_that_cannot_be() -> None:
    """Errors about values are none that a program can raise."""
    for function in (stats.rankdata, stats.mode, stats.sem):
        with pytest.raises(NotImplementedError, match="nan_policy='raise'"):
            function(NUMBERS, nan_policy="raise")
        with pytest.raises(ValueError, match="'drop'"):
            function(NUMBERS, nan_policy="drop")


def test_shares() -> None:
    """Dirichlet densities inside, outside and at the edge, their gradients without NaN."""
    alpha, x = np.array([1.0, 2, 3.5]), np.array([0.2, 0.3, 0.5])
    edge, outside = np.array([0, 0.4, 0.6]), np.array([-0.1, 0.5, 0.6])
    many = np.array([[0.1, 0.2], [0.3, 0.3], [0.6, 0.5]])
    logpdf = stats.dirichlet.logpdf
    with tb.enable_x64():
        agree(logpdf(x, alpha), reference.dirichlet.logpdf(x, alpha))
        agree(logpdf(x[:2], alpha), reference.dirichlet.logpdf(x, alpha))
        agree(logpdf(edge, alpha), reference.dirichlet.logpdf(edge, alpha))
        agree(stats.dirichlet.pdf(many, alpha), reference.dirichlet.pdf(many, alpha))
        for bad in (outside, np.array([0.2, 0.3, 0.6])):
            assert float(logpdf(bad, alpha)) == -np.inf
        assert np.isnan(float(logpdf(x, -alpha)))
        assert not np.isnan(np.asarray(tb.grad(logpdf, (0, 1))(outside, alpha))).any()
        assert not np.isnan(np.asarray(tb.grad(logpdf, (0, 1))(edge, alpha))).any()
        check_slopes(logpdf, x[:2], alpha)
    assert logpdf(x.astype(np.float32), alpha.astype(np.float32)).dtype == np.float32


def test_counts_of_outcomes() -> None:
    """Multinomial probabilities, impossible counts and outcomes, and gradients."""
    p, x = np.array([0.2, 0.3, 0.5]), np.array([[1, 2, 3], [6, 0, 0]])
    never = np.array([0.0, 0.5, 0.5])
    logpmf = stats.multinomial.logpmf
    with tb.enable_x64():
        agree(logpmf(x, 6, p), reference.multinomial.logpmf(x, 6, p))
        agree(
            stats.multinomial.pmf(x, np.array([6, 6]), p), reference.multinomial.pmf(x, [6, 6], p)
        )
        agree(
            logpmf(np.array([0, 3, 3]), 6, never), reference.multinomial.logpmf([0, 3, 3], 6, never)
        )
        assert float(logpmf(x[0] + 1, 6, p)) == -np.inf
        assert float(logpmf(np.array([-1, 4, 3]), 6, p)) == -np.inf
        assert np.isnan(float(logpmf(x[0], 6, p - 0.3)))
        assert np.isnan(float(logpmf(x[0], -6, p)))
        assert tb.grad(logpmf, 2)(np.array([0, 3, 3]), 6, never).tolist() == [0, 6, 6]
        assert tb.grad(logpmf, 2)(np.array([-1, 4, 3]), 6, p).tolist() == [0, 0, 0]
        check_slopes(lambda q: logpmf(x[0], 6, q), p)


def test_normal_vectors() -> None:
    """Numbers and matrices as covariances, axes that broadcast, no factor."""
    cov, mean, x = np.array([[2.0, 0.3], [0.3, 1]]), np.array([1.0, -1]), POINTS.T[:4]
    logpdf, scipy_normal = stats.multivariate_normal.logpdf, reference.multivariate_normal
    with tb.enable_x64():
        agree(logpdf(x, mean, cov), scipy_normal.logpdf(x, mean, cov))
        agree(stats.multivariate_normal.pdf(x, mean, 2.0), scipy_normal.pdf(x, mean, 2.0))
        agree(logpdf(x[0], 0.5, 2.0), scipy_normal.logpdf(x[0], 0.5, 2.0))
        several = np.stack([cov, 2 * cov, -cov])
        found = logpdf(x[:, None], mean, several)
        assert found.shape == (4, 3)
        agree(found[:, 1], scipy_normal.logpdf(x, mean, 2 * cov))
        assert np.isnan(np.asarray(found[:, 2])).all()
        agree(tb.vmap(logpdf, (0, None, None))(x, mean, cov), scipy_normal.logpdf(x, mean, cov))
        check_slopes(logpdf, x[0], mean, cov)
    with pytest.raises(NotImplementedError, match="allow_singular=True"):
        logpdf(x, mean, cov, True)
    with pytest.raises(ValueError, match="f32\\[2\\]"):
        logpdf(x, mean, mean)


@pytest.mark.parametrize("bw_method", [None, "silverman", 0.4, lambda kde: 0.3 * kde.d])
def test_estimated_densities(bw_method: Any) -> None:
    """Values and integrals of estimates of vectors, weighted, for each way to choose the width."""
    expected = reference.gaussian_kde(POINTS, bw_method, WEIGHTS)
    gaussian = np.ones(2), np.array([[1.0, 0.5], [0.5, 2]])
    other = reference.gaussian_kde(POINTS[:, :5])
    with tb.enable_x64():
        kde = stats.gaussian_kde(POINTS, bw_method, WEIGHTS)

        agree(kde.covariance, expected.covariance)
        agree(kde.inv_cov, expected.inv_cov)
        agree(kde.neff, expected.neff)
        agree(kde(POINTS[:, :3]), expected(POINTS[:, :3]))
        agree(kde.logpdf([9.0, 50.0]), expected.logpdf([9.0, 50.0]))
        agree(kde.integrate_gaussian(*gaussian), expected.integrate_gaussian(*gaussian))
        ours = stats.gaussian_kde(POINTS[:, :5])
        agree(kde.integrate_kde(ours), expected.integrate_kde(other))


def test_estimates_of_numbers_and_in_programs() -> None:
    """Integrals over intervals; an estimate is a pytree, which is differentiated and mapped."""
    expected = reference.gaussian_kde(POINTS[0])
    with tb.enable_x64():
        kde = stats.gaussian_kde(POINTS[0])
        agree(kde.integrate_box_1d(-1, 0.5), expected.integrate_box_1d(-1, 0.5))
        agree(tb.jit(lambda k: k.pdf([0.3]))(kde), expected.pdf([0.3]))
        many = tb.vmap(lambda x: stats.gaussian_kde(x).pdf([0.3]))(POINTS)
        agree(many[0], expected.pdf([0.3]))
        check_slopes(lambda x: stats.gaussian_kde(x).logpdf([0.3]), POINTS[0])
        mean, spread = POINTS.mean(axis=1), stats.gaussian_kde(POINTS).covariance + np.cov(POINTS)
        drawn = np.asarray(stats.gaussian_kde(POINTS).resample(tb.random.key(1), (20, 1000)))
    assert drawn.shape == (2, 20, 1000)
    drawn = drawn.reshape(2, -1)
    np.testing.assert_allclose(drawn.mean(axis=1), mean, atol=0.05)
    np.testing.assert_allclose(np.cov(drawn), spread - np.cov(POINTS) / 12, atol=0.08)


def test_estimates_that_cannot_be() -> None:
    """Too few observations, weights that do not fit, changes."""
    for args in ((np.ones(1),), (POINTS, "wide"), (POINTS, None, WEIGHTS[:3]), (POINTS[None],)):
        with pytest.raises(ValueError, match="gaussian_kde"):
            stats.gaussian_kde(*args)
    kde = stats.gaussian_kde(POINTS)
    with pytest.raises(ValueError, match="points are of shape"):
        kde(np.zeros((3, 3)))
    with pytest.raises(ValueError, match="expected 1"):
        kde.integrate_box_1d(0, 1)
    with pytest.raises(NotImplementedError, match="immutable"):
        kde.set_bandwidth(1.0)
    with pytest.raises(AttributeError, match="immutable"):
        kde.weights = kde.neff


def test_entropy_of_poisson_numbers() -> None:
    """To the last digits on both sides of the expansion's limit, with slopes up to rate 0."""
    rates = [1e-8, 0.5, 5.0, 11.9, 12.1, 63.9, 64.1, 200.0]
    with mpmath.workdps(30):
        expected = [float(_entropy(m)) for m in rates]
    slopes = tb.vmap(tb.grad(stats.poisson.entropy))
    with tb.enable_x64():
        agree(stats.poisson.entropy(np.array(rates)), expected, rtol=3e-14)
        found = stats.poisson.entropy(np.array([0, np.inf, -1, NAN]), 3)
        agree(found, [0, np.inf, NAN, NAN])
        assert float(slopes(np.array([0.0]))[0]) == np.inf
        check_slopes(stats.poisson.entropy, np.array([0.5, 5, 90]))
    agree(stats.poisson.entropy(np.array(rates, np.float32)), expected, rtol=1e-6)


def _entropy(mu: float) -> Any:
    log = [k * mpmath.log(mu) - mu - mpmath.loggamma(k + 1) for k in range(500)]
    return -sum([mpmath.exp(x) * x for x in log])


def test_quantiles_are_called_as_programs_call_them() -> None:
    """The first argument by its name."""
    names = {
        "gumbel_l": "p", "gumbel_r": "p", "logistic": "x", "norm": "q", "uniform": "q",
    }  # fmt: skip
    for name, first in names.items():
        signature = inspect.signature(getattr(stats, name).ppf)
        assert next(iter(signature.parameters)) == first


def test_no_shares_do_not_add_up() -> None:
    """Without shares the sum is 0, not 1."""
    assert -np.inf == float(tb.scipy.stats.dirichlet.logpdf(np.zeros(0), np.zeros(0)))
