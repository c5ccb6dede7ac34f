"""Derivatives of Schur forms: both results, blocks of two rows, equal eigenvalues."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tests.core.linalg.laws import DTYPES, adjoint, close, matrix, without_libraries
from tests.quick_compiles import check_grads, quick_jit
from tracebridge import numpy as tnp
from tracebridge.core.config.option_scopes import enable_x64
from tracebridge.core.linalg.schur import schur

# Two pairs of complex eigenvalues and a real one, then real eigenvalues alone.
REAL = {2: matrix(np.float64, 5, 5, seed=2), 0: matrix(np.float64, 4, 4, seed=2)}
SPECIAL = np.stack([
    np.eye(4), np.zeros((4, 4)), np.eye(4) + np.eye(4, k=1), np.roll(np.eye(4), 1, 0),
    np.kron(np.diag([1.0, 3.0]), [[0.0, -2.0], [2.0, 0.0]]), np.diag([2.0, 2.0, 5.0, 5.0]),
    np.kron(np.eye(2), [[0.0, -2.0], [1.0, 0.0]]), np.kron(matrix(np.float64, 2, 2), np.eye(2)),
    np.linalg.qr(matrix(np.float64, 4, 4))[0], 1e-200 * matrix(np.float64, 4, 4),
])  # fmt: skip


def invariant(a: Any) -> Any:
    """What does not depend on the phases of the vectors."""
    t, q = schur(a)
    return tnp.diagonal(t), tnp.abs(t) ** 2, tnp.abs(q) ** 2, q @ t @ t @ q.conj().T


@pytest.mark.parametrize("n_blocks", REAL)
def test_derivatives_of_real_forms(n_blocks: int) -> None:
    """Both results, to second order."""
    a = REAL[n_blocks]
    with enable_x64():
        assert n_blocks == np.count_nonzero(np.diagonal(schur(a)[0], -1))
        check_grads(schur, (a,), 2, atol=1e-3, rtol=1e-3)


def test_derivatives_of_complex_forms() -> None:
    """What does not depend on phases, to second order; by operations of StableHLO to first."""
    with enable_x64():
        check_grads(invariant, (matrix(np.complex128, 4, 4),), 2, atol=1e-3, rtol=1e-3)
        with without_libraries():
            check_grads(invariant, (matrix(np.complex128, 3, 3),), 1)
            check_grads(invariant, (REAL[2],), 1)


def changes(a: Any, da: Any) -> Any:
    return tb.jvp(schur, (a,), (da,))


def check_changes(a: np.ndarray, da: np.ndarray, found: Any) -> np.ndarray:
    """The product of the factors follows ``a``, and Q stays unitary; returns dT."""
    (t, q), (dt, dq) = tb.tree.map(np.asarray, found)
    product = dq @ t @ adjoint(q) + q @ dt @ adjoint(q) + q @ t @ adjoint(dq)
    size = np.abs(da).max((-1, -2), keepdims=True)
    turn = adjoint(q) @ dq

    close(da / size, product / size, a.dtype, 10)
    close(np.zeros(a.shape), turn + adjoint(turn), a.dtype, 10)
    return dt


@pytest.mark.parametrize("dtype", DTYPES)
def test_tangents_of_batches(dtype: Any) -> None:
    """Definitions; mapped as in a batch; T alone; exact zeros below the blocks."""
    a, da = [matrix(dtype, 3, 7, 7, seed=seed) for seed in (1, 2)]
    with enable_x64():
        found = quick_jit(changes)(a, da)
        mapped = quick_jit(tb.vmap(changes))(a, da)
        only_t = tb.jvp(lambda a: schur(a, compute_schur_vectors=False), (a,), (da,))[1][0]

    dt = check_changes(a, da, found)
    for one, other in zip(tb.tree.leaves(found), tb.tree.leaves(mapped), strict=True):
        close(one, other, dtype, 10)
    close(found[1][0], only_t, dtype, 10)
    assert not dt[np.tril(np.asarray(found[0][0]) == 0, -1)].any()


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_tangents_where_turns_are_not_determined(dtype: Any) -> None:
    """Equal eigenvalues and rotations: the factors follow the matrix, tangents are finite."""
    a = SPECIAL.astype(dtype)
    size = np.maximum(np.abs(a).max((-1, -2), keepdims=True), 1e-200)
    with enable_x64():
        da = size * matrix(dtype, *a.shape, seed=3)
        found = quick_jit(changes)(a, da)

    check_changes(a, da, found)


def test_derivatives_at_equal_eigenvalues_are_those_of_sums_and_products() -> None:
    """Sums over equal eigenvalues, and products of the factors."""
    normal, change = np.diag([2.0, 2.0, 5.0]), matrix(np.float64, 3, 3)

    def square(a: Any) -> Any:
        t, q = schur(a)
        return q @ t @ t @ q.T, (tnp.diagonal(t) ** 3).sum()

    with enable_x64():
        squares, cubes = quick_jit(lambda *xs: tb.jvp(square, xs[:1], xs[1:])[1])(normal, change)

    np.testing.assert_allclose(squares, normal @ change + change @ normal, atol=1e-12)
    np.testing.assert_allclose(cubes, 3 * np.trace(normal @ normal @ change), rtol=1e-12)


@pytest.mark.parametrize("shape", [(0, 0), (0, 2, 2), (1, 1)], ids=str)
def test_few_elements(shape: tuple[int, ...]) -> None:
    """Derivatives of any order; the form of one element is this element."""

    def total(a: Any) -> Any:
        t, q = schur(a)
        return (t**2).sum() + q.sum()

    a = np.full(shape, 3.0, np.float32)

    np.testing.assert_allclose(tb.grad(total)(a), 2 * a)
    assert shape * 2 == tb.eval_shape(tb.hessian(total), a).shape


def test_nan_gives_nan() -> None:
    """Tangents of vectors are no numbers either."""
    bad = np.full((2, 2), np.nan, np.float32)

    assert np.isnan(quick_jit(changes)(bad, np.ones_like(bad))[1][1]).all()


def test_narrow_floats() -> None:
    """Results in the dtype of the argument; complex ones in one that there is."""
    a = tnp.asarray(matrix(np.float32, 2, 2), "bfloat16")
    la = tb.scipy.linalg
    real, wide = la.schur(a), la.schur(a, "complex")

    assert ["bfloat16"] * 2 == [x.dtype.name for x in real]
    assert ["complex64"] * 4 == [x.dtype.name for x in (*wide, *la.rsf2csf(*real))]
