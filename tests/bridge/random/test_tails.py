"""Normal numbers between bounds that lie far out on one side."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import random

BOUNDS = [(30.0, 31.0), (-np.inf, -5.0), (10.0, 10.01), (100.0, 200.0)]


@pytest.mark.parametrize(("lower", "upper"), BOUNDS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numbers_far_out_have_their_distribution(lower: float, upper: float, dtype: Any) -> None:
    """The distribution function makes uniform numbers of them, and they are within the bounds."""
    with tb.enable_x64():
        found = np.asarray(random.truncated_normal(random.key(0), lower, upper, (4000,), dtype))

    assert np.all((lower < found) & (found < upper))
    uniform = scipy.stats.truncnorm(lower, upper).cdf(found.astype(np.float64))
    assert scipy.stats.kstest(uniform, "uniform").pvalue > 0.01


def test_bounds_far_out_and_near_in_one_array() -> None:
    """Traced bounds choose for each element, and the near ones give the same as before."""
    key, lower = random.key(1), np.array([-2, 30, -31, 0.5, -1, np.nan], np.float32)
    upper = np.array([2, 31, -30, np.inf, 40, 1], np.float32)
    found = np.asarray(tb.jit(random.truncated_normal)(key, lower, upper))

    assert np.all((lower < found) & (found < upper) | np.isnan(lower))
    assert np.isnan(found[5])
    far = {1: (30.0, 31.0), 2: (-31.0, -30.0)}
    for i in range(5):
        one = [far.get(i, (-1.0, 1.0))] * 6
        low, high = map(np.array, zip(*one, strict=True))
        low[i], high[i] = lower[i], upper[i]
        assert found[i] == random.truncated_normal(key, low, high, dtype="float32")[i]


def test_derivatives_far_out_are_those_of_the_bounds() -> None:
    """Finite differences agree, in both modes; none is NaN beside other bounds."""
    with tb.enable_x64():
        lower, upper = np.array([8.0, -31.0, 30.0, -1.0]), np.array([np.inf, -30.0, 30.01, 2.0])
        key, step = random.key(2), 1e-5

        def draw(lower: Any, upper: Any) -> Any:
            return random.truncated_normal(key, lower, upper, dtype="float64")

        def slopes(i: int, bound: Any) -> Any:
            return (draw(*ends(i, bound + step)) - draw(*ends(i, bound - step))) / (2 * step)

        def ends(i: int, bound: Any) -> Any:
            return (bound, upper) if i == 0 else (lower, bound)

        for i, bound in enumerate((lower, upper)):
            found = tb.grad(lambda b, i=i: tnp.sum(draw(*ends(i, b))))(bound)
            np.testing.assert_allclose(found[1:], slopes(i, bound)[1:], rtol=1e-5, atol=1e-8)
            assert np.isfinite(found[0])


def test_half_numbers_far_out() -> None:
    """They are rounded from wider ones: not all at the bound."""
    for dtype in ("float16", "bfloat16"):
        found = random.truncated_normal(random.key(3), 4.0, np.inf, (1000,), dtype)
        assert found.dtype == dtype
        assert 4.15 < float(found.astype("float32").mean()) < 4.3
