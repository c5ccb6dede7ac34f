"""Slopes of the inverses of hyperbolic functions where their formulas are not the plain ones."""

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
