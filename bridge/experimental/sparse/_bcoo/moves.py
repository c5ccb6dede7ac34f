"""Elements in other places: bcoo_transpose, bcoo_reshape, bcoo_squeeze, bcoo_broadcast_in_dim."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, final

import numpy as np

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge._api.programs.jit import jit
from tracebridge.core.control.calls.by_definition import ByDefinition
from tracebridge.core.errors.argument_errors import (
    ArgumentValueError,
    UnsupportedArgumentError,
    index_of,
)
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.ir.cost import Cost
from tracebridge.experimental.sparse._base import Shape, SparseInfo, checked_shape, info_of
from tracebridge.experimental.sparse._bcoo.arguments import check_bcoo, check_length, checked_axes
from tracebridge.experimental.sparse._bcoo.array import BCOO
from tracebridge.experimental.sparse._bcoo.indices import (
    batch_sizes,
    columns,
    dense_sizes,
    joined,
    sparse_sizes,
    valid,
    widened,
    with_padding,
    without_padding,
)


def bcoo_transpose(mat: BCOO, *, permutation: Sequence[int]) -> BCOO:
    """The array with its axes in another order.

    Args:
        mat: BCOO array.
        permutation: the axes of ``mat`` in the new order. Axes of batches, axes with coordinates
            and dense axes stay among those of their kind.

    Raises:
        UnsupportedArgumentError: the order mixes axes of different kinds.
        RankError, AxisError, ArgumentValueError: it is no order of the axes.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental import sparse
    >>> m = sparse.BCOO.fromdense(tnp.array([[0.0, 5.0]]))
    >>> print(sparse.bcoo_transpose(m, permutation=(1, 0)).todense())
    [[0.]
     [5.]]
    """
    check_bcoo("bcoo_transpose", mat)
    order = checked_axes(
        "bcoo_transpose",
        check_length("bcoo_transpose", "permutation", permutation, mat.ndim),
        mat.ndim,
    )
    b, s = mat.n_batch, mat.n_batch + mat.n_sparse
    batch, inner = order[:b], order[b:s]
    if sorted(batch) != list(range(b)) or sorted(inner) != list(range(b, s)):
        msg = f"bcoo_transpose: permutation {order} mixes axes of {kinds(mat)}"
        raise UnsupportedArgumentError(
            msg, hint="bcoo_update_layout makes axes of one kind to axes of another"
        )
    data, indices = bcoo_transpose_p.bind(
        mat.data, mat.indices, permutation=order, spinfo=info_of(mat)
    )
    return BCOO(
        (data, indices),
        shape=[mat.shape[a] for a in order],
        indices_sorted=mat.indices_sorted and inner == tuple(range(b, s)),
        unique_indices=mat.unique_indices,
    )


@final
class BcooTranspose(ByDefinition):
    """Data and coordinates -> those of the array with its axes in the order ``permutation``."""

    name = "bcoo_transpose"
    multiple_results = True
    cost = Cost.MOVES_DATA

    def define(
        self, data: Any, indices: Any, *, permutation: Sequence[int], spinfo: SparseInfo
    ) -> tuple[Any, Any]:
        b, n_sparse = indices.ndim - 2, indices.shape[-1]
        batch, inner = permutation[:b], permutation[b : b + n_sparse]
        indices = tnp.transpose(indices, (*batch, b, b + 1))
        if tuple(inner) != tuple(range(b, b + n_sparse)):
            indices = indices[..., np.array([a - b for a in inner])]
        moved = [a - n_sparse + 1 for a in permutation[b + n_sparse :]]
        return tnp.transpose(data, (*batch, b, *moved)), indices


bcoo_transpose_p = BcooTranspose()


def kinds(mat: BCOO) -> str:
    """The kinds of the axes, for messages."""
    return f"an array with n_batch={mat.n_batch}, n_sparse={mat.n_sparse}, n_dense={mat.n_dense}"


def bcoo_rev(operand: BCOO, dimensions: Sequence[int]) -> BCOO:
    """The array with its elements in reversed order along axes.

    Args:
        operand: BCOO array.
        dimensions: the axes.

    Raises:
        AxisError, ArgumentValueError: an axis is out of range, or named twice.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental import sparse
    >>> m = sparse.BCOO.fromdense(tnp.array([0.0, 5.0, 0.0, 7.0]))
    >>> print(sparse.bcoo_rev(m, (0,)).todense())
    [7. 0. 5. 0.]
    """
    check_bcoo("bcoo_rev", operand, "operand")
    axes = checked_axes("bcoo_rev", dimensions, operand.ndim)
    mat = widened(operand) if any([a < operand.n_batch for a in axes]) else operand
    b, s = mat.n_batch, mat.n_batch + mat.n_sparse
    data, indices = mat.data, mat.indices
    batch = [a for a in axes if a < b]
    dense = [a - mat.n_sparse + 1 for a in axes if a >= s]
    if batch or dense:
        data = tnp.flip(data, (*batch, *dense))
    if batch:
        indices = tnp.flip(indices, batch)
    inner = [a - b for a in axes if b <= a < s]
    if inner:
        sizes = sparse_sizes(mat)
        found = [sizes[k] - 1 - c if k in inner else c for k, c in enumerate(columns(indices))]
        indices = with_padding(joined(found, indices), sizes, valid(indices, sizes))
    return BCOO(
        (data, indices),
        shape=mat.shape,
        indices_sorted=mat.indices_sorted and not inner,
        unique_indices=mat.unique_indices,
    )


def bcoo_squeeze(arr: BCOO, *, dimensions: Sequence[int]) -> BCOO:
    """The array without axes of size 1.

    Args:
        arr: BCOO array.
        dimensions: the axes to leave out.

    Raises:
        ShapeMismatchError: an axis has another size than 1.
        AxisError, ArgumentValueError: an axis is out of range, or named twice.

    >>> from tracebridge.experimental import sparse
    >>> sparse.bcoo_squeeze(sparse.empty((1, 3)), dimensions=(0,))
    BCOO(float32[3], nse=0)
    """
    check_bcoo("bcoo_squeeze", arr, "arr")
    axes = checked_axes("bcoo_squeeze", dimensions, arr.ndim)
    wrong = [a for a in axes if arr.shape[a] != 1]
    if wrong:
        msg = f"bcoo_squeeze: axis {wrong[0]} of shape {arr.shape} has size {arr.shape[wrong[0]]}"
        raise ShapeMismatchError(msg, expected="axes of size 1")
    b, s = arr.n_batch, arr.n_batch + arr.n_sparse
    inner = [a - b for a in axes if b <= a < s]
    data, indices = arr.data, arr.indices
    if inner:
        # What is padding by a coordinate that goes must not become an element.
        found = [c for k, c in enumerate(columns(indices)) if k not in inner]
        sizes = [n for k, n in enumerate(sparse_sizes(arr)) if k not in inner]
        keep = valid(indices, sparse_sizes(arr))
        if not sizes:
            data = without_padding(arr)
        indices = with_padding(joined(found, indices), tuple(sizes), keep)
    batch = tuple([a for a in axes if a < b])
    dense = [a - arr.n_sparse + 1 for a in axes if a >= s]
    return BCOO(
        (tnp.squeeze(data, (*batch, *dense)), tnp.squeeze(indices, batch)),
        shape=[n for a, n in enumerate(arr.shape) if a not in axes],
        indices_sorted=arr.indices_sorted,
        unique_indices=arr.unique_indices,
    )


def bcoo_broadcast_in_dim(
    mat: BCOO,
    *,
    shape: Sequence[int],
    broadcast_dimensions: Sequence[int],
    sharding: None = None,
) -> BCOO:
    """The array repeated along new axes, and along axes of size 1.

    New axes before those with coordinates are axes of batches, without copies of coordinates; new
    ones after dense axes are dense. Along the others elements are stored repeatedly.

    Args:
        mat: BCOO array.
        shape: shape of the result.
        broadcast_dimensions: for each axis of ``mat`` the axis of the result, ascending.
        sharding: must be None.

    Raises:
        ArgumentValueError: the axes are not ascending.
        ShapeMismatchError: a size of ``mat`` is neither 1 nor that of the result.
        UnsupportedArgumentError: ``sharding`` is given.

    >>> from tracebridge.experimental import sparse
    >>> sparse.bcoo_broadcast_in_dim(sparse.eye(2), shape=(3, 2, 2), broadcast_dimensions=(1, 2))
    BCOO(float32[3, 2, 2], nse=2, n_batch=1)
    """
    call = "bcoo_broadcast_in_dim"
    check_bcoo(call, mat)
    if sharding is not None:
        msg = f"{call}: sharding is {sharding!r}, expected None"
        raise UnsupportedArgumentError(msg, hint="place the result's data and indices")
    sizes = checked_shape(call, shape)
    axes = checked_axes(
        call, check_length(call, "broadcast_dimensions", broadcast_dimensions, mat.ndim), len(sizes)
    )
    if list(axes) != sorted(axes):
        msg = f"{call}: broadcast_dimensions {axes} are not ascending"
        raise ArgumentValueError(msg)
    if any([n not in (1, sizes[a]) for n, a in zip(mat.shape, axes, strict=True)]):
        msg = f"{call}: shape {mat.shape} as axes {axes} of {sizes}"
        raise ShapeMismatchError(msg, expected="sizes of 1, or those of the result")
    return _broadcast(mat, sizes, axes)


@functools.partial(jit, static_argnums=(1, 2), inline=True)
def _broadcast(mat: BCOO, shape: Shape, axes: tuple[int, ...]) -> BCOO:
    b, s = mat.n_batch, mat.n_batch + mat.n_sparse
    # New axes before the first that is none of batches are axes of batches.
    first = axes[b] if b < mat.ndim else len(shape)
    last = axes[s] if mat.n_dense else len(shape)
    data_shape, indices_shape = [1] * first, [1] * first
    for axis, target in enumerate(axes[:b]):
        data_shape[target] = mat.data.shape[axis]
        indices_shape[target] = mat.indices.shape[axis]
    dense = [1] * (len(shape) - last)
    for n, target in zip(dense_sizes(mat), axes[s:], strict=True):
        dense[target - last] = n
    data = mat.data.reshape((*data_shape, mat.nse, *dense))
    data = tnp.broadcast_to(data, (*data_shape, mat.nse, *shape[last:]))
    indices = mat.indices.reshape((*indices_shape, mat.nse, mat.n_sparse))
    sizes = shape[first:last]
    keep = valid(indices, sparse_sizes(mat))
    found: list[Any] = [None] * len(sizes)
    for c, target, n in zip(columns(indices), axes[b:s], sparse_sizes(mat), strict=True):
        # An axis of size 1 that grows repeats its elements, like a new one.
        found[target - first] = c if n == sizes[target - first] else None
    new = [k for k, c in enumerate(found) if c is None]
    count = math.prod([sizes[k] for k in new])
    if new:
        grid = np.indices([sizes[k] for k in new]).reshape(len(new), count)
        found = [None if c is None else tnp.repeat(c, count, axis=-1) for c in found]
        keep = tnp.repeat(keep, count, axis=-1)
        tiles = (*indices_shape, mat.nse, count)
        for k, row in zip(new, grid, strict=True):
            full = tnp.broadcast_to(tnp.asarray(row.astype("int32")), tiles)
            found[k] = full.reshape((*indices_shape, mat.nse * count))
        data = tnp.repeat(data, count, axis=first)
    like = tnp.zeros((*indices_shape, mat.nse * count, 1), indices.dtype)
    if not sizes:
        data = without_padding(BCOO((data, indices), shape=shape))
    return BCOO(
        (data, with_padding(joined(found, like), sizes, keep)),
        shape=shape,
        # Elements that are repeated stay in order only if the new axes are the last.
        indices_sorted=mat.indices_sorted and new == list(range(len(sizes) - len(new), len(sizes))),
        unique_indices=mat.unique_indices,
    )


def bcoo_reshape(
    mat: BCOO,
    *,
    new_sizes: Sequence[int],
    dimensions: Sequence[int] | None = None,
    sharding: None = None,
) -> BCOO:
    """The array in another shape.

    Args:
        mat: BCOO array.
        new_sizes: shape of the result; its leading sizes make up the axes of batches, its
            trailing ones the dense axes.
        dimensions: the order in which axes of ``mat`` are read, as ``permutation`` of
            ``bcoo_transpose``.
        sharding: must be None.

    Raises:
        ShapeMismatchError: the number of elements differs, or an axis of the result would mix
            axes of different kinds.
        UnsupportedArgumentError: ``dimensions`` mix them, or ``sharding`` is given.

    >>> from tracebridge.experimental import sparse
    >>> sparse.bcoo_reshape(sparse.eye(6), new_sizes=(4, 9)).sort_indices().indices.tolist()
    [[0, 0], [0, 7], [1, 5], [2, 3], [3, 1], [3, 8]]
    """
    call = "bcoo_reshape"
    check_bcoo(call, mat)
    if sharding is not None:
        msg = f"{call}: sharding is {sharding!r}, expected None"
        raise UnsupportedArgumentError(msg, hint="place the result's data and indices")
    sizes = checked_shape(call, new_sizes)
    if dimensions is not None:
        mat = bcoo_transpose(mat, permutation=dimensions)
    if math.prod(sizes) != mat.size:
        msg = f"{call}: shape {mat.shape} with {mat.size} elements to {sizes}"
        raise ShapeMismatchError(msg, expected="as many elements")
    first = _boundary(sizes, batch_sizes(mat))
    last = len(sizes) - _boundary(sizes[::-1], dense_sizes(mat)[::-1])
    if first < 0 or last > len(sizes) or last < first:
        msg = f"{call}: {sizes} mixes axes of {kinds(mat)}, shape {mat.shape}"
        raise ShapeMismatchError(
            msg, hint="bcoo_update_layout makes axes of one kind to axes of another"
        )
    return _reshaped(mat, sizes, first, last)


def _boundary(sizes: Sequence[int], group: Sequence[int]) -> int:
    """How many leading sizes make up ``group``; -1 if none do."""
    if not group:
        return 0
    wanted = math.prod(group)
    if tuple(sizes[: len(group)]) == tuple(group):
        return len(group)
    found = [n for n in range(len(sizes) + 1) if math.prod(sizes[:n]) == wanted]
    # Of several, which differ by sizes of 1, the one with as many axes as before.
    return min(found, key=lambda n: abs(n - len(group)), default=-1)


@functools.partial(jit, static_argnums=(1, 2, 3), inline=True)
def _reshaped(mat: BCOO, sizes: Shape, first: int, last: int) -> BCOO:
    if first != mat.n_batch or sizes[:first] != batch_sizes(mat):
        mat = widened(mat)
        lead_data = lead_indices = sizes[:first]
    else:
        lead_data, lead_indices = mat.data.shape[:first], mat.indices.shape[:first]
    old, new = sparse_sizes(mat), sizes[first:last]
    keep = valid(mat.indices, old)
    found = _renumbered(columns(mat.indices), old, new, mat.indices)
    indices = with_padding(joined(found, mat.indices), new, keep)
    data = mat.data if new else without_padding(mat)
    return BCOO(
        (
            data.reshape((*lead_data, mat.nse, *sizes[last:])),
            indices.reshape((*lead_indices, mat.nse, len(new))),
        ),
        shape=sizes,
        indices_sorted=mat.indices_sorted,
        unique_indices=mat.unique_indices,
    )


def _renumbered(found: Sequence[Any], old: Shape, new: Shape, like: Any) -> list[Any]:
    """Coordinates in another shape.

    Axes are taken together only as far as they must be, so that the numbers stay small.
    """
    out: list[Any] = []
    i = k = 0
    while i < len(old) or k < len(new):
        begin_old, begin_new = i, k
        a = b = 1
        while (i, k) == (begin_old, begin_new) or (a != b and (i < len(old) or k < len(new))):
            if (a <= b and i < len(old)) or k >= len(new):
                a *= old[i]
                i += 1
            else:
                b *= new[k]
                k += 1
        out += _regrouped(found[begin_old:i], old[begin_old:i], new[begin_new:k], like)
    return out


def _regrouped(
    found: Sequence[Any], old: Sequence[int], new: Sequence[int], like: Any
) -> list[Any]:
    """The coordinates of one group of axes, whose sizes have the same product."""
    if list(old) == list(new):
        return list(found)
    dtype = np.dtype("int64" if math.prod(old) > np.iinfo(np.int32).max else like.dtype)
    number: Any = lax.full(like.shape[:-1], 0, dtype)
    for c, n in zip(found, old, strict=True):
        number = number * np.asarray(n, dtype) + lax.convert_element_type(c, dtype)
    out: list[Any] = []
    for n in reversed(new):
        size = np.asarray(max(n, 1), dtype)
        out.insert(0, number % size)
        number = number // size
    return out


def transposed(mat: BCOO, axes: Sequence[int] | None) -> BCOO:
    """The method ``transpose``."""
    order = range(mat.ndim - 1, -1, -1) if axes is None else axes
    return bcoo_transpose(mat, permutation=tuple(order))


def reshaped(mat: BCOO, args: Sequence[Any], kwargs: Any) -> BCOO:
    """The method ``reshape``, with at most one size of -1."""
    sizes = args[0] if len(args) == 1 and not hasattr(args[0], "__index__") else args
    found = [index_of(n, "reshape", "a size") for n in sizes]
    if found.count(-1) == 1:
        rest = -math.prod(found)
        if rest and mat.size % rest == 0:
            found[found.index(-1)] = mat.size // rest
    return bcoo_reshape(mat, new_sizes=found, **kwargs)
