"""Copies in another order of axes, in registers: all sizes, edges, and strides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.kernels.plain_form import needs_kernels
from tracebridge import lax

pytestmark = needs_kernels

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.bool_])
@pytest.mark.parametrize("shape", [(16, 16), (3, 40), (4, 4), (17, 35), (48, 5), (1, 20), (33, 64)])
def test_transposes_of_matrices(shape: tuple[int, int], dtype: Any) -> None:
    """Whole blocks and what is left of them."""
    xs = (RNG.standard_normal((5, *shape)) * 9).astype(dtype)
    f = tb.jit(lambda xs: lax.scan(lambda c, x: (c + 1, x.T), np.int32(0), xs)[1])
    assert "tracebridge_kernel" in f.lower(xs).as_text()
    np.testing.assert_array_equal(f(xs), xs.swapaxes(1, 2))


@pytest.mark.parametrize("order", [(0, 2, 1), (2, 1, 0), (1, 0, 2), (2, 0, 1), (1, 2, 0)])
def test_transposes_of_three_axes(order: tuple[int, ...]) -> None:
    """Of a part of an array, joined with others."""
    xs = RNG.standard_normal((5, 7, 18, 20)).astype(np.float32)

    def step(c: Any, x: Any) -> Any:
        y = x[1:6].transpose(order)
        return c + 1, tnp.concatenate([y, 2 * y], 1)

    found = tb.jit(lambda xs: lax.scan(step, np.int32(0), xs)[1])(xs)
    y = xs[:, 1:6].transpose(0, *[i + 1 for i in order])
    np.testing.assert_array_equal(found, np.concatenate([y, 2 * y], 2))
