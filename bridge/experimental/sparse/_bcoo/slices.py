"""Parts of arrays: bcoo_slice, bcoo_dynamic_slice, bcoo_gather; and bcoo_concatenate."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge._api.programs.jit import jit
from tracebridge._api.vectorize.vmap import vmap
from tracebridge.core.errors.argument_errors import (
    ArgumentTypeError,
    ArgumentValueError,
    UnsupportedArgumentError,
    index_of,
)
from tracebridge.core.errors.shape_errors import AxisError, ShapeMismatchError
from tracebridge.core.lax.indexing.modes import GatherDimensionNumbers, GatherScatterMode
from tracebridge.experimental.sparse._base import Shape, checked_shape
from tracebridge.experimental.sparse._bcoo.arguments import check_bcoo, check_length
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
)
from tracebridge.experimental.sparse._bcoo.layouts import bcoo_update_layout
from tracebridge.experimental.sparse._bcoo.moves import bcoo_squeeze, bcoo_transpose
from tracebridge.experimental.sparse._bcoo.sorting import bcoo_sum_duplicates


def bcoo_slice(
    mat: BCOO,
    *,
    start_indices: Sequence[int],
    limit_indices: Sequence[int],
    strides: Sequence[int] | None = None,
) -> BCOO:
    """A part of an array.

    Args:
        mat: BCOO array.
        start_indices: for each axis where the part begins,
        limit_indices: and before which number it ends.
        strides: for each axis the distance of two elements that are taken; None for 1.

    Returns:
        A BCOO array; it stores as many elements as ``mat``, or as many as it has if these are
        fewer.

    Raises:
        RankError, ArgumentValueError: the numbers are no part of the shape.

    >>> from tracebridge.experimental import sparse
    >>> part = sparse.bcoo_slice(sparse.eye(4), start_indices=(1, 0), limit_indices=(3, 3))
    >>> print(part.todense())
    [[0. 1. 0.]
     [0. 0. 1.]]
    """
    call = "bcoo_slice"
    check_bcoo(call, mat)
    starts = [
        index_of(n, call, "start_indices")
        for n in check_length(call, "start_indices", start_indices, mat.ndim)
    ]
    limits = [
        index_of(n, call, "limit_indices")
        for n in check_length(call, "limit_indices", limit_indices, mat.ndim)
    ]
    steps = [1] * mat.ndim
    if strides is not None:
        steps = [
            index_of(n, call, "strides") for n in check_length(call, "strides", strides, mat.ndim)
        ]
    for axis, (a, b, c, n) in enumerate(zip(starts, limits, steps, mat.shape, strict=True)):
        if not (0 <= a <= b <= n and c > 0):
            msg = f"{call}: axis {axis} of size {n}, start {a}, limit {b}, stride {c}"
            raise ArgumentValueError(msg, expected="0 <= start <= limit <= size, stride > 0")
    return _slice(mat, tuple(starts), tuple(limits), tuple(steps))


@functools.partial(jit, static_argnums=(1, 2, 3), inline=True)
def _slice(mat: BCOO, starts: Shape, limits: Shape, steps: Shape) -> BCOO:
    sizes = tuple([-(-(b - a) // c) for a, b, c in zip(starts, limits, steps, strict=True)])
    data, indices = mat.data, mat.indices
    for axis in [*range(mat.n_batch), *range(mat.n_batch + mat.n_sparse, mat.ndim)]:
        at = axis if axis < mat.n_batch else axis - mat.n_sparse + 1
        bounds = starts[axis], limits[axis], steps[axis]
        if data.shape[at] == mat.shape[axis]:
            data = lax.slice_in_dim(data, *bounds, axis=at)
        if axis < mat.n_batch and indices.shape[axis] == mat.shape[axis]:
            indices = lax.slice_in_dim(indices, *bounds, axis=axis)
    return _inner(mat, data, indices, starts, sizes, steps)


def _inner(
    mat: BCOO, data: Any, indices: Any, starts: Sequence[Any], sizes: Shape, steps: Sequence[int]
) -> BCOO:
    """The part of ``mat`` along the axes with coordinates; the other axes are cut already."""
    inner = slice(mat.n_batch, mat.n_batch + mat.n_sparse)
    keep = valid(indices, sparse_sizes(mat))
    found: list[Any] = []
    for c, start, size, step in zip(
        columns(indices), starts[inner], sizes[inner], steps[inner], strict=True
    ):
        moved = c - tnp.asarray(start).astype(c.dtype)
        keep = keep & (moved >= 0) & (moved < size * step)
        if step != 1:
            keep = keep & (moved % step == 0)
            moved = moved // step
        found.append(moved)
    indices = with_padding(joined(found, indices), sizes[inner], keep)
    # Padding comes between the elements.
    whole = sizes[inner] == sparse_sizes(mat)
    out = BCOO(
        (data, indices),
        shape=sizes,
        indices_sorted=mat.indices_sorted and whole,
        unique_indices=mat.unique_indices,
    )
    most = math.prod(sizes[inner])
    return bcoo_sum_duplicates(out, nse=most) if most < mat.nse and mat.n_sparse else out


def bcoo_dynamic_slice(mat: BCOO, start_indices: Sequence[Any], slice_sizes: Sequence[int]) -> BCOO:
    """A part of an array that begins where arrays say.

    Args:
        mat: BCOO array.
        start_indices: for each axis an integer, which may be traced; it is moved into the range
            in which the part fits.
        slice_sizes: shape of the part.

    Raises:
        RankError, ArgumentValueError: the sizes are no part of the shape.
        ArgumentTypeError: a start is no integer.

    >>> from tracebridge.experimental import sparse
    >>> print(sparse.bcoo_dynamic_slice(sparse.eye(4), (2, 1), (2, 2)).todense())
    [[0. 1.]
     [0. 0.]]
    """
    call = "bcoo_dynamic_slice"
    check_bcoo(call, mat)
    starts = check_length(call, "start_indices", start_indices, mat.ndim)
    sizes = checked_shape(call, check_length(call, "slice_sizes", slice_sizes, mat.ndim))
    if any([n > whole for n, whole in zip(sizes, mat.shape, strict=True)]):
        msg = f"{call}: slice_sizes {sizes} of an array of shape {mat.shape}"
        raise ArgumentValueError(msg, expected="no more than the shape")
    arrays = [tnp.asarray(x) for x in starts]
    if any([x.ndim or not np.issubdtype(x.dtype, np.integer) for x in arrays]):
        msg = f"{call}: start_indices are not all integers without axes"
        raise ArgumentTypeError(msg)
    # As for arrays, negative numbers count from the end.
    arrays = [tnp.where(x < 0, x + n, x) for x, n in zip(arrays, mat.shape, strict=True)]
    return _dynamic_slice(mat, arrays, sizes)


@functools.partial(jit, static_argnums=2, inline=True)
def _dynamic_slice(mat: BCOO, starts: Sequence[Any], sizes: Shape) -> BCOO:
    starts = [
        tnp.clip(x, 0, whole - n) for x, whole, n in zip(starts, mat.shape, sizes, strict=True)
    ]
    data, indices = mat.data, mat.indices
    for axis in [*range(mat.n_batch), *range(mat.n_batch + mat.n_sparse, mat.ndim)]:
        at = axis if axis < mat.n_batch else axis - mat.n_sparse + 1
        if data.shape[at] == mat.shape[axis]:
            data = lax.dynamic_slice_in_dim(data, starts[axis], sizes[axis], at)
        if axis < mat.n_batch and indices.shape[axis] == mat.shape[axis]:
            indices = lax.dynamic_slice_in_dim(indices, starts[axis], sizes[axis], axis)
    return _inner(mat, data, indices, starts, sizes, [1] * mat.ndim)


def bcoo_gather(
    operand: BCOO,
    start_indices: Any,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: str | GatherScatterMode | None = None,
    fill_value: Any = None,
) -> BCOO:
    """Parts of an array, each of which begins where a row of numbers says.

    Args:
        operand: BCOO array.
        start_indices: integers of shape ``(*parts, n)``, as of ``lax.gather``.
        dimension_numbers: as of ``lax.gather``, without axes of batches.
        slice_sizes: shape of the parts.
        unique_indices: accepted without effect.
        indices_are_sorted: accepted without effect.
        mode: as of ``lax.gather``; parts that leave the operand are filled with zeros.
        fill_value: None or 0.

    Returns:
        A BCOO array whose first axes of batches are those of ``parts``, where they come first.

    Raises:
        UnsupportedArgumentError: axes of batches in ``dimension_numbers``, or another
            ``fill_value`` than 0.
        ShapeMismatchError: the last size of ``start_indices`` is not that of the numbers.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental import sparse
    >>> rows = tb.lax.GatherDimensionNumbers(
    ...     offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,)
    ... )
    >>> m = sparse.bcoo_gather(sparse.eye(3), tnp.array([[2], [0]]), rows, (1, 3))
    >>> print(m.todense())
    [[0. 0. 1.]
     [1. 0. 0.]]
    """
    call = "bcoo_gather"
    check_bcoo(call, operand, "operand")
    numbers = dimension_numbers
    if numbers.operand_batching_dims or numbers.start_indices_batching_dims:
        msg = f"{call}: dimension_numbers have axes of batches"
        raise UnsupportedArgumentError(msg, expected="none", hint="map the function by vmap")
    fills = GatherScatterMode.from_any(mode) == GatherScatterMode.FILL_OR_DROP
    if fills and fill_value is not None and not np.all(np.asarray(fill_value) == 0):
        msg = f"{call}: fill_value is {fill_value!r}"
        raise UnsupportedArgumentError(msg, expected="0: others would not be sparse")
    sizes = checked_shape(call, check_length(call, "slice_sizes", slice_sizes, operand.ndim))
    starts = tnp.asarray(start_indices)
    if starts.ndim == 0 or starts.shape[-1] != len(numbers.start_index_map):
        msg = f"{call}: start_indices have shape {starts.shape}"
        raise ShapeMismatchError(
            msg, expected=f"a last axis of size {len(numbers.start_index_map)}"
        )
    out = _parts(operand, starts, tuple(numbers.start_index_map), sizes, fills)
    parts = starts.ndim - 1
    out = bcoo_squeeze(out, dimensions=[parts + a for a in numbers.collapsed_slice_dims])
    order: list[int] = []
    rest_parts, rest_offsets = iter(range(parts)), iter(range(parts, out.ndim))
    for axis in range(out.ndim):
        order.append(next(rest_offsets if axis in numbers.offset_dims else rest_parts))
    return bcoo_transpose(_with_kinds_for(out, order), permutation=order)


def _with_kinds_for(mat: BCOO, order: list[int]) -> BCOO:
    """The array with fewer axes of batches and dense ones, so that ``order`` mixes no kinds."""
    n = mat.ndim
    batch = [k for k in range(mat.n_batch + 1) if sorted(order[:k]) == list(range(k))]
    dense = [k for k in range(mat.n_dense + 1) if sorted(order[n - k :]) == list(range(n - k, n))]
    return bcoo_update_layout(mat, n_batch=batch[-1], n_dense=dense[-1], on_inefficient=None)


@functools.partial(jit, static_argnums=(2, 3, 4), inline=True)
def _parts(mat: BCOO, starts: Any, axes: tuple[int, ...], sizes: Shape, fills: bool) -> BCOO:
    parts = starts.shape[:-1]

    def one(row: Any) -> tuple[Any, Any]:
        places = [tnp.zeros((), starts.dtype)] * mat.ndim
        for k, axis in enumerate(axes):
            places[axis] = row[k]
        out = widened(_dynamic_slice(mat, places, sizes))
        inside = [
            (row[k] >= 0) & (row[k] <= mat.shape[axis] - sizes[axis]) for k, axis in enumerate(axes)
        ]
        data = out.data
        if fills:
            data = tnp.where(tnp.all(tnp.stack(inside)), data, tnp.zeros((), data.dtype))
        return data, out.indices

    data, indices = vmap(one)(starts.reshape((-1, len(axes))))
    return BCOO(
        (
            data.reshape((*parts, *data.shape[1:])),
            indices.reshape((*parts, *indices.shape[1:])),
        ),
        shape=(*parts, *sizes),
        unique_indices=mat.unique_indices,
    )


def bcoo_concatenate(operands: Sequence[BCOO], *, dimension: int) -> BCOO:
    """Arrays one after the other along an axis.

    Args:
        operands: BCOO arrays with the same kinds of axes.
        dimension: the axis.

    Raises:
        ArgumentValueError: there is no array.
        ArgumentTypeError: an operand is no BCOO array.
        AxisError: there is no such axis.
        ShapeMismatchError: the arrays differ in another axis, or in the kinds of their axes.

    >>> from tracebridge.experimental import sparse
    >>> sparse.bcoo_concatenate([sparse.eye(2), sparse.eye(2)], dimension=0)
    BCOO(float32[4, 2], nse=4)
    """
    call = "bcoo_concatenate"
    mats = list(operands)
    if not mats:
        msg = f"{call}: got no arrays, expected at least one"
        raise ArgumentValueError(msg)
    for k, mat in enumerate(mats):
        check_bcoo(call, mat, f"operand {k}")
    first = mats[0]
    axis = index_of(dimension, call, "dimension")
    if not -first.ndim <= axis < first.ndim:
        raise AxisError(axis, first.ndim, call=call)
    axis %= first.ndim
    for mat in mats[1:]:
        same = [
            a == b or k == axis
            for k, (a, b) in enumerate(zip(mat.shape, first.shape, strict=False))
        ]
        layouts = [(x.n_batch, x.n_sparse, x.n_dense) for x in (mat, first)]
        if not all(same) or layouts[0] != layouts[1]:
            msg = f"{call}: {first!r} and {mat!r} along axis {axis}"
            raise ShapeMismatchError(
                msg, expected="the same other sizes, and the same kinds of axes"
            )
    return _concatenated(mats, axis)


@functools.partial(jit, static_argnums=1, inline=True)
def _concatenated(mats: Sequence[BCOO], axis: int) -> BCOO:
    mats = [widened(mat) for mat in mats]
    first = mats[0]
    b, s = first.n_batch, first.n_batch + first.n_sparse
    ends = np.cumsum([mat.shape[axis] for mat in mats])
    shape = (*first.shape[:axis], int(ends[-1]), *first.shape[axis + 1 :])
    begins = ends - [mat.shape[axis] for mat in mats]
    if axis < b:
        most = max([mat.nse for mat in mats])
        padded = [_with_room(mat, most) for mat in mats]
        data = tnp.concatenate([mat.data for mat in padded], axis=axis)
        indices = tnp.concatenate([mat.indices for mat in padded], axis=axis)
        kept = all([mat.indices_sorted for mat in mats])
        unique = all([mat.unique_indices for mat in mats])
        return BCOO((data, indices), shape=shape, indices_sorted=kept, unique_indices=unique)
    dtype = tnp.result_type(*[mat.indices for mat in mats])
    found: list[Any] = []
    datas: list[Any] = []
    for mat, begin in zip(mats, begins, strict=True):
        keep = valid(mat.indices, sparse_sizes(mat))
        indices, data = mat.indices.astype(dtype), mat.data
        if axis < s:
            shift = np.zeros(first.n_sparse, dtype)
            shift[axis - b] = begin
            indices = indices + shift
        else:
            room = [(0, 0)] * data.ndim
            after = shape[axis] - int(begin) - mat.shape[axis]
            room[axis - first.n_sparse + 1] = (int(begin), after)
            data = tnp.pad(data, room)
        found.append(with_padding(indices, shape[b:s], keep))
        datas.append(data)
    return BCOO(
        (tnp.concatenate(datas, axis=b), tnp.concatenate(found, axis=b)),
        shape=shape,
        unique_indices=axis < s and all([mat.unique_indices for mat in mats]),
    )


def _with_room(mat: BCOO, nse: int) -> BCOO:
    """The array with padding at the end, so that each batch stores ``nse`` elements."""
    more = nse - mat.nse
    if not more:
        return mat
    data = tnp.zeros((*batch_sizes(mat), more, *dense_sizes(mat)), mat.dtype)
    rest = np.asarray(sparse_sizes(mat), mat.indices.dtype)
    indices = tnp.broadcast_to(tnp.asarray(rest), (*batch_sizes(mat), more, mat.n_sparse))
    return BCOO(
        (
            tnp.concatenate([mat.data, data], axis=mat.n_batch),
            tnp.concatenate([mat.indices, indices], axis=mat.n_batch),
        ),
        shape=mat.shape,
        indices_sorted=mat.indices_sorted,
        unique_indices=mat.unique_indices,
    )
