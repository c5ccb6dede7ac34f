"""Every elementwise function of floats is as exact as the table says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.lax.elementwise.ulp_table import TABLE, Row, errors, points

# More elements than a scalar call of libm is used for.
MANY = 520


def values(row: Row, xs: tuple[np.ndarray, ...], length: int) -> np.ndarray:
    """Results from calls with arrays of one length; the points are repeated as needed."""
    count = len(xs[0])
    rounds = -(-count // length)
    padded = [np.resize(x, rounds * length).reshape(rounds, length) for x in xs]
    parts = [row.fun(*[tnp.asarray(x[i]) for x in padded]) for i in range(rounds)]
    return np.concatenate([np.asarray(part) for part in parts])[:count]


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("row", TABLE, ids=str)
def test_errors_stay_below_the_bound(row: Row, dtype: Any) -> None:
    """On hard points and a random sample, in short arrays and in long ones."""
    bound = row.bounds[0 if dtype is np.float32 else 1]
    with tb.enable_x64(True):
        xs = points(row, dtype)
        short, long = values(row, xs, 60), values(row, xs, MANY)
    worst = errors(row, xs, short)
    if not np.array_equal(short, long, equal_nan=True):
        worst = list(map(max, worst, errors(row, xs, long)))
    rows = zip(*[x.tolist() for x in xs], short.tolist(), long.tolist(), worst, strict=True)
    wrong = [r for r, error in zip(rows, worst, strict=True) if not error <= bound]

    assert short.dtype == dtype
    assert [] == wrong
