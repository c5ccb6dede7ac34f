"""Derivatives at 0, -0, ties, NaN, infinities and in empty selections, of all functions.

The reference is NumPy by finite differences. Between two one-sided derivatives each number is one;
what is left out (a NaN of a nan-function, an element without ``where``) has derivative 0; a value
that is NaN for another reason has a NaN derivative where it is not linear. Choices between two
operands (maximum, clip) are the exception: beside a NaN neither is chosen, both derivatives are 0.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp

NAN, INF = float("nan"), float("inf")
STEP = 1e-6

POINTS = np.array([0.0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 1.5, -1.5, 3, -3, NAN])
EDGES = np.array([INF, -INF, 1e30, -1e30])
UNARY = """
    abs absolute acos acosh arccos arccosh arcsin arcsinh arctan arctanh asin asinh atan atanh
    cbrt cos cosh deg2rad degrees exp exp2 expm1 fabs i0 log log10 log1p log2 nan_to_num negative
    positive rad2deg radians real reciprocal sin sinc sinh sqrt square tan tanh
"""
STEPS = "angle around ceil floor imag rint round sign trunc"
BINARY = """
    add arctan2 atan2 copysign divide float_power floor_divide fmax fmin fmod hypot logaddexp
    logaddexp2 maximum minimum mod multiply pow power remainder subtract true_divide
"""
# Derivatives that do not exist where the value does: the angle of the origin, and powers of
# negative numbers to other than whole exponents, infinite ones, and NaN to the power 0.
UNDEFINED = {
    "arctan2": lambda x, y, i: (x == 0) & (y == 0),
    "atan2": lambda x, y, i: (x == 0) & (y == 0),
    **{
        name: lambda x, y, i: (x < 0) & (i == 1) | (x == 0) & (y < 0) | np.isnan(x) | np.isnan(y)
        for name in ("float_power", "pow", "power")
    },
}


@pytest.fixture(autouse=True)
def in_64_bits() -> Any:
    """Finite differences need them."""
    with tb.enable_x64(True):
        yield


def quiet(function: Callable[..., Any], *xs: Any) -> np.ndarray:
    """A function of NumPy without its warnings."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return np.asarray(function(*xs), np.float64)


def slopes(name: str, xs: list[np.ndarray], i: int) -> list[np.ndarray]:
    """Derivatives of our function in operand ``i``: forwards and backwards."""
    arrays = [tnp.asarray(x) for x in xs]
    function = getattr(tnp, name)

    def of_one(x: Any) -> Any:
        return function(*arrays[:i], x, *arrays[i + 1 :])

    ones = tnp.ones_like(arrays[i])
    _, forward = tb.jvp(of_one, (arrays[i],), (ones,))
    _, pull = tb.vjp(of_one, arrays[i])
    return [np.asarray(forward), np.asarray(pull(ones)[0])]


def one_sided(name: str, xs: list[np.ndarray], i: int) -> tuple[np.ndarray, np.ndarray, Any]:
    """The smaller and the larger one-sided difference quotient of NumPy, and its value."""
    function = getattr(np, name)
    value = quiet(function, *xs)
    above = quiet(function, *xs[:i], xs[i] + STEP, *xs[i + 1 :])
    below = quiet(function, *xs[:i], xs[i] - STEP, *xs[i + 1 :])
    right, left = (quiet(lambda a, b: (a - b) / STEP, *v) for v in ((above, value), (value, below)))
    return np.fmin(left, right), np.fmax(left, right), value


def check_between(name: str, xs: list[np.ndarray], i: int) -> None:
    """Both modes agree, and what they say lies between the one-sided differences."""
    forward, backward = slopes(name, xs, i)
    low, high, value = one_sided(name, xs, i)
    np.testing.assert_allclose(forward, backward, rtol=1e-12, err_msg=name)
    exists = ~np.isnan(value)
    if name in UNDEFINED:
        exists &= ~UNDEFINED[name](xs[0], xs[-1], i)
    made = np.isnan(backward) & exists
    assert [] == [v[made].tolist() for v in xs if made.any()], name
    size = quiet(lambda: np.abs(low) + np.abs(high))
    # Difference quotients of 100 and more stand beside infinite derivatives.
    smooth = exists & (size < 100)
    slack = 2e-3 * (1 + size)
    with np.errstate(all="ignore"):
        wrong = smooth & ~((low - slack <= backward) & (backward <= high + slack))
    rows = zip(*[v.tolist() for v in (*xs, low, high, backward)], strict=True)
    assert [] == [row for row, w in zip(rows, wrong, strict=True) if w], name


