"""sinc: values and derivatives around zero, where its two forms meet, and far away."""

from __future__ import annotations

import math

import numpy as np
import pytest
from mpmath import mp
from scipy import special

import tracebridge as tb
import tracebridge.numpy as tnp

POINTS = [0.0, 1e-30, 1e-8, 1e-3, 0.02, 0.0477, 0.0478, -0.05, 0.3, 1.0, -2.5, 1e3]


@pytest.mark.parametrize("x", POINTS)
def test_values_and_derivatives(x: float) -> None:
    """The derivative is that of the spherical Bessel function j0, in both modes."""
    slope = -math.pi * special.spherical_jn(1, math.pi * abs(x)) * np.sign(x)
    with tb.enable_x64(True):
        value, gradient = tb.value_and_grad(tnp.sinc)(x)
        forward = tb.jvp(tnp.sinc, (x,), (1.0,))[1]
        np.testing.assert_allclose(value, np.sinc(x), rtol=1e-14, atol=2e-16)
        np.testing.assert_allclose([gradient, forward], [slope] * 2, rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize("x", POINTS[:5])
def test_curvature_near_zero(x: float) -> None:
    """The second derivative loses no digits in single precision."""
    expected = -(math.pi**2) / 3 + math.pi**4 * x * x / 10
    np.testing.assert_allclose(tb.grad(tb.grad(tnp.sinc))(x), expected, rtol=1e-4)


@pytest.mark.parametrize("x", [1e20, -1e20, 1e30])
def test_derivatives_far_away_are_finite(x: float) -> None:
    """The series near zero overflows there, and is not asked."""
    assert abs(float(tb.grad(tnp.sinc)(x))) < 1e-15


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
def test_slopes_close_to_zero_have_digits(dtype: type) -> None:
    """The difference, which the slope of the quotient is, does not cancel."""
    x = np.array([1e-4, 0.047, 0.0539, 0.1, 0.25, 0.318, 0.319, 0.4, 0.9], dtype)
    with tb.enable_x64(True), mp.workdps(40):
        found = np.asarray(tb.vmap(tb.grad(tnp.sinc))(x))
        turns = [mp.pi * mp.mpf(float(v)) for v in x]
        exact = [float(mp.pi * (t * mp.cos(t) - mp.sin(t)) / t**2) for t in turns]
    np.testing.assert_allclose(found, exact, 8 * np.finfo(dtype).eps)
