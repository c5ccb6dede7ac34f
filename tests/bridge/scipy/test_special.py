"""scipy.special: values of SciPy on hard points, derivatives, reductions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from mpmath import mp
from scipy import special

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.quick_compiles import check_grads
from tracebridge.errors import ArgumentValueError, UnsupportedDtypeError
from tracebridge.scipy import special as ours
from tracebridge.testing import assert_allclose

INF, NAN = np.inf, np.nan
LINE = np.array(
    [-30.5, -6.0, -2.0, -1.0, -0.5, -0.0, 0.0, 1e-8, 0.3, 0.5, 0.9, 1.0, 1.5, 5.0, 30.0, NAN]
)
POSITIVE = np.array([1e-8, 0.3, 0.5, 0.9, 1.0, 1.5, 5.0, 30.0, 1e5])
ENDS = np.array([-INF, INF])
UNARY = {
    "gammaln": (LINE, INF), "gammasgn": (LINE,), "gamma": (LINE,), "digamma": (LINE,),
    "erf": (LINE, -INF, INF), "erfc": (LINE, -INF, INF), "erfinv": (LINE,),
    "ndtr": (LINE, -INF, INF), "log_ndtr": (LINE, -INF, INF),
    "ndtri": (LINE, 1e-300, 1e-20, 1e-5, 0.0999, 0.1, 0.9999),
    "i0": (LINE,), "i0e": (LINE, -INF, INF), "i1": (LINE,), "i1e": (LINE,),
    "entr": (LINE, INF), "logit": (LINE,), "expit": (LINE, -INF, INF),
    "factorial": (POSITIVE[:-1],),
}  # fmt: skip
BINARY = {
    "xlogy": LINE, "xlog1py": LINE, "rel_entr": LINE, "kl_div": LINE, "boxcox": POSITIVE,
    "boxcox1p": POSITIVE, "poch": POSITIVE[:-2], "beta": POSITIVE[:-1], "betaln": POSITIVE[:-1],
    "gammainc": LINE, "gammaincc": LINE, "comb": POSITIVE[:-1],
}  # fmt: skip


def check(name: str, *xs: Any, rtol: float = 3e-12) -> None:
    """Values of float64 as SciPy's."""
    with tb.enable_x64():
        actual = np.asarray(getattr(ours, name)(*xs))

    assert np.float64 == actual.dtype
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(actual, getattr(special, name)(*xs), rtol=rtol, atol=1e-300)


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_argument(name: str) -> None:
    """Zeros, poles, NaN, both signs, tails."""
    check(name, np.concatenate([np.ravel(part) for part in UNARY[name]]))


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_arguments(name: str) -> None:
    """All pairs of points."""
    check(name, *(v.ravel() for v in np.meshgrid(BINARY[name], BINARY[name])))


def test_poch_between_poles_of_gamma() -> None:
    """Products of whole numbers and their slopes, with all digits, where gamma has poles too."""
    z, m = np.meshgrid([-1e5, -7.0, -3.0, -1.0, 0.0, 0.5, 4.0, 1e5], [0.0, 1, 2, 5, -1, -2])
    check("poch", z.ravel(), m.ravel())
    check("poch", np.array([-3.0, -1.0, 0.0]), np.array([2.5, -0.5, 1e-3]))
    slope, step = tb.grad(ours.poch), tb.grad(ours.poch, 1)
    with tb.enable_x64():
        slopes = [round(float(slope(x, 2.0)), 9) for x in (-3.0, -1.0, 0.0, 4.0)]
        assert [-5.0, -1.0, 1.0, 9.0] == slopes
        assert [2.0, 0.0] == [abs(round(float(slope(x, 3.0)), 9)) for x in (0.0, 1 / 3**0.5 - 1)]
        curve = float(tb.grad(slope)(-1.0, 3.0))
        np.testing.assert_allclose(curve, 0.0, atol=1e-9)  # of x**3 + 3 x**2 + 2 x
        np.testing.assert_allclose(step(2.5, 0.0), special.digamma(2.5), 1e-12)


def test_functions_with_orders() -> None:
    """Orders, shifts and dimensions."""
    x = np.array([0.3, 1.0, 4.5])
    check("betainc", 2.0, x, np.array([0.1, 0.5, 0.9]))
    check("polygamma", 2, x)
    check("zeta", x + 1, 2.0)
    check("zeta", x + 1)
    check("multigammaln", x + 2, 3)
    assert_allclose(ours.multigammaln(x + 2, 3.0), ours.multigammaln(x + 2, 3))
    with pytest.raises(TypeError, match=r"multigammaln: d is 2\.5"):
        ours.multigammaln(x, 2.5)
    check("bernoulli", 9, rtol=1e-11)
    with pytest.raises(ArgumentValueError, match="factorial"):
        ours.factorial(3, exact=True)
    with pytest.raises(UnsupportedDtypeError, match=r"ndtr: .*expected real numbers"):
        ours.ndtr(1j)


