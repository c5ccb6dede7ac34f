"""Elementwise functions of kernels: digits, and numbers that are none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special

import tracebridge as tb
from tests.core.kernels.plain_form import needs_kernels
from tracebridge import core, lax
from tracebridge.core._jaxlib.ffi import KERNEL

pytestmark = needs_kernels

RNG = np.random.default_rng(0)
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 88.7, -88.7, 120.0, -120.0, 3e38, -3e38]
LARGE = [2.0**50, -(2.0**51), 1e15, 1e30, 3.6e4, 1.5707964]


def sigmoid(x: Any) -> Any:
    """In float64."""
    return 1 / (1 + np.exp(-x))


CASES = [
    ("tanh", np.tanh, (-12, 12), 2.5),
    ("exp", np.exp, (-88, 90), 1.1),
    ("expm1", np.expm1, (-20, 90), 1.5),
    ("log", np.log, (0.001, 30), 1.1),
    ("log1p", np.log1p, (-0.999, 30), 1.6),
    ("logistic", sigmoid, (-88, 90), 2.5),
    ("sin", np.sin, (-4e4, 4e4), 1.6),
    ("cos", np.cos, (-4e4, 4e4), 1.6),
    ("erf", special.erf, (-5, 5), 1.5),
    ("erfc", special.erfc, (-5, 9.19), 2.5),
    ("ndtr", special.ndtr, (-12.9, 9), 3.5),
    ("floor", np.floor, (-9, 9), 0),
    ("ceil", np.ceil, (-9, 9), 0),
    ("sign", np.sign, (-9, 9), 0),
]


@pytest.mark.parametrize(("name", "reference", "domain", "bound"), CASES)
def test_digits(
    name: str, reference: Callable[..., Any], domain: tuple[float, float], bound: float
) -> None:
    """Against float64, with the same infinities, NaN and zeros."""
    x = RNG.uniform(*domain, 6000)
    tiny = RNG.choice([-1, 1], 2000) * 2.0 ** RNG.uniform(-120, 0, 2000)
    x = np.concatenate([x, np.abs(tiny) if name == "log" else tiny, SPECIAL, LARGE])
    x = np.resize(x.astype(np.float32), (len(x) // 50, 50))

    def run(xs: Any) -> Any:
        return lax.scan(lambda c, x: (c, getattr(core.lax, name)(x)), np.float32(0), xs)[1]

    assert KERNEL in tb.jit(run).lower(x).as_text()
    y = np.asarray(tb.jit(run)(x))
    with np.errstate(all="ignore"):
        expected = reference(x.astype(np.float64))
        rounded = expected.astype(np.float32)
    normal = np.isfinite(rounded) & (np.abs(rounded) >= np.finfo(np.float32).tiny)
    error = np.abs(y.astype(np.float64) - expected)[normal]
    assert (error <= bound * np.spacing(np.abs(rounded[normal]))).all()
    others = ~normal & (np.isnan(rounded) | np.isinf(rounded) | (x == 0))
    np.testing.assert_array_equal(y[others], rounded[others])
    zeros = x == 0
    np.testing.assert_array_equal(np.signbit(y[zeros]), np.signbit(rounded[zeros]))


def test_clamp_is_that_of_the_plain_form() -> None:
    """With bounds that cross, and NaN in each place."""
    values = np.array([0.0, 1.0, -1.0, np.nan, np.inf, 2.0], np.float32)
    low, x, high = (a.reshape(6, 36) for a in np.meshgrid(values, values, values))

    def run(low: Any, x: Any, high: Any) -> Any:
        return lax.scan(lambda c, r: (c, lax.clamp(*r)), np.float32(0), (low, x, high))[1]

    assert KERNEL in tb.jit(run).lower(low, x, high).as_text()
    expected = lax.clamp(low, x, high)
    np.testing.assert_array_equal(tb.jit(run)(low, x, high), expected)


def test_round_goes_to_even_numbers() -> None:
    """Halves, numbers without places after the point, and what is no number."""
    x = np.resize(np.array([*np.arange(-9, 9, 0.25), *SPECIAL, *LARGE], np.float32), (4, 25))
    even = lax.RoundingMethod.TO_NEAREST_EVEN

    def run(xs: Any) -> Any:
        return lax.scan(lambda c, x: (c, lax.exp(x) + lax.round(x, even)), np.float32(0), xs)[1]

    assert KERNEL in tb.jit(run).lower(x).as_text()
    expected = np.asarray(lax.exp(x)) + np.rint(x)
    np.testing.assert_allclose(np.asarray(tb.jit(run)(x)), expected, rtol=3e-7)
