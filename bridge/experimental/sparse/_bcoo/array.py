"""The class BCOO: stored elements and their coordinates, for each batch."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Self, final

import tracebridge.numpy as tnp
from tracebridge.core.dtypes.dtypes import is_integer
from tracebridge.core.errors.dtype_errors import DtypeMismatchError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.util.public_path import public_path
from tracebridge.experimental.sparse._base import (
    Format,
    Shape,
    register_format,
    with_elements,
)
from tracebridge.experimental.sparse._batches import register_batches


def _function(name: str) -> Callable[..., Any]:
    """A function of the module of methods, which is loaded with the first one."""
    return getattr(importlib.import_module("tracebridge.experimental.sparse._bcoo.methods"), name)


@public_path("tracebridge.experimental.sparse")
@final
class BCOO(Format):
    """A sparse array in batched coordinates.

    Its axes are, in this order, ``n_batch`` axes of batches, which have their own coordinates,
    ``n_sparse`` axes with coordinates, and ``n_dense`` axes along which elements are stored
    whole. Elements with the same coordinates add up. Elements whose coordinates lie outside of
    the shape are padding: they count as if they were not there.

    Args:
        args: ``(data, indices)``. ``data`` has shape ``(*batch, nse, *dense)``, ``indices`` has
            shape ``(*batch, nse, n_sparse)`` and an integer dtype; axes of batches may have size
            1 in one of them, for all batches alike.
        shape: shape of the dense array: ``(*batch, *sparse, *dense)``.
        indices_sorted: the coordinates are known to be in lexicographic order.
        unique_indices: no coordinates within the shape occur twice.

    Raises:
        ShapeMismatchError: the arrays do not belong to an array of that shape.
        DtypeMismatchError: ``indices`` are no integers.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental import sparse
    >>> m = sparse.BCOO((tnp.array([2.0, 3.0]), tnp.array([[0, 1], [1, 0]])), shape=(2, 2))
    >>> m
    BCOO(float32[2, 2], nse=2)
    >>> print(m.todense())
    [[0. 2.]
     [3. 0.]]
    >>> print(m @ tnp.array([1.0, 10.0]))
    [20.  3.]
    """

    __slots__ = ("indices", "indices_sorted", "unique_indices")

    _arrays = ("data", "indices")
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
        self.data, self.indices = [tnp.asarray(x) for x in args]
        self.indices_sorted = bool(indices_sorted)
        self.unique_indices = bool(unique_indices)
        _check(self.data, self.indices, self.shape)

    @property
    def nse(self) -> int:
        """Number of stored elements, of each batch."""
        return self.indices.shape[-2]

    @property
    def n_batch(self) -> int:
        """Number of axes of batches."""
        return self.indices.ndim - 2

    @property
    def n_sparse(self) -> int:
        """Number of axes with coordinates."""
        return self.indices.shape[-1]

    @property
    def n_dense(self) -> int:
        """Number of axes along which elements are stored whole."""
        return self.data.ndim - self.indices.ndim + 1

    @classmethod
    def fromdense(
        cls,
        mat: Any,
        *,
        nse: int | None = None,
        index_dtype: Any = "int32",
        n_dense: int = 0,
        n_batch: int = 0,
    ) -> Self:
        """The sparse form of a dense array; arguments as in ``bcoo_fromdense``."""
        return _function("bcoo_fromdense")(
            mat, nse=nse, n_batch=n_batch, n_dense=n_dense, index_dtype=index_dtype
        )

    @classmethod
    def from_scipy_sparse(
        cls, mat: Any, *, index_dtype: Any = None, n_dense: int = 0, n_batch: int = 0
    ) -> Self:
        """The form of a matrix of SciPy.

        Args:
            mat: a matrix or array of ``scipy.sparse``.
            index_dtype: dtype of the coordinates; None keeps it.
            n_dense: must be 0.
            n_batch: must be 0.

        Raises:
            UnsupportedArgumentError: ``n_dense`` or ``n_batch`` is not 0.
        """
        return _function("from_scipy")(mat, index_dtype, n_dense, n_batch)

    def update_layout(
        self,
        *,
        n_batch: int | None = None,
        n_dense: int | None = None,
        on_inefficient: str | None = "error",
    ) -> Self:
        """The array with other kinds of axes; arguments as in ``bcoo_update_layout``."""
        return _function("bcoo_update_layout")(
            self, n_batch=n_batch, n_dense=n_dense, on_inefficient=on_inefficient
        )

    def sum_duplicates(self, nse: int | None = None, remove_zeros: bool = True) -> Self:
        """The array with sorted coordinates, each once.

        Args:
            nse: number of stored elements of the result, as in ``bcoo_sum_duplicates``.
            remove_zeros: zeros that are stored become padding.
        """
        return _function("without_duplicates")(self, nse, remove_zeros)

    def sort_indices(self) -> Self:
        """The array with its coordinates in lexicographic order."""
        return _function("bcoo_sort_indices")(self)

    def transpose(self, axes: Sequence[int] | None = None) -> Self:
        """The array with its axes in another order, each among those of its kind.

        Args:
            axes: the axes of this array in the new order; None reverses them.
        """
        return _function("transposed")(self, axes)

    def reshape(self, *args: Any, **kwargs: Any) -> Self:
        """The array in another shape; one size may be -1.

        Args:
            *args: the sizes, one by one or as a tuple.
            **kwargs: further arguments of ``bcoo_reshape``.
        """
        return _function("reshaped")(self, args, kwargs)

    def astype(self, *args: Any, **kwargs: Any) -> Self:
        """The array with elements of another dtype.

        Args:
            *args: arguments of ``astype`` of arrays, the dtype first.
            **kwargs: its arguments by keyword.
        """
        return with_elements(self, self.data.astype(*args, **kwargs))


def _check(data: Any, indices: Any, shape: Shape) -> None:
    """Raise unless the arrays can be those of an array of this shape."""
    got = f"data {data.dtype.name}{list(data.shape)}, indices {list(indices.shape)}"
    if not is_integer(indices.dtype):
        msg = f"BCOO: indices have dtype {indices.dtype.name}"
        raise DtypeMismatchError(msg, expected="integers")
    n_batch = indices.ndim - 2
    if n_batch < 0 or data.ndim < n_batch + 1:
        msg = f"BCOO: {got}"
        raise ShapeMismatchError(
            msg, expected="data (*batch, nse, *dense), indices (*batch, nse, n_sparse)"
        )
    n_dense = data.ndim - n_batch - 1
    n_sparse = indices.shape[-1]
    if n_batch + n_sparse + n_dense != len(shape):
        msg = f"BCOO: {got} for shape {shape}"
        expected = f"{n_batch} axes of batches, {n_sparse} with coordinates, {n_dense} dense"
        raise ShapeMismatchError(msg, expected=f"a shape of {expected}")
    batches = [
        n in (1, wanted)
        for x in (data, indices)
        for n, wanted in zip(x.shape[:n_batch], shape[:n_batch], strict=True)
    ]
    fits = data.shape[n_batch] == indices.shape[-2] and data.shape[n_batch + 1 :] == tuple(
        shape[n_batch + n_sparse :]
    )
    if not (all(batches) and fits):
        msg = f"BCOO: {got} for shape {shape}"
        expected = (
            f"data {[*shape[:n_batch], indices.shape[-2], *shape[n_batch + n_sparse :]]}, "
            f"indices {[*shape[:n_batch], indices.shape[-2], n_sparse]}"
        )
        raise ShapeMismatchError(msg, expected=expected)


register_format(BCOO, "data", "indices")
register_batches(BCOO)
