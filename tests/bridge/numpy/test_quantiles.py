"""Quantiles at the probabilities where their methods jump from one element to the next."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp

JUMPING = (
    "lower", "higher", "midpoint", "nearest", "inverted_cdf", "averaged_inverted_cdf",
    "closest_observation",
)  # fmt: skip
SIZES = (5, 7, 10)


def probabilities(n: int) -> Any:
    """Where a quantile of ``n`` elements is one of them, or lies between two."""
    return np.unique([*np.arange(n + 1) / n, *(np.arange(n) + 0.5) / n, *np.arange(n) / (n - 1)])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_jumps_are_where_those_of_numpy_are(dtype: str) -> None:
    """Products and quotients are rounded as they are, also inside of larger programs."""
    rows = [(np.arange(n, dtype=dtype), probabilities(n).astype(dtype)) for n in SIZES]

    def everything(rows: Any) -> Any:
        return [
            [(tnp.quantile(x, q, method=m), tnp.percentile(x, 100 * q, method=m)) for m in JUMPING]
            for x, q in rows
        ]

    with tb.enable_x64(True):
        found = tb.jit(everything)(rows)

    for (x, q), one in zip(rows, found, strict=True):
        for method, (quantiles, percentiles) in zip(JUMPING, one, strict=True):
            hundredths = np.percentile(x, 100 * q, method=method)
            np.testing.assert_array_equal(np.quantile(x, q, method=method), quantiles, method)
            np.testing.assert_array_equal(hundredths, percentiles, method)


def test_percentiles_outside_of_0_to_100_are_those_at_the_ends() -> None:
    """-100 too, with a derivative that is a number."""
    x, q = tnp.arange(5.0), np.array([-150.0, -100.0, -50.0, 150.0], np.float32)

    assert [0.0, 0.0, 0.0, 4.0] == tnp.percentile(x, q).tolist()
    assert [0.0] * 4 == tb.vmap(tb.grad(lambda q: tnp.percentile(x, q)))(q).tolist()
