"""reduce_precision of float64 by operations of float32: numbers that are sums of two of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.export
from tracebridge import lax
from tracebridge.core.lax.elementwise.pair_roundings import rounded_pair

OPERATION = "stablehlo.reduce_precision"


def pairs(mantissa_bits: int) -> np.ndarray[Any, Any]:
    """Sums of two float32, also in and beside the middle of two results."""
    rng = np.random.default_rng(0)
    upper = (rng.uniform(-2, 2, 300) * 2.0 ** rng.integers(-60, 60, 300)).astype(np.float32)
    kept = min(mantissa_bits, 22)
    middle = np.ldexp(1 + (rng.integers(0, 2**kept, 300) + 0.5) / 2.0**kept, 3)
    powers = 2.0 ** rng.integers(-20, 20, 100)
    upper = np.concatenate([upper, middle, -middle, powers, -powers]).astype(np.float32)
    lower = upper * rng.uniform(-1, 1, upper.size) * 2.0**-25
    lower[::5] = 0
    return upper.astype(np.float64) + lower.astype(np.float32)


@pytest.mark.parametrize("mantissa_bits", [0, 1, 7, 10, 21, 22, 23, 24, 25, 30, 40, 46, 47, 49, 52])
def test_rounds_like_the_operation(mantissa_bits: int) -> None:
    """Each number has the same digits."""
    with tb.enable_x64(True):
        x = tb.numpy.asarray(pairs(mantissa_bits))
        got = tb.jit(lambda v: rounded_pair(v, 11, mantissa_bits))(x)
        want = lax.reduce_precision(x, 11, mantissa_bits)

    np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


@pytest.mark.parametrize("mantissa_bits", [10, 30])
def test_what_has_no_digits(mantissa_bits: int) -> None:
    """Infinities, NaN and zeros stay; a short exponent gives infinities."""
    with tb.enable_x64(True):
        x = tb.numpy.asarray([np.inf, -np.inf, np.nan, 0.0, -0.0, 1e30, 1.0])
        got = np.asarray(rounded_pair(x, 5, mantissa_bits))

    np.testing.assert_array_equal(got, [np.inf, -np.inf, np.nan, 0.0, -0.0, np.inf, 1.0])
    np.testing.assert_array_equal(np.signbit(got[3:5]), [False, True])


@pytest.mark.parametrize(
    ("dtype", "platforms", "wide", "cases"),
    [
        (np.float64, ("tpu",), 0, 0),
        (np.float64, ("cpu",), 1, 0),
        (np.float64, ("cuda",), 1, 0),
        (np.float64, ("cpu", "tpu"), 1, 1),
        (np.float64, ("cpu", "cuda"), 1, 0),
        (np.float32, ("tpu",), 0, 0),
    ],
)
def test_platforms(dtype: Any, platforms: tuple[str, ...], wide: int, cases: int) -> None:
    """Only programs for TPUs have it, modules for several platforms have both."""
    with tb.enable_x64(True):
        fun = tb.jit(lambda v: lax.reduce_precision(v, 11, 25))
        exported = tb.export.export(fun, platforms=platforms)(tb.ShapeDtypeStruct((4,), dtype))
    lines = exported.mlir_module().splitlines()

    found = [line for line in lines if OPERATION in line]
    assert len([line for line in found if "f64" in line]) == wide
    assert len([line for line in lines if "stablehlo.case" in line]) == cases
