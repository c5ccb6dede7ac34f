"""scipy.stats: every function of every distribution against SciPy, edges and gradients."""

from __future__ import annotations

import functools
import importlib
import itertools
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import stats

import tracebridge as tb
from tests.quick_compiles import check_grads

INF, NAN = np.inf, np.nan
X = np.array(
    [-INF, -7.5, -3.0, -1.0, -0.4, 0.0, 1e-3, 0.4, 1.0, 1.7, 2.0, 3.0, 6.2, 40.0, INF, NAN]
)
Q = np.array([-0.5, 0.0, 1e-10, 0.1, 0.5, 0.7, 0.999, 1.0, 1.5, NAN])
SHAPES: dict[str, list[tuple[float, ...]]] = {
    "norm": [()], "cauchy": [()], "expon": [()], "gumbel_l": [()], "gumbel_r": [()],
    "laplace": [()], "logistic": [()], "uniform": [()],
    "gamma": [(0.3,), (1.0,), (7.5,), (-1.0,)], "chi2": [(1.0,), (2.0,), (9.0,)],
    "beta": [(0.5, 0.5), (1.0, 1.0), (2.0, 3.0), (-1.0, 1.0)], "gennorm": [(0.7,), (2.0,)],
    "pareto": [(0.5,), (3.0,), (-1.0,)], "t": [(1.0,), (30.0,), (INF,)],
    "truncnorm": [(-1.0, 2.0), (0.5, INF), (-INF, -6.0), (5.0, 7.0)],
    "vonmises": [(0.0,), (0.5,), (20.0,)], "wrapcauchy": [(0.2,), (0.9,)],
    "bernoulli": [(0.0,), (0.3,), (1.0,), (1.5,)], "binom": [(0, 0.5), (5, 0.3), (5, 1.0)],
    "betabinom": [(0, 1.0, 2.0), (5, 0.5, 2.0)], "geom": [(0.3,), (1.0,)],
    "nbinom": [(4, 0.3), (1.5, 0.9)], "poisson": [(0.3,), (0.0,), (12.5,)],
}  # fmt: skip
PERIODIC = ("vonmises",)


def module(name: str) -> Any:
    """The module of a distribution."""
    return importlib.import_module(f"tracebridge.scipy.stats.{name}")


CASES = [(name, kind) for name in SHAPES for kind in module(name).__all__ if kind != "entropy"]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_values(name: str, kind: str) -> None:
    """Inside, outside and at the ends of the support, at invalid parameters, moved and scaled."""
    ours, theirs = getattr(module(name), kind), getattr(getattr(stats, name), kind)
    x = Q if kind in ("ppf", "isf") else X
    if name in PERIODIC:
        x = x[(np.abs(x) <= np.pi) | np.isnan(x)]
    places: list[tuple[float, ...]] = [()]
    if "loc" in str(module(name).__all__ and ours.__signature__):
        places.append((1.0, 2.5) if "scale" in str(ours.__signature__) else (1.0,))
    for shapes, place in itertools.product(SHAPES[name], places):
        with tb.enable_x64():
            actual = np.asarray(ours(x, *shapes, *place))
        with np.errstate(all="ignore"):
            expected = theirs(x, *shapes, *place)
        if kind[-3:] in ("pdf", "pmf"):
            # SciPy subtracts infinities there; densities go to 0.
            limit = -INF if kind.startswith("log") else 0
            lost = np.isinf(x) & np.isnan(expected) & ~np.isnan(actual)
            expected = np.where(lost, limit, expected)
        np.testing.assert_allclose(
            actual, expected, rtol=3e-11, atol=1e-14, err_msg=f"{name}.{kind}{shapes}{place}"
        )