@pytest.mark.parametrize("name", UNARY.split())
def test_derivatives_of_one_operand(name: str) -> None:
    """At each point the derivative lies between the one-sided ones, in both modes."""
    check_between(name, [POINTS], 0)


@pytest.mark.parametrize("name", STEPS.split())
def test_steps_have_derivative_zero(name: str) -> None:
    """Functions that are constant but for steps have derivative 0 everywhere."""
    forward, backward = slopes(name, [np.concatenate([POINTS, EDGES])], 0)

    assert not forward.any()
    assert not backward.any()


@pytest.mark.parametrize("i", [0, 1])
@pytest.mark.parametrize("name", BINARY.split())
def test_derivatives_of_two_operands(name: str, i: int) -> None:
    """In each operand, at all pairs of points."""
    x, y = (v.ravel() for v in np.meshgrid(POINTS[[*range(12), -1]], POINTS[[*range(12), -1]]))
    check_between(name, [x, y], i)


CHOICES: dict[str, Callable[[Any], Any]] = {
    "maximum": lambda x: tnp.maximum(x, 0.0),
    "minimum": lambda x: tnp.minimum(x, 0.0),
    "maximum of two": lambda x: tnp.maximum(x, 2 * x),
    "fmax": lambda x: tnp.fmax(x, 0.0),
    "fmin": lambda x: tnp.fmin(x, 0.0),
    "clip": lambda x: tnp.clip(x, -1.0, 1.0),
    "clip at nan": lambda x: tnp.clip(x, NAN, 1.0),
    "clip below": lambda x: tnp.clip(x, min=0.0),
    "clamp": lambda x: tb.lax.clamp(-1.0, x, 1.0),
}
DERIVATIVES: dict[str, Callable[[Any, Any], Any]] = {
    "grad": lambda f, x: tb.grad(lambda v: f(v).sum())(x),
    "jvp": lambda f, x: tb.jvp(f, (x,), (tnp.ones_like(x),))[1],
    "jit of grad": lambda f, x: tb.jit(tb.grad(lambda v: f(v).sum()))(x),
    "vmap of grad": lambda f, x: tb.vmap(tb.grad(f))(x),
    "grad of grad": lambda f, x: tb.grad(lambda v: tb.grad(lambda w: f(w).sum())(v).sum())(x),
}


@pytest.mark.parametrize("derive", DERIVATIVES)
@pytest.mark.parametrize("name", CHOICES)
def test_a_masked_nan_spoils_no_choice_between_operands(name: str, derive: str) -> None:
    """No operand is the greater one beside a NaN: each has derivative 0, a mask or none."""
    chosen, x = CHOICES[name], np.array([NAN, 3.0, -3.0, NAN])
    mask = np.isfinite(x)

    masked = DERIVATIVES[derive](
        lambda v: tnp.where(tnp.isfinite(v), chosen(v), 0.0), tnp.asarray(x)
    )
    bare = DERIVATIVES[derive](chosen, tnp.asarray(x))

    np.testing.assert_array_equal([0.0, 0.0], np.asarray(masked)[~mask])
    np.testing.assert_array_equal([0.0, 0.0], np.asarray(bare)[~mask])
    assert np.isfinite(masked).all()


def test_derivatives_at_infinity() -> None:
    """Where the limit of the derivative exists it is the derivative."""
    ys = np.array([INF, -INF, 1.0, -2.0])
    xs = np.array([3.0, -3.0, INF, -INF])

    np.testing.assert_array_equal(np.zeros((2, 4)), slopes("arctan2", [xs, ys], 0))
    np.testing.assert_array_equal(np.zeros((2, 4)), slopes("arctan2", [xs, ys], 1))
    np.testing.assert_array_equal([[0.0, 0, 1, -1]] * 2, slopes("hypot", [xs, ys], 0))
    np.testing.assert_array_equal([[1.0, -1, 0, 0]] * 2, slopes("hypot", [xs, ys], 1))
    small, large = np.array([0.5, 0.0, 3.0]), np.array([INF, INF, -INF])
    np.testing.assert_array_equal(np.zeros((2, 3)), slopes("power", [small, large], 0))


