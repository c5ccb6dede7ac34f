"""Axes of other kinds: bcoo_update_layout."""

from __future__ import annotations

import functools
import math
import warnings
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge._api.programs.jit import jit
from tracebridge.core.compat.traces import is_concrete
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.base import compose
from tracebridge.experimental.sparse._base import SparseEfficiencyError, SparseEfficiencyWarning
from tracebridge.experimental.sparse._bcoo.arguments import check_bcoo, check_kinds
from tracebridge.experimental.sparse._bcoo.array import BCOO
from tracebridge.experimental.sparse._bcoo.indices import (
    batch_index,
    batch_sizes,
    columns,
    dense_sizes,
    first_of_equals,
    joined,
    keys_of,
    padding,
    sparse_sizes,
    valid,
    widened,
    without_padding,
)
from tracebridge.experimental.sparse._bcoo.sorting import bcoo_sum_duplicates


def bcoo_update_layout(
    mat: BCOO,
    *,
    n_batch: int | None = None,
    n_dense: int | None = None,
    on_inefficient: str | None = "error",
) -> BCOO:
    """The same array with other kinds of axes.

    Args:
        mat: BCOO array.
        n_batch: number of axes of batches; None leaves it.
        n_dense: number of dense axes; None leaves it.
        on_inefficient: what to do where axes of more than one place become axes of batches or
            dense axes, which may store many zeros: ``"error"``, ``"warn"``, or None for nothing.

    Raises:
        SparseEfficiencyError: such axes are added, and ``on_inefficient`` is "error".
        ArgumentValueError: there are not so many axes, or no such ``on_inefficient``.

    >>> from tracebridge.experimental import sparse
    >>> m = sparse.eye(3)
    >>> sparse.bcoo_update_layout(m, n_batch=1, on_inefficient=None)
    BCOO(float32[3, 3], nse=1, n_batch=1)
    """
    call = "bcoo_update_layout"
    check_bcoo(call, mat)
    if on_inefficient not in ("error", "warn", None):
        msg = f"{call}: on_inefficient is {on_inefficient!r}, expected 'error', 'warn' or None"
        raise ArgumentValueError(msg)
    batch, dense = check_kinds(
        call,
        mat.n_batch if n_batch is None else n_batch,
        mat.n_dense if n_dense is None else n_dense,
        mat.ndim,
    )
    _check_efficient(mat, batch, dense, on_inefficient)
    out = mat
    if batch < out.n_batch:
        out = _fewer_batches(out, batch)
    if dense < out.n_dense:
        out = _fewer_dense(out, dense)
    if batch > out.n_batch:
        out = _more_batches(out, batch)
    if dense > out.n_dense:
        out = _more_dense(out, dense)
    return out


def _check_efficient(mat: BCOO, batch: int, dense: int, on_inefficient: str | None) -> None:
    """Raise, or warn, where more axes store as many elements along them as they have places."""
    more = [
        *mat.shape[mat.n_batch : batch],
        *mat.shape[mat.ndim - dense : mat.ndim - mat.n_dense],
    ]
    if on_inefficient is None or not any([n > 1 for n in more]):
        return
    msg = (
        f"bcoo_update_layout: shape {mat.shape}, n_batch {mat.n_batch} to {batch}, "
        f"n_dense {mat.n_dense} to {dense}: this stores zeros"
    )
    if on_inefficient == "error":
        raise SparseEfficiencyError(compose(msg, hint="on_inefficient='warn', or None"))
    warnings.warn(msg, SparseEfficiencyWarning, stacklevel=3)


@functools.partial(jit, static_argnums=1, inline=True)
def _fewer_batches(mat: BCOO, n_batch: int) -> BCOO:
    """Axes of batches become axes with coordinates."""
    mat = widened(mat)
    gone = batch_sizes(mat)[n_batch:]
    kept = batch_sizes(mat)[:n_batch]
    shape = (*mat.indices.shape[: mat.n_batch + 1], 1)
    numbers = [
        lax.broadcasted_iota(mat.indices.dtype, shape, n_batch + k) for k in range(len(gone))
    ]
    indices = tnp.concatenate([*numbers, mat.indices], axis=-1)
    count = math.prod(gone) * mat.nse
    sizes = (*gone, *sparse_sizes(mat))
    if not mat.n_sparse:
        sizes = gone
    return BCOO(
        (
            mat.data.reshape((*kept, count, *dense_sizes(mat))),
            indices.reshape((*kept, count, len(sizes))),
        ),
        shape=mat.shape,
        # Padding at the end of a batch is followed by elements of the next.
        indices_sorted=False,
        unique_indices=mat.unique_indices,
    )


