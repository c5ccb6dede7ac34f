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
MEAN = np.array([1.0, -2.0, 0.5], np.float32)
FACTOR = np.array([[2.0, 0.0, 0.0], [-1.0, 1.0, 0.0], [0.3, 0.2, 0.7]], np.float32)
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
    "gumbel highest": (lambda k: random.gumbel(k, (N,), mode="highest"), stats.gumbel_r()),
    "gamma": (lambda k: random.gamma(k, 2.5, (N,)), stats.gamma(2.5)),
    "gamma small": (lambda k: random.gamma(k, 0.3, (N,)), stats.gamma(0.3)),
    "loggamma": (lambda k: tnp.exp(random.loggamma(k, 0.7, (N,))), stats.gamma(0.7)),
    "beta": (lambda k: random.beta(k, 0.5, 2.0, (N,)), stats.beta(0.5, 2)),
    "chisquare": (lambda k: random.chisquare(k, 3.0, (N,)), stats.chi2(3)),
    "f": (lambda k: random.f(k, 3.0, 8.0, (N,)), stats.f(3, 8)),
    "t": (lambda k: random.t(k, 3.0, (N,)), stats.t(3)),
    "dirichlet": (
        lambda k: random.dirichlet(k, np.array([0.7, 1.0, 2.0]), (N,))[:, 0],
        stats.beta(0.7, 3),
    ),
    "generalized_normal": (
        lambda k: random.generalized_normal(k, 1.5, (N,)),
        stats.gennorm(1.5),
    ),
    "multivariate_normal": (
        # The squared distance from the mean in units of the covariance.
        lambda k: tnp.sum(
            tnp.linalg.solve(
                FACTOR,
                random.multivariate_normal(k, MEAN, FACTOR @ FACTOR.T, (N,)).T - MEAN[:, None],
            )
            ** 2,
            0,
        ),
        stats.chi2(3),
    ),
    "orthogonal": (
        # A coordinate of a vector that is uniform on the sphere; Archimedes: it is uniform too.
        lambda k: random.orthogonal(k, 3, (N,))[:, 0, 0],
        stats.uniform(-1, 2),
    ),
    "ball": (lambda k: tnp.sum(random.ball(k, 3, shape=(N,)) ** 2, -1) ** 1.5, stats.uniform()),
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
        (lambda k: random.rademacher(k, (N,), complex).real, 0, 1),
        (lambda k: random.geometric(k, 0.25, (N,)), 4, 12),
        (lambda k: random.poisson(k, 3.0, (N,)), 3, 3),
        (lambda k: random.binomial(k, 12, 0.3, (N,)), 3.6, 2.52),
        (lambda k: random.binomial(k, 400, 0.7, (N,)), 280, 84),
        (
            lambda k: random.multinomial(k, 30, np.array([0.2, 0.3, 0.5]), shape=(N, 3))[:, 1],
            9,
            6.3,
        ),
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


@pytest.mark.parametrize(
    ("draw", "a", "slope"),
    [
        (lambda k, a: random.gamma(k, a, (N,)), 1.7, 1.0),
        (lambda k, a: random.gamma(k, a, (N,)), 0.3, 1.0),
        (lambda k, a: tnp.exp(random.loggamma(k, a, (N,))), 0.8, 1.0),
        (lambda k, a: random.chisquare(k, a, (N,)), 3.0, 1.0),
        (lambda k, a: random.beta(k, a, 2.0, (N,)), 1.5, 2 / 3.5**2),
    ],
)
def test_derivatives_of_rejected_numbers_are_those_of_means(
    draw: Any, a: float, slope: float
) -> None:
    """Numbers move so that their probability stays, though other ones would be rejected."""
    found = tb.grad(lambda a: tnp.mean(draw(random.key(5), a)))(a)

    np.testing.assert_allclose(float(found), slope, rtol=0.05)


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
            "without replacement, 4, exceeds the 3",
        ),
        (lambda k: random.gumbel(k, mode="loud"), ValueError, "'low' or 'high'"),
        (lambda k: random.bernoulli(k, 1), TypeError, "expected floating"),
        (lambda k: random.bernoulli(k, 0.5, mode="x"), ValueError, "argument mode"),
        (lambda k: random.pareto(k, np.ones(3), (2,)), ValueError, "not broadcastable"),
        (lambda k: random.wald(k, 1.0, dtype="int32"), ValueError, "floating dtype"),
        (lambda k: random.geometric(k, 0.5, dtype="float32"), TypeError, "integer dtype"),
        (
            lambda k: random.multivariate_normal(k, MEAN, FACTOR, method="lu"),
            ValueError,
            "'cholesky' or 'eigh' or 'svd'",
        ),
        (lambda k: random.multivariate_normal(k, 1.0, FACTOR), errors.RankError, "mean is f32"),
        (lambda k: random.multivariate_normal(k, MEAN, MEAN), errors.RankError, "cov is f32"),
        (lambda k: random.multivariate_normal(k, MEAN[:2], FACTOR), ValueError, r"\(2, 2\)"),
        (lambda k: random.multivariate_normal(k, MEAN + 0j, FACTOR), TypeError, "are real"),
        (
            lambda k: random.multivariate_normal(k, np.ones((3, 3)), FACTOR, (2,)),
            ValueError,
            "not broadcastable",
        ),
        (lambda k: random.orthogonal(k, 1.5), TypeError, "argument n"),
        (lambda k: random.orthogonal(k, 1, m=-1), ValueError, "0 or more"),
        (lambda k: random.orthogonal(k, 2, dtype="int32"), TypeError, "floating or complex"),
        (lambda k: random.poisson(random.key(0, impl="rbg"), 3), NotImplementedError, "threefry"),
    ],
)
def test_errors(call: Any, error: type[Exception], words: str) -> None:
    """What is refused, with the way out."""
    with pytest.raises(error, match=words):
        call(random.key(0))


