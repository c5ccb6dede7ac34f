"""Functions of the older formats of matrices: coo_*, csr_*."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import tracebridge.numpy as tnp
from tracebridge.core.control.calls.by_definition import ByDefinition
from tracebridge.core.dtypes.dtypes import as_dtype
from tracebridge.core.errors.argument_errors import ArgumentTypeError, kind_of
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.ir.cost import Cost
from tracebridge.experimental.sparse._base import Shape, SparseInfo
from tracebridge.experimental.sparse._bcoo.conversion import (
    bcoo_fromdense,
    bcoo_todense,
    checked_nse,
)
from tracebridge.experimental.sparse._bcoo.dots import bcoo_dot_general
from tracebridge.experimental.sparse._bcoo.wide import of_compressed
from tracebridge.experimental.sparse._matrices import COO, CSR


def coo_fromdense(mat: Any, *, nse: int | None = None, index_dtype: Any = "int32") -> COO:
    """The form of a dense matrix in coordinates.

    Args:
        mat: matrix.
        nse: number of stored elements, as in ``bcoo_fromdense``.
        index_dtype: dtype of the coordinates.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental import sparse
    >>> print(sparse.coo_fromdense(tnp.array([[0.0, 5.0], [7.0, 0.0]])).col)
    [1 0]
    """
    mat, count = _dense_matrix("coo_fromdense", mat, nse)
    arrays = coo_fromdense_p.bind(mat, nse=count, index_dtype=as_dtype(index_dtype))
    return COO(arrays, shape=mat.shape, rows_sorted=True)


@final
class CooFromdense(ByDefinition):
    """A matrix -> data, rows and columns."""

    name = "coo_fromdense"
    multiple_results = True
    cost = Cost.OTHER

    def define(self, mat: Any, *, nse: int, index_dtype: Any) -> Sequence[Any]:
        out = bcoo_fromdense(mat, nse=nse, index_dtype=index_dtype)
        return out.data, out.indices[:, 0], out.indices[:, 1]


coo_fromdense_p = CooFromdense()


def _dense_matrix(call: str, mat: Any, nse: Any) -> tuple[Any, int]:
    """A matrix, and how many of its elements to store."""
    mat = tnp.asarray(mat)
    if mat.ndim != 2:
        msg = f"{call}: mat has shape {mat.shape}, expected two axes"
        raise ShapeMismatchError(msg, hint="BCOO takes arrays with any number of axes")
    return mat, checked_nse(call, mat, nse, 0, 0)[0]


def csr_fromdense(mat: Any, *, nse: int | None = None, index_dtype: Any = "int32") -> CSR:
    """The form of a dense matrix in compressed rows; arguments as in ``coo_fromdense``.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental import sparse
    >>> print(sparse.csr_fromdense(tnp.eye(2)).indptr)
    [0 1 2]
    """
    mat, count = _dense_matrix("csr_fromdense", mat, nse)
    arrays = csr_fromdense_p.bind(mat, nse=count, index_dtype=as_dtype(index_dtype))
    return CSR(arrays, shape=mat.shape)


@final
class CsrFromdense(ByDefinition):
    """A matrix -> data, columns and ends of rows."""

    name = "csr_fromdense"
    multiple_results = True
    cost = Cost.OTHER

    def define(self, mat: Any, *, nse: int, index_dtype: Any) -> Sequence[Any]:
        out = CSR.from_bcoo(bcoo_fromdense(mat, nse=nse, index_dtype=index_dtype))
        return out.data, out.indices, out.indptr


csr_fromdense_p = CsrFromdense()


def coo_todense(mat: COO) -> Any:
    """The dense form of a matrix in coordinates.

    Args:
        mat: COO matrix.

    >>> from tracebridge.experimental import sparse
    >>> print(sparse.coo_todense(sparse.eye(1, sparse_format="coo")))
    [[1.]]
    """
    _checked("coo_todense", mat, COO)
    return coo_todense_p.bind(mat.data, mat.row, mat.col, spinfo=_info(mat))


def _info(mat: COO) -> SparseInfo:
    return SparseInfo(mat.shape, indices_sorted=mat.rows_sorted)


def _coo(arrays: Sequence[Any], spinfo: SparseInfo) -> COO:
    return COO(arrays, shape=spinfo.shape, rows_sorted=spinfo.indices_sorted)


@final
class CooTodense(ByDefinition):
    """Data, rows and columns -> the dense matrix."""

    name = "coo_todense"
    cost = Cost.OTHER

    def define(self, *arrays: Any, spinfo: SparseInfo) -> Any:
        return bcoo_todense(_coo(arrays, spinfo).to_bcoo())


coo_todense_p = CooTodense()


def csr_todense(mat: CSR) -> Any:
    """The dense form of a matrix in compressed rows.

    Args:
        mat: CSR matrix.

    >>> from tracebridge.experimental import sparse
    >>> print(sparse.csr_todense(sparse.eye(1, sparse_format="csr")))
    [[1.]]
    """
    _checked("csr_todense", mat, CSR)
    return csr_todense_p.bind(mat.data, mat.indices, mat.indptr, shape=mat.shape)


@final
class CsrTodense(ByDefinition):
    """Data, columns and ends of rows -> the dense matrix."""

    name = "csr_todense"
    cost = Cost.OTHER

    def define(self, *arrays: Any, shape: Shape) -> Any:
        return bcoo_todense(CSR(arrays, shape=shape).to_bcoo())


csr_todense_p = CsrTodense()


def coo_matvec(mat: COO, v: Any, transpose: bool = False) -> Any:
    """The product of a matrix in coordinates and a vector.

    Args:
        mat: COO matrix.
        v: vector.
        transpose: multiply the transposed matrix.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental import sparse
    >>> m = sparse.coo_fromdense(tnp.array([[0.0, 5.0], [7.0, 0.0]]))
    >>> print(sparse.coo_matvec(m, tnp.array([1.0, 2.0])))
    [10.  7.]
    """
    _checked("coo_matvec", mat, COO)
    v = _operand("coo_matvec", mat, v, 1, transpose)
    arrays = mat.data, mat.row, mat.col
    return coo_matvec_p.bind(*arrays, v, spinfo=_info(mat), transpose=bool(transpose))


class _CooProduct(ByDefinition):
    """Data, rows, columns, and what they are multiplied with."""

    cost = Cost.CONTRACTION

    def define(self, *operands: Any, spinfo: SparseInfo, transpose: bool) -> Any:
        *arrays, other = operands
        return _product(_coo(arrays, spinfo), other, transpose)


@final
class CooMatvec(_CooProduct):
    """Data, rows, columns, and a vector -> the product."""

    name = "coo_matvec"


coo_matvec_p = CooMatvec()


def coo_matmat(mat: COO, B: Any, *, transpose: bool = False) -> Any:
    """The product of a matrix in coordinates and a dense matrix.

    Args:
        mat: COO matrix.
        B: matrix.
        transpose: multiply the transposed first matrix.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental import sparse
    >>> print(sparse.coo_matmat(sparse.coo_fromdense(tnp.eye(2)), tnp.ones((2, 1))))
    [[1.]
     [1.]]
    """
    _checked("coo_matmat", mat, COO)
    right = _operand("coo_matmat", mat, B, 2, transpose)
    arrays = mat.data, mat.row, mat.col
    return coo_matmat_p.bind(*arrays, right, spinfo=_info(mat), transpose=bool(transpose))


@final
class CooMatmat(_CooProduct):
    """Data, rows, columns, and a dense matrix -> the product."""

    name = "coo_matmat"


coo_matmat_p = CooMatmat()


def csr_matvec(mat: CSR, v: Any, transpose: bool = False) -> Any:
    """The product of a matrix in compressed rows and a vector; else as ``coo_matvec``.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental import sparse
    >>> print(sparse.csr_matvec(sparse.csr_fromdense(tnp.eye(2)), tnp.array([1.0, 2.0])))
    [1. 2.]
    """
    _checked("csr_matvec", mat, CSR)
    v = _operand("csr_matvec", mat, v, 1, transpose)
    arrays = mat.data, mat.indices, mat.indptr
    return csr_matvec_p.bind(*arrays, v, shape=mat.shape, transpose=bool(transpose))


class _CsrProduct(ByDefinition):
    """Data, columns, starts of rows, and what they are multiplied with."""

    cost = Cost.CONTRACTION

    def define(self, *operands: Any, shape: Shape, transpose: bool) -> Any:
        *arrays, other = operands
        return _product(CSR(arrays, shape=shape), other, transpose)


@final
class CsrMatvec(_CsrProduct):
    """Data, columns, ends of rows, and a vector -> the product."""

    name = "csr_matvec"


csr_matvec_p = CsrMatvec()


def csr_matmat(mat: CSR, B: Any, *, transpose: bool = False) -> Any:
    """The product of a matrix in compressed rows and a dense matrix; else as ``coo_matmat``.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental import sparse
    >>> print(sparse.csr_matmat(sparse.csr_fromdense(tnp.eye(2)), tnp.ones((2, 1))))
    [[1.]
     [1.]]
    """
    _checked("csr_matmat", mat, CSR)
    right = _operand("csr_matmat", mat, B, 2, transpose)
    arrays = mat.data, mat.indices, mat.indptr
    return csr_matmat_p.bind(*arrays, right, shape=mat.shape, transpose=bool(transpose))


@final
class CsrMatmat(_CsrProduct):
    """Data, columns, ends of rows, and a dense matrix -> the product."""

    name = "csr_matmat"


csr_matmat_p = CsrMatmat()


def _checked(call: str, mat: Any, kind: type[Any]) -> Any:
    """The matrix, if it is of that format."""
    if not isinstance(mat, kind):
        msg = f"{call}: mat is {kind_of(mat)}, expected a {kind.__name__} matrix"
        raise ArgumentTypeError(msg, hint=f"{kind.__name__}.fromdense makes one")
    return mat


def _operand(call: str, mat: Any, other: Any, ndim: int, transpose: bool) -> Any:
    """The second operand of a product, if it fits."""
    other = tnp.asarray(other)
    axis = 0 if transpose else 1
    if other.ndim != ndim or mat.shape[axis] != other.shape[0]:
        msg = f"{call}: shapes {mat.shape} and {other.shape}, transpose={transpose}"
        raise ShapeMismatchError(msg, expected=f"{ndim} axes, the first of size {mat.shape[axis]}")
    return other


def _product(mat: Any, other: Any, transpose: bool) -> Any:
    axis = 0 if transpose else 1
    out = of_compressed(mat, other) if axis else None
    if out is not None:
        return out
    numbers = (((axis,), (0,)), ((), ()))
    return bcoo_dot_general(mat.to_bcoo(), other, dimension_numbers=numbers)
