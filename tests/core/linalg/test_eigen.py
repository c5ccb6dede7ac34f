"""eigh, svd, eig, schur, hessenberg, tridiagonal: decompositions, rules, portable lowering."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import tracebridge as tb
from tests.core.linalg.laws import (
    DTYPES,
    SHAPES,
    adjoint,
    close,
    hermitian,
    jitted,
    matrix,
    without_libraries,
)
from tests.quick_compiles import check_grads
from tracebridge import numpy as tnp
from tracebridge.core.config.option_scopes import enable_x64
from tracebridge.core.errors.argument_errors import ArgumentValueError, UnsupportedArgumentError
from tracebridge.core.linalg.calls import has_no_nan
from tracebridge.core.linalg.eig import eig
from tracebridge.core.linalg.eigh import EighImplementation, eigh
from tracebridge.core.linalg.hessenberg import hessenberg, tridiagonal
from tracebridge.core.linalg.schur import schur
from tracebridge.core.linalg.svd import SvdAlgorithm, svd

SQUARE = ((4, 4), (1, 1), (2, 3, 3), (7, 7))
INEXACT = (np.float64, np.complex128)


def check(fun: Any, args: Any, order: int = 2) -> None:
    """Both modes against finite differences."""
    check_grads(fun, args, order, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("portable", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lower", [False, True])
def test_eigh(dtype: Any, lower: bool, portable: bool) -> None:
    """Orthonormal vectors, ascending values, of one triangle."""
    matrices = [hermitian(dtype, *shape) for shape in SQUARE]
    halves = [np.tril(a) if lower else np.triu(a) for a in matrices]

    def each(matrices: Any) -> Any:
        return [eigh(a, lower=lower, symmetrize_input=False) for a in matrices]

    with enable_x64(), without_libraries() if portable else nullcontext():
        results = jitted(each, portable)(halves)
    for shape, a, found in zip(SQUARE, matrices, results, strict=True):
        v, w = map(np.asarray, found)

        close(np.linalg.eigvalsh(a), w, dtype)
        close(a @ v, v * w[..., None, :], dtype, 10)
        close(np.broadcast_to(np.eye(shape[-1]), shape), adjoint(v) @ v, dtype)


@pytest.mark.parametrize("portable", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("full", [False, True])
def test_svd(dtype: Any, full: bool, portable: bool) -> None:
    """Orthonormal vectors, descending values, the product is the matrix."""
    shapes = (*SHAPES[:-1], (3, 7), (30, 3))
    matrices = [matrix(dtype, *shape) for shape in shapes]

    def each(matrices: Any) -> Any:
        return [svd(a, full_matrices=full) for a in matrices]

    with enable_x64(), without_libraries() if portable else nullcontext():
        results = jitted(each, portable)(matrices)
    for shape, a, found in zip(shapes, matrices, results, strict=True):
        u, s, vh = map(np.asarray, found)
        k = min(shape[-2:])

        close(np.linalg.svd(a, compute_uv=False), s, dtype)
        close(a, (u[..., :k] * s[..., None, :]) @ vh[..., :k, :], dtype, 10)
        for q in (adjoint(u) @ u, vh @ adjoint(vh)):
            close(np.broadcast_to(np.eye(q.shape[-1]), q.shape), q, dtype)


@pytest.mark.parametrize("portable", [False, True])
def test_rank_one_zero_and_nan(portable: bool) -> None:
    """Vectors of the value 0 complete the others; NaN gives NaN."""
    a = np.outer([1.0, 2.0, 3.0], np.ones(3)).astype("f4")
    with without_libraries() if portable else nullcontext():
        u, s, vh = [np.asarray(x) for x in tb.jit(lambda a: svd(a))(a)]
        bad = tb.jit(lambda a: (svd(a)[1], eigh(a)[1]))(a * np.nan)

    close(a, (u * s) @ vh, np.float32)
    close(np.eye(3), u.T @ u, np.float32)
    assert all(np.isnan(x).all() for x in bad)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (0, 2, 3)])
def test_empty(shape: tuple[int, ...]) -> None:
    """No values; full vectors are unit matrices."""
    u, s, vh = svd(np.zeros(shape, "f4"))

    assert (*shape[:-2], min(shape[-2:])) == s.shape
    np.testing.assert_array_equal(np.broadcast_to(np.eye(shape[-2]), u.shape), u)
    np.testing.assert_array_equal(np.broadcast_to(np.eye(shape[-1]), vh.shape), vh)
    assert (0,) == eigh(np.zeros((0, 0), "f4"))[1].shape


@pytest.mark.parametrize("dtype", INEXACT)
def test_derivatives_of_eigh(dtype: Any) -> None:
    """Values, and what does not depend on phases, to second order; subsets; equal eigenvalues."""

    def invariant(a: Any) -> Any:
        v, w = eigh(a)
        return w, tnp.abs(v) ** 2

    with enable_x64():
        check(invariant, (hermitian(dtype, 3, 3),))
        check(lambda a: eigh(a, subset_by_index=(1, 3))[1], (hermitian(dtype, 3, 3),), 1)
        check(lambda a: tnp.sum(eigh(a)[1] ** 3), (np.eye(3).astype(dtype),), 1)


@pytest.mark.parametrize("dtype", INEXACT)
@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4)])
@pytest.mark.parametrize("full", [False, True])
def test_derivatives_of_svd(dtype: Any, shape: tuple[int, int], full: bool) -> None:
    """What does not depend on phases, to second order; projections on the full spaces too."""
    k = min(shape)

    def invariant(a: Any) -> Any:
        u, s, vh = svd(a, full_matrices=full)
        rest = tnp.abs(u[:, k:] @ u[:, k:].conj().T) ** 2
        return s, tnp.abs(u[:, :k]) ** 2, tnp.abs(vh[:k]) ** 2, u[:, :k] @ vh[:k], rest

    with enable_x64():
        check(invariant, (matrix(dtype, *shape),))


def test_derivatives_at_equal_values_are_those_of_spaces_and_sums() -> None:
    """Projections and sums are right; of matrix functions the part inside a space is missing."""
    a, k, off = np.diag([2.0, 2.0, 5.0]), 2, ~np.eye(3, dtype=bool)
    change = np.array([[0.3, 0.7, -0.2], [0.7, -0.1, 0.4], [-0.2, 0.4, 0.5]])

    def projection(a: Any) -> Any:
        v, _ = eigh(a)
        return v[:, :k] @ v[:, :k].T

    def square(a: Any) -> Any:
        v, w = eigh(a)
        return (v * w**2) @ v.T

    def square_of_svd(a: Any) -> Any:
        u, s, vh = svd(a)
        return (u * s**2) @ vh

    with enable_x64(True):
        moved = tb.jvp(projection, (a,), (change,))[1]
        cubes = tb.grad(lambda a: (eigh(a)[1] ** 3).sum())(a)
        norms = tb.grad(lambda a: svd(a, compute_uv=False).sum())(a)
        squares = [tb.jvp(f, (a,), (change,))[1] for f in (square, square_of_svd)]

    step = 1e-6 * change
    p, q = (np.linalg.eigh(a + s)[1][:, :k] for s in (step, -step))
    np.testing.assert_allclose(moved, (p @ p.T - q @ q.T) / 2e-6, atol=1e-8)
    np.testing.assert_allclose(cubes, 3 * a @ a, atol=1e-12)
    np.testing.assert_allclose(norms, np.eye(3), atol=1e-12)
    inside = off & (np.diag(a)[:, None] == np.diag(a))
    expected = np.where(inside, 0, a @ change + change @ a)
    for out in squares:
        np.testing.assert_allclose(out, expected, atol=1e-12)


def test_subsets_and_algorithms() -> None:
    """A subset is a part of all; each algorithm gives the same values."""
    a, h = matrix(np.float32, 5, 4), hermitian(np.float32, 4, 4)
    u, s, vh = svd(a, full_matrices=False)
    for algorithm in SvdAlgorithm:
        close(s, svd(a, compute_uv=False, algorithm=algorithm), np.float32)
    some = svd(a, full_matrices=False, subset_by_index=(1, 3))
    for x, y in zip((u[:, 1:3], s[1:3], vh[1:3]), some, strict=True):
        close(x, y, np.float32)
    v, w = eigh(h, subset_by_index=(2, 4))
    close(np.linalg.eigvalsh(h)[2:], w, np.float32)
    assert (4, 2) == v.shape
    close(w, eigh(h, implementation=EighImplementation.JACOBI)[1][2:], np.float32)
    with pytest.raises(ArgumentValueError, match="subset_by_index"):
        eigh(h, subset_by_index=(3, 5))
    with pytest.raises(UnsupportedArgumentError, match="QDWH"):
        eigh(h, implementation=EighImplementation.QDWH)


@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_svd_by_polar_factors(dtype: Any) -> None:
    """Against the definition: batches of tall and wide matrices, singular and of one value."""
    rank_1 = np.ones((2, 4, 3), dtype)
    with enable_x64():
        for a in (matrix(dtype, 2, 5, 3), matrix(dtype, 3, 5), rank_1, 2 * np.eye(3, dtype=dtype)):
            for full in (False, True):
                u, s, vh = [
                    np.asarray(x) for x in svd(a, full_matrices=full, algorithm=SvdAlgorithm.POLAR)
                ]
                k = s.shape[-1]
                close(np.linalg.svd(a, compute_uv=False), s, dtype, 10)
                close(a, u[..., :k] * s[..., None, :] @ vh[..., :k, :], dtype, 10)
                unit = np.broadcast_to(np.eye(u.shape[-1]), (*s.shape[:-1], *u.shape[-1:] * 2))
                close(unit, adjoint(u) @ u, dtype, 10)
        bad = np.stack([np.full((3, 3), np.nan, dtype), np.eye(3, dtype=dtype)])
        s = svd(bad, compute_uv=False, algorithm=SvdAlgorithm.POLAR)
    assert np.isnan(s[0]).all()
    close(np.ones(3), np.asarray(s[1]), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_eig_and_schur(dtype: Any) -> None:
    """Vectors of both sides; the Schur form is similar to the matrix."""
    for shape in SQUARE:
        check_eig_and_schur(matrix(dtype, *shape), lambda a: (eig(a), schur(a)))


def check_eig_and_schur(a: np.ndarray, run: Any) -> None:
    """Against the definitions."""
    dtype, n, size = a.dtype, a.shape[-1], max(np.abs(a).max(initial=0), 1e-30)
    with enable_x64():
        (w, left, right), (t, q) = tb.tree.map(np.asarray, run(a))

    close(a @ right / size, right * (w / size)[..., None, :], dtype, 10)
    close(adjoint(left) @ a / size, (w / size)[..., None] * adjoint(left), dtype, 10)
    close(np.ones(w.shape), np.linalg.norm(right, axis=-2), dtype)
    close(np.ones(w.shape), np.linalg.norm(left, axis=-2), dtype)
    close(a / size, q @ (t / size) @ adjoint(q), dtype, 10)
    close(np.broadcast_to(np.eye(n), a.shape), adjoint(q) @ q, dtype)
    assert not np.tril(t, -2).any()
    below, beside = [np.diagonal(x, -1, -2, -1) for x in (t, t.swapaxes(-1, -2))]
    if a.dtype.kind == "c":
        assert not below.any()
    else:
        assert (below / size * (beside / size) <= 0).all()
        assert not (below[..., 1:] * below[..., :-1]).any()
        # Eigenvalues of real matrices come in pairs of the same numbers.
        np.testing.assert_array_equal(*[np.sort_complex(x.ravel()) for x in (w, w.conj())])
        assert not right.imag[np.broadcast_to(w.imag[..., None, :] == 0, right.shape)].any()


SPECIAL = {
    "zero": np.zeros((5, 5)), "unit": np.eye(5), "cyclic": np.roll(np.eye(5), 1, 0),
    "defective": np.eye(5) + np.eye(5, k=1), "triangular": np.triu(matrix("f8", 5, 5)),
    "symmetric": hermitian("f8", 5, 5), "large": 1e30 * matrix("f8", 5, 5),
    "rotations": np.diag([1.0, 0, 1, 0], 1) - np.diag([1.0, 0, 1, 0], -1),
    "graded": 10.0 ** -np.arange(0, 25, 5) * matrix("f8", 5, 5), "rank 1": np.ones((5, 5)),
    "Hessenberg": np.triu(matrix("f8", 5, 5), -1),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_hard_matrices_without_a_library(dtype: Any) -> None:
    """A batch of those that need care in QR iterations, and of random ones."""
    many = [*SPECIAL.values(), *matrix(dtype, 5, 5, 5)]
    with without_libraries():
        check_eig_and_schur(np.stack(many).astype(dtype), tb.jit(lambda a: (eig(a), schur(a))))


def test_small_matrices_without_a_library() -> None:
    """Where there is nothing to iterate; NaN gives NaN."""
    run = tb.jit(lambda a: (eig(a), schur(a)))
    with without_libraries():
        check_eig_and_schur(matrix(np.float64, 1, 1), run)
        check_eig_and_schur(matrix(np.float64, 2, 2), run)
        with enable_x64():
            (w, *_), (t, _) = run(np.full((2, 2), np.nan))

    assert np.isnan(np.asarray(w)).all()
    assert np.isnan(np.asarray(t)).all()


@pytest.mark.parametrize("dtype", INEXACT)
def test_derivatives_of_eig(dtype: Any) -> None:
    """Values always, vectors where asked for."""
    a = matrix(dtype, 3, 3)
    values = {"compute_left_eigenvectors": False, "compute_right_eigenvectors": False}
    with enable_x64():
        check(lambda a: eig(a, **values)[0], (a,))
        check(lambda a: eig(a, enable_eigvec_derivs=True), (a,))
        with pytest.raises(UnsupportedArgumentError, match="enable_eigvec_derivs"):
            tb.jvp(eig, (a,), (a,))


@pytest.mark.parametrize("dtype", DTYPES)
def test_hessenberg_and_tridiagonal(dtype: Any) -> None:
    """LAPACK's results, with and without it."""

    def reduced(a: Any, h: Any) -> Any:
        return hessenberg(a), tridiagonal(h), tridiagonal(h, lower=False)

    for shape in SQUARE:
        a, h = matrix(dtype, *shape), hermitian(dtype, *shape)
        found = []
        for portable in (False, True):
            with enable_x64(), without_libraries() if portable else nullcontext():
                found.append(jitted(reduced, portable)(a, h))
        if len(shape) == 2:
            close(scipy.linalg.hessenberg(a), np.triu(found[0][0][0], -1), dtype, 10)
        for one, other in zip(tb.tree.leaves(found[0]), tb.tree.leaves(found[1]), strict=True):
            close(one, other, dtype, 30)


