"""scipy.special: error, exponential, sine and Fresnel integrals, against many digits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from scipy import special

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.quick_compiles import check_grads
from tracebridge.errors import UnsupportedDtypeError
from tracebridge.scipy import special as ours

INF, NAN = np.inf, np.nan
RNG = np.random.default_rng(0)
HALF = np.concatenate([10 ** RNG.uniform(-6, 2.5, 12), RNG.uniform(0, 9, 12)])
LINE = np.concatenate([HALF, -HALF[::2]])
SINE = np.concatenate([HALF, [0.6165, 0.61650548, 4.0, 3e4]])
WAVES = [*LINE, 9000.3]
EDGES = np.array([-INF, -2.5, -0.0, 0.0, 1.0, INF, NAN])
Exact = Callable[..., Any]


def dawsn(x: Any) -> Any:
    """By the error function, with the digits that cancel."""
    with mp.workdps(60 + int(x * x)):
        return mp.sqrt(mp.pi) / 2 * mp.exp(-x * x) * mp.erfi(x)


def erfcx(x: Any) -> Any:
    """By its definition, with the digits that cancel."""
    with mp.workdps(60 + int(x * x)):
        return mp.exp(x * x) * mp.erfc(x)


def part(index: int, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """One of two results."""
    return lambda x: function(x)[index]


# The function, its exact value, the derivative of this, where, bounds in units of the last place.
CASES: dict[str, tuple[Exact, Exact, Exact, Any, float, float]] = {
    "dawsn": (ours.dawsn, dawsn, lambda x: 1 - 2 * x * dawsn(x), LINE[np.abs(LINE) < 40], 4, 200),
    "erfcx": (
        ours.erfcx,
        erfcx,
        lambda x: 2 * x * erfcx(x) - 2 / mp.sqrt(mp.pi),
        np.concatenate([HALF[HALF < 40], -HALF[::2][HALF[::2] < 9]]),
        6,
        200,
    ),
    "exp1": (ours.exp1, mp.e1, lambda x: -mp.exp(-x) / x, HALF, 5, 5),
    "expi": (ours.expi, mp.ei, lambda x: mp.exp(x) / x, [*LINE, 0.37, 0.37250741, 0.373], 5, 5),
    "si": (part(0, ours.sici), mp.si, lambda x: mp.sin(x) / x, [*LINE, *SINE], 4, 4),
    "ci": (part(1, ours.sici), mp.ci, lambda x: mp.cos(x) / x, SINE, 20, 4),
    "s": (
        part(0, ours.fresnel), mp.fresnels, lambda x: mp.sin(mp.pi * x * x / 2), WAVES, 4, 4
    ),
    "c": (
        part(1, ours.fresnel), mp.fresnelc, lambda x: mp.cos(mp.pi * x * x / 2), WAVES, 4, 4
    ),
    "spence": (
        ours.spence,
        lambda x: mp.polylog(2, 1 - x).real,
        lambda x: mp.log(x) / (1 - x),
        [*HALF, 1.0000001, 1.05, 0.99, 0.5, 2.0],
        5,
        40,
    ),
}  # fmt: skip


def worst(actual: Any, exact: Exact, *points: Any, floor: float = 0.0) -> float:
    """The largest error in units of the last place of the dtype, of numbers of size ``floor``."""
    kind = actual.dtype.type
    errors: list[float] = []
    with mp.workdps(60):
        for got, *given in zip(actual.ravel(), *points, strict=True):
            wanted = exact(*[mp.mpf(float(v)) for v in given])
            if abs(wanted) < np.finfo(kind).tiny or abs(wanted) > np.finfo(kind).max:
                continue
            unit = float(np.spacing(kind(max(abs(float(wanted)), floor))))
            errors.append(float(abs(mp.mpf(float(got)) - wanted) / unit))
    assert errors
    return max(errors)


def slope_of(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The derivative of an elementwise function, forward."""
    return lambda x: tb.jvp(f, (x,), (tnp.ones_like(x),))[1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", CASES)
def test_values_and_derivatives_keep_their_digits(name: str, dtype: Any) -> None:
    """Within the written bounds, in both modes, and so is the second derivative to differences."""
    f, exact, slope, points, bound, slope_bound = CASES[name]
    x = np.asarray(points, dtype)
    step = 1e-7
    every = np.concatenate([x, x * dtype(1 + step), x * dtype(1 - step)])
    with tb.enable_x64(dtype == np.float64):
        program = tb.jit(
            lambda x: [
                f(x),
                slope_of(f)(x),
                tb.grad(lambda x: tnp.sum(f(x)))(x),
                slope_of(slope_of(f))(x),
            ]
        )
        found = [np.asarray(v).reshape(3, -1) for v in program(every)]
    value, forward, reverse, second = [v[0] for v in found]
    difference = (found[1][1] - found[1][2]) / (every.reshape(3, -1)[1] - every.reshape(3, -1)[2])

    assert dtype == value.dtype == forward.dtype
    assert worst(value, exact, x, floor=0.1 if name == "ci" else 0.0) <= bound
    # Waves are as accurate as numbers of their size.
    floor = 1.0 if name in ("s", "c") else 0.0
    assert worst(forward, slope, x, floor=floor) <= slope_bound
    np.testing.assert_allclose(reverse, forward, rtol=1e-6)
    if dtype == np.float64:  # too few digits else
        scale = np.abs(second) + np.abs(forward / x) * 1e-3
        near = np.abs(x) < 100
        assert np.all((np.abs(second - difference) <= 1e-3 * scale + 1e-8)[near])


@pytest.mark.parametrize("name", ["dawsn", "erfcx", "exp1", "expi", "fresnel", "sici", "spence"])
def test_edges(name: str) -> None:
    """Zeros, infinities and NaN as SciPy's, in each dtype; no complex numbers."""
    f = getattr(ours, name)
    with np.errstate(all="ignore"):
        wanted = np.asarray(getattr(special, name)(EDGES))
    if name == "spence":
        wanted[EDGES == INF] = -INF  # the limit
    for dtype, tolerance in (("float32", 2e-6), ("float16", 2e-3), ("bfloat16", 2e-2)):
        found = [np.asarray(v) for v in tb.tree.leaves(f(tnp.asarray(EDGES, dtype)))]

        assert all([v.dtype == dtype for v in found])
        np.testing.assert_allclose(
            np.array(found, np.float64).reshape(wanted.shape), wanted, rtol=tolerance
        )
    whole = tb.tree.leaves(f(np.arange(2)))

    assert all([v.dtype == np.float32 for v in whole])
    if name != "erfcx":
        with pytest.raises(UnsupportedDtypeError, match="expected real numbers"):
            f(1j)


# Where slopes are known: at ends, at zeros, and where the value is infinite.
ENDS = {
    "dawsn": ([0.0, INF, -INF, 1e30], [1, 0, 0, 0]),
    "erfcx": ([0.0, INF, -INF], [-2 / np.sqrt(np.pi), 0, -INF]),
    "exp1": ([0.0, INF], [-INF, 0]),
    "expi": ([0.0, -0.0, INF, -INF], [INF, -INF, INF, 0]),
    "spence": ([0.0, 1.0, INF], [-INF, -1, 0]),
}


@pytest.mark.parametrize("name", ENDS)
def test_derivatives_at_the_ends(name: str) -> None:
    """Limits, and no NaN."""
    x, wanted = ENDS[name]

    slope = tb.grad(lambda x: tnp.sum(getattr(ours, name)(x)))(np.float32(x))

    np.testing.assert_allclose(np.asarray(slope), wanted, rtol=1e-6)


def exact_w(x: Any, y: Any) -> Any:
    """The Faddeeva function by its definition, with the digits that cancel."""
    with mp.workdps(60 + int(x * x)):
        return mp.exp(-(mp.mpc(x, y) ** 2)) * mp.erfc(mp.mpc(y, -x))


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_faddeeva_function_by_parts(dtype: Any) -> None:
    """Each part is accurate, above the axis and on it; the slope as well; reflections below."""
    cells = np.arange(0, 14, 2) * np.sqrt(np.pi / 12) / 2
    x = np.concatenate([10 ** RNG.uniform(-6, 1.3, 20), RNG.uniform(0, 8, 8), cells])
    y = np.concatenate([10 ** RNG.uniform(-6, 1.3, 20), np.zeros(8), 10 ** RNG.uniform(-3, 1, 7)])
    z = (x + 1j * y).astype(dtype)
    with tb.enable_x64(dtype == np.complex128):
        program = tb.jit(lambda z: [ours.wofz(z), slope_of(ours.wofz)(z), ours.wofz(-z)])
        value, slope, turned = [np.asarray(v) for v in program(z)]
    points = z.real, z.imag
    eps = np.finfo(dtype).eps
    exact_slopes = np.array([complex(_slope(*p)) for p in zip(*points, strict=True)])
    ratio = np.abs(slope / exact_slopes - 1)
    opposite = 2 * np.exp(-(z.astype(complex) ** 2)) - value.astype(complex)
    finite = np.abs(opposite) < np.finfo(dtype).max / 1e3

    assert dtype == value.dtype
    assert worst(value.real, lambda x, y: exact_w(x, y).real, *points) <= 12
    assert worst(value.imag, lambda x, y: exact_w(x, y).imag, *points) <= 60
    assert ratio.max() <= 300 * eps
    np.testing.assert_allclose(turned[finite], opposite[finite], rtol=400 * eps, atol=20 * eps)


def _slope(x: Any, y: Any) -> Any:
    with mp.workdps(60):
        x, y = mp.mpf(float(x)), mp.mpf(float(y))
        return 2j / mp.sqrt(mp.pi) - 2 * mp.mpc(x, y) * exact_w(x, y)


def test_faddeeva_function_at_its_edges() -> None:
    """Infinities, signed zeros and huge numbers as SciPy's; real numbers give complex ones."""
    parts = np.array([0, -0.0, 1, -2, INF, -INF, 1e200, 1e-200])
    z = np.array([complex(a, b) for a in parts for b in parts])
    with tb.enable_x64():
        found, wanted = np.asarray(ours.erfcx(z)), special.erfcx(z)
        np.testing.assert_allclose(found.real, wanted.real, rtol=1e-13)
        np.testing.assert_allclose(found.imag, wanted.imag, rtol=1e-13)
    half = ours.wofz(tnp.asarray([1.0, NAN], "bfloat16"))

    assert np.complex64 == half.dtype == ours.wofz(1).dtype
    assert np.isnan(half[1])


def exact_owens(h: Any, a: Any) -> Any:
    """The integral, as far as it matters."""
    with mp.workdps(25):
        end = min(a, 14 / h)
        ends = [end * mp.mpf(k) / 4 for k in range(5)] if end < 8 else [0, 1, 3, 9, 30, 100, end]
        inner = mp.quad(lambda t: mp.exp(-h * h * t * t / 2) / (1 + t * t), ends)
        return inner * mp.exp(-h * h / 2) / (2 * mp.pi)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_owens_function(dtype: Any) -> None:
    """Accurate in both tails, its derivatives are those of the integral."""
    h = np.concatenate([10 ** RNG.uniform(-2, 0.5, 8), RNG.uniform(0.1, 25, 8)]).astype(dtype)
    a = np.concatenate([10 ** RNG.uniform(-3, 2, 10), RNG.uniform(0.5, 3, 6)]).astype(dtype)
    with tb.enable_x64(dtype == np.float64):
        found = np.asarray(ours.owens_t(h, a))

    assert dtype == found.dtype
    assert worst(found, exact_owens, h, a) <= 40
    if dtype == np.float64:
        with tb.enable_x64():
            check_grads(ours.owens_t, (h[::4], a[::4]), order=2, rtol=1e-4)


def test_owens_function_at_its_edges() -> None:
    """Zeros, infinities and NaN as SciPy's; no NaN among the derivatives."""
    edges = np.array([0, -0.0, 1, -2, INF, -INF, NAN])
    h, a = (v.ravel() for v in np.meshgrid(edges, edges))
    found = np.asarray(ours.owens_t(h, a))
    known = ~(np.isnan(h) | np.isnan(a))
    slopes = tb.grad(lambda h, a: tnp.sum(ours.owens_t(h, a)), (0, 1))(h[known], a[known])

    np.testing.assert_allclose(found, special.owens_t(h, a), rtol=1e-6, atol=1e-30)
    assert not np.isnan(np.asarray(slopes)).any()


def test_second_derivative_of_expi_far_out_is_infinite() -> None:
    """It is the first one less its quotient by ``x``: no difference of two infinities."""
    with tb.enable_x64(True):
        slope = tb.vmap(tb.grad(tb.grad(ours.expi)))(np.array([np.inf, 1e30, 800.0]))

    assert [np.inf] * 3 == slope.tolist()
