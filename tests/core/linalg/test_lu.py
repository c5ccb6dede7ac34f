"""lu, lu_pivots_to_permutation: SciPy's factors and pivots, rules, portable lowering."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import tracebridge as tb
from tests.core.linalg.laws import DTYPES, EMPTY, SHAPES, close, jitted, matrix, without_libraries
from tests.quick_compiles import check_grads
from tracebridge.core.config.option_scopes import enable_x64
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.linalg.lu import lu, lu_pivots_to_permutation


@pytest.mark.parametrize("portable", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [*SHAPES, (150, 150)])
def test_factors(dtype: Any, shape: tuple[int, ...], portable: bool) -> None:
    """The permuted rows are the product, and pivots are SciPy's."""
    a = matrix(dtype, *shape)
    with enable_x64(), without_libraries() if portable else nullcontext():
        found, pivots, order = [np.asarray(x) for x in jitted(lu, portable)(a)]
    m, n = shape[-2:]
    k = min(m, n)
    low, up = np.tril(found[..., :k], -1) + np.eye(m, k), np.triu(found[..., :k, :])

    close(np.take_along_axis(a, order[..., None], -2), low @ up, dtype, 20)
    if len(shape) == 2:
        np.testing.assert_array_equal(scipy.linalg.lu_factor(a)[1][:k], pivots)


@pytest.mark.parametrize("portable", [False, True])
def test_singular_and_nan(portable: bool) -> None:
    """A zero pivot is no failure; a NaN stays in the results."""
    with without_libraries() if portable else nullcontext():
        zero = tb.jit(lambda a: lu(a))(np.zeros((2, 2), "f4"))
        some = tb.jit(lambda a: lu(a))(np.array([[np.nan, 1], [1, 1]], "f4"))

    np.testing.assert_array_equal(np.zeros((2, 2)), zero[0])
    assert [0, 1] == zero[2].tolist()
    assert np.isnan(some[0]).any()


@pytest.mark.parametrize("shape", EMPTY)
def test_empty(shape: tuple[int, ...]) -> None:
    """No pivots, and rows that stay."""
    found, pivots, order = lu(np.zeros(shape, "f4"))

    assert (shape, min(shape[-2:])) == (found.shape, pivots.shape[-1])
    assert (
        list(range(shape[-2])) == np.asarray(order).reshape(-1)[: shape[-2]].tolist() or 0 in shape
    )


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("shape", [(3, 3), (2, 2, 4), (4, 2)])
def test_derivatives(dtype: Any, shape: tuple[int, ...]) -> None:
    """Both modes agree with finite differences, to second order."""
    with enable_x64():
        check_grads(lambda a: lu(a)[0], (matrix(dtype, *shape),), 2, atol=1e-3, rtol=1e-3)


def test_mapped() -> None:
    """A mapped axis at any place is a batch."""
    a = matrix(np.float32, 3, 5, 3)
    expected = [scipy.linalg.lu_factor(a[:, i])[0] for i in range(5)]

    close(np.stack(expected), tb.vmap(lambda a: lu(a)[0], 1)(a), np.float32)


def test_permutations() -> None:
    """Exchanges one after the other, also of a batch, and of more rows than exchanges."""
    random = np.random.default_rng(0)
    pivots = np.stack([[random.integers(i, 6) for i in range(4)] for _ in range(7)])
    expected = np.tile(np.arange(6), (7, 1))
    for row, swaps in zip(expected, pivots, strict=True):
        for i, j in enumerate(swaps):
            row[[i, j]] = row[[j, i]]
    found = lu_pivots_to_permutation(pivots.astype(np.int32), 6)

    np.testing.assert_array_equal(expected, found)
    mapped = tb.vmap(lambda p: lu_pivots_to_permutation(p, 6), 1)(pivots.astype(np.int32).T)
    np.testing.assert_array_equal(expected, mapped)
    assert [] == lu_pivots_to_permutation(np.zeros(0, np.int32), 0).tolist()
    with pytest.raises(ShapeMismatchError, match="4 exchanges of 3 rows"):
        lu_pivots_to_permutation(np.zeros(4, np.int32), 3)
    with pytest.raises(UnsupportedDtypeError, match="int32"):
        lu_pivots_to_permutation(np.zeros(4, np.float32), 4)
