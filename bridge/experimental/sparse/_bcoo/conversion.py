"""Between dense and sparse arrays: bcoo_fromdense, bcoo_todense, bcoo_extract."""

from __future__ import annotations

import functools
import math
from typing import Any, final

import numpy as np

import tracebridge.numpy as tnp
from tracebridge._api.programs.jit import jit
from tracebridge.core.control.calls.by_definition import ByDefinition
from tracebridge.core.dtypes.dtypes import as_dtype
from tracebridge.core.errors.argument_errors import (
    ArgumentValueError,
    UnsupportedArgumentError,
    index_of,
)
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.typeof import as_value
from tracebridge.experimental.sparse._base import SparseInfo, info_of
from tracebridge.experimental.sparse._bcoo.arguments import check_bcoo, check_kinds
from tracebridge.experimental.sparse._bcoo.array import BCOO
from tracebridge.experimental.sparse._bcoo.indices import (
    batch_index,
    batch_sizes,
    cleared,
    columns,
    dense_sizes,
    first_of_equals,
    joined,
    keys_of,
    not_negative,
    order_of,
    sparse_sizes,
    taken,
    widened,
)
from tracebridge.numpy._staging import concrete


def bcoo_fromdense(
    mat: Any,
    *,
    nse: int | None = None,
    n_batch: int = 0,
    n_dense: int = 0,
    index_dtype: Any = "int32",
) -> BCOO:
    """The sparse form of a dense array.

    Args:
        mat: array of shape ``(*batch, *sparse, *dense)``.
        nse: number of stored elements, of each batch; None counts those that are not zero, which
            needs their values. Where it is larger the rest is padding, where it is smaller the
            last ones are left out.
        n_batch: number of leading axes with coordinates of their own.
        n_dense: number of trailing axes along which elements are stored whole.
        index_dtype: dtype of the coordinates.

    Returns:
        A BCOO array with sorted and unique coordinates.

    Raises:
        ArgumentValueError: ``nse`` is negative, or the axes are more than those of ``mat``.
        ConcretizationTypeError: ``nse`` is None while ``mat`` is traced.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental import sparse
    >>> m = sparse.bcoo_fromdense(tnp.array([[0.0, 5.0], [7.0, 0.0]]))
    >>> print(m.indices)
    [[0 1]
     [1 0]]
    """
    mat = tnp.asarray(mat)
    count, n_batch, n_dense = checked_nse("bcoo_fromdense", mat, nse, n_batch, n_dense)
    data, indices = bcoo_fromdense_p.bind(
        mat,
        nse=count,
        n_batch=n_batch,
        n_dense=n_dense,
        index_dtype=as_dtype(index_dtype),
    )
    return BCOO((data, indices), shape=mat.shape, indices_sorted=True, unique_indices=True)


@final
class BcooFromdense(ByDefinition):
    """``mat`` -> data and coordinates; parameters as of ``bcoo_fromdense``."""

    name = "bcoo_fromdense"
    multiple_results = True
    cost = Cost.OTHER

    def define(
        self, mat: Any, *, nse: int, n_batch: int, n_dense: int, index_dtype: Any
    ) -> tuple[Any, Any]:
        return _fromdense(mat, nse, n_batch, n_dense, index_dtype)


bcoo_fromdense_p = BcooFromdense()


def checked_nse(call: str, mat: Any, nse: Any, n_batch: int, n_dense: int) -> tuple[int, int, int]:
    """How many elements to store of each batch, and the numbers of axes.

    Raises:
        ArgumentValueError: ``nse`` is negative, or the axes are more than those of ``mat``.
        ConcretizationTypeError: ``nse`` is None while ``mat`` is traced.
    """
    n_batch, n_dense = check_kinds(call, n_batch, n_dense, mat.ndim)
    if nse is None:
        count = stored_count(call, _count(mat, n_batch, n_dense))
    else:
        count = index_of(nse, call, "nse")
    if count < 0:
        msg = f"{call}: nse is {count}, expected at least 0"
        raise ArgumentValueError(msg)
    return count, n_batch, n_dense


def stored_count(call: str, count: Any) -> int:
    """A number of elements that was counted, as an int.

    Raises:
        ConcretizationTypeError: it is traced.
    """
    return int(
        concrete(
            as_value(count),
            f"{call}: the number of stored elements is the size of the result",
            "say how many elements to store, as nse=...",
        )
    )


