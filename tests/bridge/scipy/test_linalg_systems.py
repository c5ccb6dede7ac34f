"""Factors, systems and exponentials of tracebridge.scipy.linalg, against SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.quick_compiles import check_grads
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.shape_errors import BroadcastError, RankError, ShapeMismatchError
from tracebridge.testing import assert_allclose

sla = tb.scipy.linalg
RANDOM = np.random.default_rng(0)
A = RANDOM.normal(size=(3, 4, 4)) + 2 * np.eye(4)
C = A + 1j * RANDOM.normal(size=(3, 4, 4))
B = RANDOM.normal(size=(3, 4, 2))
KINDS = pytest.mark.parametrize("a", [A, C], ids=["real", "complex"])


def positive(a: Any) -> Any:
    """A positive definite matrix, whose derivatives are those of all elements of ``a``."""
    return a @ tnp.conj(tnp.swapaxes(a, -1, -2)) + tnp.eye(a.shape[-1])


def close(found: Any, want: Any, tolerance: float = 1e-11) -> None:
    """Equal in double precision."""
    assert_allclose(found, want, rtol=tolerance, atol=tolerance)


@KINDS
@pytest.mark.parametrize("assume_a", ["gen", "sym", "her", "pos"])
def test_solve(a: Any, assume_a: str) -> None:
    """Vectors and matrices; batches are broadcast; derivatives in both arguments."""
    with tb.enable_x64(True):
        p = np.asarray(positive(a)) if assume_a != "gen" else a
        for b in (B[0, :, 0], B[0]):
            close(sla.solve(p[0], b, assume_a=assume_a), np.linalg.solve(p[0], b))
            close(sla.solve(p, b, assume_a=assume_a)[1], np.linalg.solve(p[1], b))
        close(sla.solve(p[0], B, assume_a=assume_a), np.linalg.solve(p[0], B))
        found = tb.jit(tb.vmap(lambda x, y: sla.solve(x, y, assume_a=assume_a)))(p, B)
        close(found, np.linalg.solve(p, B))

        def run(x: Any, y: Any) -> Any:
            return sla.solve(positive(x), y, assume_a=assume_a)

        check_grads(run, (a[0], B[0] if a is A else B[0] * (1 + 1j)), order=2)


def test_one_triangle() -> None:
    """Positive definite matrices are read up to the diagonal only."""
    with tb.enable_x64(True):
        p = np.asarray(positive(A[0]))
        for lower in (True, False):
            half = (np.tril if lower else np.triu)(p)
            found = sla.solve(half, B[0], lower=lower, assume_a="pos")
            close(found, np.linalg.solve(p, B[0]))
    assert np.isnan(sla.solve(-tnp.eye(2), tnp.ones(2), assume_a="pos")).all()


@KINDS
@pytest.mark.parametrize("lower", [True, False])
def test_cholesky(a: Any, lower: bool) -> None:
    """Both triangles, and systems by them."""
    with tb.enable_x64(True):
        p = np.asarray(positive(a))
        close(sla.cholesky(p[0], lower), scipy.linalg.cholesky(p[0], lower))
        close(sla.cholesky(p, lower)[2], scipy.linalg.cholesky(p[2], lower))
        factor = sla.cho_factor(p, lower)
        close(sla.cho_solve(factor, B), np.linalg.solve(p, B))
        close(sla.cho_solve((factor[0][1], lower), B[0, :, 1]), np.linalg.solve(p[1], B[0, :, 1]))
        check_grads(
            lambda x, y: sla.cho_solve(sla.cho_factor(positive(x), lower), y), (a[0], B[0]), order=2
        )


@KINDS
def test_lu(a: Any) -> None:
    """Tall, wide and square matrices, batches; the product gives back the matrix."""
    with tb.enable_x64(True):
        for x in (a, a[..., :2], a[:, :2], a[0]):
            parts: Any = sla.lu(x)
            p, low, up = parts
            close(p @ low @ up, x)
            close(tnp.tril(low), low)
            close(tnp.triu(up), up)
            parts = sla.lu(x, permute_l=True)
            merged, up = parts
            close(merged @ up, x)
        for ours, theirs in zip(sla.lu(a[0]), scipy.linalg.lu(a[0]), strict=True):
            close(ours, theirs)
        check_grads(lambda x: sla.lu(x)[1:], (a[0],), order=2)
    assert [(3, 3), (3, 0), (0, 0)] == [x.shape for x in sla.lu(np.zeros((3, 0)))]


@KINDS
@pytest.mark.parametrize("trans", [0, 1, 2])
def test_lu_solve(a: Any, trans: int) -> None:
    """As SciPy, also of the transposed and adjoint; batches are broadcast."""
    with tb.enable_x64(True):
        found, pivots = sla.lu_factor(a)
        want, order = scipy.linalg.lu_factor(a[0])
        close(found[0], want)
        assert order.tolist() == pivots[0].tolist()
        for b in (B[0], B[0, :, 0]):
            expected = scipy.linalg.lu_solve((want, order), b, trans)
            close(sla.lu_solve((found[0], pivots[0]), b, trans), expected)
            close(sla.lu_solve((found, pivots), b, trans)[0], expected)
        check_grads(
            lambda x, y: sla.lu_solve(sla.lu_factor(x), y, trans),
            (a[0], B[0] * a[0, 0, 0]),
            order=2,
        )


@KINDS
@pytest.mark.parametrize("mode", ["full", "economic", "r"])
def test_qr(a: Any, mode: Any) -> None:
    """Shapes and values as SciPy's, with and without pivoting."""
    with tb.enable_x64(True):
        for x in (a[0], a[0, :, :2], a[0, :2]):
            for pivoting in (False, True):
                found = sla.qr(x, mode=mode, pivoting=pivoting)
                want = scipy.linalg.qr(x, mode=mode, pivoting=pivoting)
                assert len(want) == len(found)
                for ours, theirs in zip(found, want, strict=True):
                    close(ours, theirs)
        check_grads(lambda x: sla.qr(x, mode="economic"), (A[0],), order=1)
    assert 2 == len(sla.qr(np.ones((3, 2, 2)), mode="full"))