@functools.partial(jit, static_argnums=1, inline=True)
def _fewer_dense(mat: BCOO, n_dense: int) -> BCOO:
    """Dense axes become axes with coordinates."""
    count = mat.n_dense - n_dense
    gone = dense_sizes(mat)[:count]
    many = math.prod(gone)
    n = mat.n_batch
    data = mat.data.reshape((*mat.data.shape[:n], mat.nse * many, *dense_sizes(mat)[count:]))
    grid = np.indices(gone).reshape(count, many).T.astype(mat.indices.dtype)
    lead = mat.indices.shape[:n]
    # Padding stays padding by its other coordinates; without any all elements are valid.
    old = tnp.broadcast_to(mat.indices[..., None, :], (*lead, mat.nse, many, mat.n_sparse))
    new = tnp.broadcast_to(tnp.asarray(grid), (*lead, mat.nse, many, count))
    indices = tnp.concatenate([old, new], axis=-1)
    return BCOO(
        (data, indices.reshape((*lead, mat.nse * many, mat.n_sparse + count))),
        shape=mat.shape,
        indices_sorted=mat.indices_sorted,
        unique_indices=mat.unique_indices,
    )


def _counted(count: Any, bound: int) -> int:
    """A number of elements: exact where it is known, else the bound."""
    return int(count) if is_concrete(count) else bound


def _more_batches(mat: BCOO, n_batch: int) -> BCOO:
    """Axes with coordinates become axes of batches."""
    if n_batch > mat.n_batch + mat.n_sparse:
        # The first of the dense axes have coordinates first.
        mat = _fewer_dense(mat, mat.ndim - n_batch)
    mat = bcoo_sum_duplicates(mat)
    more = n_batch - mat.n_batch
    bound = min(mat.nse, math.prod(sparse_sizes(mat)[more:]))
    nse = _counted(_largest_rank(mat, more), bound)
    return _into_batches(mat, n_batch, nse)


def _ranks(mat: BCOO, more: int) -> Any:
    """The number of each element among those with the same leading coordinates."""
    sizes = sparse_sizes(mat)[:more]
    keep = valid(mat.indices, sparse_sizes(mat))
    first = first_of_equals(keys_of(mat.indices[..., :more], sizes))
    numbers = lax.broadcasted_iota(np.dtype("int32"), first.shape, first.ndim - 1)
    begin = lax.cummax(tnp.where(first, numbers, 0), first.ndim - 1)
    return tnp.where(keep, numbers - begin, -1)


@functools.partial(jit, static_argnums=1, inline=True)
def _largest_rank(mat: BCOO, more: int) -> Any:
    return tnp.max(_ranks(mat, more), initial=-1) + 1


@functools.partial(jit, static_argnums=(1, 2), inline=True)
def _into_batches(mat: BCOO, n_batch: int, nse: int) -> BCOO:
    more = n_batch - mat.n_batch
    ranks = _ranks(mat, more)
    sizes = sparse_sizes(mat)[more:]
    found = columns(mat.indices)
    index = (
        *batch_index(batch_sizes(mat)),
        *found[:more],
        tnp.where(ranks < 0, nse, ranks),
    )
    lead = (*mat.shape[:n_batch], nse)
    data = tnp.zeros((*lead, *dense_sizes(mat)), mat.dtype).at[index].set(mat.data, mode="drop")
    rest = joined(found[more:], mat.indices)
    empty = tnp.broadcast_to(padding(sizes, mat.indices.dtype), (*lead, len(sizes)))
    return BCOO(
        (data, empty.at[index].set(rest, mode="drop")),
        shape=mat.shape,
        indices_sorted=True,
        unique_indices=True,
    )


def _more_dense(mat: BCOO, n_dense: int) -> BCOO:
    """Axes with coordinates become dense axes."""
    if n_dense > mat.n_dense + mat.n_sparse:
        mat = _fewer_batches(mat, mat.ndim - n_dense)
    mat = bcoo_sum_duplicates(mat)
    left = mat.n_sparse - (n_dense - mat.n_dense)
    bound = min(mat.nse, math.prod(sparse_sizes(mat)[:left]))
    nse = _counted(_largest_group(mat, left), bound)
    return _into_dense(mat, left, nse)


def _groups(mat: BCOO, left: int) -> Any:
    """The number of the group of elements with the same leading coordinates, -1 for padding."""
    keep = valid(mat.indices, sparse_sizes(mat))
    first = first_of_equals(keys_of(mat.indices[..., :left], sparse_sizes(mat)[:left]))
    return tnp.where(keep, tnp.cumsum(first, axis=-1, dtype="int32") - 1, -1)


@functools.partial(jit, static_argnums=1, inline=True)
def _largest_group(mat: BCOO, left: int) -> Any:
    return tnp.max(_groups(mat, left), initial=-1) + 1


@functools.partial(jit, static_argnums=(1, 2), inline=True)
def _into_dense(mat: BCOO, left: int, nse: int) -> BCOO:
    groups = _groups(mat, left)
    groups = tnp.where(groups < 0, nse, groups)
    found = columns(mat.indices)
    batch = batch_index(batch_sizes(mat))
    lead = (*batch_sizes(mat), nse)
    sizes = sparse_sizes(mat)
    data = tnp.zeros((*lead, *sizes[left:], *dense_sizes(mat)), mat.dtype)
    data = data.at[(*batch, groups, *found[left:])].set(without_padding(mat), mode="drop")
    empty = tnp.broadcast_to(padding(sizes[:left], mat.indices.dtype), (*lead, left))
    indices = empty.at[(*batch, groups)].set(joined(found[:left], mat.indices), mode="drop")
    return BCOO((data, indices), shape=mat.shape, indices_sorted=True, unique_indices=True)