@functools.partial(jit, static_argnums=(1, 2), inline=True)
def _count(mat: Any, n_batch: int, n_dense: int) -> Any:
    """The largest number of elements in a batch that are not zero."""
    mask = _mask(mat, n_dense)
    count = tnp.sum(mask, axis=tuple(range(n_batch, mask.ndim)), dtype="int32")
    return tnp.max(count, initial=0)


def _mask(mat: Any, n_dense: int) -> Any:
    return tnp.any(mat != 0, axis=tuple(range(mat.ndim - n_dense, mat.ndim)))


def _fromdense(mat: Any, nse: int, n_batch: int, n_dense: int, index_dtype: Any) -> tuple[Any, Any]:
    mask = _mask(mat, n_dense)
    batch, sizes = mask.shape[:n_batch], mask.shape[n_batch:]
    positions, keep = _chosen(mask.reshape((*batch, math.prod(sizes))), nse)
    found: list[Any] = []
    rest = positions
    for size in reversed(sizes):
        found.insert(0, tnp.where(keep, rest % max(size, 1), size))
        rest = rest // max(size, 1)
    indices = joined(found, tnp.zeros((*batch, nse, 1), index_dtype))
    flat = mat.reshape((*batch, math.prod(sizes), *mat.shape[mat.ndim - n_dense :]))
    if not sizes:
        # Where there are no coordinates zeros are elements as any others: they may change.
        data = tnp.where(_at_first(nse, flat.ndim - n_batch), flat, tnp.zeros((), mat.dtype))
    elif math.prod(sizes) == 0:
        data = tnp.zeros((*batch, nse, *flat.shape[n_batch + 1 :]), mat.dtype)
    else:
        data = cleared(taken(flat, positions), keep)
    return data, indices


def _at_first(nse: int, ndim: int) -> Any:
    """True for the first element of each batch."""
    return (tnp.arange(nse) == 0).reshape((nse, *[1] * (ndim - 1)))


def _chosen(mask: Any, nse: int) -> tuple[Any, Any]:
    """Positions of the first ``nse`` that are true in each row, and whether there are so many."""
    size = mask.shape[-1]
    numbers = tnp.cumsum(mask, axis=-1, dtype="int32")
    batch = mask.shape[:-1]
    # What is false, or one too many, is written outside and dropped.
    places = tnp.where(mask, numbers - 1, nse)
    index = (*batch_index(batch), places)
    source = tnp.broadcast_to(tnp.arange(size, dtype="int32"), mask.shape)
    positions = tnp.zeros((*batch, nse), "int32").at[index].set(source, mode="drop")
    total = numbers[..., -1:] if size else tnp.zeros((*batch, 1), "int32")
    return positions, tnp.arange(nse, dtype="int32") < total


def bcoo_todense(mat: BCOO) -> Any:
    """The dense form of a BCOO array.

    Args:
        mat: the array. Elements with the same coordinates are added.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental import sparse
    >>> print(sparse.bcoo_todense(sparse.eye(2)))
    [[1. 0.]
     [0. 1.]]
    """
    check_bcoo("bcoo_todense", mat)
    return bcoo_todense_p.bind(mat.data, mat.indices, spinfo=info_of(mat))


@final
class BcooTodense(ByDefinition):
    """Data and coordinates -> the dense array."""

    name = "bcoo_todense"
    cost = Cost.OTHER

    def define(self, data: Any, indices: Any, *, spinfo: SparseInfo) -> Any:
        return _todense(BCOO((data, indices), **spinfo._asdict()))


bcoo_todense_p = BcooTodense()


def _todense(mat: BCOO) -> Any:
    if mat.n_sparse == 0:
        return tnp.sum(widened(mat).data, axis=mat.n_batch).astype(mat.dtype)
    sizes = sparse_sizes(mat)
    if mat.dtype == bool:
        # Scatters of truth values do not add.
        return _todense(mat.astype("int32")) > 0
    mat = widened(mat)
    indices = not_negative(mat.indices, sizes)
    index = (*batch_index(batch_sizes(mat)), *columns(indices))
    return (
        tnp.zeros(mat.shape, mat.dtype)
        .at[index]
        .add(
            mat.data,
            mode="drop",
            indices_are_sorted=mat.indices_sorted,
        )
    )


