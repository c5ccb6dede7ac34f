"""Sums over axes: bcoo_reduce_sum."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import tracebridge.numpy as tnp
from tracebridge._api.programs.jit import jit
from tracebridge.experimental.sparse._bcoo.arguments import check_bcoo, checked_axes
from tracebridge.experimental.sparse._bcoo.array import BCOO
from tracebridge.experimental.sparse._bcoo.indices import (
    columns,
    joined,
    sparse_sizes,
    valid,
    widened,
    with_padding,
    without_padding,
)


def bcoo_reduce_sum(mat: BCOO, *, axes: Sequence[int]) -> BCOO:
    """Sum over axes; elements are not added up, but lose coordinates.

    Args:
        mat: BCOO array.
        axes: the axes. Elements of summed axes of batches join one batch.

    Raises:
        AxisError, ArgumentValueError: an axis is out of range, or named twice.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental import sparse
    >>> m = sparse.BCOO.fromdense(tnp.array([[1.0, 0.0], [2.0, 3.0]]))
    >>> print(sparse.bcoo_reduce_sum(m, axes=(0,)).todense())
    [3. 3.]
    """
    check_bcoo("bcoo_reduce_sum", mat)
    return _reduced(mat, tuple(sorted(checked_axes("bcoo_reduce_sum", axes, mat.ndim))))


@functools.partial(jit, static_argnums=1, inline=True)
def _reduced(mat: BCOO, axes: tuple[int, ...]) -> BCOO:
    if not axes:
        return mat
    b, s = mat.n_batch, mat.n_batch + mat.n_sparse
    batch = [a for a in axes if a < b]
    inner = [a - b for a in axes if b <= a < s]
    dense = tuple([a - mat.n_sparse + 1 for a in axes if a >= s])
    data, indices = mat.data, mat.indices
    unique = mat.unique_indices and not inner and not batch
    is_sorted = mat.indices_sorted and not inner and not batch
    if inner:
        old = sparse_sizes(mat)
        found = [c for k, c in enumerate(columns(indices)) if k not in inner]
        sizes = tuple([n for k, n in enumerate(old) if k not in inner])
        if sizes:
            indices = with_padding(joined(found, indices), sizes, valid(indices, old))
        else:
            # Nothing is left that could mark padding.
            data, indices = without_padding(mat), joined((), indices)
    if dense:
        data = tnp.sum(data, axis=dense, dtype=mat.dtype)
    shape = [n for a, n in enumerate(mat.shape) if a not in axes or a in batch]
    out = BCOO((data, indices), shape=shape, indices_sorted=is_sorted, unique_indices=unique)
    return _without_batches(out, batch) if batch else out


def _without_batches(mat: BCOO, batch: Sequence[int]) -> BCOO:
    """Axes of batches become part of the axis of elements."""
    mat = widened(mat)
    kept = [a for a in range(mat.n_batch) if a not in batch]
    count = math.prod([mat.shape[a] for a in batch])
    sizes = [mat.shape[a] for a in kept]
    data, indices = [
        tnp.transpose(x, (*kept, *batch, *range(mat.n_batch, x.ndim))).reshape(
            (*sizes, count * mat.nse, *x.shape[mat.n_batch + 1 :])
        )
        for x in (mat.data, mat.indices)
    ]
    shape = [n for a, n in enumerate(mat.shape) if a not in batch]
    return BCOO((data, indices), shape=shape)
