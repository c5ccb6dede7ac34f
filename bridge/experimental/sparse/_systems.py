"""Sparse systems of equations, solved directly: spsolve."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

import tracebridge.numpy as tnp
from tracebridge.core.control.callbacks.pure import pure_callback
from tracebridge.core.control.solve.custom_linear_solve import custom_linear_solve
from tracebridge.core.dtypes.dtypes import is_inexact
from tracebridge.core.errors.dtype_errors import DtypeMismatchError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.experimental.sparse._matrices import CSR
from tracebridge.experimental.sparse._matrix_functions import csr_matvec


def spsolve(
    data: Any, indices: Any, indptr: Any, b: Any, tol: float = 1e-6, reorder: int = 1
) -> Any:
    """Solve a system with a sparse matrix by a factorization, on the host.

    It is SciPy's, which chooses the order of the rows by itself. Derivatives are those of the
    solution, with respect to the elements of the matrix and to ``b``.

    Args:
        data: elements of a square matrix in compressed rows.
        indices: their columns.
        indptr: where the rows begin among them.
        b: vector, the right side.
        tol: without effect; a matrix is singular if its factorization meets a zero.
        reorder: without effect.

    Returns:
        The solution, of the shape and dtype of ``b``; NaN if the matrix is singular.

    Raises:
        ShapeMismatchError: the arrays are no square matrix with a vector of its size.
        DtypeMismatchError: ``data`` and ``b`` are not of one inexact dtype.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental import sparse
    >>> from tracebridge.experimental.sparse.linalg import spsolve
    >>> m = sparse.csr_fromdense(tnp.array([[2.0, 0.0], [1.0, 4.0]]))
    >>> print(spsolve(m.data, m.indices, m.indptr, tnp.array([2.0, 9.0])))
    [1. 2.]
    """
    del tol, reorder
    data, indices, indptr, b = [tnp.asarray(x) for x in (data, indices, indptr, b)]
    size = b.shape[0] if b.ndim == 1 else -1
    shapes = [x.shape for x in (data, indices, indptr, b)]
    if data.ndim != 1 or indices.shape != data.shape or indptr.shape != (size + 1,):
        msg = f"spsolve: data, indices, indptr, b have the shapes {', '.join(map(str, shapes))}"
        raise ShapeMismatchError(msg, expected="(nse,), (nse,), (n + 1,), (n,)")
    if data.dtype != b.dtype or not is_inexact(b.dtype):
        msg = f"spsolve: data is {data.dtype}, b is {b.dtype}"
        raise DtypeMismatchError(msg, expected="one dtype of floating or complex numbers")

    def solver(transposed: bool) -> Any:
        def solve(_: Any, right: Any) -> Any:
            def on_host(*arrays: Any) -> Any:
                return _solved(*arrays, transposed=transposed)

            args = data, indices, indptr, right
            return pure_callback(on_host, right, *args, vmap_method="sequential")

        return solve

    mat = CSR((data, indices, indptr), shape=(size, size))
    solve, back = solver(transposed=False), solver(transposed=True)
    return custom_linear_solve(lambda x: csr_matvec(mat, x), b, solve, back)


def _solved(data: Any, indices: Any, indptr: Any, b: Any, *, transposed: bool) -> Any:
    """On arrays of NumPy."""
    # Loaded for the first system only; jaxlib depends on SciPy too.
    import scipy.sparse  # noqa: PLC0415 - it takes a quarter of a second
    import scipy.sparse.linalg  # noqa: PLC0415 - likewise

    arrays = [np.asarray(x) for x in (data, indices, indptr)]
    n = len(b)
    mat: Any = scipy.sparse.csr_matrix(tuple(arrays), shape=(n, n))
    mat = mat.T if transposed else mat
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", scipy.sparse.linalg.MatrixRankWarning)
        x = scipy.sparse.linalg.spsolve(mat.tocsc(), np.asarray(b))
    return np.asarray(x, dtype=b.dtype)