@KINDS
@pytest.mark.parametrize("trans", [0, 1, 2, "N", "T", "C"])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("unit", [True, False])
def test_solve_triangular(a: Any, trans: Any, lower: bool, unit: bool) -> None:
    """As SciPy, vectors and matrices, batches broadcast."""
    with tb.enable_x64(True):
        for b in (B[0], B[0, :, 0]):
            want = scipy.linalg.solve_triangular(a[0], b, trans, lower, unit)
            close(sla.solve_triangular(a[0], b, trans, lower, unit), want)
            close(sla.solve_triangular(a, b, trans, lower, unit)[0], want)


@KINDS
def test_inverse(a: Any) -> None:
    """Batches, integers, matrices without rows, derivatives."""
    with tb.enable_x64(True):
        close(sla.inv(a), np.linalg.inv(a))
        check_grads(sla.inv, (a[0],), order=2)
    assert "float32" == sla.inv(np.eye(2, dtype=np.int32)).dtype
    assert (2, 0, 0) == sla.inv(np.zeros((2, 0, 0), np.float32)).shape


@pytest.mark.parametrize("dtype", ["float32", "complex64", "float64", "complex128"])
@pytest.mark.parametrize("scale", [0.0, 1e-8, 0.1, 1.0, 7.0, 30.0])
def test_exponential(dtype: Any, scale: float) -> None:
    """Norms from 0 to where much is squared, alone and in a batch of different sizes."""
    with tb.enable_x64(True):
        x = ((C if "complex" in dtype else A) * scale / 4).astype(dtype)
        want = scipy.linalg.expm(x.astype(np.result_type(dtype, np.float64)))
        tolerance = 3e-13 if dtype in ("float64", "complex128") else 2e-4
        size = np.abs(want).max()
        found = sla.expm(x)
        assert dtype == found.dtype
        assert_allclose(found / size, want / size, rtol=tolerance, atol=tolerance)
        mixed = np.stack([x[0], x[1] / 100, x[2] * 0])
        for run in (sla.expm, tb.jit(tb.vmap(sla.expm))):
            found = run(mixed)
            assert_allclose(found[0] / size, want[0] / size, rtol=tolerance, atol=tolerance)
            assert_allclose(found[2], np.eye(4), rtol=tolerance, atol=tolerance)


