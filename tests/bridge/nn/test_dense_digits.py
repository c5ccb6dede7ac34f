"""Activations and their slopes at many thousand points, with bounds that hold at all of them.

As in tests/core/lax/elementwise/test_dense_ulps.py: the reference is NumPy's in more digits.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.lax.elementwise.test_dense_ulps import HAS_LONG, Host
from tracebridge import nn

# Short enough for XLA's programs and long enough for kernels: these may round in other places.
LENGTHS = (3_000, 60_000)
Bounds = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Row:
    """A function, its value and slope by NumPy, and the largest errors: of float32, of float64.

    Slopes below ``least`` are measured in units of it: beside a zero of theirs.
    """

    fun: Callable[..., Any]
    exact: Callable[[Host], Host]
    slope: Callable[[Host], Host]
    bounds: Bounds
    slope_bounds: Bounds
    least: float = 0.0
    negative: bool = True
    worst: tuple[float, ...] = ()


def _sigmoid(x: Host) -> Host:
    return 1 / (1 + np.exp(-x))


def _silu_slope(x: Host) -> Host:
    return _sigmoid(x) * (1 + x * _sigmoid(-x))


def _mish_parts(x: Host) -> tuple[Host, Host, Host]:
    power = np.exp(np.minimum(x, 60))
    part = power * (power + 2)
    return power, part, part + 2


def _mish(x: Host) -> Host:
    _, part, whole = _mish_parts(x)
    return x * (part / whole)


def _mish_slope(x: Host) -> Host:
    power, part, whole = _mish_parts(x)
    return part / whole + x * (4 * power / whole) * ((power + 1) / whole)


def _squareplus(x: Host) -> Host:
    root = np.sqrt(x * x + 4)
    return np.where(x < 0, 2 / (root + np.abs(x)), (x + root) / 2)


def _squareplus_slope(x: Host) -> Host:
    root = np.sqrt(x * x + 4)
    return np.where(x < 0, 2 / ((root + np.abs(x)) * root), (x + root) / (2 * root))


def _tanh_slope(x: Host) -> Host:
    return 1 / np.cosh(x) ** 2


TABLE = {
    # Of float32 in arrays too short for kernels it is XLA's.
    "tanh": Row(nn.tanh, np.tanh, _tanh_slope, (5, 2.3), (10, 3.5), 0.5, worst=(19.9982, 4.9522)),
    "sigmoid": Row(
        nn.sigmoid, _sigmoid, lambda x: _sigmoid(x) * _sigmoid(-x), (2.6, 2.5), (5, 5), 0.5
    ),
    "silu": Row(
        nn.silu, lambda x: x * _sigmoid(x), _silu_slope, (2.3, 2.3), (6, 6), 0.1,
        worst=(16.6349, 36.735, -65.88574, -37.69486, -0.03023867),
    ),
    # Of float32 in arrays too short for kernels the logarithm is XLA's.
    "softplus": Row(
        nn.softplus, lambda x: np.logaddexp(x, 0), _sigmoid, (3, 2.1), (2.6, 2.6),
        worst=(-0.682269990444, -29.4544480035),
    ),
    "mish": Row(
        nn.mish, _mish, _mish_slope, (3.7, 3.7), (12, 12), 0.1,
        worst=(-11.6304445, 7.694130744231064, -3.348166704, -6.022834777832031),
    ),
    "squareplus": Row(
        nn.squareplus, _squareplus, _squareplus_slope, (2.2, 2.2), (4.5, 4.5),
        worst=(-0.00077736156526, -0.0141748, -16.0161249),
    ),
    "log1mexp": Row(
        nn.log1mexp, lambda x: np.where(
            x < 0.7, np.log(-np.expm1(-x)), np.log1p(-np.exp(-np.maximum(x, 0.7)))
        ),
        lambda x: 1 / np.expm1(x), (2.4, 2.9), (3.5, 3.5), negative=False,
        worst=(1.0019267, 0.9967979957915, 16.1966152),
    ),
}  # fmt: skip


def _points(name: str, row: Row, dtype: Any, length: int) -> Host:
    random = np.random.default_rng(zlib.crc32(name.encode()))
    count = length // 3
    parts = [np.exp2(random.uniform(-20, 4, count)), random.uniform(0, 3, count)]
    xs = np.concatenate([*parts, random.uniform(0, 86, count)])
    signs = random.choice([-1.0, 1.0], xs.shape) if row.negative else 1.0
    return np.concatenate([row.worst, random.permutation(xs * signs)]).astype(dtype)


def _units(got: Host, exact: Host, least: float) -> Host:
    info = np.finfo(got.dtype)
    exponent = np.maximum(np.frexp(np.maximum(np.abs(exact), least))[1] - 1, info.minexp)
    error = np.abs(got - exact) / np.ldexp(np.ones_like(exact), exponent - info.nmant)
    return np.where(np.abs(exact) < info.tiny, 0, error)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("name", TABLE)
def test_errors_of_many_points(name: str, dtype: Any, length: int) -> None:
    """Every value and every slope is within the bound; the worst points are named."""
    # NumPy has no other numbers with more digits; the worst points are hard points of the tables,
    # which ask mpmath there, too.
    if dtype is np.float64 and not HAS_LONG:
        pytest.skip("the long double of this processor is a float64")
    row = TABLE[name]
    xs = _points(name, row, dtype, length)
    wide = xs.astype(np.float64 if dtype is np.float32 else np.longdouble)
    with tb.enable_x64(True):
        found = tb.jit(lambda x: tb.jvp(row.fun, (x,), (tnp.ones_like(x),)))(xs)
    wrong = []
    for got, exact, least, bounds in zip(
        map(np.asarray, found),
        (row.exact(wide), row.slope(wide)),
        (0.0, row.least),
        (row.bounds, row.slope_bounds),
        strict=True,
    ):
        error = _units(got, exact, least)
        worst = int(np.argmax(np.where(np.isnan(error), np.inf, error)))
        if not error[worst] <= bounds[dtype is np.float64]:
            wrong.append((float(xs[worst]), float(error[worst])))

    assert [] == wrong
