"""The slope of Hurwitz' zeta function in its exponent, beside mpmath."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from mpmath import mp

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax

_S = (1.0001, 1.2, 1.75, 2.0, 3.5, 8.0, 20.5, 60.0)
_Q = (0.01, 0.3, 1.0, 1.5, 4.25, 30.0, 1e3, 1e6)
POINTS = [(s, q) for s in _S for q in _Q]


def _slope(s: Any, q: Any, order: int) -> Any:
    """By a difference in many digits."""
    with mp.workdps(60):
        s, q, h = mp.mpf(float(s)), mp.mpf(float(q)), mp.mpf("1e-18")
        values = [mp.zeta(s + k * h, q) for k in (-1, 0, 1)]
        if order == 1:
            return float((values[2] - values[0]) / (2 * h))
        return float((values[2] - 2 * values[1] + values[0]) / h**2)


@pytest.mark.parametrize(("dtype", "bound"), [("float32", 4e-6), ("float64", 1e-13)])
def test_slopes_in_the_exponent(dtype: str, bound: float) -> None:
    """Of the first and the second order."""
    with tb.enable_x64(dtype == "float64"):
        s, q = np.array(POINTS, dtype).T
        first = tb.vmap(tb.grad(lax.zeta))
        found = [np.asarray(first(s, q)), np.asarray(tb.vmap(tb.grad(tb.grad(lax.zeta)))(s, q))]
    least = float(np.finfo(dtype).tiny) * 1e3
    for order, slopes in enumerate(found, 1):
        for x, y, slope in zip(s, q, slopes, strict=True):
            expected = _slope(x, y, order)
            if least < abs(expected) < float(np.finfo(dtype).max) / 1e3:
                assert slope == pytest.approx(expected, rel=bound * order), (x, y, order)


def test_riemanns_function_has_slopes_everywhere() -> None:
    """Above 1, between, and below -1 by the reflection."""
    points = np.array([-7.5, -2.0, -0.5, 0.0, 0.5, 1.5, 4.0], "f4")

    slopes = tb.vmap(tb.grad(tb.scipy.special.zeta))(points)

    expected = [float(mp.zeta(float(x), 1, 1)) for x in points]
    np.testing.assert_allclose(slopes, expected, rtol=2e-5)


def test_ends_and_shapes() -> None:
    """The pole, infinities, what has no value, narrow floats, and a number beside an array."""
    s = np.array([1.0, 0.5, math.inf, math.inf, 2.0, 2.0, math.nan], "f4")
    q = np.array([1.0, 1.0, 2.0, 0.5, math.inf, -0.5, 1.0], "f4")

    slopes = tb.vmap(tb.grad(lax.zeta))(s, q)
    narrow = tb.grad(lambda s: lax.zeta(s, tnp.float16(2)).astype("float32"))(tnp.float16(3))
    beside = tb.jvp(lambda s: lax.zeta(s, 1.5), (s[4:6],), (np.ones(2, "f4"),))[1]

    np.testing.assert_array_equal(slopes, [-math.inf, math.nan, 0, math.inf, 0, math.nan, math.nan])
    assert narrow == pytest.approx(_slope(3, 2, 1), rel=2e-3)
    np.testing.assert_allclose(beside, [_slope(2, 1.5, 1)] * 2, rtol=1e-5)
