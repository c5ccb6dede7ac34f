"""Order and equal coordinates: bcoo_sort_indices, bcoo_sum_duplicates."""

from __future__ import annotations

import functools
from typing import Any, final

import tracebridge.numpy as tnp
from tracebridge._api.programs.jit import jit
from tracebridge.core.compat.traces import is_concrete
from tracebridge.core.control.calls.by_definition import ByDefinition
from tracebridge.core.errors.argument_errors import ArgumentValueError, index_of
from tracebridge.core.ir.cost import Cost
from tracebridge.experimental.sparse._base import SparseInfo, info_of
from tracebridge.experimental.sparse._bcoo.arguments import check_bcoo
from tracebridge.experimental.sparse._bcoo.array import BCOO
from tracebridge.experimental.sparse._bcoo.indices import (
    batch_index,
    batch_sizes,
    first_of_equals,
    keys_of,
    order_of,
    padding,
    sparse_sizes,
    taken,
    valid,
    widened,
    with_padding,
)


def bcoo_sort_indices(mat: BCOO) -> BCOO:
    """The array with its coordinates in lexicographic order, padding last.

    Args:
        mat: BCOO array.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental import sparse
    >>> m = sparse.BCOO((tnp.array([1.0, 2.0]), tnp.array([[1], [0]])), shape=(2,))
    >>> print(sparse.bcoo_sort_indices(m).data)
    [2. 1.]
    """
    check_bcoo("bcoo_sort_indices", mat)
    if mat.indices_sorted:
        return mat
    data, indices = bcoo_sort_indices_p.bind(mat.data, mat.indices, spinfo=info_of(mat))
    return BCOO(
        (data, indices), shape=mat.shape, indices_sorted=True, unique_indices=mat.unique_indices
    )


@final
class BcooSortIndices(ByDefinition):
    """Data and coordinates -> both in the order of the coordinates."""

    name = "bcoo_sort_indices"
    multiple_results = True
    cost = Cost.OTHER

    def define(self, data: Any, indices: Any, *, spinfo: SparseInfo) -> tuple[Any, Any]:
        mat = BCOO((data, indices), shape=spinfo.shape)
        positions = order_of(keys_of(indices, sparse_sizes(mat)))[-1]
        indices = taken(indices, positions)
        # Coordinates that all batches share stay shared.
        n = mat.n_batch
        batch = tuple(map(max, data.shape[:n], positions.shape[:n]))
        data = tnp.broadcast_to(data, (*batch, *data.shape[n:]))
        return taken(data, tnp.broadcast_to(positions, (*batch, mat.nse))), indices


bcoo_sort_indices_p = BcooSortIndices()


def bcoo_sum_duplicates(mat: BCOO, nse: int | None = None) -> BCOO:
    """The array with sorted coordinates, each once; elements of equal ones are added.

    Args:
        mat: BCOO array.
        nse: number of stored elements of the result, of each batch. None: as many as there are
            different coordinates, in traced code as many as ``mat`` has. Where it is larger the
            rest is padding, where it is smaller the last ones are left out.

    Raises:
        ArgumentValueError: ``nse`` is negative.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental import sparse
    >>> m = sparse.BCOO((tnp.array([1.0, 2.0]), tnp.array([[1], [1]])), shape=(3,))
    >>> print(sparse.bcoo_sum_duplicates(m).data)
    [3.]
    """
    return without_duplicates(mat, nse, False)


def without_duplicates(mat: BCOO, nse: int | None, remove_zeros: bool) -> BCOO:
    """The array with sorted coordinates, each once, without zeros if these are to go."""
    check_bcoo("bcoo_sum_duplicates", mat)
    if nse is None:
        count: Any = _count(mat, remove_zeros)
        # A traced count is no size: the number of elements stays.
        count = int(count) if is_concrete(count) else mat.nse
    else:
        count = index_of(nse, "bcoo_sum_duplicates", "nse")
        if count < 0:
            msg = f"bcoo_sum_duplicates: nse is {count}, expected at least 0"
            raise ArgumentValueError(msg)
    mat = _cleaned(mat, remove_zeros)
    data, indices = bcoo_sum_duplicates_p.bind(
        mat.data, mat.indices, spinfo=info_of(mat), nse=count
    )
    return BCOO((data, indices), shape=mat.shape, indices_sorted=True, unique_indices=True)


@final
class BcooSumDuplicates(ByDefinition):
    """Data and coordinates -> those of ``nse`` elements with different coordinates."""

    name = "bcoo_sum_duplicates"
    multiple_results = True
    cost = Cost.OTHER

    def define(
        self, data: Any, indices: Any, *, spinfo: SparseInfo, nse: int | None
    ) -> tuple[Any, Any]:
        mat = BCOO((data, indices), shape=spinfo.shape)
        return _merged(widened(mat), mat.nse if nse is None else nse)


bcoo_sum_duplicates_p = BcooSumDuplicates()


@functools.partial(jit, static_argnums=1, inline=True)
def _cleaned(mat: BCOO, remove_zeros: bool) -> BCOO:
    """The array with its zeros as padding."""
    if not remove_zeros:
        return mat
    mat = widened(mat)
    axes = tuple(range(mat.n_batch + 1, mat.data.ndim))
    keep = tnp.any(mat.data != 0, axis=axes)
    indices = with_padding(mat.indices, sparse_sizes(mat), keep)
    return BCOO((mat.data, indices), shape=mat.shape)


@functools.partial(jit, static_argnums=1, inline=True)
def _count(mat: BCOO, remove_zeros: bool) -> Any:
    """The largest number of different coordinates in a batch."""
    mat = widened(_cleaned(mat, remove_zeros))
    *ordered, positions = order_of(keys_of(mat.indices, sparse_sizes(mat)))
    first = first_of_equals(ordered) & taken(valid(mat.indices, sparse_sizes(mat)), positions)
    return tnp.max(tnp.sum(first, axis=-1, dtype="int32"), initial=0)


def _merged(mat: BCOO, nse: int) -> tuple[Any, Any]:
    sizes, batch = sparse_sizes(mat), batch_sizes(mat)
    *ordered, positions = order_of(keys_of(mat.indices, sizes))
    indices = taken(mat.indices, positions)
    keep = valid(indices, sizes)
    groups = tnp.cumsum(first_of_equals(ordered), axis=-1, dtype="int32") - 1
    index = (*batch_index(batch), tnp.where(keep, groups, nse))
    shape = (*batch, nse, *mat.data.shape[mat.n_batch + 1 :])
    data = taken(mat.data, positions)
    kind = "int32" if mat.dtype == bool else mat.dtype
    sums = tnp.zeros(shape, kind).at[index].add(data.astype(kind), mode="drop")
    places = tnp.broadcast_to(padding(sizes, indices.dtype), (*batch, nse, len(sizes)))
    return sums.astype(mat.dtype), places.at[index].set(indices, mode="drop")
