"""Derivatives at 0, -0, ties, subnormal, large and infinite numbers: none is NaN where it exists.

Between two one-sided derivatives each number is one. ``numpy`` functions of one and two operands
have tables of their own (tests/bridge/numpy/test_singular_points.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.properties.hard_points import ROWS, UNDEFINED, never
from tracebridge.core._jaxlib.xla import QUICK_COMPILE

NAMES = list(ROWS)
# So many functions are one program.
TOGETHER = 12
POINTS = np.array(
    [
        0.0, -0.0, 1, -1, 0.5, -0.5, 2, -2, 3, -3, 6, -6, 1e-310, -1e-310, 1e-30, 30, -30, 700,
        -700, 1e30, -1e30, np.inf, -np.inf,
    ]
)  # fmt: skip
STEP = 1e-6


def derivatives(names: list[str]) -> dict[str, list[np.ndarray]]:
    """Value, forward and backward derivative, the second one, and differences on both sides."""

    def of_one(name: str, x: Any) -> list[Any]:
        function, ones = ROWS[name], tnp.ones_like(x)
        slope = tb.grad(lambda v: function(v).sum())
        first, second = tb.jvp(slope, (x,), (ones,))
        # One copy of the function for all points: compiling is what takes time.
        points = tnp.concatenate([x, x + STEP, x - STEP])
        values, forward = tb.jvp(function, (points,), (tnp.ones_like(points),))
        value, above, below = tnp.split(values, 3)
        return [value, forward[: x.size], first, second, above, below]

    program = tb.jit(
        lambda x: {name: of_one(name, x) for name in names}, compiler_options=dict(QUICK_COMPILE)
    )
    found = program(tnp.asarray(POINTS))
    return {name: [np.asarray(v) for v in row] for name, row in found.items()}


@pytest.mark.parametrize("first", range(0, len(NAMES), TOGETHER))
def test_derivatives_exist_where_the_limits_do(first: int) -> None:
    """Both modes agree, lie between the differences, and are NaN only where the value is."""
    wrong: list[Any] = []
    with tb.enable_x64(True), np.errstate(all="ignore"):
        for name, row in derivatives(NAMES[first : first + TOGETHER]).items():
            value, forward, backward, second, above, below = row
            defined = ~np.isnan(value) & ~UNDEFINED.get(name, never)(POINTS)
            alike = np.isclose(forward, backward, rtol=1e-9, atol=1e-300, equal_nan=True)
            right, left = (above - value) / STEP, (value - below) / STEP
            low, high = np.fmin(left, right), np.fmax(left, right)
            slack = 2e-3 * (1 + np.abs(low) + np.abs(high))
            smooth = np.isfinite(left) & np.isfinite(right) & (np.abs(POINTS) < 100) & (slack < 1)
            outside = ~((low - slack <= backward) & (backward <= high + slack))
            regular = defined & np.isfinite(POINTS) & np.isfinite(backward) & (abs(value) < 1e300)
            faults = {
                "modes differ": defined & ~alike,
                "NaN": defined & np.isnan(backward),
                "not the slope": defined & smooth & outside,
                "second order NaN": regular & np.isnan(second),
            }
            rows = np.stack([POINTS, value, forward, backward, second, left, right], 1)
            wrong += [(name, fault, *rows[where]) for fault, where in faults.items() if any(where)]

    assert [] == wrong