TAILS: list[tuple[str, str, tuple[float, ...], list[float]]] = [
    ("cauchy", "ppf", (), [1e-12, 1e-3, 0.5, 1 - 1e-10]),
    ("cauchy", "isf", (), [1e-12, 0.5, 1 - 1e-10]),
    ("beta", "logsf", (2.0, 3.0), [1e-10, 1e-3, 0.5]),
    ("gamma", "logcdf", (3.0,), [50.0, 2.0]),
    ("gamma", "logsf", (3.0,), [1e-10, 2.0]),
    ("chi2", "logcdf", (3.5,), [50.0, 2.0]),
    ("gennorm", "cdf", (1.0,), [-50.0, -1.0, 0.0, 2.0]),
]


@pytest.mark.parametrize(("name", "kind", "shapes", "points"), TAILS)
def test_tails_keep_their_digits(
    name: str, kind: str, shapes: tuple[float, ...], points: list[float]
) -> None:
    """Close to 0 and 1 the answer is as exact as elsewhere."""
    x = np.array(points)
    with tb.enable_x64():
        actual = np.asarray(getattr(module(name), kind)(x, *shapes))

    expected = getattr(getattr(stats, name), kind)(x, *shapes)
    if kind in ("ppf", "isf"):  # SciPy's own loses digits at the far end.
        side = 1 if kind == "ppf" else -1
        with mpmath.workdps(40):
            expected = [float(side * mpmath.tan(mpmath.pi * (mpmath.mpf(s) - 0.5))) for s in points]
    np.testing.assert_allclose(actual, expected, 1e-13, 1e-300)


