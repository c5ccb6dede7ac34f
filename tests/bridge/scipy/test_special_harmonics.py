"""scipy.special: Bessel functions, spherical harmonics, expn and complex gamma functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import mpmath as mp
import numpy as np
import pytest
from scipy import special

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.errors import ArgumentTypeError, ArgumentValueError, UnsupportedDtypeError
from tracebridge.scipy import special as ours

INF, NAN = np.inf, np.nan
RNG = np.random.default_rng(3)


def exactly(function: Callable[..., Any], *points: Any) -> Any:
    """Values with 40 digits, as an array."""
    with mp.workdps(40):
        found = [
            function(*[mp.mpmathify(v.item()) for v in row]) for row in zip(*points, strict=True)
        ]
        return np.array([complex(v) for v in found])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bessel_functions_of_all_orders(dtype: Any) -> None:
    """Zeros of the function, both regimes and their border; infinity, NaN and 0."""
    z = np.array([0, 1e-10, 0.5, 2.404825557695773, 10, 24.9, 25.1, 60, 1e4, -3, -30], dtype)
    with tb.enable_x64(dtype == np.float64):
        for order in (0, 30):
            found = np.asarray(ours.bessel_jn(np.append(z, [INF, NAN]).astype(dtype), v=order))
            wanted = [exactly(lambda z, n=n: mp.besselj(n, z), z) for n in range(order + 1)]

            assert (order + 1, 13) == found.shape
            assert dtype == found.dtype
            np.testing.assert_allclose(found[:, :-2], np.real(wanted), atol=2 * np.finfo(dtype).eps)
            assert np.all(found[:, -2] == 0)
            assert np.isnan(found[:, -1]).all()


def test_bessel_functions_keep_small_numbers() -> None:
    """Far above the argument the functions are tiny, and accurate relative to themselves."""
    with tb.enable_x64():
        found = np.asarray(ours.bessel_jn(0.5, v=12))

    np.testing.assert_allclose(found, special.jv(np.arange(13), 0.5), rtol=1e-14)


def tangent(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The derivative of an elementwise function, forward."""
    return lambda x: tb.jvp(f, (x,), (tnp.ones_like(x),))[1]


def test_bessel_functions_are_differentiable() -> None:
    """Both modes, twice; integers become floats; wrong arguments say so."""

    def f(z: Any) -> Any:
        return ours.bessel_jn(z, v=2)

    z = np.array([0.0, 0.5, 30.0])
    with tb.enable_x64():
        program = tb.jit(
            lambda z: [tangent(f)(z), tangent(tangent(f))(z), tb.vmap(tb.jacrev(f))(z)]
        )
        first, second, reverse = [np.asarray(v) for v in program(z)]
    orders = np.arange(3)[:, None]

    np.testing.assert_allclose(first, special.jvp(orders, z, 1), rtol=1e-13)
    np.testing.assert_allclose(second, special.jvp(orders, z, 2), rtol=1e-13)
    np.testing.assert_allclose(reverse.T, first, rtol=1e-14)
    assert np.float32 == ours.bessel_jn(2, v=0).dtype
    assert "bfloat16" == ours.bessel_jn(tnp.asarray(2.0, "bfloat16"), v=0).dtype
    with pytest.raises(ArgumentValueError, match="bessel_jn"):
        ours.bessel_jn(1.0, v=-1)
    with pytest.raises(ArgumentTypeError, match="bessel_jn"):
        ours.bessel_jn(1.0, v=cast("Any", 1.5))
    with pytest.raises(UnsupportedDtypeError, match="bessel_jn"):
        ours.bessel_jn(1j, v=1)


def test_spherical_harmonics() -> None:
    """All degrees and orders up to 7, orders beyond the degree, and the clipped degree."""
    n, m = (v.ravel() for v in np.meshgrid(np.arange(8), np.arange(-8, 9)))
    theta, phi = np.linspace(0, np.pi, n.size), np.linspace(0, 6, n.size)
    with tb.enable_x64():
        found = np.asarray(ours.sph_harm_y(n, m, theta, phi))
        clipped = np.asarray(ours.sph_harm_y(n, m, theta, phi, n_max=3))
        high = np.asarray(ours.sph_harm_y(60, 30, theta, phi))
    np.testing.assert_allclose(found, special.sph_harm_y(n, m, theta, phi), atol=1e-14)
    low = np.minimum(n, 3)
    np.testing.assert_allclose(clipped, special.sph_harm_y(low, m, theta, phi), atol=1e-14)
    np.testing.assert_allclose(high, special.sph_harm_y(60, 30, theta, phi), atol=1e-13)

    assert np.complex64 == ours.sph_harm_y(1, 1, 0.5, 0.5).dtype
    assert np.isnan(ours.sph_harm_y(-1, 0, 0.5, 0.5))


