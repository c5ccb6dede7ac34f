"""Contractions of leading axes on the CPU put the smaller operand on the left."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
from tracebridge import lax
from tracebridge.core.config.scopes import scope

BARRIER = "stablehlo.optimization_barrier"


@pytest.mark.usefixtures("without_kernels")
@pytest.mark.parametrize(
    ("x_shape", "y_shape", "n_batch", "n_contracted", "changes"),
    [
        ((300, 17, 3), (300, 500), 0, 1, True),
        ((300, 500), (300, 17, 3), 0, 1, True),
        ((15, 20, 50), (15, 20, 500), 0, 2, True),
        ((2, 150, 500), (2, 150, 7, 10), 1, 1, True),
        ((2, 5, 30, 70), (2, 5, 30, 500), 2, 1, True),
        ((2, 5, 5, 6, 500), (2, 5, 5, 6, 70), 2, 2, True),
        ((300, 450), (300, 450), 0, 1, False),
        ((300, 20), (300, 70), 0, 1, False),
    ],
)
def test_values(
    x_shape: tuple[int, ...],
    y_shape: tuple[int, ...],
    n_batch: int,
    n_contracted: int,
    changes: bool,
) -> None:
    """As NumPy has them in 64 bits, whichever operand is the larger one; small ones stay."""
    rng = np.random.default_rng(0)
    x, y = [rng.standard_normal(s).astype(np.float32) for s in (x_shape, y_shape)]
    lead = n_batch + n_contracted
    summed_axes, batch_axes = tuple(range(n_batch, lead)), tuple(range(n_batch))
    numbers = (summed_axes, summed_axes), (batch_axes, batch_axes)
    batch, summed = x_shape[:n_batch], int(np.prod(x_shape[n_batch:lead]))
    wide = [a.astype(np.float64).reshape(*batch, summed, -1) for a in (x, y)]
    expected = np.swapaxes(wide[0], -1, -2) @ wide[1]

    lowered = tb.jit(lambda x, y: lax.dot_general(x, y, numbers)).lower(x, y)
    assert changes == (BARRIER in lowered.as_text())
    got = lowered.compile()(x, y)
    np.testing.assert_allclose(
        np.asarray(got), expected.reshape(batch + x_shape[lead:] + y_shape[lead:]), 1e-4, 1e-4
    )


def test_gradients_of_a_layer_and_the_option() -> None:
    """Weights stored as torch stores them; the option for platform rules leaves the operation."""
    rng = np.random.default_rng(0)
    x, w = [rng.standard_normal(s).astype(np.float32) for s in ((512, 300), (40, 300))]
    gradient = tb.jit(tb.grad(lambda w, x: ((x @ w.T) ** 2).sum()))
    expected = 2 * (x @ w.T).T.astype(np.float64) @ x

    np.testing.assert_allclose(np.asarray(gradient(w, x)), expected, rtol=1e-3, atol=1e-1)
    with scope("platform_rules", False):
        assert BARRIER not in gradient.lower(w, x).as_text()
    assert BARRIER in gradient.lower(w, x).as_text()
