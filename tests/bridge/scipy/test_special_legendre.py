"""Tables of associated Legendre functions."""

from __future__ import annotations

import warnings
from typing import Any, cast

import numpy as np
import pytest
from scipy import special

import tracebridge as tb
import tracebridge.numpy as tnp
import tracebridge.scipy.special as ours
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError

Host = np.ndarray[Any, Any]
POINTS = np.array([-0.99, -0.6, 0.0, 1e-3, 0.3, 0.8, 0.9999])


def _reference(m: int, n: int, points: Host) -> Host:
    """Values and the first two derivatives, each with the axes order, degree, point."""
    orders, degrees = np.arange(m + 1)[:, None, None], np.arange(n + 1)[:, None]
    found = special.assoc_legendre_p(degrees, orders, points, diff_n=2)
    return np.where(orders <= degrees, np.asarray(found), 0.0)


def _norms(m: int, n: int) -> Host:
    """What scales a function so that it is orthonormal on the sphere."""
    orders, degrees = np.arange(m + 1)[:, None], np.arange(n + 1)
    log = special.gammaln(np.maximum(degrees - orders, 0) + 1) - special.gammaln(
        degrees + orders + 1
    )
    return np.sqrt((2 * degrees + 1) / (4 * np.pi) * np.exp(log))[..., None]


@pytest.mark.parametrize(("m", "n"), [(0, 0), (1, 1), (2, 2), (0, 3), (1, 4), (7, 7)])
def test_values_and_derivatives_are_those_of_scipy(m: int, n: int) -> None:
    """For all orders and degrees; in float32 as well."""
    expected = _reference(m, n, POINTS)
    with tb.enable_x64():
        values, slopes = ours.lpmn(m, n, POINTS)
        scaled = ours.lpmn_values(m, n, POINTS, True)
        alone = ours.lpmn_values(m, n, POINTS, False)
    assert (m + 1, n + 1, 7) == values.shape == slopes.shape
    np.testing.assert_allclose(values, expected[0], rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(slopes, expected[1], rtol=1e-11, atol=1e-12)
    np.testing.assert_array_equal(alone, values)
    np.testing.assert_allclose(scaled, expected[0] * _norms(m, n), rtol=1e-12, atol=1e-14)
    narrow = ours.lpmn_values(m, n, tnp.asarray(POINTS, np.float32), True)
    assert np.float32 == narrow.dtype
    np.testing.assert_allclose(narrow, scaled, rtol=1e-4, atol=1e-6)


def test_high_degrees_are_scaled_as_they_grow() -> None:
    """Normalized functions of degree 200 neither overflow nor lose digits."""
    with tb.enable_x64():
        found = np.asarray(ours.lpmn_values(200, 200, POINTS, True))
    orders = np.array([0, 1, 50, 199, 200])
    expected = special.sph_harm_y(200, orders[:, None], np.arccos(POINTS), 0.0).real
    np.testing.assert_allclose(found[orders, 200], expected, atol=1e-11)


def test_ends_have_limits() -> None:
    """At -1 and 1 the derivatives are finite, or infinite at order 1, as in SciPy."""
    ends = np.array([-1.0, 1.0])
    with tb.enable_x64():
        values, slopes = ours.lpmn(4, 4, ends)
    expected = _reference(4, 4, ends)
    np.testing.assert_array_equal(values, expected[0])
    np.testing.assert_allclose(slopes, expected[1], rtol=1e-14)


@pytest.mark.parametrize("is_normalized", [False, True])
def test_values_are_differentiable(*, is_normalized: bool) -> None:
    """Once and twice, forwards and backwards, in a batch."""
    expected = _reference(4, 4, POINTS) * (_norms(4, 4) if is_normalized else 1.0)
    cotangent = np.random.default_rng(1).normal(size=expected[0].shape)
    ones = np.ones_like(POINTS)

    def f(x: Any) -> Any:
        return ours.lpmn_values(4, 4, x, is_normalized)

    with tb.enable_x64():
        first = tb.jit(lambda x: tb.jvp(f, (x,), (ones,))[1])
        slopes, second = tb.jvp(first, (POINTS,), (ones,))
        reverse = tb.grad(lambda x: tnp.sum(f(x) * cotangent))(POINTS)
        batch = tb.vmap(f)(POINTS[:, None])
    np.testing.assert_allclose(slopes, expected[1], rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(second, expected[2], rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(reverse, np.sum(expected[1] * cotangent, axis=(0, 1)), rtol=1e-9)
    np.testing.assert_allclose(batch[..., 0], np.moveaxis(expected[0], 2, 0), atol=1e-12)


def test_derivatives_of_lpmn_are_differentiable() -> None:
    """The second result has a derivative of its own."""
    with tb.enable_x64():
        _, second = tb.jvp(lambda x: ours.lpmn(3, 3, x)[1], (POINTS,), (np.ones_like(POINTS),))
    np.testing.assert_allclose(second, _reference(3, 3, POINTS)[2], rtol=1e-9, atol=1e-10)


def test_kinds_of_points() -> None:
    """Integers, lists, 16 bits, none at all; outside of the range only order 0 is real."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.float32 == ours.lpmn(2, 2, np.array([0, 1]))[0].dtype
        assert (3, 3, 2) == ours.lpmn_values(2, 2, cast("Any", [0.1, 0.2]), False).shape
        narrow = ours.lpmn_values(2, 2, tnp.asarray(POINTS, np.float16), True)
        assert np.float16 == narrow.dtype
        assert (3, 4, 0) == ours.lpmn(2, 3, np.zeros(0, np.float32))[1].shape
        outside = np.asarray(ours.lpmn_values(2, 2, np.array([2.0], np.float32), False))
    np.testing.assert_allclose(outside[0, :, 0], [1.0, 2.0, 5.5])


def test_refusals() -> None:
    """Orders beyond the degree, no known integers, no single axis, complex numbers."""
    with pytest.raises(ArgumentValueError, match="lpmn: got 3, expected 0 to n, which is 2"):
        ours.lpmn(3, 2, POINTS)
    with pytest.raises(ArgumentValueError, match="lpmn_values: got -1"):
        ours.lpmn_values(-1, 2, POINTS, False)
    with pytest.raises(ArgumentTypeError, match="lpmn"):
        ours.lpmn(2, cast("Any", 2.5), POINTS)
    with pytest.raises(ArgumentValueError, match="one axis"):
        ours.lpmn(2, 2, 0.5)
    with pytest.raises(UnsupportedDtypeError, match="lpmn"):
        ours.lpmn(2, 2, POINTS * 1j)
