"""Functions of matrices whose eigenvalues are equal or close."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg as reference

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.linalg.laws import close, matrix
from tests.quick_compiles import quick_jit
from tracebridge.core.config.option_scopes import enable_x64

funm = tb.scipy.linalg.funm
# Three equal eigenvalues with one eigenvector, and one that is alone.
JORDAN = np.diag([1.0, 1.0, 1.0, 2.5]) + np.diag([0.5, 0.5, 0.0], 1)
BASIS = np.array([[2.0, 1, 0, 0], [1, 3, 1, 0], [0, -1, 2, 1], [1, 0, 0, 2]])
TURNED = BASIS @ JORDAN @ np.linalg.inv(BASIS)
APART = np.array([[2.0, 1, 3, 1], [0, 5, 1, 1], [0, 0, 2, 1], [0, 0, 0, 5]]) / 3
NEAR = np.array([[1.0, 1, 1], [0, 1.001, 1], [0, 0, 1.002]])


def real_exp(a: Any, p: Any = 1.0) -> Any:
    return tnp.real(funm(a, lambda x: tnp.exp(p * x)))


@pytest.mark.parametrize(
    "a", [JORDAN, TURNED, APART, NEAR], ids=["jordan", "turned", "apart", "near"]
)
def test_derivatives_of_matrices_without_eigenvectors(a: np.ndarray) -> None:
    """Values and derivatives to second order are those of the exponential of SciPy."""
    n = a.shape[0]
    change, weights = (matrix(np.float64, n, n, seed=i) for i in (1, 2))

    def everything(a: Any) -> Any:
        def slope(a: Any) -> Any:
            return tb.jvp(real_exp, (a,), (change,))

        (value, first), (_, second) = tb.jvp(slope, (a,), (change,))
        back = tb.grad(lambda a: (real_exp(a) * weights).sum())(a)
        by_number = tb.grad(lambda p: (real_exp(a, p) * weights).sum())(1.0)
        return value, first, second, back, by_number

    with enable_x64():
        value, first, second, back, by_number = quick_jit(everything)(a)

    none = np.zeros_like(a)
    stairs = np.block([[a, change, none], [none, a, change], [none, none, a]])
    powers = reference.expm(stairs)
    close(reference.expm(a), value, np.float64, 100)
    close(powers[:n, n : 2 * n], first, np.float64, 100)
    close(2 * powers[:n, 2 * n :], second, np.float64, 3000)
    close(reference.expm_frechet(a.T, weights, compute_expm=False), back, np.float64, 100)
    close(np.sum(a @ reference.expm(a) * weights), by_number, np.float64, 1000)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_roots_of_matrices_without_eigenvectors(dtype: str) -> None:
    """The square is the matrix; SciPy's function of the same name gives something else."""
    with enable_x64():
        for a in (JORDAN, APART, NEAR):
            root = np.asarray(funm(a.astype(dtype), tnp.sqrt))
            close(a, root @ root, np.dtype(dtype), 30)


def test_ends_of_domains() -> None:
    """A root at 0 has its value, and no derivative."""
    a = np.diag([0.0, 4.0])

    with enable_x64():
        root, steep = tb.jvp(lambda a: funm(a, tnp.sqrt), (a,), (np.eye(2),))

    close(np.diag([0.0, 2.0]), root, np.float64)
    assert not np.isfinite(steep[0, 0])


@pytest.mark.parametrize("root", [lambda a: funm(a, tnp.sqrt), tb.scipy.linalg.sqrtm])
def test_negative_eigenvalues_of_real_matrices(root: Any) -> None:
    """Rounding does not choose the side of the cut: roots of negative numbers are above it."""
    for seed in range(4):
        basis = matrix(np.float32, 5, 5, seed=seed) + 3 * np.eye(5, dtype=np.float32)
        values = np.array([-4, 1, -2.5, 3, -1], complex)
        a = basis @ np.diag(values.real) @ np.linalg.inv(basis)
        expected = basis @ np.diag(np.sqrt(values)) @ np.linalg.inv(basis)

        close(expected, root(a.astype(np.float32)), np.float32, 100)


def test_dtypes() -> None:
    """Narrow floats stay, where the function is real."""
    assert tnp.bfloat16 == funm(tnp.eye(2, dtype=tnp.bfloat16), tnp.exp).dtype


def test_more_equal_eigenvalues_than_terms() -> None:
    """NaN for one large block, and the right answer where the matrix is normal."""
    n = 60
    block = np.eye(n, dtype=np.float32) + np.eye(n, k=1, dtype=np.float32)

    assert np.isnan(funm(block, tnp.square)).all()
    close(4 * np.eye(n), funm(2 * np.eye(n, dtype=np.float32), tnp.square), np.float32)