def test_spherical_harmonics_are_differentiable() -> None:
    """In the angles, twice, the poles included; traced degrees need a highest one."""
    n, m = np.array([3, 4, 2]), np.array([1, -2, 2])

    def f(angles: Any) -> Any:
        return ours.sph_harm_y(n, m, angles[0], angles[1])

    angles = np.array([[0.1, 0.5, 3.0], [0.3, 0.5, 3.0]])
    poles = np.array([[0.0, 0.0, np.pi], [0.3, 0.5, 3.0]])
    directions = np.eye(2)[:, :, None] + np.zeros(3)
    with tb.enable_x64():
        program = tb.jit(
            lambda a: [
                tb.vmap(lambda t: tb.jvp(f, (a,), (t,))[1])(directions),
                tb.vmap(lambda t: tb.jvp(lambda a: tb.jvp(f, (a,), (t,))[1], (a,), (t,))[1])(
                    directions
                ),
                tb.grad(lambda a: tnp.sum(f(a).imag))(a),
            ]
        )
        for at in (angles, poles):
            slopes, second, reverse = [np.asarray(v) for v in program(at)]
            np.testing.assert_allclose(reverse, slopes.imag, atol=1e-13)
            if at is angles:
                _, jacobian, hessian = special.sph_harm_y(n, m, *at, diff_n=2)
                np.testing.assert_allclose(slopes, jacobian.T, atol=1e-12)
                np.testing.assert_allclose(second[0], hessian[:, 0, 0], atol=1e-11)
                np.testing.assert_allclose(second[1], hessian[:, 1, 1], atol=1e-11)
    # At a pole: of sin(theta) times its limit.
    np.testing.assert_allclose(
        slopes[0],
        (
            special.sph_harm_y(n, m, np.abs(poles[0] - 1e-6), poles[1])
            - special.sph_harm_y(n, m, poles[0], poles[1])
        )
        / np.where(poles[0] > 1, -1e-6, 1e-6),
        atol=1e-5,
    )
    traced = tb.jit(lambda n: ours.sph_harm_y(n, 0, 0.5, 0.5, n_max=4))
    np.testing.assert_allclose(complex(traced(2)), special.sph_harm_y(2, 0, 0.5, 0.5), rtol=1e-6)
    with pytest.raises(ArgumentValueError, match="n_max"):
        tb.jit(lambda n: ours.sph_harm_y(n, 0, 0.5, 0.5))(2)
    with pytest.raises(ArgumentValueError, match="diff_n"):
        ours.sph_harm_y(2, 0, 0.5, 0.5, diff_n=1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_generalized_exponential_integrals(dtype: Any) -> None:
    """Orders small and large, where the formulas change, the derivatives, and the edges."""
    n = np.array([1, 1, 2, 3, 3, 7, 20, 40, 1000, 2, 0, 0], dtype)
    x = np.array([1e-6, 0.5, 0.96, 1.0, 1.06, 0.3, 1.5, 1e-3, 0.7, 60, 0.5, 3], dtype)
    with tb.enable_x64(dtype == np.float64):
        program = tb.jit(lambda n, x: tb.jvp(lambda x: ours.expn(n, x), (x,), (tnp.ones_like(x),)))
        value, slope = [np.asarray(v) for v in program(n, x)]
    tolerance = 40 * np.finfo(dtype).eps

    assert dtype == value.dtype
    np.testing.assert_allclose(value, exactly(mp.expint, n, x).real, rtol=tolerance)
    np.testing.assert_allclose(slope, -exactly(mp.expint, n - 1, x).real, rtol=tolerance)


def test_generalized_exponential_integrals_at_the_edges() -> None:
    """Poles, infinity and NaN as SciPy's; between whole orders there is no value."""
    n, x = (
        v.ravel() for v in np.meshgrid([0, 1, 2, 5], np.array([-1, 0, 1, INF, NAN], np.float32))
    )
    np.testing.assert_allclose(
        np.asarray(ours.expn(n, x)), special.expn(n, x.astype(float)), rtol=2e-6
    )

    assert np.isnan(np.asarray(ours.expn(np.float32([-1.0, 1.5]), 2.0))).all()


AREA = np.concatenate(
    [
        RNG.uniform(-8, 12, 40) + 1j * RNG.uniform(-12, 12, 40),
        RNG.uniform(-200, 200, 12) + 1j * RNG.uniform(-20, 20, 12),
        1 + 0.1 * RNG.normal(size=8) + 0.1j * RNG.normal(size=8),
        2 + 0.1 * RNG.normal(size=8) + 0.1j * RNG.normal(size=8),
        [1.0000001, 1.9999, -2.5, complex(-2.5, -0.0), 0.3, 1e-8j, -3 + 1e-6j, 40.0],
    ]
)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_logarithm_of_gamma_of_complex_numbers(dtype: Any) -> None:
    """Relative to its size, also beside its zeros; the slope is digamma; sides of the cut."""
    z = AREA.astype(dtype)
    with tb.enable_x64(dtype == np.complex128):
        program = tb.jit(lambda z: tb.jvp(ours.loggamma, (z,), (tnp.ones_like(z),)))
        value, slope = [np.asarray(v) for v in program(z)]
    wanted, slopes = exactly(mp.loggamma, z), exactly(mp.digamma, z)
    wanted = np.where(np.signbit(z.imag) & (z.imag == 0), np.conj(wanted), wanted)
    eps = np.finfo(dtype).eps

    assert dtype == value.dtype
    assert np.max(np.abs(value / wanted - 1)) <= 60 * eps
    assert np.max(np.abs(slope / slopes - 1)) <= 40 * eps
    assert np.all(value.imag[(z.imag == 0) & (z.real > 0)] == 0)


def test_gamma_of_complex_numbers() -> None:
    """As SciPy's, with NaN at poles and infinities; the second derivative is trigamma."""
    z = np.array([0, -1, INF, complex(NAN, 0), 0.3 + 1j, -1.5 + 0.5j, 5, 30 + 3j])
    with tb.enable_x64():
        for name in ("gamma", "loggamma"):
            found, wanted = np.asarray(getattr(ours, name)(z)), getattr(special, name)(z)
            np.testing.assert_allclose(found, wanted, rtol=1e-12)
        point = np.array([0.3 + 1j, -1.5 + 0.5j])
        second = np.asarray(tb.jit(tangent(tangent(ours.loggamma)))(point))
    np.testing.assert_allclose(second, exactly(lambda z: mp.polygamma(1, z), point), rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gamma_of_real_numbers(dtype: Any) -> None:
    """No error of a logarithm; whole numbers are whole; slopes at the ends are infinite."""
    x = np.concatenate(
        [RNG.uniform(-5, 30, 30), RNG.uniform(-30, 33, 20), 10 ** -RNG.uniform(0, 8, 8)]
    )
    x = np.append(x, [150.3, -150.3] if dtype == np.float64 else []).astype(dtype)
    with tb.enable_x64(dtype == np.float64):
        found = np.asarray(ours.gamma(x))
        whole = np.asarray(ours.gamma(np.arange(1, 11).astype(dtype)))
        ends = tb.grad(lambda x: tnp.sum(ours.gamma(x)))(np.array([0.0, -0.0, INF], dtype))

    np.testing.assert_allclose(found, exactly(mp.gamma, x).real, rtol=200 * np.finfo(dtype).eps)
    np.testing.assert_array_equal(whole, special.factorial(np.arange(10)))
    assert [-INF, -INF, INF] == ends.tolist()


def test_polygamma_and_zeta_of_negative_numbers() -> None:
    """Sums over whole numbers that lie on both sides; derivatives are those of the next order."""
    x = np.array([-0.3, -7.867, -9.5, -20.75, -1e-20, 2.5])
    with tb.enable_x64():
        for order in (1, 2, 3):
            expected = special.polygamma(order, x)
            np.testing.assert_allclose(ours.polygamma(order, x), expected, rtol=1e-12)
            np.testing.assert_allclose(
                ours.zeta(order + 1, x), special.zeta(order + 1.0, x), rtol=1e-12
            )
        slope = tb.vmap(tb.grad(ours.polygamma, 1), (None, 0))(1.0, x)
        first = tb.vmap(tb.grad(ours.digamma))(x)

    np.testing.assert_allclose(first, special.polygamma(1, x), rtol=1e-12)
    np.testing.assert_allclose(slope, special.polygamma(2, x), rtol=1e-12)


def test_polygamma_and_zeta_vanish_at_infinity() -> None:
    """And so do the derivatives of digamma, of any order."""
    orders = np.float32([1, 2, 0])

    np.testing.assert_array_equal(
        [0, 0, INF], np.asarray(tb.lax.polygamma(orders, np.float32(INF)))
    )
    assert 0 == float(tb.lax.zeta(2.0, INF))
    assert 0 == float(tb.grad(tb.lax.digamma)(INF)) == float(tb.grad(ours.digamma)(INF))
    assert 0 == float(tb.grad(tb.grad(ours.digamma))(INF))
