"""The older formats of matrices: COO, CSR and CSC, without batches."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, final

import tracebridge.numpy as tnp
from tracebridge.core.errors.argument_errors import (
    UnsupportedArgumentError,
)
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.util.public_path import public_path
from tracebridge.experimental.sparse._base import Format, Shape, register_format
from tracebridge.experimental.sparse._bcoo.array import BCOO
from tracebridge.experimental.sparse._bcoo.indices import sparse_sizes, valid
from tracebridge.experimental.sparse._bcoo.moves import bcoo_transpose
from tracebridge.experimental.sparse._bcoo.sorting import bcoo_sort_indices
from tracebridge.experimental.sparse._compressed import indptr_of, rows_of


def _function(name: str) -> Callable[..., Any]:
    """A function of these formats, whose module is loaded with the first one."""
    path = "tracebridge.experimental.sparse._matrix_functions"
    return getattr(importlib.import_module(path), name)


def _check_order(call: str, axes: Sequence[int] | None) -> None:
    """Raise unless the order of axes is that of a transposed matrix."""
    if axes is not None and tuple(axes) != (1, 0):
        msg = f"{call}.transpose: axes {tuple(axes)} of a matrix"
        raise UnsupportedArgumentError(msg, expected="(1, 0), or None")


def _check_arrays(call: str, arrays: Sequence[Any], shape: Shape, count: int | None) -> None:
    """Raise unless vectors belong to a matrix; ``count``: length of a vector of row ends."""
    sizes = [x.shape for x in arrays]
    good = len(shape) == 2 and len(arrays) == 3 and all([len(s) == 1 for s in sizes])
    if good and count is None:
        good = sizes[0] == sizes[1] == sizes[2]
    elif good:
        good = sizes[0] == sizes[1] and sizes[2] == (count,)
    if not good:
        msg = f"{call}: arrays of shapes {sizes} for shape {shape}"
        expected = "three vectors of one length" if count is None else "(nse,), (nse,), (n + 1,)"
        raise ShapeMismatchError(msg, expected=f"{expected}, and a matrix")


class _Matrix(Format):
    """A format of matrices, without batches."""

    __slots__ = ()

    @property
    def nse(self) -> int:
        """Number of stored elements."""
        return self.data.shape[0]


@public_path("tracebridge.experimental.sparse")
@final
class COO(_Matrix):
    """A sparse matrix in coordinates; BCOO can do more.

    Args:
        args: ``(data, row, col)``, three vectors of one length.
        shape: shape of the dense matrix.
        rows_sorted: the rows are known to be in order.
        cols_sorted: the columns are known to be in order.

    Raises:
        ShapeMismatchError: the vectors do not belong to a matrix.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental import sparse
    >>> m = sparse.COO((tnp.array([5.0]), tnp.array([0]), tnp.array([1])), shape=(1, 2))
    >>> print(m.todense())
    [[0. 5.]]
    """

    __slots__ = ("col", "cols_sorted", "row", "rows_sorted")

    _arrays = ("data", "row", "col")
    _facts = ("rows_sorted", "cols_sorted")

    def __init__(
        self,
        args: Sequence[Any],
        *,
        shape: Sequence[int],
        rows_sorted: bool = False,
        cols_sorted: bool = False,
    ) -> None:
        super().__init__(args, shape=shape)
        self.data, self.row, self.col = [tnp.asarray(x) for x in args]
        self.rows_sorted, self.cols_sorted = bool(rows_sorted), bool(cols_sorted)
        _check_arrays("COO", (self.data, self.row, self.col), self.shape, None)

    @classmethod
    def fromdense(cls, mat: Any, *, nse: int | None = None, index_dtype: Any = "int32") -> COO:
        """The sparse form of a dense matrix; arguments as in ``coo_fromdense``."""
        return _function("coo_fromdense")(mat, nse=nse, index_dtype=index_dtype)

    @classmethod
    def from_bcoo(cls, arr: BCOO) -> COO:
        """The form of a BCOO array without axes of batches and dense axes.

        Args:
            arr: the array.
        """
        _check_matrix("COO.from_bcoo", arr)
        places = arr.indices[:, 0], arr.indices[:, 1]
        return cls((arr.data, *places), shape=arr.shape, rows_sorted=arr.indices_sorted)

    def to_bcoo(self) -> BCOO:
        """The form in coordinates."""
        row, col = self.row, self.col.astype(self.row.dtype)
        return BCOO((self.data, tnp.stack([row, col], axis=-1)), shape=self.shape)

    def transpose(self, axes: Sequence[int] | None = None) -> COO:
        """The transposed matrix.

        Args:
            axes: None or ``(1, 0)``.
        """
        _check_order("COO", axes)
        return COO(
            (self.data, self.col, self.row),
            shape=self.shape[::-1],
            rows_sorted=self.cols_sorted,
            cols_sorted=self.rows_sorted,
        )


class _Compressed(_Matrix):
    """A matrix in compressed rows, or columns: elements, their places in them, where they begin."""

    __slots__ = ("indices", "indptr")

    _arrays = ("data", "indices", "indptr")
    _compressed: ClassVar[int]
    """The axis along which they are counted."""

    def __init__(self, args: Sequence[Any], *, shape: Sequence[int]) -> None:
        super().__init__(args, shape=shape)
        self.data, self.indices, self.indptr = [tnp.asarray(x) for x in args]
        count = self.shape[self._compressed] + 1 if len(self.shape) == 2 else 0
        arrays = (self.data, self.indices, self.indptr)
        _check_arrays(type(self).__name__, arrays, self.shape, count)


def _check_matrix(call: str, arr: BCOO) -> None:
    """Raise unless an array is a matrix with coordinates along both axes."""
    if arr.n_sparse != 2 or arr.n_batch or arr.n_dense:
        msg = f"{call}: {arr!r}"
        raise UnsupportedArgumentError(
            msg, expected="a matrix with n_batch=0, n_dense=0", hint="use bcoo_update_layout"
        )


@public_path("tracebridge.experimental.sparse")
@final
class CSR(_Compressed):
    """A sparse matrix in compressed rows; BCSR can do more.

    Args:
        args: ``(data, indices, indptr)``: elements, their columns, and where rows begin.
        shape: shape of the dense matrix.

    Raises:
        ShapeMismatchError: the vectors do not belong to a matrix of that shape.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental import sparse
    >>> print(sparse.CSR.fromdense(tnp.array([[0.0, 5.0], [7.0, 0.0]])).indptr)
    [0 1 2]
    """

    __slots__ = ()

    _compressed = 0

    @classmethod
    def fromdense(cls, mat: Any, *, nse: int | None = None, index_dtype: Any = "int32") -> CSR:
        """The sparse form of a dense matrix; arguments as in ``csr_fromdense``."""
        return _function("csr_fromdense")(mat, nse=nse, index_dtype=index_dtype)

    @classmethod
    def from_bcoo(cls, arr: BCOO) -> CSR:
        """The form of a BCOO array without axes of batches and dense axes.

        Args:
            arr: the array.
        """
        _check_matrix("CSR.from_bcoo", arr)
        arr = bcoo_sort_indices(arr)
        keep = valid(arr.indices, sparse_sizes(arr))
        indptr = indptr_of(arr.indices[:, 0], keep, arr.shape[0])
        return cls((arr.data, arr.indices[:, 1], indptr), shape=arr.shape)

    def to_bcoo(self) -> BCOO:
        """The form in coordinates."""
        rows = rows_of(self.indptr, self.nse).astype(self.indices.dtype)
        return BCOO((self.data, tnp.stack([rows, self.indices], axis=-1)), shape=self.shape)

    def transpose(self, axes: Sequence[int] | None = None) -> CSC:
        """The transposed matrix, in compressed columns.

        Args:
            axes: None or ``(1, 0)``.
        """
        _check_order("CSR", axes)
        return CSC((self.data, self.indices, self.indptr), shape=self.shape[::-1])


@public_path("tracebridge.experimental.sparse")
@final
class CSC(_Compressed):
    """A sparse matrix in compressed columns: the transposed of one in compressed rows.

    Args:
        args: ``(data, indices, indptr)``: elements, their rows, and where columns begin.
        shape: shape of the dense matrix.

    Raises:
        ShapeMismatchError: the vectors do not belong to a matrix of that shape.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental import sparse
    >>> print(sparse.CSC.fromdense(tnp.array([[0.0, 5.0], [7.0, 0.0]])).indices)
    [1 0]
    """

    __slots__ = ()

    _compressed = 1

    @classmethod
    def fromdense(cls, mat: Any, *, nse: int | None = None, index_dtype: Any = "int32") -> CSC:
        """The sparse form of a dense matrix; arguments as in ``csr_fromdense``."""
        turned = tnp.transpose(tnp.asarray(mat))
        return CSR.fromdense(turned, nse=nse, index_dtype=index_dtype).transpose()

    @classmethod
    def from_bcoo(cls, arr: BCOO) -> CSC:
        """The form of a BCOO array without axes of batches and dense axes.

        Args:
            arr: the array.
        """
        _check_matrix("CSC.from_bcoo", arr)
        return CSR.from_bcoo(bcoo_transpose(arr, permutation=(1, 0))).transpose()

    def to_bcoo(self) -> BCOO:
        """The form in coordinates."""
        return bcoo_transpose(self.transpose().to_bcoo(), permutation=(1, 0))

    def transpose(self, axes: Sequence[int] | None = None) -> CSR:
        """The transposed matrix, in compressed rows.

        Args:
            axes: None or ``(1, 0)``.
        """
        _check_order("CSC", axes)
        return CSR((self.data, self.indices, self.indptr), shape=self.shape[::-1])


register_format(COO, "data", "row", "col")
register_format(CSR, "data", "indices", "indptr")
register_format(CSC, "data", "indices", "indptr")
