"""The tails of the normal distribution: digits at every distance, and small programs."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import special

import tracebridge as tb
from tracebridge.scipy import special as ours
from tracebridge.scipy._special.normal_tails import tail_fraction

PRECISIONS = [("float32", 36.0, 5e-7), ("float64", 300.0, 2e-15)]


@pytest.mark.parametrize(("dtype", "digits", "rtol"), PRECISIONS, ids=str)
def test_quantiles_of_all_sizes(dtype: str, digits: float, rtol: float) -> None:
    """Near 0 as near 1, and where one fit ends and the next begins."""
    near_one = 1 - 10.0 ** -np.linspace(0.1, 7, 200)
    p = np.concatenate([10.0 ** -np.linspace(0.01, digits, 2000), near_one]).astype(dtype)

    with tb.enable_x64():
        actual = np.asarray(ours.ndtri(p))

    np.testing.assert_allclose(actual, special.ndtri(p.astype("float64")), rtol=rtol, atol=rtol)


@pytest.mark.parametrize(("dtype", "digits", "rtol"), PRECISIONS, ids=str)
def test_density_over_the_tail(dtype: str, digits: float, rtol: float) -> None:
    """The fraction is ``1 / erfcx``, scaled; it is its operand in the end."""
    del digits
    z = np.concatenate([np.linspace(5, 60, 1000), [1e3, 1e12]]).astype(dtype)

    with tb.enable_x64():
        actual = np.asarray(tb.jit(lambda z: tail_fraction(z))(z))

    scaled = special.erfcx(z.astype("float64") / np.sqrt(2)) * np.sqrt(np.pi / 2)
    np.testing.assert_allclose(actual, 1 / scaled, rtol=rtol)


def test_narrow_floats_get_quantiles_as_good_as_they_can_be() -> None:
    """They are computed of float32."""
    p = np.array([0.001, 0.05, 0.3, 0.98], np.float16)

    actual = np.asarray(ours.ndtri(p))

    assert np.float16 == actual.dtype
    np.testing.assert_allclose(actual, special.ndtri(p.astype("float64")), rtol=1e-3)


@pytest.mark.parametrize("name", ["ndtri", "log_ndtr"])
def test_tails_need_few_operations(name: str) -> None:
    """Polynomials, not one division after another: the time of compilers is that of equations."""
    jaxpr = tb.make_jaxpr(lambda x: getattr(ours, name)(x))(np.ones(3, np.float32))

    assert count_equations(jaxpr.jaxpr) < 100


def count_equations(jaxpr: Any) -> int:
    """With those of inner programs."""
    inner = [
        value
        for eqn in jaxpr.eqns
        for value in eqn.params.values()
        if hasattr(getattr(value, "jaxpr", value), "eqns")
    ]
    return len(jaxpr.eqns) + sum(count_equations(getattr(v, "jaxpr", v)) for v in inner)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_logarithms_of_tails_that_underflow(dtype: str) -> None:
    """They go on as the closed forms do; slopes of all parameters are finite differences."""
    stats = tb.scipy.stats
    x, low = np.array([2e2, 3e3, 1e9], dtype), np.array([1e-2, 1e-5, 1e-30], dtype)
    wide, small = x.astype("float64"), low.astype("float64")
    root, rest = np.array([0.9, 0.5, 1e-20], dtype), np.array([0.1, 0.5, 0.999], dtype)
    cases: list[tuple[Any, tuple[Any, ...], Any]] = [
        (stats.gamma.logsf, (x, 1), -wide),
        (stats.gamma.logsf, (x, 2), np.log1p(wide) - wide),
        (stats.chi2.logsf, (x, 2, 0, 0.5), -wide),
        (stats.gamma.logcdf, (low, 200), _log_lower(200.0, small)),
        (stats.gamma.logcdf, (x[:1], 3000), _log_lower(3000.0, wide[:1])),
        (stats.beta.logcdf, (root, 8000, 1), 8000 * np.log(root.astype("float64"))),
        (stats.beta.logsf, (rest, 1, 8000), 8000 * np.log1p(-rest.astype("float64"))),
    ]
    for function, arguments, expected in cases:
        with tb.enable_x64():
            actual = np.asarray(function(*[np.asarray(v, dtype) for v in arguments]))

        np.testing.assert_allclose(actual, expected, 16 * np.finfo(dtype).eps)


def _log_lower(a: float, x: np.ndarray) -> np.ndarray:
    n = np.arange(1, 400)[:, None]
    total = 1 + np.exp(np.cumsum(np.log(x / (a + n)), 0)).sum(0)
    return a * np.log(x) - x - special.gammaln(a + 1) + np.log(total)


def test_slopes_of_tails_that_underflow() -> None:
    """In every argument, those of the closed forms nearby."""
    stats = tb.scipy.stats
    for function, arguments in (
        (stats.gamma.logsf, (5e3, 3.0)),
        (stats.gamma.logcdf, (1e2, 2e3)),
        (stats.beta.logcdf, (0.1, 900.0, 40.0)),
        (stats.beta.logsf, (0.9, 40.0, 900.0)),
    ):
        with tb.enable_x64():
            slopes = tb.grad(function, tuple(range(len(arguments))))(*arguments)
            for i, slope in enumerate(slopes):
                step = np.eye(len(arguments))[i] * (1e-6 * arguments[i])
                ends = [float(function(*(np.array(arguments) + s))) for s in (step, -step)]
                expected = (ends[0] - ends[1]) / (2e-6 * arguments[i])

                np.testing.assert_allclose(float(slope), expected, 1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_densities_of_large_shapes(dtype: str) -> None:
    """Large terms of the logarithm do not cancel."""
    a = np.array([50, 300, 1e4], dtype)
    x = a + np.sqrt(a)
    wide = x.astype("float64")
    logs = (a - 1.0) * np.log(wide) - wide - special.gammaln(a.astype("float64"))

    with tb.enable_x64():
        actual = np.asarray(tb.scipy.stats.gamma.pdf(x, a))
        twice = 2 * np.asarray(tb.scipy.stats.chi2.pdf(2 * x, 2 * a))

    rtol = 3e-6 if dtype == "float32" else 1e-10  # the reference cancels
    np.testing.assert_allclose(actual, np.exp(logs), rtol)
    np.testing.assert_allclose(twice, np.exp(logs), rtol)


def test_densities_whose_powers_underflow() -> None:
    """Of one power more there is nothing left, of the density there is; or its factor overflows."""
    stats = tb.scipy.stats
    with tb.enable_x64():
        points = ((1e-300, 3.5), (1e-300, 2.1), (3e-11, 50.0))
        chi2 = [float(stats.chi2.pdf(x, n)) for x, n in points]
        none = [float(stats.gamma.pdf(1e-300, a)) for a in (1e10, 1e300)]
    single = stats.gamma.pdf(np.float32([1.1289947e-08, 1e-20]), np.float32([5.505018, 2.8]))

    for (x, n), density in zip(points, chi2, strict=True):
        y, a = mpmath.mpf(x) / 2, mpmath.mpf(n) / 2
        exact = y ** (a - 1) * mpmath.exp(-y) / mpmath.gamma(a) / 2
        np.testing.assert_allclose(density, float(exact), 1e-15)
    assert [0.0, 0.0] == none
    np.testing.assert_allclose(single[0], 2.984441e-38, 2e-6)
    np.testing.assert_allclose(single[1], 1e-36 / special.gamma(2.8), 2e-5)
