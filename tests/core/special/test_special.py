"""Incomplete gamma and beta functions and Bessel functions: hard points against many digits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import special

import tracebridge as tb
from tests.quick_compiles import check_grads
from tracebridge import lax
from tracebridge.core.special.incomplete_beta import beta_density_p
from tracebridge.errors import MissingRuleError

INF, NAN = np.inf, np.nan
Host = np.ndarray[Any, Any]


def points(dtype: Any) -> list[Host]:
    """Shapes from 0.001 to a million, and arguments around them and anywhere."""
    rng = np.random.default_rng(0)
    a = 10 ** rng.uniform(-3, 6, 60)
    around = a * np.exp(rng.normal(0, 1, 60) / np.sqrt(1 + a) * 2)
    x = np.where(rng.random(60) < 0.5, around, 10 ** rng.uniform(-3, 3, 60))
    return [a.astype(dtype), x.astype(dtype)]


def beta_points(dtype: Any) -> list[Host]:
    """Parameters from 0.001 to 10000, and the whole range of the result."""
    rng = np.random.default_rng(1)
    a, b = (10 ** rng.uniform(-3, 4, 60) for _ in range(2))
    x = special.betaincinv(a, b, rng.random(60))
    x = np.where((x > 1e-30) & (x < 0.9999), x, rng.uniform(0.01, 0.99, 60))
    return [v.astype(dtype) for v in (a, b, x)]


def small_beta_points(dtype: Any) -> list[Host]:
    """A small second parameter and ``x`` beyond the mean: the other tail is close to 1."""
    rng = np.random.default_rng(3)
    a = 10 ** rng.uniform(-2, 4, 60)
    b = np.minimum(a, 1) * 10 ** rng.uniform(-7, 0, 60) / 2
    x = 1 - 10 ** rng.uniform(-4, 0, 60) / (a + 2)
    return [v.astype(dtype) for v in (a, b, np.minimum(x, 1 - np.finfo(dtype).eps))]


def line_points(dtype: Any) -> list[Host]:
    """Both signs, tiny and large numbers, and where the formulas change."""
    rng = np.random.default_rng(2)
    parts = [rng.uniform(-12, 12, 40), 10 ** rng.uniform(-8, 6, 20), [0.0, 8.0, -8.0, 8.000001]]
    return [np.concatenate(parts).astype(dtype)]


def exact_betainc(a: Any, b: Any, x: Any) -> Any:
    """The series of positive terms, from the nearer end."""
    if x > (a + 1) / (a + b + 2):
        return 1 - exact_betainc(b, a, 1 - x)
    term = total = mpmath.mpf(1)
    n = 0
    while term > total * mpmath.mpf(10) ** -38:
        term = term * (a + b + n) / (a + 1 + n) * x
        total += term
        n += 1
    return total * mpmath.exp(a * mpmath.log(x) + b * mpmath.log1p(-x)) / a / mpmath.beta(a, b)


def exact_slope(a: Any, x: Any) -> Any:
    """The derivative of the lower function in the shape, from central differences."""
    h = a * mpmath.mpf(10) ** -25
    f, sign = (lower, 1) if x < a else (upper, -1)
    return sign * (f(a + h, x) - f(a - h, x)) / (2 * h)


def exact_number_slope(a: Any, x: Any) -> Any:
    """How a gamma number moves with its shape."""
    return -exact_slope(a, x) / (x ** (a - 1) * mpmath.exp(-x) / mpmath.gamma(a))


def bessel(order: int) -> Callable[[Any], Any]:
    """A scaled Bessel function."""
    return lambda x: mpmath.exp(-abs(x)) * mpmath.besseli(order, x)


def lower(a: Any, x: Any) -> Any:
    """The regularized lower incomplete gamma function."""
    return mpmath.gammainc(a, 0, x, regularized=True)


def upper(a: Any, x: Any) -> Any:
    """The regularized upper incomplete gamma function."""
    return mpmath.gammainc(a, x, regularized=True)


CASES = [
    (lax.igamma, lower, points, 50),
    (lax.igammac, upper, points, 40),
    (lax.igamma_grad_a, exact_slope, points, 60),
    (lax.random_gamma_grad, exact_number_slope, points, 6),
    (lax.betainc, exact_betainc, beta_points, 40),
    (lax.betainc, exact_betainc, small_beta_points, 40),
    (lax.bessel_i0e, bessel(0), line_points, 5),
    (lax.bessel_i1e, bessel(1), line_points, 12),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("function", "exact", "sample", "bound"), CASES, ids=lambda v: getattr(v, "__name__", "")
)
def test_accuracy_over_the_whole_range(
    function: Any, exact: Any, sample: Any, bound: int, dtype: Any
) -> None:
    """Results are within the written bound of units in the last place."""
    arguments = sample(dtype)
    with tb.enable_x64():
        actual = np.asarray(function(*[tb.numpy.asarray(v) for v in arguments]))
    worst = 0.0
    with mpmath.workdps(60):
        for got, *given in zip(actual, *arguments, strict=True):
            wanted = exact(*[mpmath.mpf(float(v)) for v in given])
            if abs(wanted) < np.finfo(dtype).tiny or not mpmath.isfinite(wanted):
                continue  # underflow, also that of the differences
            error = abs(mpmath.mpf(float(got)) - wanted)
            worst = max(worst, float(error / float(np.spacing(dtype(abs(float(wanted)))))))

    assert dtype == actual.dtype
    assert worst <= bound


@pytest.mark.parametrize("function", ["igamma", "igammac"])
def test_incomplete_gamma_at_its_edges(function: str) -> None:
    """Zeros, infinities, negative numbers and NaN give what SciPy gives."""
    edges = np.array([0.0, 1.0, 30.0, 1e5, INF, -1.0, NAN])
    a, x = (v.ravel() for v in np.meshgrid(edges, edges))
    reference = {"igamma": special.gammainc, "igammac": special.gammaincc}[function]
    with tb.enable_x64():
        actual = np.asarray(getattr(lax, function)(*[tb.numpy.asarray(v) for v in (a, x)]))

    np.testing.assert_allclose(actual, reference(a, x), rtol=1e-13, atol=1e-300)


def test_narrow_tails_do_not_vanish_early() -> None:
    """The exponential of float32 underflows before its product with the power does."""
    a, x = np.array([6.0, 9.9, 2.0], np.float32), np.array([100.0, 99.0, 84.0], np.float32)

    np.testing.assert_allclose(lax.igammac(a, x), special.gammaincc(*np.float64([a, x])), rtol=2e-5)


def test_incomplete_beta_at_its_edges() -> None:
    """Parameters of 0 and infinity put all weight at an end; NaN beyond the domain."""
    a = np.array([0.0, 0.0, 0.0, 1.0, 1.0, INF, 2.0, 2.0, -1.0, 1.0, 2.0, NAN, 2.0, INF])
    b = np.array([1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 3.0, 3.0, 1.0, -1.0, INF, 1.0, 2.0, INF])
    x = np.array([0.5, 0.0, 0.5, 0.5, 1.0, 0.5, 0.0, 1.0, 0.5, 0.5, 0.5, 0.5, 1.5, 0.5])
    expected = [1, 0, NAN, 0, 1, 0, 0, 1, NAN, NAN, 1, NAN, NAN, NAN]
    with tb.enable_x64():
        actual = np.asarray(lax.betainc(*[tb.numpy.asarray(v) for v in (a, b, x)]))

    np.testing.assert_array_equal(expected, actual)


def test_slopes_at_the_edges_are_finite_where_they_exist() -> None:
    """Derivatives in the argument at the ends of its range."""
    slope = tb.vmap(tb.grad(lax.igamma, 1))
    ones, x = np.float32([1.0, 1.0, 2.0, 2.0]), np.float32([0.0, INF, 0.0, INF])
    density = tb.vmap(tb.grad(lax.betainc, 2))
    a, b, ends = (
        np.float32([1, 2, 3, 1, 2]),
        np.float32([3, 3, 1, 1, 2]),
        np.float32([0, 0, 1, 1, 1]),
    )

    np.testing.assert_array_equal([1, 0, 0, 0], np.asarray(slope(ones, x)))
    np.testing.assert_array_equal([3, 0, 3, 1, 0], np.asarray(density(a, b, ends)))
    twice = tb.vmap(tb.grad(tb.grad(lax.betainc, 2), 2))
    a, b, ends = (
        np.float32([2, 2, 1.5, 3, 1, 3, 3]),
        np.float32([3, 1, 2, 2, 3, 1, 1.5]),
        np.float32([0, 0, 0, 1, 0, 1, 1]),
    )

    steep = [12, 2, INF, -12, -6, 6, -INF]
    np.testing.assert_allclose(np.asarray(twice(a, b, ends)), steep, rtol=1e-5)
    assert 0.5 == float(tb.grad(lax.bessel_i1e)(0.0))
    assert 0.0 == float(tb.grad(lax.bessel_i0e)(0.0))


def test_a_batch_of_shapes_and_a_scalar() -> None:
    """Scalars stand beside arrays, under vmap too; bfloat16 is computed in float32."""
    a = np.float32([0.5, 2.0, 300.0])
    expected = special.gammainc(a.astype(np.float64), 2.0)
    for f in (lax.igamma, tb.jit(lax.igamma), tb.vmap(lax.igamma, (0, None))):
        np.testing.assert_allclose(np.asarray(f(a, np.float32(2.0))), expected, rtol=1e-5)
    half = lax.igamma(tb.numpy.asarray(a, "bfloat16"), tb.numpy.asarray(2.0, "bfloat16"))

    assert "bfloat16" == half.dtype
    np.testing.assert_allclose(np.asarray(half, np.float32), expected, rtol=1e-2)


def test_derivatives_that_are_not_there_say_so() -> None:
    """betainc twice in its parameters, gamma numbers twice."""
    with pytest.raises(MissingRuleError, match="betainc has no second derivative in its first two"):
        tb.make_jaxpr(tb.grad(tb.grad(lax.betainc, 1)))(1.0, 2.0, 0.5)
    with pytest.raises(MissingRuleError, match="igamma_grad_a has no derivative in its first"):
        tb.make_jaxpr(tb.grad(lax.igamma_grad_a))(1.0, 2.0)
    with pytest.raises(MissingRuleError, match="gamma numbers have first derivatives only"):
        tb.make_jaxpr(tb.grad(lax.random_gamma_grad))(1.0, 2.0)


@pytest.mark.parametrize("index", [0, 1])
def test_slopes_of_betainc_in_its_parameters(index: int) -> None:
    """Against central differences with many digits; at parameters of 0 the limit; ends are flat."""
    points = [v[:12] for v in beta_points(np.float64)]
    edges = np.array(
        [
            [0, 0.5, 0.3],
            [2, 2, 0],
            [2, 3, 1],
            [INF, 1, 0.5],
            [-1, 1, 0.5],
            [0, 0, 0.5],
            [1, NAN, 0.5],
        ]
    ).T
    if index:
        edges = np.array([edges[1], edges[0], 1 - edges[2]])
    with tb.enable_x64():
        slope = tb.jit(tb.grad(lambda *xs: tb.numpy.sum(lax.betainc(*xs)), index))
        every = np.asarray(slope(*np.concatenate([points, edges], axis=1)))
    with mpmath.workdps(45):
        for got, *given in zip(every, *points, strict=False):
            step = mpmath.mpf(given[index]) * mpmath.mpf(10) ** -15
            low, high = (
                exact_betainc(*[mpmath.mpf(v) + s * (k == index) for k, v in enumerate(given)])
                for s in (-step, step)
            )
            wanted = float((high - low) / (2 * step))
            # Where the parameter hardly matters its slope is a difference of larger numbers.
            np.testing.assert_allclose(got, wanted, rtol=2e-13, atol=1e-15)

    # The integral of (1 - t)**-0.5 / t from 0.3 to 1.
    limit = -2 * np.arctanh(np.sqrt(0.7)) * (-1 if index else 1)
    np.testing.assert_allclose(every[12], limit, rtol=1e-14)
    np.testing.assert_array_equal(every[13:], [0, 0, 0, NAN, NAN, NAN])


def test_slope_of_igamma_at_the_shape_0() -> None:
    """Minus the exponential integral."""
    x = np.float32([0.5, 2.0, INF])

    slope = np.asarray(lax.igamma_grad_a(np.zeros(3, np.float32), x))

    np.testing.assert_allclose(slope, -special.exp1(x), rtol=1e-6)


def test_second_derivatives_agree_with_differences() -> None:
    """Of what is differentiable twice."""
    with tb.enable_x64():
        check_grads(lambda x: lax.igamma(2.5, x), (1.5,), order=2)
        check_grads(lambda x: lax.igammac(2.5, x), (1.5,), order=2)
        check_grads(lambda x: lax.betainc(2.5, 1.5, x), (0.3,), order=3)
        check_grads(lax.bessel_i0e, (np.array([0.3, 9.0, -2.0]),), order=3)


@pytest.mark.parametrize("function", [lax.igamma, lax.igammac, lax.random_gamma_grad])
def test_lowered_to_stablehlo_alone(function: Any) -> None:
    """No operation of CHLO without a StableHLO form, no call of a kernel."""
    text = tb.jit(function).lower(1.0, 2.0).as_text()

    assert "custom_call" not in text
    assert "stablehlo.while" in text


def test_betainc_of_one_large_parameter() -> None:
    """In float32: numbers beside 1 have lost digits of their distance, large logarithms cancel."""
    a, b, x = np.float32(
        [
            (9.428692, 6102.3174, 0.0017134235),
            (2061.4275, 0.64633167, 0.9992034),
            (8326.228, 7.3883357, 0.9990147),
            (6.494859, 0.5680094, 0.8450117),
            (1.7301351, 9822.05, 0.0002833895),
            (3514.6086, 1.9903227, 0.9991523),
        ]
    ).T
    expected = special.betainc(*[v.astype(np.float64) for v in (a, b, x)])

    np.testing.assert_allclose(lax.betainc(a, b, x), expected, rtol=2e-5)


def _betainc_below_the_mean(a: Any, b: Any, x: Any) -> Any:
    """The integral of the density, from where nothing is left on."""
    mean, deviation = a / (a + b), mpmath.sqrt(a * b / (a + b) ** 3)
    far = (mean - x) / deviation
    width = 260 / (far + mpmath.sqrt(far * far + 200)) * deviation
    scale = mpmath.loggamma(a + b) - mpmath.loggamma(a) - mpmath.loggamma(b)
    density = lambda t: mpmath.exp((a - 1) * mpmath.log(t) + (b - 1) * mpmath.log1p(-t) + scale)
    places = mpmath.linspace(max(x - width, 0), x, 4)
    return mpmath.quad(density, places, method="gauss-legendre", maxdegree=5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_betainc_of_large_parameters(dtype: Any) -> None:
    """A fraction of them has more terms than anybody adds; logarithms lose what cancels in them."""
    info, wrong = np.finfo(dtype), []
    a, b, x = [], [], []
    for large in (2e3, 1e6, 1e12):
        for share in (1.0, 0.3):
            for far in (-4.0 if large > 1e9 else -12.0, -1.0, 1.0):
                a.append(large * share)
                b.append(large)
                x.append(share / (1 + share) + far * np.sqrt(share / (1 + share) ** 3 / large))
    a, b, x = (np.array(v, dtype) for v in (a, b, x))
    with tb.enable_x64(True):
        found = np.asarray(tb.jit(lax.betainc)(a, b, x))
    with mpmath.workprec(200):
        for got, *point in zip(found, a, b, x, strict=True):
            p, q, z = (mpmath.mpf(float(v)) for v in point)
            if z > p / (p + q):
                exact = 1 - _betainc_below_the_mean(q, p, 1 - z)
            else:
                exact = _betainc_below_the_mean(p, q, z)
            unit = mpmath.mpf(2) ** (mpmath.frexp(exact)[1] - info.nmant - 1)
            error = float(abs(got - exact) / unit)
            if exact > float(info.tiny) and not error <= 24:
                wrong.append((*map(float, point), error))

    assert [] == wrong
    assert 0.5 == pytest.approx(float(lax.betainc(1e20, 1e20, 0.5)), rel=2e-6)


def test_second_slopes_at_the_ends() -> None:
    """Those of incomplete functions at 0 are limits; beyond all floats those of i1 are infinite."""
    second = tb.grad(tb.grad(lax.igamma, 1), 1)
    shapes = [0.5, 1.0, 1.5, 2.0, 2.5]
    assert [-INF, -1.0, INF, 1.0, 0.0] == [float(second(a, 0.0)) for a in shapes]
    curve = tb.grad(tb.grad(lax.betainc, 2), 2)
    assert [-6.0, 0.0] == [round(float(curve(1.0, 3.0, 0.0)), 4), float(curve(1.0, 1.0, 1.0))]
    i1 = tb.grad(tb.grad(tb.scipy.special.i1))
    assert [INF, -INF] == [float(i1(np.float32(x))) for x in (1e30, -1e30)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_among_the_operands_are_computed_once(dtype: Any) -> None:
    """Gamma functions of parameters that are numbers are no steps of each element, with one value.

    The densities of beta numbers at the ends and outside, too, and of parameters of all sizes.
    """
    x = np.array([-1.0, 0.0, 1e-30, 0.3, 0.5, 0.7, 1.0, 2.0, NAN], dtype)

    with tb.enable_x64(True):
        compiled = tb.jit(lambda a, b, x: beta_density_p.bind(a, b, x))
        program = compiled.lower(dtype(2), dtype(3), x).as_text()
        for a, b in ((2, 3), (0.5, 1), (1, 1), (30, 0.25), (40, 50), (-1, 2), (2, INF), (NAN, 1)):
            once = np.asarray(compiled(dtype(a), dtype(b), x))
            full = np.asarray(compiled(np.full_like(x, a), np.full_like(x, b), x))
            np.testing.assert_allclose(full, once, rtol=8 * np.finfo(dtype).eps)

    gammas = [line for line in program.splitlines() if "@lgamma(%arg0" in line]
    assert gammas
    assert not [line for line in gammas if "tensor<9x" in line]


@pytest.mark.parametrize("order", [0, 1])
def test_second_derivatives_of_bessel_functions_keep_their_digits_far_out(order: int) -> None:
    """Both terms of the difference that they are become the same there."""
    xs = [8.6, 9.5, 16.0, 33.0, 900.0, 1e4]
    f = (lax.bessel_i0e, lax.bessel_i1e)[order]
    with mpmath.workdps(60):
        expected = [
            float(mpmath.diff(bessel(order), mpmath.mpf(x), 2, h=x * mpmath.mpf("1e-8")))
            for x in xs
        ]
    with tb.enable_x64():
        actual = tb.jit(tb.vmap(tb.grad(tb.grad(f))))(np.array(xs))
        ends = tb.vmap(tb.grad(tb.grad(f)))(np.array([np.inf, -np.inf, np.nan]))

    np.testing.assert_allclose(actual, expected, 3e-15)
    np.testing.assert_array_equal(ends, [0.0, 0.0, np.nan])
