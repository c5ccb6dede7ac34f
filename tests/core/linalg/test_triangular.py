"""triangular_solve: every side, triangle and form of the matrix; rules; portable lowering."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tests.core.linalg.laws import DTYPES, close, jitted, matrix, without_libraries
from tests.quick_compiles import check_grads
from tracebridge.core.config.option_scopes import enable_x64
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.linalg.triangular import triangular_solve

FLAGS = list(itertools.product([False, True], repeat=5))
NAMES = ("left_side", "lower", "transpose_a", "conjugate_a", "unit_diagonal")


def operator_of(a: np.ndarray, flags: dict[str, bool]) -> np.ndarray:
    """What the solution is multiplied with."""
    m = np.tril(a) if flags["lower"] else np.triu(a)
    if flags["unit_diagonal"]:
        i = np.arange(a.shape[-1])
        m[..., i, i] = 1
    m = m.swapaxes(-1, -2) if flags["transpose_a"] else m
    return m.conj() if flags["conjugate_a"] else m


@pytest.mark.parametrize("portable", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_solution_solves(dtype: Any, portable: bool) -> None:
    """The product of the matrix and the solution is the right-hand side, in all 32 forms."""
    n = 5
    a = (matrix(dtype, 2, n, n) + 4 * np.eye(n)).astype(dtype)
    columns, rows = matrix(dtype, 2, n, 3), matrix(dtype, 2, 3, n)
    forms = [dict(zip(NAMES, some, strict=True)) for some in FLAGS]

    def solve(a: Any, columns: Any, rows: Any) -> Any:
        return [triangular_solve(a, columns if f["left_side"] else rows, **f) for f in forms]

    with enable_x64(), without_libraries() if portable else nullcontext():
        solutions = jitted(solve, portable)(a, columns, rows)
    for flags, x in zip(forms, map(np.asarray, solutions), strict=True):
        m = operator_of(a, flags)

        if flags["left_side"]:
            close(columns, m @ x, dtype, 100)
        else:
            close(rows, x @ m, dtype, 100)


@pytest.mark.parametrize("left", [False, True])
def test_vectors_and_batches(left: bool) -> None:
    """A vector stands for one column; mapped right-hand sides of one matrix are more columns."""
    a = np.tril(matrix(np.float32, 4, 4)) + 4 * np.eye(4, dtype=np.float32)
    b = matrix(np.float32, 6, 4)

    def solve(a: Any, b: Any) -> Any:
        return triangular_solve(a, b, left_side=left, lower=True)

    expected = np.stack([np.linalg.solve(a if left else a.T, row) for row in b])

    close(expected[0], solve(a, b[0]), np.float32)
    close(expected, tb.vmap(solve, (None, 0))(a, b), np.float32)
    close(expected.T, tb.vmap(solve, (None, 0), 1)(a, b), np.float32)
    close(expected, tb.vmap(solve)(np.stack([a] * 6), b), np.float32)
    some = tb.vmap(solve, (2, None))(np.stack([a] * 3, 2), b[0])
    close(np.stack([expected[0]] * 3), some, np.float32)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("flags", FLAGS[::5])
def test_derivatives(dtype: Any, flags: tuple[bool, ...]) -> None:
    """Both modes agree with finite differences, to second order."""
    given = dict(zip(NAMES, flags, strict=True))
    a = (matrix(dtype, 3, 3) + 3 * np.eye(3)).astype(dtype)
    b = matrix(dtype, 3, 2) if given["left_side"] else matrix(dtype, 2, 3)
    with enable_x64():
        check_grads(lambda a, b: triangular_solve(a, b, **given), (a, b), 2, atol=1e-3, rtol=1e-3)


def test_zeros_on_the_diagonal_give_no_number() -> None:
    """As division by zero does; NaN stays NaN."""
    a = np.diag(np.float32([1.0, 0.0]))

    out = np.asarray(triangular_solve(a, np.ones(2, np.float32), left_side=True))

    assert not np.isfinite(out).all()
    assert np.isnan(triangular_solve(a * np.nan, np.ones(2, np.float32), left_side=True)).any()


@pytest.mark.parametrize("shape", [(0, 2), (2, 0)])
def test_empty(shape: tuple[int, int]) -> None:
    """No equations, or no right-hand sides."""
    a = np.eye(shape[0], dtype=np.float32)

    assert shape == triangular_solve(a, np.ones(shape, np.float32), left_side=True).shape


def test_narrow_floats_are_computed_in_float32() -> None:
    """The result is the rounded one of float32."""
    a, b = tb.numpy.array([[3.0]], "bfloat16"), tb.numpy.array([[1.0]], "bfloat16")

    out = triangular_solve(a, b)

    assert (out.dtype, float(out[0, 0])) == (a.dtype, float(tb.numpy.array(1 / 3, "bfloat16")))


def test_shapes_that_do_not_fit() -> None:
    """Messages show both operands."""
    with pytest.raises(ShapeMismatchError, match=r"f32\[2,2\].*f32\[3,1\]"):
        triangular_solve(np.eye(2, dtype="f4"), np.ones((3, 1), "f4"), left_side=True)