def test_counts_of_odd_parameters() -> None:
    """NaN and negative parameters are no numbers, infinity stays, and no loop runs for ever."""
    key = random.key(0)
    n = np.array([10.0, np.nan, -1.0, np.inf, 10.0, 10.0, 0.0], np.float32)
    p = np.array([np.nan, 0.5, 0.5, 0.5, -0.5, 1.0, 0.5], np.float32)

    counts = np.asarray(random.binomial(key, n, p))

    np.testing.assert_array_equal([np.nan, np.nan, np.nan, np.inf, np.nan, 10, 0], counts)
    rates = np.array([np.inf, np.nan, -1.0, 0.0], np.float32)
    assert [2**31 - 1, -1, -1, 0] == random.poisson(key, rates).tolist()


def test_infinite_degrees_of_freedom() -> None:
    """Student's numbers are normal then, and means of squares are their expectation."""
    key, df = tb.random.key(3), np.array([np.inf, 1e6] * 200, np.float32)
    found = np.asarray(tb.random.t(key, df))

    assert 0.6 < np.std(found[::2]) < 1.4
    assert np.isfinite(found).all()
    assert [1.0] == tb.random.f(key, np.inf, np.array([np.inf])).tolist()


INF = np.inf
# What all numbers are at such parameters; None where each is finite, and not all are equal.
LIMITS: dict[str, tuple[Any, list[tuple[Any, ...]], list[float | None]]] = {
    "gamma": (random.gamma, [(0.0,), (-0.0,), (INF,)], [0, 0, INF]),
    "loggamma": (random.loggamma, [(0.0,), (-0.0,), (INF,)], [-INF, -INF, INF]),
    "chisquare": (random.chisquare, [(0.0,), (INF,), (3e38,)], [0, INF, None]),
    "beta": (
        random.beta,
        [(0.0, 1.0), (1.0, 0.0), (INF, 2.0), (2.0, INF), (0.0, INF), (INF, INF)],
        [0, 1, 1, 0, 0, np.nan],
    ),
    "f": (
        random.f,
        [(0.0, 2.0), (2.0, 0.0), (0.0, 0.0), (INF, INF), (3.0, 3e38), (INF, 3.0)],
        [0, INF, np.nan, 1, None, None],
    ),
    "wald": (random.wald, [(0.0,), (INF,), (3e38,), (1e4,)], [0, None, None, None]),
    "weibull_min": (
        random.weibull_min,
        [(0.0, 1e-3), (INF, 1e-3), (2.0, INF)],
        [0, INF, 2],
    ),
    "generalized_normal": (
        lambda key, p, shape: random.generalized_normal(key, p, shape),
        [(INF,), (3e38,), (1e4,)],
        [None, None, None],
    ),
    "geometric": (random.geometric, [(0.0,), (-0.0,), (1.0,)], [2**31 - 1, 2**31 - 1, 1]),
}  # fmt: skip


