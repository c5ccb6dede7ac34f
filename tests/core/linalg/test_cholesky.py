"""cholesky, cholesky_update: factors, failure, rules, portable lowering."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.linalg.laws import (
    DTYPES,
    SQUARE,
    adjoint,
    close,
    jitted,
    matrix,
    positive,
    without_libraries,
)
from tests.quick_compiles import check_grads
from tracebridge.core.config.option_scopes import enable_x64
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.linalg.cholesky import cholesky, cholesky_update


@pytest.mark.parametrize("portable", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SQUARE)
def test_factors_are_numpys(dtype: Any, shape: tuple[int, ...], portable: bool) -> None:
    """The lower factor with a positive diagonal; of the lower triangle if so asked."""
    a = positive(dtype, *shape)

    def factors(a: Any, low: Any) -> Any:
        return cholesky(a), cholesky(low, symmetrize_input=False)

    with enable_x64(), without_libraries() if portable else nullcontext():
        full, low = jitted(factors, portable)(a, np.tril(a))
    close(np.linalg.cholesky(a), full, dtype)
    close(np.linalg.cholesky(a), low, dtype)


@pytest.mark.parametrize("portable", [False, True])
def test_failure_is_nan(portable: bool) -> None:
    """One matrix of a batch that is not positive definite does not disturb the others."""
    a = np.stack([np.eye(2), [[1.0, 2.0], [2.0, 1.0]], [[np.nan, 0.0], [0.0, 1.0]]]).astype("f4")
    with without_libraries() if portable else nullcontext():
        out = np.asarray(tb.jit(lambda a: cholesky(a))(a))

    np.testing.assert_array_equal(out[0], np.eye(2))
    assert np.isnan(out[1:, [0, 1, 1], [0, 0, 1]]).all()


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_derivatives(dtype: Any) -> None:
    """Both modes agree with finite differences, to second order; also of a batch."""
    with enable_x64():
        check_grads(cholesky, (positive(dtype, 2, 3, 3),), 2, atol=1e-3, rtol=1e-3)
        stacked = np.moveaxis(positive(dtype, 2, 3, 3), 0, 2)
        check_grads(tb.vmap(cholesky, 2), (stacked,), 1, atol=1e-3, rtol=1e-3)


def test_empty_and_narrow() -> None:
    """No rows, and floats of 16 bits."""
    assert (2, 0, 0) == cholesky(np.zeros((2, 0, 0), "f4")).shape
    assert [[2.0]] == cholesky(np.array([[4.0]], "f2")).tolist()
    assert np.float16 == cholesky(np.array([[4.0]], "f2")).dtype


def test_arguments_are_checked() -> None:
    """Rank and shape; integers are taken as floats."""
    np.testing.assert_array_equal(cholesky(4 * np.eye(2, dtype=np.int32)), 2 * np.eye(2))
    with pytest.raises(RankError, match="at least 2"):
        cholesky(np.ones(2, "f4"))
    with pytest.raises(ShapeMismatchError, match="square"):
        cholesky(np.ones((2, 3), "f4"))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SQUARE)
def test_updated_factors(dtype: Any, shape: tuple[int, ...]) -> None:
    """The factor of the sum; a zero row and a zero vector leave no NaN."""
    r = adjoint(np.linalg.cholesky(positive(dtype, *shape)))
    w = matrix(dtype, *shape[:-1])
    with enable_x64():
        out = np.asarray(cholesky_update(r, w))
        close(adjoint(r) @ r + w[..., :, None] * w[..., None, :], adjoint(out) @ out, dtype, 30)
        close(np.triu(out), out, dtype)
        zero = np.asarray(cholesky_update(np.zeros_like(r), np.zeros_like(w)))
        np.testing.assert_array_equal(np.zeros_like(r), zero)


def test_derivatives_of_updates() -> None:
    """Both arguments, both modes, to second order."""
    r = np.triu(positive(np.float64, 3, 3))
    w = matrix(np.float64, 3)
    with enable_x64():
        check_grads(cholesky_update, (r, w), 2, atol=1e-3, rtol=1e-3)
        mapped = tb.vmap(cholesky_update, (None, 1))
        check_grads(mapped, (r, matrix(np.float64, 3, 2)), 1, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("name", ["cholesky", "eigh"])
def test_symmetric_integers_become_floats(name):
    """Of the other factorizations the dtype is asked for."""
    a = tnp.array([[4, 2], [2, 2]])

    for x in tb.tree.leaves(getattr(tb.lax.linalg, name)(a)):
        assert x.dtype == "float32"
