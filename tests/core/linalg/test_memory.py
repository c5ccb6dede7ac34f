"""What programs of linear algebra need beside arguments and results: factors are copied once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.quick_compiles import check_grads
from tracebridge.core.linalg.lu import lu
from tracebridge.core.linalg.solving import lu_solution

N, BATCH = 64, 100
CASES: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...], float]] = {
    "logarithm": (lambda a, b: tnp.linalg.slogdet(a)[1], (4 * N, 4 * N), (1,), 1.1),
    "its gradient": (
        tb.grad(lambda a, b: tnp.linalg.slogdet(a)[1]), (4 * N, 4 * N), (1,), 1.1,
    ),
    "inverse": (lambda a, b: tnp.linalg.inv(a), (4 * N, 4 * N), (1,), 1.1),
    "solution": (tnp.linalg.solve, (4 * N, 4 * N), (4 * N,), 1.1),
    "gradients of solutions": (
        tb.grad(lambda a, b: tb.vmap(tnp.linalg.solve)(a, b).sum()),
        (BATCH, N, N), (BATCH, N), 0.2,
    ),
}  # fmt: skip


def matrices(shape: tuple[int, ...], dtype: type) -> Any:
    """Well-conditioned ones."""
    x = np.random.default_rng(0).standard_normal(shape) / shape[-1] ** 0.5
    if issubclass(dtype, np.complexfloating):
        x = x + 0.5j * x[..., ::-1]
    return (x + 2 * np.eye(shape[-1])).astype(dtype)


@pytest.mark.parametrize("name", CASES)
def test_factors_are_in_memory_once(name: str) -> None:
    """In matrices: what LAPACK leaves by columns is read so, not turned for the next routine."""
    f, matrix, right, most = CASES[name]
    avals = [tb.ShapeDtypeStruct(s, np.float32) for s in (matrix, right)]
    memory = tb.jit(f, keep_unused=True).lower(*avals).compile().memory_analysis()

    assert memory.temp_size_in_bytes <= most * 4 * np.prod(matrix)


@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
@pytest.mark.parametrize("shape", [(9, 9), (3, 8, 8)], ids=str)
@pytest.mark.parametrize("transposed", [0, 1, 2])
def test_solutions_of_factors_in_one_program_and_two(
    shape: tuple[int, ...], dtype: type, transposed: int
) -> None:
    """Factors that come from LAPACK, and those that are arguments, give the same solution."""
    with tb.enable_x64(True):
        a, b = matrices(shape, dtype), matrices(shape, dtype)[..., :2]

        def solved(factors: Any, order: Any, b: Any) -> Any:
            return lu_solution(factors, order, b, transposed)

        def whole(a: Any, b: Any) -> Any:
            factors, _, order = lu(a)
            return solved(factors, order, b)

        factors, _, order = tb.jit(lu)(a)
        found = tb.jit(whole)(a, b), tb.jit(solved)(factors, order, tnp.asarray(b))
    op = [a, a.swapaxes(-1, -2), a.swapaxes(-1, -2).conj()][transposed]

    for x in found:
        np.testing.assert_allclose(np.linalg.solve(op, b), x, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_derivatives_of_logarithms_of_determinants(dtype: type) -> None:
    """The gradient is the inverse, transposed; the derivatives of it are those of the inverse."""
    with tb.enable_x64(True):
        a = tnp.asarray(matrices((2, 5, 5), dtype))
        change = tnp.asarray(matrices((2, 5, 5), dtype)[::-1].copy())
        f = tnp.linalg.slogdet
        (sign, log), (d_sign, d_log) = tb.jvp(f, (a,), (change,))
        step = 1e-6
        after, before = f(a + step * change), f(a - step * change)
        check_grads(lambda x: f(x)[1], (a,), order=2)
        determinant = sign * tnp.exp(log)

    np.testing.assert_allclose((after[0] - before[0]) / (2 * step), d_sign, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose((after[1] - before[1]) / (2 * step), d_log, rtol=1e-5)
    np.testing.assert_allclose(np.linalg.det(np.asarray(a)), determinant, rtol=1e-10)


def test_logarithms_of_singular_matrices() -> None:
    """A zero pivot is no failure: sign 0 and minus infinity; a NaN is one, and stays."""
    a = np.diag([1.0, 0.0, 2.0, 3.0]).astype(np.float32)
    sign, log = tnp.linalg.slogdet(tnp.asarray(np.stack([a, a * np.nan])))

    np.testing.assert_array_equal([0.0, np.nan], sign)
    np.testing.assert_array_equal([-np.inf, np.nan], log)
