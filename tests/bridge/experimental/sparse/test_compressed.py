"""BCSR, COO, CSR and CSC, beside SciPy's formats and dense arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

import tracebridge as tb
from tests.bridge.experimental.sparse.test_bcoo import dense, host
from tracebridge.core.errors.argument_errors import ArgumentTypeError, UnsupportedArgumentError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.experimental import sparse


def test_compressed_rows_are_those_of_scipy() -> None:
    """Elements, columns and row ends; those after the last row are padding."""
    array = dense(4, 5)
    expected = scipy.sparse.csr_array(array)

    for mat in (
        sparse.BCSR.fromdense(array, nse=expected.nnz + 2),
        sparse.CSR.fromdense(array, nse=expected.nnz + 2),
        sparse.CSC.fromdense(array.T, nse=expected.nnz + 2),
        sparse.BCSR.from_scipy_sparse(expected),
    ):
        n = expected.nnz
        np.testing.assert_array_equal(expected.indptr, mat.indptr)
        np.testing.assert_array_equal(expected.indices, mat.indices[:n])
        np.testing.assert_array_equal(expected.data, mat.data[:n])
        same = mat.T if isinstance(mat, sparse.CSC) else mat
        np.testing.assert_array_equal(array, host(same))


def test_operations_of_bcsr() -> None:
    """Batches and dense axes, products, parts, joins and sums."""
    array, vector = dense(2, 3, 4), dense(4)
    mat = sparse.BCSR.fromdense(array, n_batch=1)

    np.testing.assert_array_equal(array, host(mat))
    np.testing.assert_array_equal(array @ vector, mat @ vector)
    np.testing.assert_array_equal(array @ vector, tb.vmap(lambda m: m @ vector)(mat))
    np.testing.assert_array_equal(array * 2, host(tb.vmap(lambda m: m * 2)(mat)))
    np.testing.assert_array_equal(array[1, ::2], host(mat[1, ::2]))
    np.testing.assert_array_equal(array.sum(1), host(mat.sum(1)))
    np.testing.assert_array_equal(array * 0, host(mat - mat))
    joined = sparse.bcsr_concatenate([mat, mat], dimension=1)
    np.testing.assert_array_equal(np.hstack([array, array]), host(joined))
    matrix = sparse.bcsr_fromdense(array[0])
    np.testing.assert_array_equal(array[0].T, host(matrix.T))
    wide = sparse.bcsr_broadcast_in_dim(matrix, shape=(5, 3, 4), broadcast_dimensions=(1, 2))
    np.testing.assert_array_equal(np.broadcast_to(array[0], (5, 3, 4)), host(wide))
    found = sparse.bcsr_extract(matrix.indices, matrix.indptr, array[0] + 1)
    np.testing.assert_array_equal(matrix.data + 1, found)
    twice = sparse.BCSR(([1.0, 2.0], [1, 1], [0, 2]), shape=(1, 2)).sum_duplicates()
    assert (twice.data.tolist(), twice.indices.tolist()) == ([3], [1])
    tall = sparse.BCSR.fromdense(array, n_dense=1)
    np.testing.assert_array_equal(array, host(tall))


@pytest.mark.parametrize("name", ["coo", "csr", "csc", "bcsr"])
def test_matrices_of_every_format(name: str) -> None:
    """Creation, products on both sides, transposes, derivatives, and passing through programs."""
    kind: Any = getattr(sparse, name.upper())
    array, other = dense(3, 4), dense(4, 2)
    mat = kind.fromdense(array)

    np.testing.assert_array_equal(array @ other, mat @ other)
    np.testing.assert_array_equal(other.T @ array.T, other.T @ mat.T)
    np.testing.assert_array_equal(array * 2, host(tb.jit(lambda m: 2 * m)(mat)))
    np.testing.assert_array_equal(np.eye(3, 4, 1), host(sparse.eye(3, 4, 1, sparse_format=name)))
    assert sparse.empty((3, 4), sparse_format=name).nse == 0
    slope = sparse.grad(lambda m: (m @ other).sum())(mat)
    assert type(slope) is kind
    np.testing.assert_array_equal((array != 0) * other.sum(1), host(slope))
    assert repr(mat) == f"{name.upper()}(float32[3, 4], nse={mat.nse})"


def test_functions_of_the_older_formats() -> None:
    """Products by name, with the matrix or its transposed; wrong formats and shapes are refused."""
    array, other = dense(3, 4), dense(3, 2)
    coo, csr = sparse.coo_fromdense(array), sparse.csr_fromdense(array)

    np.testing.assert_array_equal(array.T @ other, sparse.coo_matmat(coo, other, transpose=True))
    np.testing.assert_array_equal(array.T @ other, sparse.csr_matmat(csr, other, transpose=True))
    np.testing.assert_array_equal(array @ array[0], sparse.coo_matvec(coo, array[0]))
    np.testing.assert_array_equal(array @ array[0], sparse.csr_matvec(csr, array[0]))
    np.testing.assert_array_equal(sparse.coo_todense(coo), sparse.csr_todense(csr))
    with pytest.raises(ArgumentTypeError, match="expected a CSR matrix"):
        sparse.csr_todense(coo)
    with pytest.raises(ShapeMismatchError, match="csr_matvec"):
        sparse.csr_matvec(csr, other)
    with pytest.raises(ShapeMismatchError, match="CSR"):
        sparse.CSR((np.ones(2), np.zeros(2, int), np.zeros(2, int)), shape=(3, 3))
    with pytest.raises(UnsupportedArgumentError, match="2"):
        sparse.BCSR.from_bcoo(sparse.empty((3,)))
    with pytest.raises(UnsupportedArgumentError, match="transpose"):
        csr.transpose((0, 1))