def test_logarithms_and_powers_of_complex_numbers() -> None:
    """Those of SciPy, which has them for some, and the formulas."""
    z = np.array([0.3 + 0.4j, -1 + 2j, 0.7 - 0.1j])
    with_zero = np.append(z, 0)
    with tb.enable_x64():
        for found, expected in [
            (ours.xlogy(with_zero, with_zero), special.xlogy(with_zero, with_zero)),
            (ours.xlog1py(z, z), special.xlog1py(z, z)),
            (ours.expit(z), 1 / (1 + np.exp(-z))),
            (ours.logit(z), np.log(z / (1 - z))),
            (ours.boxcox(z, z), (z**z - 1) / z),
            (ours.boxcox1p(z, z), ((1 + z) ** z - 1) / z),
        ]:
            np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-14)


def test_divergences_of_numbers_beside_each_other_keep_their_digits() -> None:
    """The series of the logarithm, not a difference of numbers that nearly cancel."""
    q = 1 + np.array([-0.4, -1e-2, 1e-4, 0.03, 0.9]).astype(np.float32)
    d = q.astype(np.longdouble) - 1
    log = np.log1p(d)

    np.testing.assert_allclose(ours.rel_entr(np.float32(1), q), -log, rtol=1e-6)
    np.testing.assert_allclose(ours.kl_div(np.float32(1), q), d - log, rtol=1e-6)
    np.testing.assert_allclose(
        tb.vmap(tb.grad(ours.kl_div), (None, 0))(1.0, q), -log, rtol=1e-6, atol=1e-7
    )


def test_beta_of_large_numbers_keeps_its_digits() -> None:
    """B(1, b) is 1 / b, which differences of large logarithms do not give."""
    b = np.array([1e5, 1e8, 1e15])
    with tb.enable_x64():
        np.testing.assert_allclose(np.asarray(ours.betaln(1.0, b)), -np.log(b), rtol=1e-15)
        np.testing.assert_allclose(np.asarray(ours.beta(1.0, b)), 1 / b, rtol=1e-14)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_beta_and_comb_of_two_large_numbers(dtype: str) -> None:
    """One vanishes, the other is infinite: their factors are 0 and infinite, and make no NaN."""
    x = np.array([1e10, 1.27e28, 1e28, 3e27] if dtype == "float32" else [1.27e30, 1e30], dtype)
    y = np.array([1e5, 1e28, 1e27, 7e26] if dtype == "float32" else [1e30, 1e29], dtype)
    with tb.enable_x64(dtype == "float64"):
        values = np.array([ours.beta(x, y), ours.beta(y, x), ours.comb(x, y)])

    assert [0.0, 0.0, math.inf] == [*map(float, values.min(1))] == [*map(float, values.max(1))]
    assert not np.signbit(values).any()


