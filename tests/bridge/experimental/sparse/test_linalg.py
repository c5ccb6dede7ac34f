"""Largest eigenvalues, sparse systems, convolutions of sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.experimental import sparse
from tracebridge.experimental.sparse.linalg import lobpcg_standard, spsolve

RNG = np.random.default_rng(0)
START = RNG.standard_normal((30, 3)).astype("f")
MATRIX = np.where(RNG.random((5, 5)) < 0.5, RNG.standard_normal((5, 5)), 0) + 4 * np.eye(5)


@pytest.mark.parametrize(
    "values",
    [np.linspace(1, 30, 30), np.ones(30), np.repeat([9.0, 1.0], [2, 28]), -np.linspace(1, 30, 30)],
    ids=["linear", "one", "few", "negative"],
)
def test_largest_eigenvalues(values):
    """Values in order, orthonormal vectors that belong to them, fewer steps than allowed."""
    vectors = np.linalg.qr(RNG.standard_normal((30, 30)))[0]
    matrix = ((vectors * values) @ vectors.T).astype("f")

    found, U, steps = lobpcg_standard(matrix, START, 60, tol=1e-6)

    assert int(steps) < 60
    np.testing.assert_allclose(found, np.sort(values)[::-1][:3], rtol=1e-3)
    np.testing.assert_allclose(U.T @ U, np.eye(3), atol=1e-5)
    np.testing.assert_allclose(matrix @ U, U * found, atol=0.02)


def test_eigenvalues_of_a_function():
    """Without a tolerance all steps are made; the products may be those of a sparse array."""
    matrix = sparse.BCOO.fromdense(np.diag(np.arange(30.0, dtype="f")))
    found, _, steps = lobpcg_standard(lambda x: matrix @ x, START, 25, tol=0.0)
    assert int(steps) == 25
    np.testing.assert_allclose(found, [29, 28, 27], rtol=1e-5)


@pytest.mark.parametrize(
    ("A", "X", "says"),
    [
        (np.eye(30, dtype="f"), START[:, :0], "expected some columns"),
        (np.eye(15, dtype="f"), START[:15], "fewer columns than a fifth of 15"),
        (np.eye(30, 20, dtype="f"), START, r"A must be \(30, 30\)"),
        (lambda x: x.astype("float16"), START, "A has dtype float16, X has float32"),
    ],
)
def test_wrong_arguments_of_eigenvalues(A, X, says):
    """They are found before anything runs."""
    with pytest.raises(ValueError, match=says):
        lobpcg_standard(A, X)


def test_sparse_systems():
    """The solution, and its derivatives by the elements and the right side, batched too."""
    matrix, b = MATRIX.astype("f"), np.arange(1.0, 6.0, dtype="f")
    rows, cols = matrix.nonzero()
    mat = sparse.CSR.fromdense(matrix)

    def loss(data: Any, b: Any) -> Any:
        return spsolve(data, mat.indices, mat.indptr, b)[1]

    def dense(data: Any, b: Any) -> Any:
        return tnp.linalg.solve(tnp.zeros((5, 5)).at[rows, cols].set(data), b)[1]

    both = tnp.stack([tnp.asarray(b), 2 * tnp.asarray(b)])
    got = tb.vmap(tb.grad(loss, (0, 1)), (None, 0))(mat.data, both)
    want = tb.vmap(tb.grad(dense, (0, 1)), (None, 0))(mat.data, both)
    tb.tree.map(lambda g, w: np.testing.assert_allclose(g, w, rtol=1e-3, atol=1e-5), got, want)
    np.testing.assert_allclose(loss(mat.data, b), np.linalg.solve(matrix, b)[1], rtol=1e-4)


def test_singular_and_wrong_systems():
    """NaN, without a warning of SciPy; shapes and dtypes are checked."""
    zero = np.zeros(1, "f")
    x = spsolve(zero, np.array([0]), np.array([0, 1]), np.ones(1, "f"))
    assert np.isnan(x).all()
    with pytest.raises(ValueError, match=r"have the shapes \(1,\), \(1,\), \(2,\), \(2,\)"):
        spsolve(zero, np.array([0]), np.array([0, 1]), np.ones(2, "f"))
    with pytest.raises(TypeError, match="data is float32, b is int32"):
        spsolve(zero, np.array([0]), np.array([0, 1]), np.ones(1, "i"))


@pytest.mark.parametrize("padding", ["SAME", "VALID", ((2, 3),)])
@pytest.mark.parametrize("n", [9, 2])
def test_convolutions(padding, n):
    """Those of the dense sequences, also where elements of padding are stored."""
    x = (RNG.standard_normal((1, 1, n)) * (RNG.random((1, 1, n)) < 0.6)).astype("f")
    kernel = np.array([[[2.0, 0.0, -1.0]]], "f")
    want = lax.conv_general_dilated(x, kernel, (1,), padding)
    stored = sparse.BCOO.fromdense(x, nse=n)
    for k in (kernel, sparse.BCOO.fromdense(kernel, nse=3)):
        got = sparse.bcoo_conv_general_dilated(stored, k, window_strides=(1,), padding=padding)
        np.testing.assert_allclose(got.todense(), want, rtol=1e-6)


def test_convolutions_that_are_not_made():
    """Strides, and arrays of several channels."""
    x = sparse.BCOO.fromdense(tnp.ones((1, 1, 3)))
    with pytest.raises(NotImplementedError, match="window_strides is"):
        sparse.bcoo_conv_general_dilated(x, x, window_strides=(2,), padding="SAME")
    y = sparse.BCOO.fromdense(tnp.ones((1, 2, 3)))
    with pytest.raises(NotImplementedError, match=r"shapes \(1, 2, 3\)"):
        sparse.bcoo_conv_general_dilated(y, y, window_strides=(1,), padding="SAME")