def test_angles_of_extreme_points() -> None:
    """No square overflows or vanishes: the derivative of arctan2 is of order 1 / size."""
    for dtype, size in (("float32", 1e25), ("float32", 1e-25), ("float16", 300.0)):
        x = tnp.full((), size, dtype)
        slope = tb.grad(tnp.arctan2)(x, x)
        np.testing.assert_allclose(float(slope) * size, 0.5, rtol=2e-3)


def test_parts_of_whole_numbers() -> None:
    """Modf has the parts of NumPy, and derivatives 1 and 0 at whole numbers of either sign."""
    x = np.array([0.0, -0.0, 1, -1, -3, 2.5, -2.5, INF, -INF, NAN])
    parts = tnp.modf(tnp.asarray(x))
    for expected, actual in zip(quiet(np.modf, x), parts, strict=True):
        np.testing.assert_array_equal(expected, actual)
        np.testing.assert_array_equal(np.signbit(expected)[:-1], np.signbit(actual)[:-1])
    _, tangents = tb.jvp(tnp.modf, (tnp.asarray(x[:-3]),), (tnp.ones(7),))
    assert [[1.0] * 7, [0.0] * 7] == [t.tolist() for t in tangents]


def test_second_derivatives_at_zero() -> None:
    """Guards leave the second order alone."""
    zero = tnp.zeros(())

    def second(f: Callable[[Any], Any], x: Any) -> float:
        return float(tb.grad(tb.grad(f))(x))

    assert 0.0 == second(lambda x: tnp.power(x, tnp.zeros(())), zero)
    assert 2.0 == second(lambda x: tnp.power(x, tnp.full((), 2.0)), zero)
    np.testing.assert_allclose(second(tnp.sinc, zero), -(np.pi**2) / 3)
    np.testing.assert_allclose(second(tnp.i0, zero), 0.5)
    mixed = tb.grad(tb.grad(tnp.power), argnums=1)(tnp.full((), 4.0), zero)
    np.testing.assert_allclose(float(mixed), 0.25)
    row = tnp.array([1.0, NAN, 3.0, 2.0])
    hessian = tb.hessian(tnp.nanvar)(row)
    on = np.array([1.0, 0, 1, 1])
    np.testing.assert_allclose(hessian, 2 / 3 * (np.diag(on) - np.outer(on, on) / 3), atol=1e-12)


SLICES = {
    "plain": [1.0, 2, 3, 4],
    "nan": [1.0, NAN, 3, 2],
    "two nans": [NAN, NAN, 1, 2],
    "all nan": [NAN, NAN],
    "ties": [2.0, 2, 1, 1, 2],
    "infinity": [1.0, INF, 2, 3],
    "both infinities": [-INF, 1.0, 2, INF],
    "infinity and nan": [INF, NAN, 1, 2],
    "constant": [3.0, 3, 3, 3],
    "one": [2.0],
    "zeros": [0.0, -0.0, 1],
}
TOTALS = ["sum", "prod", "mean", "std", "var"]
LINEAR = ["sum", "mean", "prod", "nansum", "nanmean", "nanprod"]
ORDERED = ["max", "min", "ptp", "median"]
PLACED = [
    *("max", "min", "median", "quantile"),
    *("nanmax", "nanmin", "nanmedian", "nanquantile"),
]
NAN_TOTALS = ["nansum", "nanprod", "nanmean", "nanstd", "nanvar"]
NAN_ORDERED = ["nanmax", "nanmin", "nanmedian"]
QUANTILES = [
    (name, {"q": q, "method": method})
    for name in ("quantile", "nanquantile")
    for q in (0.0, 0.3, 0.5, 1.0)
    for method in ("linear", "midpoint", "lower", "higher", "hazen")
]
INITIAL = {"max": {"initial": -9.0}, "min": {"initial": 9.0}}
CALLS = [
    *[(name, {}) for name in (*TOTALS, *ORDERED, *NAN_TOTALS, *NAN_ORDERED)],
    *[(name, {"ddof": n}) for name in ("std", "var", "nanstd", "nanvar") for n in (1, 9)],
    *[
        (
            name,
            {"where": where, **INITIAL.get(name[-3:], {})},
        )
        for name in (*TOTALS, "max", "min", *NAN_TOTALS, "nanmax", "nanmin")
        for where in (slice(None, 1), slice(1, None), slice(0))
    ],
    *QUANTILES,
]