def test_beta_of_a_number_that_rounding_adds_to_nothing() -> None:
    """The share of the small one of two numbers vanishes in float32, its power does not."""
    found = ours.beta(np.float32([1.0, 0.5]), np.float32([5e37, 3e38]))

    np.testing.assert_allclose(found, special.beta([1.0, 0.5], [5e37, 3e38]), rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_choices_among_infinitely_many(dtype: Any) -> None:
    """One of none, else infinitely many, as SciPy's."""
    with tb.enable_x64():
        found = ours.comb(dtype(np.inf), np.array([0.0, 1.0, -1.0, np.inf], dtype))

    np.testing.assert_array_equal([1.0, np.inf, 0.0, np.nan], np.asarray(found))


@pytest.mark.parametrize(("n", "k"), [(5.0, 0.0), (5.0, 5.0), (0.5, 0.5)])
def test_second_derivative_of_comb_at_its_ends(n: float, k: float) -> None:
    """The smooth function is curved there as well, though values beyond are 0."""
    with tb.enable_x64(), mp.workdps(60):
        slope, curve = (tb.grad(f, 1)(n, k) for f in (ours.comb, tb.grad(ours.comb, 1)))
        smooth = lambda x: mp.gamma(n + 1) * mp.rgamma(x + 1) * mp.rgamma(n - x + 1)
        expected = [float(mp.diff(smooth, k, order)) for order in (1, 2)]

    np.testing.assert_allclose([float(slope), float(curve)], expected, rtol=1e-12)


def test_beta_of_negative_numbers() -> None:
    """At and between poles, and where one of two parameters is large."""
    a = np.array([-2.5, -2.5, -3.0, -3.0, -0.3, -7.25, -1.0, 0.4, -2.0])
    b = np.array([1.5, 3.25, 2.0, 0.5, -1.9, 6.5, -1.5, -0.4, 5.0])
    expected = special.beta(a, b)
    with tb.enable_x64():
        np.testing.assert_allclose(np.asarray(ours.beta(a, b)), expected, rtol=1e-13)
        np.testing.assert_allclose(np.asarray(ours.beta(b, a)), expected, rtol=1e-13)
        slope = float(tb.grad(ours.betaln)(-2.5, 3.25))
        with mp.workdps(50):
            far = [float(mp.log(abs(mp.beta(x, 1e10)))) for x in (-2.5, -0.3)]
        found = np.asarray(ours.betaln(np.array([-2.5, -0.3]), 1e10))
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(found, far, rtol=1e-14)
        np.testing.assert_allclose(slope, special.digamma(-2.5) - special.digamma(0.75), rtol=1e-13)


def test_logit_outside_of_the_unit_interval() -> None:
    """Infinite at its ends, whichever sign the zero has, and NaN beyond."""
    beyond = [-0.1, 1.5, 2.0, 1e30, -1e30, np.inf, -np.inf, np.nan]

    assert [-np.inf, -np.inf, np.inf, 0.0] == ours.logit(np.array([-0.0, 0, 1, 0.5])).tolist()
    assert np.isnan(ours.logit(np.array(beyond))).all()


def test_logit_keeps_its_digits_in_the_middle() -> None:
    """Beside 1/2, where both logarithms are nearly the same."""
    p = np.array([0.5, 0.5 + 1e-12, 0.5 - 1e-6, 0.3, 0.75, 0.24999, 0.0, 1.0])
    with mp.workdps(40):
        expected = [float(mp.log(mp.mpf(x) / (1 - mp.mpf(x)))) for x in p[:-2]]
    with tb.enable_x64():
        found = np.asarray(ours.logit(p))
        slopes = np.asarray(tb.vmap(tb.grad(ours.logit))(p))

    np.testing.assert_allclose(found, [*expected, -np.inf, np.inf], rtol=5e-16)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(slopes, 1 / (p * (1 - p)), rtol=1e-14)


def test_slopes_of_entropies_at_infinity() -> None:
    """Those of the logarithms, forwards and backwards; NaN only where NaN is given."""
    inf, nan = np.inf, np.nan
    for fun, p, q, expected in (
        (ours.rel_entr, inf, 1.0, (inf, -inf)),
        (ours.rel_entr, 1.0, inf, (-inf, 0.0)),
        (ours.rel_entr, nan, 1.0, (nan, nan)),
        (ours.kl_div, 1.0, inf, (-inf, 1.0)),
        (ours.kl_div, 0.0, 2.0, (0.0, 1.0)),
        (ours.xlogy, inf, inf, (inf, 1.0)),
    ):
        np.testing.assert_array_equal(tb.grad(fun, (0, 1))(p, q), expected)
        in_p = tb.jvp(lambda x, f=fun, q=q: f(x, q), (p,), (1.0,))[1]
        forwards = [in_p, tb.jvp(lambda x, f=fun, p=p: f(p, x), (q,), (1.0,))[1]]
        np.testing.assert_array_equal(forwards, expected)


def test_integers_become_floats_and_shapes_are_broadcast() -> None:
    """Dtypes: float32 by default, 16-bit ones stay."""
    assert (np.float32, (3, 2)) == (
        (found := ours.xlogy(np.arange(3)[:, None], np.arange(2))).dtype,
        found.shape,
    )
    assert np.float16 == ours.ndtr(np.float16(1)).dtype
    np.testing.assert_allclose(120, float(ours.factorial(5)))


@pytest.mark.parametrize(
    ("name", "x"),
    [
        ("log_ndtr", [-40.0, -5.5, -1.0, 3.0]), ("ndtri", [0.001, 0.3, 0.95]), ("entr", [0.2, 2.0]),
        ("gamma", [0.5, 3.3]), ("i0", [0.0, 0.3, 9.0]), ("i1", [0.0, 0.3, 9.0]), ("logit", [0.3]),
    ],
)  # fmt: skip
def test_derivatives(name: str, x: list[float]) -> None:
    """First and second derivatives agree with differences."""
    with tb.enable_x64():
        check_grads(getattr(ours, name), (np.array(x),), order=2, rtol=1e-3)


@pytest.mark.parametrize(
    ("name", "at", "expected"),
    [
        ("xlogy", (0.0, 2.0), (np.log(2), 0)), ("xlogy", (0.0, 0.0), (-INF, 0)),
        ("xlog1py", (0.0, 1.0), (np.log(2), 0)), ("boxcox", (2.0, 0.0), (0.5, None)),
        ("rel_entr", (0.0, 1.0), (0, 0)), ("kl_div", (1.0, 2.0), (-np.log(2), 0.5)),
    ],
)  # fmt: skip
def test_derivatives_at_the_guards(name: str, at: Any, expected: Any) -> None:
    """Where a guard takes over there is no NaN."""
    for i, wanted in enumerate(expected):
        if wanted is not None:
            np.testing.assert_allclose(
                float(tb.grad(getattr(ours, name), i)(*at)), wanted, rtol=1e-6
            )


def test_logsumexp_of_complex_numbers() -> None:
    """The principal value; with the sign the size's logarithm and the phase."""
    numbers = np.random.default_rng(5)
    a, b = (
        (3 * numbers.normal(size=(2, 3)) + 3j * numbers.normal(size=(2, 3))).astype(np.complex64)
        for _ in range(2)
    )
    for args in ((a, 1), (a, 1, b), (a.real, 1, b)):
        found = [ours.logsumexp(*args), *ours.logsumexp(*args, return_sign=True)]
        wanted = [special.logsumexp(*args), *special.logsumexp(*args, return_sign=True)]
        for expected, actual in zip(wanted, found, strict=True):
            assert expected.dtype == actual.dtype
            np.testing.assert_allclose(np.asarray(actual), expected, rtol=1e-4)


def test_logsumexp() -> None:
    """Weights, signs, masks, empty and infinite entries as SciPy's; gradients without NaN."""
    a = np.array([[1.0, -INF, 900.0], [0.0, 1.0, 2.0]])
    b = np.array([1.0, 0.0, -2.0])
    with tb.enable_x64():
        for axis in (None, 0, 1, (0, 1)):
            np.testing.assert_allclose(
                np.asarray(ours.logsumexp(a, axis)), special.logsumexp(a, axis)
            )
        found = ours.logsumexp(a, 1, b, return_sign=True, keepdims=True)
        wanted = special.logsumexp(a, 1, b, return_sign=True, keepdims=True)
        np.testing.assert_allclose(np.asarray(found), np.asarray(wanted))
    empty = np.full(3, -INF, np.float32)
    one = np.float32([-INF, 1.0, 2.0])
    mask = np.array([True, True, False])

    assert -INF == float(ours.logsumexp(empty)) == float(ours.logsumexp(np.zeros(0)))
    assert INF == float(ours.logsumexp(np.float32([INF, 1.0])))
    assert [0, 0, 0] == tb.grad(ours.logsumexp)(empty).tolist()
    np.testing.assert_allclose(
        np.asarray(tb.grad(ours.logsumexp)(one)), [0, 0.268941, 0.731059], rtol=1e-5
    )
    assert 1 == float(ours.logsumexp(one, where=mask))
    assert [0, 1, 0] == tb.grad(lambda a: ours.logsumexp(a, where=mask))(one).tolist()
    for left_out in (np.nan, INF):
        assert 1 == float(ours.logsumexp(one, b=np.float32([2, 1, left_out]), where=mask))


def test_normal_tails_keep_their_digits() -> None:
    """Rounding of the argument does not count hundreds of times far out (values of 40 digits)."""
    x = np.array([-36.0, -28.25, -10.5])
    tails = [4.1826240657972833e-284, 7.1167078839965677e-176, 4.31900631780923e-26]
    with tb.enable_x64():
        np.testing.assert_allclose(ours.ndtr(x), tails, rtol=1e-15)
        np.testing.assert_allclose(ours.log_ndtr(-x), [-t for t in tails], rtol=1e-15)
        slopes = [tb.grad(f)(36.0) for f in (ours.ndtr, ours.log_ndtr)]
        np.testing.assert_allclose(slopes, [1.5069047176203946e-282] * 2, rtol=2e-15)
    single = ours.ndtr(np.float32(-9))
    np.testing.assert_allclose(single, 1.1285884059538406e-19, rtol=3e-7)


def test_softmax() -> None:
    """As SciPy's along any axes, and finite derivatives beside entries of minus infinity."""
    a = np.float32([[1.0, -INF, 900.0], [0.0, 1.0, 2.0]])
    for axis in (None, 0, 1, (0, 1)):
        np.testing.assert_allclose(
            np.asarray(ours.softmax(a, axis=axis)), special.softmax(a, axis), rtol=1e-5
        )
        np.testing.assert_allclose(
            np.asarray(ours.log_softmax(a, axis=axis)), special.log_softmax(a, axis), rtol=1e-5
        )
    slope = tb.grad(lambda x: tnp.sum(ours.softmax(x, axis=1)[:, 2]))(a)

    assert np.isfinite(np.asarray(slope)).all()


@pytest.mark.parametrize(
    ("name", "x"), [("ndtri", 1.0), ("log_ndtr", -np.inf), ("ndtri", 0.0)], ids=str
)
def test_forward_and_reverse_mode_agree_at_infinite_values(name: str, x: float) -> None:
    """Where the value is infinite its derivative is what it is, in both modes."""
    f = getattr(ours, name)

    value, tangent = tb.jvp(f, (x,), (1.0,))

    assert np.isinf(value)
    assert not np.isnan(tangent)
    assert float(tb.grad(f)(x)) == float(tangent)


def test_xlogy_where_the_factor_is_zero() -> None:
    """Its slope in y is x / y, whose slope in x is not zero there."""
    for name, expected in (("xlogy", 0.5), ("xlog1py", 1 / 3)):
        mixed = tb.grad(tb.grad(getattr(ours, name), 1), 0)(0.0, 2.0)

        assert float(mixed) == pytest.approx(expected)


def test_zeta_of_riemann_below_1() -> None:
    """Values of the alternating series and of the reflection; exact zeros; the pole."""
    x = np.array([-101, -3.5, -2, -1, -1e-10, 0, 0.3, 0.999, 1, 2, np.inf, -np.inf])
    expected = np.array([
        -7.261200880360671e78, 0.004441011335479432, 0, -1 / 12, -0.49999999990810606,
        -0.5, -0.904559257253984, -999.4228571557879, np.inf, np.pi**2 / 6, 1, np.nan,
    ])  # fmt: skip

    with tb.enable_x64(True):
        np.testing.assert_allclose(ours.zeta(x), expected, 1e-10)
    np.testing.assert_allclose(ours.zeta(np.float32([-1e-10, 0.3])), [-0.5, -0.9045593], 1e-6)


def test_bernoulli_numbers_have_all_digits() -> None:
    """As far as floats go; those after them are infinite, with their signs."""
    with tb.enable_x64():
        found = np.asarray(ours.bernoulli(262))
    assert [float(mp.bernoulli(n)) for n in (0, 2, 10, 30, 122, 258)] == [
        *found[[0, 2, 10, 30, 122, 258]]
    ]
    assert [-0.5, 0.0, -np.inf, np.inf] == [*found[[1, 259, 260, 262]]]


def test_slopes_of_logsumexp_at_infinity() -> None:
    """Infinite elements share the slope; nothing but minus infinity has none, in nn too."""
    inf = np.inf
    for x, expected in (
        ((inf, 0.0), (1, 0)), ((inf, inf), (0.5, 0.5)), ((inf, -inf), (1, 0)),
        ((-inf, -inf), (0, 0)), ((-inf, 3.0), (0, 1)),
    ):  # fmt: skip
        np.testing.assert_array_equal(tb.grad(ours.logsumexp)(np.float32(x)), expected)
    top = np.float32((inf, 800.0, inf))  # the exponential of the other one overflows, too
    np.testing.assert_array_equal(tb.grad(ours.logsumexp)(top), [0.5, 0, 0.5])
    np.testing.assert_array_equal(tb.hessian(ours.logsumexp)(top), np.zeros((3, 3)))
    np.testing.assert_array_equal(tb.grad(tb.nn.logsumexp)(np.float32([-inf, -inf])), [0, 0])


def test_powers_less_one_far_out() -> None:
    """Of numbers and powers of all sizes, where a product of the two with a logarithm vanishes."""
    x = np.array([0.0, 1e-300, 1e-8, 0.3, 7.0, 1e40, 1e300, np.inf])
    powers = np.array([-2.0, 0.0, 1e-9, 0.5, 3.0, np.inf])
    x, powers = (v.ravel() for v in np.meshgrid(x, powers))
    with np.errstate(all="ignore"):
        expected = special.boxcox(x, powers)
    with tb.enable_x64(True):
        np.testing.assert_allclose(ours.boxcox(x, powers), expected, rtol=1e-13)
        assert 9.999999950000001e-09 == float(ours.boxcox1p(1e-8, 1e-300))
        np.testing.assert_allclose(float(ours.boxcox(0.0, 1e-300)), -1e300, rtol=1e-15)
    slope = tb.grad(ours.boxcox)(np.float32(1e-30), np.float32(-0.5))
    assert np.inf == float(slope)
