"""Sums over transposed arrays are sums over the arrays themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.kernels.plain_form import needs_kernels
from tracebridge.core._jaxlib.ffi import KERNEL


def _centered(x: Any) -> Any:
    return x - x.sum(1, keepdims=True) / x.shape[1]


@pytest.mark.parametrize(
    ("shape", "order", "axes"),
    [((4000, 30), (1, 0), (1,)), ((40, 50, 60), (2, 0, 1), (2,)), ((40, 50, 60), (2, 1, 0), (2,)),
     ((40, 50, 60), (1, 2, 0), (1, 2)), ((0, 30), (1, 0), (1,))],
)  # fmt: skip
def test_values(shape: tuple[int, ...], order: tuple[int, ...], axes: tuple[int, ...]) -> None:
    """Of any order of axes, also one that is left in another order."""
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)

    def run(x: Any) -> Any:
        turned = tnp.transpose(x, order)
        return turned - tnp.sum(turned, axes, keepdims=True)

    turned = np.transpose(x.astype(np.float64), order)
    expected = turned - turned.sum(axes, keepdims=True)
    np.testing.assert_allclose(np.asarray(tb.jit(run)(x)), expected, rtol=1e-4, atol=2e-4)


def test_covariances_need_no_copy() -> None:
    """The numbers less their mean are all that is written."""
    x = np.ones((10000, 30), np.float32)

    program = tb.jit(lambda x: tnp.cov(x.T)).lower(x).compile()

    assert program.memory_analysis().temp_size_in_bytes < 1.1 * x.nbytes


@needs_kernels
@pytest.mark.parametrize("other", [lambda x: x.max(1), lambda x: (x * x).sum(1)])
def test_rows_that_are_reduced_twice_have_a_kernel(other: Callable[[Any], Any]) -> None:
    """It reads them once."""

    def run(x: Any) -> Any:
        return _centered(x.T) * other(x.T)[:, None]

    assert KERNEL in tb.jit(run).lower(np.ones((2000, 300), np.float32)).as_text()
