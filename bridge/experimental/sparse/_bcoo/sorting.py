"""Order and equal coordinates: bcoo_sort_indices, bcoo_sum_duplicates."""

from __future__ import annotations

import functools
from typing import Any

import tracebridge.numpy as tnp
from tracebridge._api.programs.jit import jit
from tracebridge.core.compat.traces import is_concrete
from tracebridge.core.errors.argument_errors import ArgumentValueError, index_of
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
    return mat if mat.indices_sorted else _sorted(mat)


@functools.partial(jit, inline=True)
def _sorted(mat: BCOO) -> BCOO:
    mat = widened(mat)
    positions = order_of(keys_of(mat.indices, sparse_sizes(mat)))[-1]
    return BCOO(
        (taken(mat.data, positions), taken(mat.indices, positions)),
        shape=mat.shape,
        indices_sorted=True,
        unique_indices=mat.unique_indices,
    )


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
    return _merged(mat, count, remove_zeros)


def _cleaned(mat: BCOO, remove_zeros: bool) -> BCOO:
    """The array with its zeros as padding."""
    mat = widened(mat)
    if not remove_zeros:
        return mat
    axes = tuple(range(mat.n_batch + 1, mat.data.ndim))
    keep = tnp.any(mat.data != 0, axis=axes)
    indices = with_padding(mat.indices, sparse_sizes(mat), keep)
    return BCOO((mat.data, indices), shape=mat.shape)


@functools.partial(jit, static_argnums=1, inline=True)
def _count(mat: BCOO, remove_zeros: bool) -> Any:
    """The largest number of different coordinates in a batch."""
    mat = _cleaned(mat, remove_zeros)
    *ordered, positions = order_of(keys_of(mat.indices, sparse_sizes(mat)))
    first = first_of_equals(ordered) & taken(valid(mat.indices, sparse_sizes(mat)), positions)
    return tnp.max(tnp.sum(first, axis=-1, dtype="int32"), initial=0)


@functools.partial(jit, static_argnums=(1, 2), inline=True)
def _merged(mat: BCOO, nse: int, remove_zeros: bool) -> BCOO:
    mat = _cleaned(mat, remove_zeros)
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
    return BCOO(
        (sums.astype(mat.dtype), places.at[index].set(indices, mode="drop")),
        shape=mat.shape,
        indices_sorted=True,
        unique_indices=True,
    )
