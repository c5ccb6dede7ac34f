"""hypot: second derivatives, also where its sides are equal, tiny or 0."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp


def length(sides: tb.Array) -> tb.Array:
    return tnp.hypot(sides[0], sides[1])


@pytest.mark.parametrize("sides", [(1.0, 1.0), (-2.0, 2.0), (3.0, 4.0), (1e-30, 0.0), (0.0, 2.0)])
def test_second_derivatives(sides: tuple[float, float]) -> None:
    """They are the square of the other side over the cube of the length, and minus the product."""
    x, y = sides
    r = np.hypot(x, y)
    expected = np.array([[y * y, -x * y], [-x * y, x * x]]) / r / r / r
    actual = tb.hessian(length)(np.array(sides, np.float32))

    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-7 / r)
    np.testing.assert_allclose(tb.jacrev(tb.grad(length))(np.array(sides)), actual, 1e-6, 1e-7 / r)


def test_slopes_without_a_length() -> None:
    """Nothing is NaN at the origin, and far out one side counts alone."""
    assert [0.5, 0.5] == tb.grad(length)(tnp.zeros(2)).tolist()
    assert [1.0, 0.0] == tb.grad(length)(tnp.array([np.inf, 1.0])).tolist()
    assert np.isfinite(tb.hessian(length)(tnp.zeros(2))).all()