@pytest.mark.parametrize("name", ["norm", "expon", "truncnorm", "poisson"])
def test_an_unknown_place_is_an_unknown_value(name: str) -> None:
    """A location that is NaN hides nothing, as inside so outside of the support."""
    known = [f for f in ("pdf", "pmf", "logcdf", "sf") if f in module(name).__all__]

    for kind in known:
        assert np.isnan(getattr(module(name), kind)(X, *SHAPES[name][0], loc=NAN)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_normal_numbers_beside_a_bound(dtype: Any) -> None:
    """Narrow intervals have a probability of as many digits as wide ones."""
    wide = [1e-30, 1e-17, 1e-9, 1e-4, 9e-3, 3e-2, 0.7]
    for a in (-6.0, -1.0, 0.0, 0.25, 8.0):
        places = np.array([w for w in wide if a == 0 or w > 1e-7], dtype) + dtype(a)
        with tb.enable_x64(), mpmath.workdps(60):
            total = mpmath.ncdf(-a) - mpmath.ncdf(-a - 1)
            shares = [(mpmath.ncdf(-a) - mpmath.ncdf(-float(y))) / total for y in places]
            found = module("truncnorm").cdf(places, dtype(a), dtype(a + 1))
            logs = module("truncnorm").logcdf(places, dtype(a), dtype(a + 1))

        info = np.finfo(dtype)
        assert dtype == found.dtype
        np.testing.assert_allclose(found, np.array(shares, float), 2e4 * info.eps, info.tiny)
        np.testing.assert_allclose(
            logs, [float(mpmath.log(s)) for s in shares], 2e4 * info.eps, 2e4 * info.eps
        )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_density_of_students_numbers_far_out(dtype: Any) -> None:
    """Of few degrees of freedom their quotient by a root overflows, its logarithm does not."""
    x = np.finfo(dtype).max * np.array([1, -0.5, 1e-15], dtype)
    df = np.array([1e-3, 0.5, 1e-9], dtype)
    with tb.enable_x64(), mpmath.workdps(60):
        found = module("t").logpdf(x, df)
        slopes = tb.grad(lambda y: module("t").logpdf(y, df).sum())(x)
        expected = [
            float(
                mpmath.loggamma((n + 1) / 2) - mpmath.loggamma(n / 2)
                - mpmath.log(n * mpmath.pi) / 2
                - (n + 1) / 2 * mpmath.log1p(mpmath.mpf(float(y)) ** 2 / n)
            )
            for y, n in zip(x, [mpmath.mpf(float(n)) for n in df], strict=True)
        ]  # fmt: skip

    np.testing.assert_allclose(found, expected, rtol=8 * np.finfo(dtype).eps)
    # As far out as that they may be below the normal numbers.
    np.testing.assert_allclose(slopes, -(df + 1) / x, rtol=1e-5, atol=2 * np.finfo(dtype).tiny)


def test_the_density_of_cauchy_numbers_far_out() -> None:
    """The square of the place overflows, the logarithm of the density does not."""
    with tb.enable_x64():
        found = module("cauchy").logpdf(np.array([1e300, -1e9]))
    np.testing.assert_allclose(found, -np.log(np.pi) - 2 * np.log([1e300, 1e9]), 1e-14)


@pytest.mark.parametrize("name", SHAPES)
def test_gradients_are_finite(name: str) -> None:
    """In the argument and in the parameters, also where the density is 0."""
    kind = next(k for k in ("logpdf", "logpmf") if k in module(name).__all__)
    function = getattr(module(name), kind)
    index = {"beta": 2, "gamma": 1, "pareto": 1, "bernoulli": 1, "binom": 1, "geom": 0}
    shapes = SHAPES[name][index.get(name, -1)]
    count = len(shapes)
    with tb.enable_x64():
        # At an end of the support the logarithm may have an infinite slope.
        for x in (0.4, 2.0, -3.0, *([1.0] if kind == "logpmf" else [])):
            for i in range(count + 1):
                arguments = [np.float64(v) for v in (x, *shapes)]
                slope = float(tb.grad(function, i)(*arguments))
                assert np.isfinite(slope), (name, x, i)


def test_slopes_agree_with_differences() -> None:
    """Of densities and distribution functions in all arguments."""
    with tb.enable_x64():
        for name, arguments in {
            "norm": (0.3, 0.1, 1.7), "gamma": (1.3, 2.2), "beta": (0.3, 1.2, 2.2), "t": (0.3, 4.0),
            "truncnorm": (0.3, -1.0, 2.0), "poisson": (3.0, 2.2), "pareto": (2.0, 1.5),
        }.items():  # fmt: skip
            kind = "logpmf" if name == "poisson" else "logpdf"
            function = getattr(module(name), kind)
            of_parameters = functools.partial(function, arguments[0])
            check_grads(of_parameters, arguments[1:], order=1, rtol=1e-4)
        check_grads(module("gamma").cdf, (1.3, 2.2), order=1, rtol=1e-4)
        check_grads(module("norm").logcdf, (-9.0,), order=2, rtol=1e-4)


def test_mass_between_scalar_bounds_is_one_number() -> None:
    """Repeated to the shape of the argument it kept XLA's simplifier in a circle for long."""
    truncnorm, x = module("truncnorm"), np.linspace(-2, 3, 7, dtype=np.float32)
    text = str(tb.make_jaxpr(truncnorm.logpdf)(x, -1.0, 2.0))
    assert "f32[] = log" in text
    assert "f32[7] = log" not in text

    for args in ((x, -1.0, 2.0), (0.5, x - 5, 4.0), (x, -1.0, x + 4, x[:, None])):
        found = truncnorm.sf(*args)
        np.testing.assert_allclose(found, stats.truncnorm.sf(*args), 1e-5, 1e-6)


@pytest.mark.parametrize(
    ("name", "kinds", "shapes", "points"),
    [
        ("gamma", "pdf", (2.5,), [0.0]), ("chi2", "pdf", (5.5,), [0.0]),
        ("beta", "pdf", (2.0, 3.0), [0.0, 1.0]),
        ("gumbel_l", "pdf cdf sf logcdf", (), [7.5, 40.0, 1e30]),
        ("gumbel_r", "pdf cdf sf logsf", (), [-7.5, -40.0, -1e30]),
    ],
)  # fmt: skip
def test_no_slope_where_the_density_is_0(
    name: str, kinds: str, shapes: tuple[float, ...], points: list[float]
) -> None:
    """The logarithm of the density has an infinite one there, of which a factor 0 leaves none."""
    x = np.array(points)
    with tb.enable_x64():
        for kind in kinds.split():
            values, pull = tb.vjp(functools.partial(getattr(module(name), kind)), x, *shapes)
            slopes = pull(np.ones_like(values))

            np.testing.assert_array_equal(np.asarray(slopes[0]), 0 * x, f"{name}.{kind}")
            assert all(np.isfinite(s).all() for s in slopes), kind


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gumbel_numbers_far_out(dtype: Any) -> None:
    """The logarithm of a tail is a number also where the tail is too small for one."""
    with tb.enable_x64():
        x = np.array([20.0, 36.0, 38.0, 100.0, 1000.0], dtype)
        slopes = tb.vmap(tb.grad(module("gumbel_r").logsf))(x)
        np.testing.assert_allclose(module("gumbel_r").logsf(x), -x, 1e-9)
        np.testing.assert_allclose(module("gumbel_l").logcdf(-x), -x, 1e-9)
    np.testing.assert_allclose(slopes, -1.0, 1e-6)


@pytest.mark.parametrize(("dtype", "rtol"), [(np.float32, 1e-5), (np.float64, 1e-13)])
def test_beta_numbers_below_rounding(dtype: Any, rtol: float) -> None:
    """Of a place whose distance to 1 is rounded to 1 the functions keep all digits."""
    x, a, b = dtype(1e-30), dtype(0.01), dtype(100)
    with tb.enable_x64():
        for kind in ("cdf", "sf", "logcdf", "logsf"):
            found = getattr(module("beta"), kind)(x, a, b)
            np.testing.assert_allclose(found, getattr(stats.beta, kind)(x, a, b), rtol)
        slope = tb.grad(module("beta").logcdf)(x, a, b)
    np.testing.assert_allclose(slope, 0.01 / x, 1e-4)


def test_slopes_at_the_middle_of_generalized_normal_numbers() -> None:
    """The probability grows by the density there, though powers of 0 have no logarithm."""
    gennorm = module("gennorm")
    with tb.enable_x64():
        for shape in (0.5, 1.0, 2.0, 8.0):
            slopes = tb.grad(gennorm.cdf, (0, 1))(0.0, shape)
            np.testing.assert_allclose(slopes, (stats.gennorm.pdf(0, shape), 0), 1e-12)
        assert tb.grad(gennorm.logpdf)(0.0, 0.5) == 0


def test_bounds_at_infinity_have_no_slope() -> None:
    """Also where both bounds are differentiated, of which one is infinite."""
    with tb.enable_x64():
        for kind in ("logpdf", "cdf", "sf", "logcdf", "logsf"):
            function = getattr(module("truncnorm"), kind)
            for low, high in ((-INF, 0.5), (-0.5, INF), (-INF, INF)):
                slopes = np.array(tb.grad(function, (0, 1, 2))(0.3, low, high))
                step = 1e-6
                rest = [function(0.3 + d, low, high) for d in (step, -step)]
                assert np.isfinite(slopes).all(), (kind, low, high)
                np.testing.assert_allclose(slopes[0], (rest[0] - rest[1]) / 2 / step, 1e-6)
                assert [s == 0 for s in slopes[1:]] == [low == -INF, high == INF], (kind, slopes)


def test_densities_in_single_precision() -> None:
    """Squares that overflow, and differences that cancel, take no digits."""
    x = np.array([-1e30, 1e25], np.float32)
    found = module("t").logpdf(x, np.float32(3.0))
    np.testing.assert_allclose(found, stats.t.logpdf(x.astype(float), 3.0), 1e-6)
    c = np.float32(0.999)
    found = module("wrapcauchy").pdf(np.array([0.0, 1e-3], np.float32), c)
    expected = stats.wrapcauchy.pdf(np.array([0.0, 1e-3], np.float32).astype(float), float(c))
    np.testing.assert_allclose(found, expected, 1e-6)
    x, kappa = np.array([1e-3, -0.1, 88.0], np.float32), np.float32(1000.0)
    expected = stats.vonmises.pdf(x.astype(float), 1000.0)
    np.testing.assert_allclose(module("vonmises").pdf(x, kappa), expected, 2e-6)


def test_slopes_of_generalized_normal_numbers_whose_powers_overflow() -> None:
    """Nothing is left of the density there, and nothing of its slopes."""
    x, shape = np.float32(1e30), np.float32(5.0)
    for kind in ("pdf", "cdf"):
        slopes = tb.grad(getattr(module("gennorm"), kind), (0, 1))(x, shape)
        assert (0.0, 0.0) == tuple(map(float, slopes))


def test_slopes_at_the_ends_of_the_support_are_those_from_inside() -> None:
    """Where the density is finite there, as it says; the values are those of the ends."""

    def slope(fun: Any, *args: float) -> float:
        return float(tb.grad(fun)(*args))

    expon, uniform = tb.scipy.stats.expon, tb.scipy.stats.uniform

    assert (2.0, -2.0) == tuple([slope(f, 1.0, 1.0, 0.5) for f in (expon.cdf, expon.sf)])
    assert (-1.0, 0.0) == (slope(expon.logsf, 0.0), slope(expon.cdf, np.inf))
    assert [0.5, 0.5] == [slope(uniform.cdf, x, 1.0, 2.0) for x in (1.0, 3.0)]
    assert [0.0, 1.0] == [float(uniform.cdf(x, 1.0, 2.0)) for x in (1.0, 3.0)]
    assert (-np.inf, 0.0) == (float(expon.logcdf(0.0)), float(expon.sf(np.inf)))


def test_slopes_at_ends_of_the_support() -> None:
    """Those of probabilities are densities, from inside; of vanished ones the logarithms go on."""
    ours = tb.scipy.stats
    for fun, args, expected in (
        (ours.beta.cdf, (0.0, 1.0, 2.0), (2.0, 0.0)),
        (ours.beta.sf, (1.0, 1.0, 1.0), (-1.0, 0.0)),
        (ours.gamma.cdf, (0.0, 1.0), (1.0, 0.0)),
        (ours.chi2.sf, (0.0, 2.0), (-0.5, 0.0)),
        (ours.pareto.cdf, (1.0, 3.0), (3.0, 0.0)),
        (ours.gamma.logcdf, (1e-3, 300.0), (299999.0033, -12.613203)),
        (ours.gamma.logsf, (1e8, 2.0), (-1.0, 17.997896)),
        (ours.beta.logcdf, (1.0, 0.5, 0.5), (np.inf, 0.0)),
        (ours.beta.logsf, (0.0, 0.5, 0.5), (-np.inf, 0.0)),
        (ours.gennorm.cdf, (1e-30, 2.0), (1 / np.sqrt(np.pi), 0.0)),
    ):
        np.testing.assert_allclose(tb.grad(fun, (0, 1))(*args), expected, 1e-6, 1e-12)
    for fun in (ours.gumbel_l.ppf, ours.gumbel_r.ppf):
        assert [np.inf, np.inf] == [float(tb.grad(fun)(q)) for q in (0.0, 1.0)]


def test_truncnorm_logarithms_close_to_0() -> None:
    """From what is on the other side, of which the digits are."""
    x = np.array([-29.0, -25.75, -20.5])
    with tb.enable_x64():
        found = tb.scipy.stats.truncnorm.logsf(x, -30.0, -20.0)
        mirrored = tb.scipy.stats.truncnorm.logcdf(-x, 20.0, 30.0)

    expected = stats.truncnorm.logsf(x, -30.0, -20.0)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(mirrored, expected, rtol=1e-12)


def test_slopes_of_masses_at_certain_outcomes() -> None:
    """In the last parameter at its ends, where logarithms are infinite."""
    k = np.array([-1.0, 0.0, 1.0, 2.0, 3.0])
    ours = tb.scipy.stats
    for fun, shapes, expected in (
        (ours.bernoulli.pmf, (1.0,), [0, -1, 1, 0, 0]),
        (ours.binom.pmf, (3.0, 0.0), [0, -3, 3, 0, 0]),
        (ours.binom.pmf, (3.0, 1.0), [0, 0, 0, -3, 3]),
        (ours.geom.pmf, (1.0,), [0, 0, 1, -1, 0]),
        (ours.nbinom.pmf, (2.0, 1.0), [0, 2, -2, 0, 0]),
        (ours.poisson.pmf, (0.0,), [0, -1, 1, 0, 0]),
        (ours.bernoulli.logpmf, (1.0,), [0, -np.inf, 1, 0, 0]),
    ):
        slope = tb.grad(lambda p, x, f=fun, s=shapes: f(x, *s[:-1], p))
        found = tb.vmap(slope, (None, 0))(shapes[-1], k)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("path", ["norm.logpdf", "cauchy.logpdf", "laplace.pdf", "gumbel_l.pdf"])
def test_narrow_floats_are_rounded_once(path: str) -> None:
    """Squares do not overflow, and exponentials of rounded exponents would have few digits."""
    function = functools.reduce(getattr, path.split("."), tb.scipy.stats)
    x = tb.numpy.asarray([-300.0, -4.25, 0.3, 2.25, 50.0], "float16")
    with tb.enable_x64(True):
        expected = np.asarray(function(x.astype("float64")))

    np.testing.assert_allclose(np.asarray(function(x), np.float64), expected, rtol=6e-4, atol=1e-7)


def test_slopes_of_heavy_tails_far_out() -> None:
    """Also of second order, where powers of the squares have no floats."""
    x = np.array([1e8, 1e10, 5e18, 9.5e18, 1.6e19, 2e19], np.float32)
    slope = tb.grad(tb.scipy.stats.cauchy.logpdf)
    np.testing.assert_allclose(tb.jit(tb.vmap(slope))(x) * x, np.full(6, -2.0), 1e-5)
    second = tb.jit(tb.vmap(tb.grad(slope)))(x[:4])
    np.testing.assert_allclose(second * x[:4] * x[:4], np.full(4, 2.0), 1e-5)


def test_pareto_numbers_of_an_infinite_power_are_all_1() -> None:
    """The limits; SciPy has no number for the density beyond."""
    y, b = np.array([0.5, 1.0, 2.0]), np.inf
    expected = {
        "pdf": [0, INF, 0], "logpdf": [-INF, INF, -INF], "cdf": [0, 0, 1], "sf": [1, 1, 0],
        "logcdf": [-INF, -INF, 0], "logsf": [0, 0, -INF],
    }  # fmt: skip
    with tb.enable_x64():
        for kind, values in expected.items():
            found = getattr(tb.scipy.stats.pareto, kind)(y, b)
            np.testing.assert_array_equal(np.asarray(found), values, kind)


def test_no_trials_have_one_outcome() -> None:
    """With a probability of 1, whatever the parameters."""
    with tb.enable_x64():
        log = tb.scipy.stats.betabinom.logpmf
        value, slopes = tb.value_and_grad(log, (2, 3))(0.0, 0.0, 0.3, 7.1)

    assert 0.0 == float(value)
    assert [0.0, 0.0] == [*map(float, slopes)]


def test_slopes_in_the_trials_where_none_can_succeed() -> None:
    """The probability of no success is (1 - p)^n: its logarithm has the slope log(1 - p), 0."""
    for mode in (tb.jacfwd, tb.jacrev):
        for n in (0.0, 1.0, 4.0):
            slope = mode(lambda n: tb.scipy.stats.binom.logpmf(0.0, n, 0.0))(np.float32(n))
            assert abs(float(slope)) < 1e-6
