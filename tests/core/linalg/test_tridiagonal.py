"""tridiagonal_solve, symmetric_product, qdwh."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import tracebridge as tb
from tests.core.linalg.laws import DTYPES, adjoint, close, jitted, matrix, without_libraries
from tests.quick_compiles import check_grads
from tracebridge.core.config.option_scopes import enable_x64
from tracebridge.core.linalg.polar import qdwh
from tracebridge.core.linalg.products import symmetric_product
from tracebridge.core.linalg.tridiagonal import tridiagonal_solve


@pytest.mark.parametrize("portable", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("perturb", [False, True])
def test_the_solution_solves(dtype: Any, perturb: bool, portable: bool) -> None:
    """The product with the matrix is the right-hand side."""
    for m in (1, 2, 6):
        lower, main, upper = [matrix(dtype, 2, m, seed=i) for i in range(3)]
        b, i = matrix(dtype, 2, m, 3), np.arange(m)
        a = np.zeros((2, m, m), dtype)
        a[:, i, i], a[:, i[1:], i[:-1]], a[:, i[:-1], i[1:]] = main, lower[:, 1:], upper[:, :-1]
        with enable_x64(), without_libraries() if portable else nullcontext():
            run = jitted(lambda *xs: tridiagonal_solve(*xs, perturb_singular=perturb), portable)
            close(b, a @ np.asarray(run(lower, main, upper, b)), dtype, 100)


@pytest.mark.parametrize("portable", [False, True])
def test_singular_systems(portable: bool) -> None:
    """NaN, or a finite result where that is asked for."""
    zero = np.zeros(2, "f4")
    with without_libraries() if portable else nullcontext():
        out = tb.jit(lambda *xs: tridiagonal_solve(*xs))(zero, zero, zero, np.ones((2, 1), "f4"))

    assert np.isnan(out).all()


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_derivatives(dtype: Any) -> None:
    """All arguments, both modes, to second order."""
    diagonals = [matrix(dtype, 4, seed=i) for i in range(3)]
    with enable_x64():
        given = (*diagonals, matrix(dtype, 4, 3))
        check_grads(tridiagonal_solve, given, 2, atol=1e-3, rtol=1e-3)

        def product(a: Any, c: Any) -> Any:
            return symmetric_product(a, c, alpha=2.0, beta=3.0)

        given = (matrix(dtype, 3, 2), matrix(dtype, 3, 3))
        check_grads(product, given, 2, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("dtype", DTYPES)
def test_polar_factors(dtype: Any) -> None:
    """SciPy's factors; padding changes nothing."""
    x = matrix(dtype, 6, 4)
    with enable_x64():
        u, h, _, converged = qdwh(x)
        padded = qdwh(np.pad(x, ((0, 2), (0, 1)), constant_values=9), dynamic_shape=(6, 4))

    assert converged
    close(x, np.asarray(u) @ np.asarray(h), dtype, 10)
    close(np.eye(4), adjoint(u) @ np.asarray(u), dtype)
    close(scipy.linalg.polar(x)[0], u, dtype, 100)
    close(u, padded[0][:6, :4], dtype, 100)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_derivatives_of_polar_factors(dtype: Any) -> None:
    """Both modes to second order: tall, equal singular values, padded, mapped."""

    def factors(a: Any, b: Any) -> Any:
        padded = qdwh(b, dynamic_shape=(2, 1))[:2]
        return tb.vmap(lambda x: qdwh(x)[:2])(a), qdwh(b)[:2], padded

    given = (matrix(dtype, 2, 4, 3), 2 * np.eye(3, 2, dtype=dtype))
    with enable_x64():
        check_grads(factors, given, 2, atol=1e-3, rtol=1e-3)
