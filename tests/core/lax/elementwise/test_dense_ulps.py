"""Elementwise functions at many thousand points, where a table of hard points may miss the worst.

The reference is NumPy's in more digits: float64 for float32, and for float64 the long double of
processors that have one of 64 bits. Arrays are too short for kernels.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tests.core.lax.elementwise.ulp_table import Host

LENGTH = 30_000
ROUNDS = 4
HAS_LONG = np.finfo(np.longdouble).nmant >= 63


@dataclasses.dataclass(frozen=True)
class Dense:
    """A function, NumPy's, the largest errors of float32 and float64, and where to look."""

    name: str
    fun: Callable[..., Any]
    exact: Callable[..., Any]
    bounds: tuple[float, float]
    low: float
    high: float
    negative: bool = True

    def __str__(self) -> str:
        return self.name


TABLE = (
    Dense("exp2", lax.exp2, np.exp2, (0.8, 0.95), -20, 6.9),
    Dense("expm1", lax.expm1, np.expm1, (1.2, 1.2), -20, 6.4),
    Dense("log2", tnp.log2, np.log2, (2.2, 1.6), -10, 10, negative=False),
    Dense("log10", tnp.log10, np.log10, (2.4, 1.8), -10, 10, negative=False),
    Dense("asin", lax.asin, np.arcsin, (2.1, 2.2), -12, 0),
    Dense("acos", lax.acos, np.arccos, (1.2, 1.3), -12, 0),
    Dense("sinh", lax.sinh, np.sinh, (2.15, 2.25), -12, 6.4),
    Dense("cosh", lax.cosh, np.cosh, (1.1, 1.1), -12, 6.4),
    Dense("asinh", lax.asinh, np.arcsinh, (1.4, 1.4), -12, 100),
    Dense("acosh", lax.acosh, np.arccosh, (1.8, 2.0), 0, 100, negative=False),
    Dense("atanh", lax.atanh, np.arctanh, (2.2, 2.1), -12, 0),
)


def points(row: Dense, dtype: Any) -> Host:
    """Half of them over all sizes, half where most functions change their form."""
    random = np.random.default_rng(zlib.crc32(row.name.encode()))
    wide = random.uniform(row.low, row.high, LENGTH * ROUNDS // 2)
    near = random.uniform(max(row.low, -4), min(row.high, 2), LENGTH * ROUNDS // 2)
    sizes = np.exp2(np.concatenate([wide, near]))
    signs = random.choice([-1.0, 1.0], sizes.shape) if row.negative else 1.0
    return random.permutation(sizes * signs).astype(dtype)


def ulps(got: Host, exact: Host) -> Host:
    """The distance in units in the last place."""
    info = np.finfo(got.dtype)
    exponent = np.maximum(np.frexp(exact)[1] - 1, info.minexp)
    unit = np.ldexp(np.ones_like(exact), exponent - info.nmant)
    return np.abs(got.astype(exact.dtype) - exact) / unit


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("row", TABLE, ids=str)
def test_errors_of_many_points(row: Dense, dtype: Any) -> None:
    """Every value is within the bound; one is named that is not."""
    # NumPy has no other numbers with more digits; the table of hard points asks mpmath there, too.
    if dtype is np.float64 and not HAS_LONG:
        pytest.skip("the long double of this processor is a float64")
    wide = np.float64 if dtype is np.float32 else np.longdouble
    xs = points(row, dtype)
    with tb.enable_x64(True):
        got = np.concatenate([np.asarray(row.fun(tnp.asarray(x))) for x in np.split(xs, ROUNDS)])
    error = ulps(got, row.exact(xs.astype(wide)))
    worst = int(np.argmax(error))

    assert got.dtype == dtype
    assert np.isfinite(error).all()
    assert error[worst] <= row.bounds[dtype is np.float64], (float(xs[worst]), float(error[worst]))
