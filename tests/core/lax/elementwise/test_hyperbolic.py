"""Slopes of inverses, and of expm1, where their formulas are not the plain ones."""

from __future__ import annotations

import numpy as np

import tracebridge as tb
from tracebridge.core import lax


def test_slopes_of_inverses_far_out() -> None:
    """The square of the argument overflows, the slope does not vanish; second ones at ends."""
    x = np.array([1e30, 1e10, 3e3], np.float32)
    for fun in (lax.asinh, lax.acosh):
        np.testing.assert_allclose(tb.vmap(tb.grad(fun))(x), 1 / x, rtol=1e-6)
    assert -np.inf == float(tb.grad(tb.grad(lax.acosh))(1.0))
    assert [0.0, 0.0] == [abs(float(tb.grad(tb.grad(f))(np.inf))) for f in (lax.asinh, lax.acosh)]
    assert np.isnan(float(tb.grad(lax.acosh)(-2.0)))


def test_second_slopes_near_zero_and_far_out() -> None:
    """They keep their digits next to 0, and are 0 where a square overflows."""
    second = [tb.grad(tb.grad(f)) for f in (lax.asin, lax.acos, lax.atanh)]
    np.testing.assert_allclose([f(1e-9) for f in second], [1e-9, -1e-9, 2e-9], rtol=1e-6)
    assert [np.inf, -np.inf, np.inf] == [float(f(1.0)) for f in second]
    far = tb.vmap(tb.grad(tb.grad(lax.atan)))(np.array([3.4e38, -1e30, np.inf], np.float32))
    assert [0.0, 0.0, 0.0] == np.abs(far).tolist()
    assert np.isnan(float(tb.grad(tb.grad(lax.atan))(np.nan)))


def test_slope_of_expm1_far_below_zero() -> None:
    """It is not lost in a value that is rounded to -1."""
    x = np.float32(-50)
    np.testing.assert_allclose([tb.grad(lax.expm1)(x), tb.grad(tb.nn.elu)(x)], np.exp(-50.0), 1e-6)
