"""The format BCSR: compressed rows, for each batch."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, final

import tracebridge.numpy as tnp
from tracebridge._api.programs.jit import jit
from tracebridge.core.control.calls.by_definition import ByDefinition
from tracebridge.core.dtypes.dtypes import as_dtype, is_integer
from tracebridge.core.errors.argument_errors import (
    ArgumentTypeError,
    UnsupportedArgumentError,
    kind_of,
)
from tracebridge.core.errors.dtype_errors import DtypeMismatchError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.ir.cost import Cost
from tracebridge.core.util.public_path import public_path
from tracebridge.experimental.sparse._base import (
    Format,
    JAXSparse,
    Shape,
    SparseInfo,
    info_of,
    register_format,
)
from tracebridge.experimental.sparse._batches import register_batches
from tracebridge.experimental.sparse._bcoo.array import BCOO
from tracebridge.experimental.sparse._bcoo.conversion import (
    bcoo_fromdense,
    bcoo_todense,
    checked_nse,
    gathered,
)
from tracebridge.experimental.sparse._bcoo.dots import bcoo_dot_general, checked_dims
from tracebridge.experimental.sparse._bcoo.indices import sparse_sizes, valid
from tracebridge.experimental.sparse._bcoo.moves import transposed
from tracebridge.experimental.sparse._bcoo.sorting import bcoo_sort_indices, without_duplicates
from tracebridge.experimental.sparse._bcoo.wide import of_compressed
from tracebridge.experimental.sparse._compressed import indptr_of, rows_of


@public_path("tracebridge.experimental.sparse")
@final
class BCSR(Format):
    """Sparse matrices in compressed rows, for each batch.

    The axes are, in this order, ``n_batch`` axes of batches, one of rows, one of columns, and
    ``n_dense`` axes along which elements are stored whole. Elements after the end of the last row
    are padding.

    Args:
        args: ``(data, indices, indptr)``. ``data`` has shape ``(*batch, nse, *dense)``,
            ``indices``, the columns, ``(*batch, nse)``, and ``indptr``, where rows begin,
            ``(*batch, rows + 1)``.
        shape: shape of the dense array: ``(*batch, rows, columns, *dense)``.
        indices_sorted: the columns of each row are known to be in order.
        unique_indices: no column occurs twice in a row.

    Raises:
        ShapeMismatchError: the arrays do not belong to an array of that shape.
        DtypeMismatchError: ``indices`` or ``indptr`` are no integers.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental import sparse
    >>> m = sparse.BCSR.fromdense(tnp.array([[0.0, 5.0], [7.0, 0.0]]))
    >>> m
    BCSR(float32[2, 2], nse=2)
    >>> print(m.indptr, m @ tnp.array([1.0, 2.0]))
    [0 1 2] [10.  7.]
    """

    __slots__ = ("indices", "indices_sorted", "indptr", "unique_indices")

    _arrays = ("data", "indices", "indptr")
    _facts = ("indices_sorted", "unique_indices")

    def __init__(
        self,
        args: Sequence[Any],
        *,
        shape: Sequence[int],
        indices_sorted: bool = False,
        unique_indices: bool = False,
    ) -> None:
        super().__init__(args, shape=shape)
        self.data, self.indices, self.indptr = [tnp.asarray(x) for x in args]
        self.indices_sorted = bool(indices_sorted)
        self.unique_indices = bool(unique_indices)
        _check(self.data, self.indices, self.indptr, self.shape)

    @property
    def nse(self) -> int:
        """Number of stored elements, of each batch."""
        return self.indices.shape[-1]

    @property
    def n_batch(self) -> int:
        """Number of axes of batches."""
        return self.indices.ndim - 1

    @property
    def n_sparse(self) -> int:
        """Number of axes with coordinates: rows and columns."""
        return 2

    @property
    def n_dense(self) -> int:
        """Number of axes along which elements are stored whole."""
        return self.data.ndim - self.indices.ndim

    @classmethod
    def fromdense(
        cls,
        mat: Any,
        *,
        nse: int | None = None,
        index_dtype: Any = "int32",
        n_dense: int = 0,
        n_batch: int = 0,
    ) -> BCSR:
        """The sparse form of a dense array; arguments as in ``bcsr_fromdense``."""
        return bcsr_fromdense(
            mat, nse=nse, n_batch=n_batch, n_dense=n_dense, index_dtype=index_dtype
        )

    @classmethod
    def from_bcoo(cls, arr: BCOO) -> BCSR:
        """The form of a BCOO array.

        Args:
            arr: BCOO array with two axes with coordinates.

        Raises:
            UnsupportedArgumentError: it has another number of them.
        """
        if arr.n_sparse != 2:
            msg = f"BCSR.from_bcoo: an array with {arr.n_sparse} axes with coordinates"
            raise UnsupportedArgumentError(msg, expected="2", hint="use bcoo_update_layout")
        return _from_bcoo(bcoo_sort_indices(arr))

    @classmethod
    def from_scipy_sparse(
        cls, mat: Any, *, index_dtype: Any = None, n_dense: int = 0, n_batch: int = 0
    ) -> BCSR:
        """The form of a matrix of SciPy.

        Args:
            mat: a matrix or array of ``scipy.sparse``.
            index_dtype: dtype of the coordinates; None keeps it.
            n_dense: must be 0.
            n_batch: must be 0.

        Raises:
            UnsupportedArgumentError: ``n_dense`` or ``n_batch`` is not 0.
        """
        if n_dense or n_batch:
            msg = f"BCSR.from_scipy_sparse: n_batch={n_batch}, n_dense={n_dense}"
            raise UnsupportedArgumentError(msg, expected="0: matrices of SciPy have neither")
        csr = mat.tocsr()
        kind = csr.indices.dtype if index_dtype is None else as_dtype(index_dtype)
        arrays = (csr.data, csr.indices.astype(kind), csr.indptr.astype(kind))
        return cls(arrays, shape=csr.shape, indices_sorted=bool(csr.has_sorted_indices))

    def to_bcoo(self) -> BCOO:
        """The form in coordinates."""
        return _to_bcoo(self)

    def sum_duplicates(self, nse: int | None = None, remove_zeros: bool = True) -> BCSR:
        """The array with each of its coordinates once.

        Args:
            nse: number of stored elements of the result, as in ``bcoo_sum_duplicates``.
            remove_zeros: zeros that are stored become padding.
        """
        return _from_bcoo(without_duplicates(self.to_bcoo(), nse, remove_zeros))

    def transpose(self, axes: Sequence[int] | None = None) -> BCSR:
        """The array with its axes in another order, each among those of its kind.

        Args:
            axes: the axes of this array in the new order; None reverses them.
        """
        return BCSR.from_bcoo(transposed(self.to_bcoo(), axes))


def _check(data: Any, indices: Any, indptr: Any, shape: Shape) -> None:
    """Raise unless the arrays can be those of an array of this shape."""
    got = f"data {list(data.shape)}, indices {list(indices.shape)}, indptr {list(indptr.shape)}"
    for x in (indices, indptr):
        if not is_integer(x.dtype):
            msg = f"BCSR: coordinates have dtype {x.dtype.name}"
            raise DtypeMismatchError(msg, expected="integers")
    n = indices.ndim - 1
    fits = n >= 0 and data.ndim > n and indptr.ndim == n + 1 and len(shape) == data.ndim + 1
    if fits:
        fits = (
            data.shape[n] == indices.shape[n]
            and tuple(data.shape[n + 1 :]) == tuple(shape[n + 2 :])
            and indptr.shape[n] == shape[n] + 1
            and all(
                [
                    size in (1, wanted)
                    for x in (data, indices, indptr)
                    for size, wanted in zip(x.shape[:n], shape[:n], strict=True)
                ]
            )
        )
    if not fits:
        msg = f"BCSR: {got} for shape {shape}"
        expected = "data (*batch, nse, *dense), indices (*batch, nse), indptr (*batch, rows + 1)"
        raise ShapeMismatchError(msg, expected=f"{expected}, shape (*batch, rows, columns, *dense)")


@functools.partial(jit, inline=True)
def _to_bcoo(mat: BCSR) -> BCOO:
    rows = rows_of(mat.indptr, mat.nse).astype(mat.indices.dtype)
    rows, indices = tnp.broadcast_arrays(rows, mat.indices)
    return BCOO(
        (mat.data, tnp.stack([rows, indices], axis=-1)),
        shape=mat.shape,
        indices_sorted=mat.indices_sorted,
        unique_indices=mat.unique_indices,
    )


@functools.partial(jit, inline=True)
def _from_bcoo(mat: BCOO) -> BCSR:
    """From an array whose coordinates are in order."""
    keep = valid(mat.indices, sparse_sizes(mat))
    indptr = indptr_of(mat.indices[..., 0], keep, mat.shape[mat.n_batch])
    return BCSR(
        (mat.data, mat.indices[..., 1], indptr),
        shape=mat.shape,
        indices_sorted=True,
        unique_indices=mat.unique_indices,
    )


def check_bcsr(call: str, x: object, name: str = "mat") -> None:
    """Raise ArgumentTypeError unless ``x`` is a BCSR array."""
    if not isinstance(x, BCSR):
        msg = f"{call}: {name} is {kind_of(x)}, expected a BCSR array"
        raise ArgumentTypeError(msg, hint="BCSR.fromdense and BCSR.from_bcoo make one")


def bcsr_fromdense(
    mat: Any,
    *,
    nse: int | None = None,
    n_batch: int = 0,
    n_dense: int = 0,
    index_dtype: Any = "int32",
) -> BCSR:
    """The form of a dense array in compressed rows; arguments as in ``bcoo_fromdense``.

    Raises:
        UnsupportedArgumentError: the axes that are left are not two: rows and columns.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental import sparse
    >>> print(sparse.bcsr_fromdense(tnp.eye(2)).indptr)
    [0 1 2]
    """
    mat = tnp.asarray(mat)
    count, n_batch, n_dense = checked_nse("bcsr_fromdense", mat, nse, n_batch, n_dense)
    if mat.ndim - n_batch - n_dense != 2:
        msg = f"bcsr_fromdense: {mat.ndim - n_batch - n_dense} axes are rows and columns"
        raise UnsupportedArgumentError(msg, expected="2", hint="choose n_batch and n_dense")
    arrays = bcsr_fromdense_p.bind(
        mat, nse=count, n_batch=n_batch, n_dense=n_dense, index_dtype=as_dtype(index_dtype)
    )
    return BCSR(arrays, shape=mat.shape, indices_sorted=True, unique_indices=True)


@final
class BcsrFromdense(ByDefinition):
    """``mat`` -> data, columns and ends of rows; parameters as of ``bcsr_fromdense``."""

    name = "bcsr_fromdense"
    multiple_results = True
    cost = Cost.OTHER

    def define(self, mat: Any, **params: Any) -> tuple[Any, ...]:
        out = _from_bcoo(bcoo_fromdense(mat, **params))
        return out.data, out.indices, out.indptr


bcsr_fromdense_p = BcsrFromdense()


def bcsr_todense(mat: BCSR) -> Any:
    """The dense form of a BCSR array.

    Args:
        mat: the array. Elements with the same coordinates are added.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental import sparse
    >>> print(sparse.bcsr_todense(sparse.bcsr_fromdense(tnp.eye(2))))
    [[1. 0.]
     [0. 1.]]
    """
    check_bcsr("bcsr_todense", mat)
    return bcsr_todense_p.bind(mat.data, mat.indices, mat.indptr, spinfo=info_of(mat))


@final
class BcsrTodense(ByDefinition):
    """Data, columns and ends of rows -> the dense array."""

    name = "bcsr_todense"
    cost = Cost.OTHER

    def define(self, *arrays: Any, spinfo: SparseInfo) -> Any:
        return bcoo_todense(BCSR(arrays, **spinfo._asdict()).to_bcoo())


bcsr_todense_p = BcsrTodense()


def bcsr_extract(indices: Any, indptr: Any, mat: Any) -> Any:
    """The elements of a dense array at the coordinates of compressed rows.

    Args:
        indices: the columns, of shape ``(*batch, nse)``.
        indptr: where rows begin, of shape ``(*batch, rows + 1)``.
        mat: array of shape ``(*batch, rows, columns, *dense)``.

    Returns:
        Array of shape ``(*batch, nse, *dense)``.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental import sparse
    >>> m = sparse.bcsr_fromdense(tnp.eye(2))
    >>> print(sparse.bcsr_extract(m.indices, m.indptr, tnp.array([[1.0, 2.0], [3.0, 4.0]])))
    [1. 4.]
    """
    indices, indptr, mat = [tnp.asarray(x) for x in (indices, indptr, mat)]
    return bcsr_extract_p.bind(indices, indptr, mat)


@final
class BcsrExtract(ByDefinition):
    """Columns, ends of rows, and a dense array -> data."""

    name = "bcsr_extract"
    cost = Cost.OTHER

    def define(self, indices: Any, indptr: Any, mat: Any) -> Any:
        n = indices.ndim - 1
        like = tnp.zeros((*indices.shape, *mat.shape[n + 2 :]), mat.dtype)
        at = BCSR((like, indices, indptr), shape=mat.shape)
        return gathered(mat, at.to_bcoo())


bcsr_extract_p = BcsrExtract()


def bcsr_dot_general(
    lhs: Any,
    rhs: Any,
    *,
    dimension_numbers: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: None = None,
) -> Any:
    """The product of two arrays of which the first may be a BCSR array.

    Args:
        lhs: BCSR array, or array.
        rhs: array, or BCSR array.
        dimension_numbers: as in ``bcoo_dot_general``.
        precision: as in ``bcoo_dot_general``.
        preferred_element_type: as in ``bcoo_dot_general``.
        out_sharding: as in ``bcoo_dot_general``.

    Returns:
        An array; a BCOO array if both are sparse.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental import sparse
    >>> m = sparse.bcsr_fromdense(tnp.eye(2))
    >>> print(sparse.bcsr_dot_general(m, tnp.ones(2), dimension_numbers=(((1,), (0,)), ((), ()))))
    [1. 1.]
    """
    if out_sharding is None and isinstance(lhs, BCSR) and not isinstance(rhs, JAXSparse):
        rhs = tnp.asarray(rhs)
        dims = checked_dims("bcsr_dot_general", lhs, rhs, dimension_numbers)
        kind = None if preferred_element_type is None else as_dtype(preferred_element_type)
        return bcsr_dot_general_p.bind(
            lhs.data,
            lhs.indices,
            lhs.indptr,
            rhs,
            lhs_spinfo=info_of(lhs),
            dimension_numbers=dims.numbers(),
            preferred_element_type=kind,
        )
    lhs, rhs = [x.to_bcoo() if isinstance(x, BCSR) else x for x in (lhs, rhs)]
    return bcoo_dot_general(
        lhs,
        rhs,
        dimension_numbers=dimension_numbers,
        precision=precision,
        preferred_element_type=preferred_element_type,
        out_sharding=out_sharding,
    )


@final
class BcsrDotGeneral(ByDefinition):
    """Data, columns and ends of rows of the left, and the right, which is dense -> dense array."""

    name = "bcsr_dot_general"
    cost = Cost.CONTRACTION

    def define(
        self,
        *operands: Any,
        lhs_spinfo: SparseInfo,
        dimension_numbers: Any,
        preferred_element_type: Any,
    ) -> Any:
        *arrays, rhs = operands
        kind = preferred_element_type
        if kind is not None:
            arrays[0], rhs = arrays[0].astype(kind), rhs.astype(kind)
        lhs = BCSR(arrays, **lhs_spinfo._asdict())
        (left, right), (batch, _) = dimension_numbers
        if tuple(left) == (1,) and not batch:
            out = of_compressed(lhs, tnp.moveaxis(rhs, right[0], 0))
            if out is not None:
                return out
        return bcoo_dot_general(lhs.to_bcoo(), rhs, dimension_numbers=dimension_numbers)


bcsr_dot_general_p = BcsrDotGeneral()


register_format(BCSR, "data", "indices", "indptr")
register_batches(BCSR)