@pytest.mark.parametrize("name", LIMITS)
def test_limits_of_parameters(name: str) -> None:
    """At 0, infinity and close to them numbers are those of the limit, NaN if there is none."""
    draw, cases, limits = LIMITS[name]
    columns = [np.array(c, np.float32) for c in zip(*cases, strict=True)]
    numbers = np.asarray(draw(random.key(3), *columns, shape=(40, len(cases))))

    for column, limit in zip(numbers.T, limits, strict=True):
        if limit is None:
            assert np.isfinite(column).all()
            # Numbers close to the largest one are less than a rounding apart.
            assert name == "chisquare" or np.unique(column).size > 1
            assert name == "generalized_normal" or column.min() >= 0
        else:
            np.testing.assert_array_equal(column, np.full(40, limit, column.dtype))


def test_few_degrees_of_freedom_give_as_many_infinities_as_overflow() -> None:
    """Squares that underflow made a hundred times as many numbers infinite."""
    found = np.asarray(random.t(random.key(0), 0.1, (50000,), np.float32))

    expected = 2 * stats.t(0.1).sf(float(np.finfo(np.float32).max))
    assert np.mean(np.isinf(found)) < 5 * expected
    assert not np.isnan(found).any()


def test_numbers_between_bounds_for_high_powers() -> None:
    """The generalized normal distribution goes to the uniform one."""
    for p in (1e4, INF):
        x = random.generalized_normal(random.key(1), np.float32(p), (500,))
        assert stats.kstest(np.asarray(x), stats.uniform(-1, 2).cdf).pvalue > 1e-3


def test_infinite_concentrations() -> None:
    """One takes all; two have no limit; those of 0 get nothing."""
    alpha = np.array([[INF, 1, 0], [INF, INF, 1], [0, 1, 1e-38]], np.float32)
    one, two, none = np.asarray(random.dirichlet(random.key(1), alpha))

    assert [1.0, 0.0, 0.0] == one.tolist()
    assert np.isnan(two).all()
    assert [0.0, 1.0, 0.0] == none.tolist()


def test_slopes_at_the_ends() -> None:
    """Gamma numbers of large shapes move with them; what is cut off does not."""
    shapes = np.array([0.0, 1e-3, 3e38, INF], np.float32)

    def total(a: Any) -> Any:
        shares = random.beta(random.key(2), a, tnp.float32(2), a.shape)
        return (random.gamma(random.key(1), a) + shares).sum()

    slopes = np.asarray(tb.grad(total)(shapes))

    assert np.isfinite(slopes).all()
    np.testing.assert_allclose(slopes[2:], 1, rtol=1e-3)  # of random.gamma_grad in float32
    # Far below the least number, P = x**a / gamma(a + 1) keeps its value.
    a, key = np.float32(1e-3), random.key(4)
    x, slope = tb.value_and_grad(lambda a: random.loggamma(key, a))(a)
    np.testing.assert_allclose(slope, (-0.5772 - x) / a, rtol=1e-3)  # digamma(1 + a)


def test_vectors_sum_to_what_they_must() -> None:
    """Dirichlet vectors to 1, multinomial ones to the number of trials; empty ones are there."""
    key = random.key(0)
    sums = random.dirichlet(key, np.full((4, 5), 1e-3, np.float32)).sum(-1)
    whole = random.multinomial(key, 5, np.array([0.2, 0.8]), dtype="int32")
    counts = random.multinomial(key, np.array([3, 500]), np.array([0.1, 0.6, 0.3]), shape=(2, 3))

    np.testing.assert_allclose(np.asarray(sums), 1, rtol=1e-6)
    assert [3, 500] == counts.sum(-1).tolist()
    assert ("int32", 5) == (whole.dtype, int(whole.sum()))
    assert (0, 3) == random.dirichlet(key, np.ones(3), (0,)).shape
    assert (0,) == random.gamma(key, np.ones(0)).shape
    with pytest.raises(errors.BroadcastError, match="multinomial"):
        random.multinomial(key, np.array([5.0, 9.0]), np.array([0.2, 0.8]))
    with pytest.raises(errors.RankError, match="dirichlet"):
        random.dirichlet(key, 1.0)


@pytest.mark.parametrize("method", ["cholesky", "eigh", "svd"])
def test_normal_vectors_follow_their_parameters(method: str) -> None:
    """Derivatives of means are those of the moments; a batch is drawn as one matrix is."""
    key = random.key(2)
    cov = FACTOR @ FACTOR.T + np.diag(np.array([0.0, 2.0, 9.0], np.float32))

    def second(cov: Any) -> Any:
        x = random.multivariate_normal(key, MEAN, cov, (N,), method=method) - MEAN
        return tnp.mean(x[:, 0] * x[:, 1] + 3 * x[:, 2] ** 2)

    found = np.asarray(tb.grad(second)(cov))
    expected = np.array([[0, 0.5, 0], [0.5, 0, 0], [0, 0, 3]])

    np.testing.assert_allclose(found, expected, atol=0.25)
    half = random.multivariate_normal(key, MEAN, cov, dtype="bfloat16", method=method)
    assert ("bfloat16", (3,)) == (str(half.dtype), half.shape)
    empty = random.multivariate_normal(key, np.zeros(0), np.zeros((0, 0)), (2,), method=method)
    assert (2, 0) == empty.shape