@KINDS
def test_derivatives_of_exponentials(a: Any) -> None:
    """Of any order, in batches, where nothing is squared and where much is."""
    with tb.enable_x64(True):
        for tenths in (0, 3, 40):
            # An argument: the programs are equal, so they are compiled once.
            check_grads(lambda x, n: sla.expm(n / 10 * x), (a[0], np.array(tenths)), order=2)
        check_grads(sla.expm, (np.stack([a[0], a[1] * 9, a[2] * 0]),), order=1, rtol=1e-4)
        e = np.ascontiguousarray(a[1])
        for ours, theirs in zip(
            sla.expm_frechet(a[0], e), scipy.linalg.expm_frechet(a[0], e), strict=True
        ):
            close(ours, theirs)
        close(
            sla.expm_frechet(a[0], e, method="SPS", compute_expm=False),
            scipy.linalg.expm_frechet(a[0], e, compute_expm=False),
        )


def test_exponentials_of_triangles() -> None:
    """Nothing below the diagonal is read."""
    with tb.enable_x64(True):
        close(sla.expm(A, upper_triangular=True), scipy.linalg.expm(np.triu(A)))
        close(sla.expm(np.array([[1, 2], [0, 1]])), scipy.linalg.expm(np.array([[1.0, 2], [0, 1]])))


def test_exponentials_out_of_range() -> None:
    """More squarings than wanted, infinities and NaN give NaN; no rows give none."""
    assert np.isnan(sla.expm(100 * tnp.ones((2, 2)), max_squarings=2)).all()
    assert np.isnan(sla.expm(tnp.array([[np.inf, 0.0], [0.0, 1.0]]))).any()
    assert np.isnan(sla.expm(tnp.array([[np.nan, 0.0], [0.0, 1.0]]))).any()
    assert (2, 0, 0) == sla.expm(np.zeros((2, 0, 0), np.float32)).shape


@pytest.mark.parametrize(
    ("run", "error"),
    [
        (lambda: sla.solve(A[0], B[0], assume_a="tri"), ArgumentValueError),
        (lambda: sla.solve(A[0, :2], B[0]), ShapeMismatchError),
        (lambda: sla.solve(A[0], B[0, :2]), ShapeMismatchError),
        (lambda: sla.solve(A, B[:2]), BroadcastError),
        (lambda: sla.solve(A, 1.0), RankError),
        (lambda: sla.inv(A[0, :2]), ShapeMismatchError),
        (lambda: sla.lu(np.ones(3)), RankError),
        (lambda: sla.qr(A, mode="raw"), ArgumentValueError),
        (lambda: sla.solve_triangular(A[0], B[0], 3), ArgumentValueError),
        (lambda: sla.expm(A[:, :2]), ShapeMismatchError),
        (lambda: sla.expm(A, max_squarings=-1), ArgumentValueError),
        (lambda: sla.expm_frechet(A, A[0]), ShapeMismatchError),
        (lambda: sla.expm_frechet(A, A, method="best"), ArgumentValueError),
    ],
)
def test_errors(run: Any, error: type[Exception]) -> None:
    """Shapes that do not fit, and choices that do not exist."""
    with pytest.raises(error):
        run()


def test_a_vector_for_each_matrix() -> None:
    """Solvers by factors take one vector for each matrix, and warn; columns are never doubtful."""
    with tb.enable_x64(True):
        lower, b = np.tril(A), RANDOM.normal(size=(3, 4))
        pivots = np.tile(np.arange(4, dtype=np.int32), (3, 1))
        for solver in (
            lambda b: sla.solve_triangular(lower, b, lower=True),
            lambda b: sla.cho_solve((lower, True), b),
            lambda b: sla.lu_solve((A, pivots), b),
        ):
            with pytest.warns(FutureWarning, match="one vector for each matrix"):
                found = solver(b)
            close(found, solver(b[..., None])[..., 0])


def test_lists_are_matrices():
    """SciPy's functions take nested lists; so do these, other than those of ``numpy.linalg``."""
    rows, right = [[4.0, 1.0], [1.0, 3.0]], [1.0, 2.0]
    linalg = tb.scipy.linalg
    functions = (
        linalg.cholesky,
        linalg.lu,
        linalg.qr,
        linalg.svd,
        linalg.eigh,
        linalg.inv,
        linalg.expm,
        lambda a: linalg.solve(a, right),
        lambda a: linalg.cho_solve(linalg.cho_factor(a), right),
    )
    for function in functions:
        expected, found = function(tnp.asarray(rows)), function(rows)
        for x, y in zip(tb.tree.leaves(expected), tb.tree.leaves(found), strict=True):
            np.testing.assert_array_equal(x, y)
