"""Matrices of few columns in lanes: the results of LAPACK, on hard matrices too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tests.core.linalg.laws import DTYPES, adjoint, close, matrix, positive, tolerance
from tests.quick_compiles import check_grads, quick_jit
from tracebridge.core.config.option_scopes import enable_x64
from tracebridge.core.config.scopes import scope
from tracebridge.core.linalg.cholesky import cholesky
from tracebridge.core.linalg.lu import lu
from tracebridge.core.linalg.solving import lu_solution
from tracebridge.core.linalg.triangular import triangular_solve

SIDES = [(left, lower) for left in (True, False) for lower in (True, False)]


def hard(dtype: Any, n: int) -> np.ndarray:
    """Regular matrices that need exchanges, nearly singular ones, ties, huge and tiny ones."""
    a = matrix(dtype, 9, n, n)
    a[0] = np.eye(n)[::-1]
    a[1] = np.ones((n, n)) + np.diag(np.arange(n))  # ties
    a[2, 0, 0] = 0
    a[3, 1] = a[3, 0]
    a[3, 1, -1] *= 1 + 1e-3
    a[4, :, 0] = 1e-12, *[1] * (n - 1)
    a[5] *= 1e-15
    a[6] *= 1e15
    return a


def programs(a: Any, b: Any, h: Any) -> Any:
    """All that has a form in lanes, in one program."""
    factors, pivots, order = lu(a)
    solved = [lu_solution(factors, order, b, how) for how in (0, 1, 2)]
    np_linalg = tb.numpy.linalg
    many = (np_linalg.inv(a), np_linalg.det(a), cholesky(h, symmetrize_input=False))
    systems = [
        triangular_solve(
            h, b if left else b.mT, left_side=left, lower=lower,
            transpose_a=left, conjugate_a=lower, unit_diagonal=left != lower,
        )
        for left, lower in SIDES
    ]  # fmt: skip
    return (factors, pivots, order), solved, many, systems


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [2, 3])
def test_results_are_those_of_lapack(dtype: Any, n: int) -> None:
    """Pivots are the same; errors of solutions are no larger than some of LAPACK's."""
    a, b, h = hard(dtype, n), matrix(dtype, 9, n, 2), positive(dtype, 9, n, n)
    with enable_x64():
        found, solved, (inverse, det, low), systems = quick_jit(programs)(a, b, h)
        with scope("platform_rules", False):
            expected, _, (_, _, low_expected), systems_expected = quick_jit(programs)(a, b, h)

    for pivots in (1, 2):
        np.testing.assert_array_equal(expected[pivots], found[pivots])
    factors, factors_expected = np.asarray(found[0]), np.asarray(expected[0])
    scale = np.abs(factors_expected).max((1, 2), keepdims=True)
    assert (np.abs(factors - factors_expected) <= tolerance(dtype) * scale).all()
    for x, matrices in zip(solved, (a, a.swapaxes(1, 2), adjoint(a)), strict=True):
        _residual_is_small(matrices, np.asarray(x), b, dtype)
    _residual_is_small(a, np.asarray(inverse), np.broadcast_to(np.eye(n), a.shape), dtype)
    wide = np.linalg.det(a.astype(np.result_type(dtype, np.float64)))
    bound = tolerance(dtype) * np.abs(a).max((1, 2)).astype(float) ** n + np.finfo(dtype).tiny
    with np.errstate(over="ignore", invalid="ignore"):
        good = np.abs(np.asarray(det) - wide) <= bound
    assert (good | (np.abs(wide) > np.finfo(dtype).max)).all()
    close(low_expected, low, dtype)
    for x, y in zip(systems, systems_expected, strict=True):
        close(y, x, dtype)


def _residual_is_small(a: np.ndarray, x: np.ndarray, b: np.ndarray, dtype: Any) -> None:
    """Backward stable: the residual is small beside the sizes of A and x, for each matrix."""
    wide = np.result_type(dtype, np.float64)
    left = np.abs(a.astype(wide) @ x.astype(wide) - b).max((1, 2))
    sizes = np.abs(a).max((1, 2)).astype(float) * np.abs(x).max((1, 2)) + np.abs(b).max((1, 2))

    assert (left <= 1e2 * np.finfo(dtype).eps * sizes).all()


