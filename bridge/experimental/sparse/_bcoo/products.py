"""Elementwise products: bcoo_multiply_dense, bcoo_multiply_sparse."""

from __future__ import annotations

import functools
from typing import Any

import tracebridge.numpy as tnp
from tracebridge._api.programs.jit import jit
from tracebridge.core.errors.shape_errors import BroadcastError
from tracebridge.experimental.sparse._bcoo.arguments import check_bcoo
from tracebridge.experimental.sparse._bcoo.array import BCOO
from tracebridge.experimental.sparse._bcoo.conversion import gathered
from tracebridge.experimental.sparse._bcoo.indices import (
    cleared,
    joined,
    matches,
    sparse_sizes,
    taken,
    widened,
    with_padding,
)
from tracebridge.experimental.sparse._bcoo.layouts import bcoo_update_layout
from tracebridge.experimental.sparse._bcoo.moves import bcoo_broadcast_in_dim
from tracebridge.experimental.sparse._bcoo.sorting import bcoo_sum_duplicates
from tracebridge.numpy._promote import broadcast_shape


def bcoo_multiply_dense(sp_mat: BCOO, v: Any) -> Any:
    """The elements of the product of a sparse and a dense array.

    Args:
        sp_mat: BCOO array.
        v: array that broadcasts to the shape of ``sp_mat``.

    Returns:
        The data of a BCOO array with the coordinates of ``sp_mat``.

    Raises:
        BroadcastError: ``v`` does not broadcast to the shape.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental import sparse
    >>> print(sparse.bcoo_multiply_dense(sparse.eye(3), tnp.array([1.0, 2.0, 3.0])))
    [1. 2. 3.]
    """
    check_bcoo("bcoo_multiply_dense", sp_mat, "sp_mat")
    v = tnp.asarray(v)
    pairs = zip(v.shape[::-1], sp_mat.shape[::-1], strict=False)
    if v.ndim > sp_mat.ndim or any([n not in (1, m) for n, m in pairs]):
        msg = f"bcoo_multiply_dense: v of shape {v.shape}, sp_mat of shape {sp_mat.shape}"
        raise BroadcastError(msg, expected="a shape that broadcasts to that of sp_mat")
    return _times_dense(sp_mat, v)


@functools.partial(jit, inline=True)
def _times_dense(mat: BCOO, v: Any) -> Any:
    if v.ndim == 0:
        return mat.data * v
    v = v.reshape((*[1] * (mat.ndim - v.ndim), *v.shape))
    return mat.data * at_coordinates(v, mat)


def at_coordinates(v: Any, mat: BCOO) -> Any:
    """Elements of an array with as many axes as ``mat``, each of its size or of size 1."""
    b = mat.n_batch
    kept = [k for k in range(mat.n_sparse) if v.shape[b + k] == mat.shape[b + k]]
    gone = [b + k for k in range(mat.n_sparse) if k not in kept]
    indices = joined([mat.indices[..., k] for k in kept], mat.indices)
    # Axes of batches along which neither changes are those of one batch.
    shape = tuple([
        1 if v.shape[a] == 1 and indices.shape[a] == 1 else mat.shape[a] for a in range(b)
    ])  # fmt: skip
    inner = tuple([mat.shape[b + k] for k in kept])
    dense = v.shape[b + mat.n_sparse :]
    v = tnp.broadcast_to(tnp.squeeze(v, tuple(gone)), (*shape, *inner, *dense))
    like = tnp.zeros((*[1] * b, mat.nse, *dense), mat.dtype)
    at = BCOO(
        (like, indices),
        shape=(*shape, *inner, *dense),
        indices_sorted=mat.indices_sorted and not gone,
    )
    return gathered(v, at)


def bcoo_multiply_sparse(lhs: BCOO, rhs: BCOO) -> BCOO:
    """The elementwise product of two sparse arrays.

    Args:
        lhs: BCOO array.
        rhs: BCOO array; the shapes broadcast.

    Returns:
        A BCOO array. It stores as many elements as one of the two does; where the other has no
        element there is padding.

    Raises:
        BroadcastError: the shapes do not broadcast.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental import sparse
    >>> m = sparse.BCOO.fromdense(tnp.array([[2.0, 3.0], [0.0, 4.0]]))
    >>> print(sparse.bcoo_multiply_sparse(m, sparse.eye(2)).todense())
    [[2. 0.]
     [0. 4.]]
    """
    check_bcoo("bcoo_multiply_sparse", lhs, "lhs")
    check_bcoo("bcoo_multiply_sparse", rhs, "rhs")
    lhs, rhs = same_layout("bcoo_multiply_sparse", lhs, rhs)
    if rhs.unique_indices and (not lhs.unique_indices or rhs.nse > lhs.nse):
        return _times_sparse(lhs, rhs, False)
    if lhs.unique_indices:
        return _times_sparse(rhs, lhs, True)
    return _times_sparse(lhs, bcoo_sum_duplicates(rhs), False)


def same_layout(call: str, lhs: BCOO, rhs: BCOO) -> tuple[BCOO, BCOO]:
    """Both arrays in their common shape, with the same kinds of axes.

    Raises:
        BroadcastError: the shapes do not broadcast.
    """
    shape = broadcast_shape(call, [lhs.shape, rhs.shape])
    n_dense = min(lhs.n_dense, rhs.n_dense)
    # Axes of batches count from the left, where axes may be missing.
    n_batch = min([x.n_batch + (len(shape) - x.ndim if x.n_batch else 0) for x in (lhs, rhs)])
    out: list[BCOO] = []
    for x in (lhs, rhs):
        missing = len(shape) - x.ndim
        own = bcoo_update_layout(x, n_batch=max(n_batch - missing, 0), n_dense=n_dense)
        if own.shape != shape:
            axes = tuple(range(missing, len(shape)))
            own = bcoo_broadcast_in_dim(own, shape=shape, broadcast_dimensions=axes)
        out.append(own)
    n_batch = min([x.n_batch for x in out])
    lhs, rhs = [bcoo_update_layout(x, n_batch=n_batch) for x in out]
    return lhs, rhs


@functools.partial(jit, static_argnums=2, inline=True)
def _times_sparse(mat: BCOO, unique: BCOO, swapped: bool) -> BCOO:
    """Elements of ``mat`` times those of an array without equal coordinates."""
    mat, unique = widened(mat), widened(unique)
    sizes = sparse_sizes(mat)
    dtype = tnp.promote_types(mat.indices.dtype, unique.indices.dtype)
    if unique.nse == 0:
        equal = tnp.zeros(mat.indices.shape[:-1], bool)
        other = tnp.zeros(mat.data.shape, unique.dtype)
    else:
        found, equal = matches(mat.indices.astype(dtype), unique.indices.astype(dtype), sizes)
        other = cleared(taken(unique.data, found), equal)
    data = other * mat.data if swapped else mat.data * other
    return BCOO(
        (data, with_padding(mat.indices, sizes, equal)),
        shape=mat.shape,
        unique_indices=mat.unique_indices,
    )