def gathered(arr: Any, mat: BCOO) -> Any:
    """The elements of a dense array of the shape of ``mat`` at its coordinates, zero at padding."""
    sizes = sparse_sizes(mat)
    indices = tnp.broadcast_to(
        not_negative(mat.indices, sizes), (*batch_sizes(mat), *mat.indices.shape[mat.n_batch :])
    )
    if mat.n_sparse == 0:
        shape = (*batch_sizes(mat), mat.nse, *dense_sizes(mat))
        return tnp.broadcast_to(tnp.expand_dims(arr, mat.n_batch), shape)
    index = (*batch_index(batch_sizes(mat)), *columns(indices))
    return arr.at[index].get(
        mode="fill", fill_value=0, indices_are_sorted=mat.indices_sorted and mat.n_batch == 0
    )


def bcoo_extract(sparr: BCOO, arr: Any, *, assume_unique: bool | None = None) -> BCOO:
    """The elements of a dense array at the coordinates of a sparse one.

    Args:
        sparr: BCOO array with the coordinates.
        arr: array of the same shape.
        assume_unique: whether each element of ``arr`` goes to all equal coordinates. Otherwise
            it goes to the first of them, and zeros to the others, so that the result has the
            values of ``arr``. None: as ``sparr.unique_indices`` says.

    Returns:
        A BCOO array with the coordinates of ``sparr``.

    Raises:
        ShapeMismatchError: ``arr`` has another shape.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental import sparse
    >>> print(sparse.bcoo_extract(sparse.eye(2), tnp.array([[1.0, 2.0], [3.0, 4.0]])).data)
    [1. 4.]
    """
    check_bcoo("bcoo_extract", sparr, "sparr")
    arr = tnp.asarray(arr)
    if arr.shape != sparr.shape:
        msg = f"bcoo_extract: arr has shape {arr.shape}, sparr {sparr.shape}"
        raise ShapeMismatchError(msg, expected="the same shape")
    unique = sparr.unique_indices if assume_unique is None else bool(assume_unique)
    data = bcoo_extract_p.bind(sparr.indices, arr, assume_unique=unique)
    return BCOO(
        (data, sparr.indices),
        shape=sparr.shape,
        indices_sorted=sparr.indices_sorted,
        unique_indices=sparr.unique_indices,
    )


@final
class BcooExtract(ByDefinition):
    """Coordinates and a dense array -> data; ``assume_unique`` as of ``bcoo_extract``."""

    name = "bcoo_extract"
    cost = Cost.OTHER

    def define(self, indices: Any, arr: Any, *, assume_unique: bool) -> Any:
        n_batch, n_sparse = indices.ndim - 2, indices.shape[-1]
        shape = arr.shape[n_batch + n_sparse :]
        like = tnp.zeros((*[1] * n_batch, indices.shape[-2], *shape), arr.dtype)
        return _extract(BCOO((like, indices), shape=arr.shape), arr, assume_unique)


bcoo_extract_p = BcooExtract()


def _extract(sparr: BCOO, arr: Any, unique: bool) -> Any:
    data = gathered(arr, sparr)
    if not unique:
        keys = keys_of(widened(sparr).indices, sparse_sizes(sparr))
        *ordered, positions = order_of(keys)
        first = first_of_equals(ordered)
        data = cleared(data, taken(first, order_of([positions])[-1]))
    return data


def from_scipy(mat: Any, index_dtype: Any, n_dense: int, n_batch: int) -> BCOO:
    """A matrix of SciPy in coordinates."""
    if n_dense or n_batch:
        msg = f"BCOO.from_scipy_sparse: n_batch={n_batch}, n_dense={n_dense}"
        raise UnsupportedArgumentError(
            msg, expected="0: matrices of SciPy have neither", hint="use bcoo_update_layout then"
        )
    coo = mat.tocoo()
    coords = coo.coords if hasattr(coo, "coords") else (coo.row, coo.col)
    indices = np.stack([np.asarray(c) for c in coords], axis=-1)
    if index_dtype is not None:
        indices = indices.astype(as_dtype(index_dtype).name)
    return BCOO((tnp.asarray(coo.data), tnp.asarray(indices)), shape=coo.shape)