@pytest.mark.parametrize("n", [2, 3])
def test_singular_and_not_numbers(n: int) -> None:
    """Zeros, infinities and NaN leave the other matrices alone and show where LAPACK shows them."""
    a = np.repeat(np.eye(n, dtype="f4")[None], 6, 0)
    a[1] = 0
    a[2, 0, 0] = np.nan
    a[3, n - 1, n - 1] = np.inf
    a[4] = 1  # singular, and not positive definite

    def run(a: Any) -> Any:
        b = tb.numpy.ones((6, n, 1), "float32")
        found = tb.numpy.linalg.solve(a, b), tb.numpy.linalg.det(a), cholesky(a), lu(a)[0]
        return [*found, triangular_solve(a, b, left_side=True, lower=True)]

    ours = quick_jit(run)(a)
    with scope("platform_rules", False):
        theirs = quick_jit(run)(a)
    for x, y in zip(ours, theirs, strict=True):
        first = tuple(range(1, x.ndim))
        np.testing.assert_array_equal(np.isfinite(x).all(first), np.isfinite(y).all(first))
        np.testing.assert_array_equal(np.asarray(x)[[0, 5]], np.asarray(y)[[0, 5]])


def test_determinant_where_products_are_infinite() -> None:
    """Products of two elements that are too large do no harm; those of three are infinite."""
    a = np.array([[[1e-30, 0, 0], [0, 1e25, 0], [0, 0, 1e25]]], "f4")
    b = np.array([[[1.0, 0, 0], [0, 0, 1e30], [0, 1e30, 0]]], "f4")

    np.testing.assert_allclose(tb.numpy.linalg.det(a), [1e20], rtol=1e-5)
    assert [-np.inf] == tb.numpy.linalg.det(b).tolist()


@pytest.mark.parametrize("scale", [200, -200])
@pytest.mark.parametrize("n", [3, 5])
def test_determinants_whose_elements_are_far_apart(n: int, scale: int) -> None:
    """No product on the way overflows or vanishes, and equal rows have the determinant 0."""
    big, small = 10.0**scale, 10.0 ** (-1.5 * scale)
    orders = np.array([[big, big, small], [small, big, big], [big, small, big]])
    apart = np.stack([np.diag([*row, 1.0, 1.0][:n]) for row in orders])
    equal = np.full((2, n, n), big)

    with enable_x64():
        found = tb.numpy.linalg.det(apart)
        np.testing.assert_allclose(found, [10.0 ** (scale / 2)] * 3, rtol=1e-12)
        assert [0.0, 0.0] == tb.numpy.linalg.det(equal).tolist()


def test_determinants_of_float32_keep_infinities() -> None:
    """An infinite element makes the determinant infinite, also beside zeros."""
    a = np.stack([np.diag(row) for row in ([1, 2, np.inf], [-np.inf, 2, 1])]).astype("f4")

    assert [np.inf, -np.inf] == tb.numpy.linalg.det(a).tolist()


def test_option() -> None:
    """With ``platform_rules`` off, for few matrices, and above three columns, LAPACK is called."""
    small, large = np.ones((9, 3, 3), "f4"), np.ones((9, 4, 4), "f4")

    def text(a: Any) -> str:
        return tb.jit(lambda a: (lu(a)[0], cholesky(a))).lower(a).as_text()

    assert "lapack" not in text(small)
    assert "lapack" in text(large)
    assert "lapack" in text(small[:4])
    with scope("platform_rules", False):
        assert "lapack" in text(small)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_solutions_from_factors(dtype: Any) -> None:
    """Derivatives by the factors and by the right side, and a mapped right side."""
    b = matrix(dtype, 2, 3, 2)
    with enable_x64():
        factors, _, order = lu(matrix(dtype, 2, 3, 3))
        for how in (0, 1) if dtype == np.float64 else (2,):
            check_grads(
                lambda f, b, how=how: lu_solution(f, order, b, how), (factors, b), 1,
                atol=1e-4, rtol=1e-4,
            )  # fmt: skip
        one, order = factors[0], order[0]
        mapped = tb.vmap(lambda b: lu_solution(one, order, b), 1, 1)(b.swapaxes(0, 1))
        for i in (0, 1):
            close(lu_solution(one, order, b[i]), mapped[:, i], dtype)