def test_orthogonal_matrices_of_each_shape() -> None:
    """Fewer rows than columns are orthonormal rows; none are none."""
    key = random.key(4)
    for n, m, dtype in ((2, 4, "float32"), (4, 2, "complex64"), (2, 4, "complex64")):
        q = np.asarray(random.orthogonal(key, n, (3,), dtype, m))
        gram = q @ q.conj().mT if n < m else q.conj().mT @ q

        np.testing.assert_allclose(gram, np.broadcast_to(np.eye(2), (3, 2, 2)), atol=1e-5)
    assert (2, 0, 3) == random.orthogonal(key, 0, (2,), m=3).shape
    assert (0, 0) == random.orthogonal(key, 0).shape


def test_a_number_between_bounds_of_one_element_has_their_shape() -> None:
    """Its bits are those of the lone number; more elements than numbers stay an error."""
    key = random.key(5)
    low, high = tnp.full((1,), 2.0), tnp.full((1, 1), 4.0)
    lone = float(random.uniform(key, (), minval=2.0, maxval=4.0))

    for found, shape in (
        (random.uniform(key, minval=low, maxval=4.0), (1,)),
        (random.uniform(key, minval=low, maxval=high), (1, 1)),
    ):
        assert (shape, lone) == (found.shape, float(found.item()))
    with pytest.raises(ValueError, match="not broadcastable"):
        random.uniform(key, minval=tnp.zeros(2))


def test_weibull_numbers_of_more_parameters_than_draws_share_them() -> None:
    """They are the quantiles of the same shares."""
    scale, concentration = np.array([[1.0], [2.0]], np.float32), np.float32([0.5, 1.0, 3.0])
    shared = np.asarray(random.weibull_min(random.key(3), scale, concentration))
    shares = stats.weibull_min.cdf(shared, concentration, scale=scale)
    drawn = np.asarray(random.weibull_min(random.key(3), 1.0, concentration, (3,)))

    assert (2, 3) == shared.shape
    np.testing.assert_allclose(shares, shares[0, 0], rtol=1e-5)
    assert np.unique(stats.weibull_min.cdf(drawn, concentration)).size == 3
    with pytest.raises(errors.BroadcastError, match="weibull_min: the shapes"):
        random.weibull_min(random.key(3), scale, concentration, (4,))


OF_REAL_PARAMETERS: dict[str, int] = {
    "categorical": 1, "chisquare": 1, "dirichlet": 1, "gamma": 1, "geometric": 1, "loggamma": 1,
    "lognormal": 1, "pareto": 1, "poisson": 1, "rayleigh": 1, "t": 1, "wald": 1,
    "beta": 2, "double_sided_maxwell": 2, "f": 2,
}  # fmt: skip


@pytest.mark.parametrize("name", OF_REAL_PARAMETERS)
def test_complex_parameters_are_refused(name: str) -> None:
    """Their imaginary parts would be lost; at once and in a program, each parameter by itself."""
    draw, count, key = getattr(random, name), OF_REAL_PARAMETERS[name], random.key(6)
    for place in range(count):
        parameters: list[Any] = [np.full(2, 0.5, np.float32)] * count
        parameters[place] = parameters[place] + np.complex64(1j)
        for call in (draw, tb.jit(draw)):
            with pytest.raises(errors.UnsupportedDtypeError, match=r"got c64.*are real"):
                call(key, *parameters)
    with pytest.raises(errors.UnsupportedDtypeError, match="uniform"):
        random.uniform(key, minval=1j)


@pytest.mark.parametrize("dtype", ["uint8", "uint4", "bool", "complex64"])
def test_signs_of_dtypes_without_a_sign(dtype: str) -> None:
    """They are those of int32, converted: -1 is the largest unsigned integer."""
    signs = random.rademacher(random.key(0), (20,), "int32")
    found = random.rademacher(random.key(0), (20,), dtype)

    assert dtype == found.dtype.name
    assert signs.astype(dtype).tolist() == found.tolist()
    assert {-1, 1} == set(signs.tolist())