def checked_slice(name: str, kwargs: dict[str, Any], x: np.ndarray) -> None:
    """The gradient of one reduction of one slice, backwards, against the law of this file."""
    kwargs = dict(kwargs)
    on = np.ones(len(x), bool)
    if "where" in kwargs:
        on[:] = False
        on[kwargs["where"]] = True
        kwargs["where"] = on

    def value_of(row: np.ndarray) -> float:
        return float(quiet(lambda r: getattr(np, name)(r, **kwargs), row))

    left_out = ~on | (np.isnan(x) if name.startswith("nan") else False)
    few = kwargs.get("ddof", 0) >= (~left_out).sum()
    function = lambda v: getattr(tnp, name)(v, **kwargs)
    ours, slope = tb.value_and_grad(function)(tnp.asarray(x))
    if not (np.isinf(x).any() or few):
        np.testing.assert_allclose(float(ours), value_of(x), rtol=1e-12)
    text = f"{name} {kwargs} of {x}"
    assert not slope[tnp.asarray(left_out)].any(), text
    rest, on_rest = np.asarray(slope)[~left_out], x[~left_out]
    if np.isnan(float(ours)):
        # Sums are linear at NaN, too.
        assert np.isnan(rest).all() or (name in LINEAR and rest.all()), text
    elif not np.isfinite(on_rest).all():
        assert name not in PLACED or not np.isnan(rest).any(), text
    elif name in PLACED and len(rest):
        # Shares in the elements that make the value.
        assert (rest >= 0).all(), text
        np.testing.assert_allclose([1.0, float(ours)], [rest.sum(), rest @ on_rest], err_msg=text)
    else:
        for i, found in zip(np.flatnonzero(~left_out), rest, strict=True):
            step = np.zeros(len(x))
            step[i] = STEP
            ends = [(value_of(x + s) - value_of(x)) / s[i] for s in (step, -step)]
            assert min(ends) - 1e-5 <= found <= max(ends) + 1e-5, text


@pytest.mark.parametrize(("name", "kwargs"), CALLS, ids=str)
def test_gradients_of_slices(name: str, kwargs: dict[str, Any]) -> None:
    """Each kind of slice has the gradient of the mathematics."""
    for row in SLICES.values():
        checked_slice(name, kwargs, np.array(row))


@pytest.mark.parametrize("name", [*TOTALS, *ORDERED, *NAN_TOTALS, *NAN_ORDERED])
def test_both_modes_agree_on_slices(name: str) -> None:
    """Forwards along ones gives the sum of the gradient."""
    for row in ("plain", "ties", "constant", "one", "zeros", "nan"):
        x = tnp.asarray(np.array(SLICES[row]))
        function = getattr(tnp, name)
        _, forward = tb.jvp(function, (x,), (tnp.ones_like(x),))
        np.testing.assert_allclose(forward, tb.grad(function)(x).sum(), atol=1e-12, err_msg=row)


@pytest.mark.parametrize("name", ["prod", "cumprod", "nancumprod"])
def test_products_beside_infinities_in_both_modes(name: str) -> None:
    """Forwards along ones gives the sum of the gradient, an infinity in whatever place."""
    for row in ([INF], [INF, 3.0, 4.0], [1.0, INF, 2.0], [INF, INF, 2.0], [2.0, 3.0, -INF]):
        x = tnp.asarray(row)
        function = lambda v: getattr(tnp, name)(v).sum()
        _, forward = tb.jvp(function, (x,), (tnp.ones_like(x),))
        assert not np.isnan(forward), row
        np.testing.assert_array_equal(tb.grad(function)(x).sum(), forward, err_msg=str(row))