@pytest.mark.parametrize("dtype", INEXACT)
def test_derivatives_of_reductions(dtype: Any) -> None:
    """Both modes, to first order."""
    with enable_x64():
        check(hessenberg, (matrix(dtype, 3, 3),), 1)
        check(tridiagonal, (matrix(dtype, 3, 3),), 1)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_a_nan_counts_where_the_library_reads(dtype: Any) -> None:
    """What GPUs get for matrices with NaN: of eigh, those in the triangle that it reads."""
    a = np.ones((3, 2, 3, 3), dtype)
    a[1, 0, 0, 2], a[2, 1, 2, 0], a[0, 0, 1, 0], a[0, 0, 0, 1] = np.nan, np.nan, np.inf, np.inf
    flags = {w: np.asarray(has_no_nan(tnp.asarray(a), lower=w)) for w in (None, True, False)}

    assert flags[None].tolist() == [[True, True], [False, True], [True, False]]
    assert flags[True].tolist() == [[True, True], [True, True], [True, False]]
    assert flags[False].tolist() == [[True, True], [False, True], [True, True]]
    values = eigh(np.triu(np.full((3, 3), np.nan, dtype), 1) + np.eye(3, dtype=dtype),
                  symmetrize_input=False)[1]  # fmt: skip
    np.testing.assert_array_equal(np.asarray(values), [1, 1, 1])


@pytest.mark.parametrize("dtype", DTYPES)
def test_eigenvalues_of_large_and_small_matrices(dtype: Any) -> None:
    """Those of a power of two times a matrix are the same times that power, bit by bit."""
    a = matrix(dtype, 3, 4, 4)
    powers = np.finfo(dtype).maxexp - 8, np.finfo(dtype).minexp + 8, 3
    factors = np.exp2(np.array(powers))[:, None, None].astype(a.real.dtype)
    with enable_x64():
        expected, found = [np.asarray(tnp.linalg.eigvals(x)) for x in (a, a * factors)]

    for part in (np.real, np.imag):
        close(part(expected), part(found) / factors[..., 0], dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_eigenvalues_of_64_bits_while_they_are_off(dtype: Any) -> None:
    """Arrays made under the option keep their dtype after it, and so do their eigenvalues."""
    a = matrix(dtype, 2, 4, 4)
    with enable_x64():
        given, expected = tnp.asarray(a), np.asarray(tnp.linalg.eigvals(a))

    for f in (tnp.linalg.eigvals, tb.jit(tnp.linalg.eigvals)):
        found = f(given)
        assert found.dtype == np.complex128
        np.testing.assert_array_equal(expected, found)
