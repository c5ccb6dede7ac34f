"""stored is the identity, whichever branch XLA sees."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
from tracebridge.core import lax

X = np.linspace(-1, 1, 1000, dtype=np.float32)


@pytest.mark.parametrize("size", [10, 1000])
def test_stored_keeps_values_and_derivatives(size: int) -> None:
    """Small arrays stay as they are, large ones go through a conditional; both are equal."""
    x = X[:size]

    def f(x: tb.Array) -> tb.Array:
        return lax.stored(x * 2) ** 2

    value, (gradient,) = tb.jit(lambda x: (f(x), tb.vjp(f, x)[1](x)))(x)

    np.testing.assert_allclose(value, 4 * x * x, rtol=1e-6)
    np.testing.assert_allclose(gradient, 8 * x * x, rtol=1e-6)
    np.testing.assert_array_equal(x, tb.vmap(lax.stored)(x))


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.complex64, "bfloat16"])
def test_stored_takes_every_dtype(dtype: object) -> None:
    """The branch that is never taken has a value of each dtype."""
    x = tb.numpy.arange(600).astype(dtype)

    np.testing.assert_array_equal(x, tb.jit(lax.stored)(x))


def test_stored_takes_keys() -> None:
    """Arrays of keys are stored as their words."""
    keys = tb.random.split(tb.random.key(3), 600)

    stored = tb.random.key_data(tb.jit(lax.stored)(keys))

    np.testing.assert_array_equal(tb.random.key_data(keys), stored)


def test_only_the_cpu_is_told() -> None:
    """Other platforms, and modules for several, get no conditional."""
    traced = tb.jit(lambda x: lax.stored(x) + 1).trace(X)

    assert "stablehlo.if" in traced.lower(lowering_platforms=("cpu",)).as_text()
    assert "stablehlo.if" not in traced.lower(lowering_platforms=("tpu",)).as_text()