def test_quantiles_beside_infinities() -> None:
    """An infinity that has no weight has no effect; one that has decides."""
    rows = [[-INF, -INF, 0.0], [INF, 1.0, 2.0], [-INF, 1.0, INF], [-INF, INF], [INF, INF]]
    at = tnp.array([0.0, 0.25, 0.5, 0.75, 1.0])
    expected = [
        [-INF, -INF, -INF, -INF, 0.0],
        [1.0, 1.5, 2.0, INF, INF],
        [-INF, -INF, 1.0, INF, INF],
        [-INF, NAN, NAN, NAN, INF],
        [INF] * 5,
    ]
    for row, wanted in zip(rows, expected, strict=True):
        np.testing.assert_array_equal(wanted, tnp.quantile(tnp.asarray(row), at))
        np.testing.assert_array_equal(wanted, tnp.nanquantile(tnp.asarray([*row, NAN]), at))
        np.testing.assert_array_equal(wanted[2], tnp.nanmedian(tnp.asarray([*row, NAN])))


@pytest.mark.parametrize("method", ["linear", "lower", "nearest", "midpoint", "inverted_cdf"])
def test_a_nan_probability_gives_nan(method: str) -> None:
    """What is asked at NaN is NaN, by each method."""
    x = tnp.arange(4.0)

    found = tnp.quantile(x, tnp.array([NAN, 0.0]), method=method)

    np.testing.assert_array_equal([NAN, 0.0], found)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_counts_in_32_bits(dtype: str) -> None:
    """Places in long rows, counts and squares do not fit in 16 bits: they are not kept there."""
    x = np.arange(4001) % 251
    half = tnp.asarray(x.astype(np.float64)).astype(dtype)
    wide = x.astype(np.float64)
    for name in ("median", "nanmedian", "mean", "nanmean", "var", "nanvar", "std", "nanstd"):
        expected = getattr(np, name)(wide)
        np.testing.assert_allclose(
            np.float64(getattr(tnp, name)(half)), expected, rtol=8e-3, err_msg=name
        )
    for name in ("quantile", "nanquantile"):
        actual = np.float64(getattr(tnp, name)(half, 0.731))
        np.testing.assert_allclose(actual, np.quantile(wide, 0.731), rtol=8e-3, err_msg=name)
    everywhere = tnp.ones(half.shape, bool)
    for name in ("mean", "var", "std"):
        actual = np.float64(getattr(tnp, name)(half, where=everywhere))
        np.testing.assert_allclose(actual, getattr(np, name)(wide), rtol=8e-3, err_msg=name)
    assert dtype == tnp.nanvar(half).dtype.name == tnp.quantile(half, 0.5).dtype.name


def test_i0_up_to_the_largest_float() -> None:
    """The factor exp overflows before the function does."""
    for x in (89.0, 91.0):
        found = float(tnp.i0(tnp.float32(x)))
        np.testing.assert_allclose(found, float(np.i0(x)), rtol=2e-5)


def test_slopes_of_angles_of_tiny_and_huge_points() -> None:
    """In a compiled program too: XLA makes of two divisions one by the product."""
    x = np.float32([1e-30, 1e-30, 0.0, 2e38])
    y = np.float32([1e-30, 0.0, 1e-30, 2e38])
    by_x, by_y = tb.jit(tb.vmap(tb.grad(tnp.arctan2, (0, 1))))(x, y)

    np.testing.assert_allclose(by_x, [5e29, 0, 1e30, 0], 1e-5, 1e-37)
    np.testing.assert_allclose(by_y, [-5e29, -1e30, 0, 0], 1e-5, 1e-37)


def test_running_sums_of_exponentials_have_slopes_at_infinity():
    """An infinity decides from where it stands on; NaN would be anybody's slope there."""
    x = tnp.array([1.0, INF, 3.0, INF, -INF])
    expected = np.zeros((5, 5))
    expected[0, 0] = expected[1:, 1] = 1

    assert expected.tolist() == tb.jacobian(lambda v: tb.lax.cumlogsumexp(v, 0))(x).tolist()


def test_slopes_of_angles_close_to_the_origin() -> None:
    """No square of a distance is a number of the dtype there, the slopes are."""
    x = np.full(1, 1e-20, np.float32)

    def slope(y: Any) -> Any:
        return tb.jvp(lambda v: tnp.arctan2(v, x), (y,), (tnp.ones_like(y),))[1]

    np.testing.assert_allclose(np.asarray(tb.jit(slope)(x)), [5e19], rtol=1e-6)
    y = np.float32(1e-15)
    second = tb.grad(tb.grad(tnp.arctan2))(y, y)
    np.testing.assert_allclose(np.asarray(second), -5e29, rtol=1e-6)
