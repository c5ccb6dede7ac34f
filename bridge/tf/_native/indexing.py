"""Slices at computed positions, gather and scatter."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import tensorflow as tf

from tracebridge.core import lax
from tracebridge.core.dtypes import dtypes as d
from tracebridge.core.ir.values import Literal
from tracebridge.core.lax.indexing.gather import default_fill
from tracebridge.tf._native.builder import Builder, Tensor, rule
from tracebridge.tf._native.shapes import cut, permuted

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Params
    from tracebridge.core.ir.aval import ShapedArray

_FAR = 2**31 - 1


def _as_positions(x: Tensor) -> Tensor:
    """Positions as ``int32``: those beyond it stay outside of everything."""
    if x.dtype == tf.int32:
        return x
    if x.dtype in {tf.int64, tf.uint32, tf.uint64}:
        far = x > tf.constant(_FAR, x.dtype)
        near = tf.where(far, tf.zeros_like(x), x)
        if x.dtype == tf.int64:
            near = tf.maximum(near, tf.constant(-_FAR, tf.int64))
        return tf.where(far, tf.constant(_FAR), tf.cast(near, tf.int32))
    return tf.cast(x, tf.int32)


def _start(b: Builder, i: int, start: Tensor, room: Tensor) -> Tensor:
    """Where a slice starts, moved so that it fits: an int where it is known."""
    literal = b.literals[i]
    if type(literal) is Literal and isinstance(room, int):
        return min(max(int(literal.value), 0), room)
    return tf.minimum(tf.maximum(_as_positions(start), 0), room)


@rule("dynamic_slice")
def _dynamic_slice(b: Builder, x: Tensor, *starts: Tensor, slice_sizes: Sequence[object]) -> Tensor:
    if not starts:
        return x
    sizes, lengths = b.shape(b.avals[0]), b.shape(slice_sizes)
    begins = [
        _start(b, axis + 1, start, n - length)
        for axis, (start, n, length) in enumerate(zip(starts, sizes, lengths, strict=True))
    ]
    return tf.slice(x, begins, lengths)


@rule("dynamic_update_slice")
def _dynamic_update_slice(b: Builder, x: Tensor, update: Tensor, *starts: Tensor) -> Tensor:
    shape, sizes = b.avals[0].shape, b.avals[1].shape
    partial: list[tuple[int, Tensor, Tensor]] = []
    for axis, (n, size) in enumerate(zip(shape, sizes, strict=True)):
        if n != size:
            length = b.size(size)
            at = _start(b, axis + 2, starts[axis], b.size(n) - length)
            partial.append((axis, at, length))
    return _updated(x, update, partial)


def _updated(x: Tensor, update: Tensor, partial: Sequence[tuple[int, Tensor, Tensor]]) -> Tensor:
    """``x`` with a block replaced: what is before, the block, what is after, axis by axis."""
    if not partial:
        return update
    (axis, at, length), *others = partial
    inside = _updated(cut(x, axis, at, at + length), update, others)
    return tf.concat([cut(x, axis, 0, at), inside, cut(x, axis, at + length)], axis)


# gather and scatter -------------------------------------------------------------------------------


class _Starts(NamedTuple):
    """Where windows start along each indexed axis, and whether they are inside as they are."""

    by_axis: dict[int, Tensor]
    inside: Any  # None where nothing is indexed


def _column(indices: Tensor, at: int, axes: Sequence[int], ndim: int) -> Tensor:
    """One entry of each index vector, with the axes of the vectors at ``axes`` of ``ndim``."""
    column = indices[..., at]
    for axis in range(ndim):
        if axis not in axes:
            column = tf.expand_dims(column, axis)
    return column


def _along(b: Builder, n: object, axis: int, ndim: int) -> Tensor:
    """The numbers below ``n`` along one of ``ndim`` axes."""
    return tf.reshape(b.arange(n), [1] * axis + [-1] + [1] * (ndim - axis - 1))


def _window_starts(
    b: Builder,
    indices: Tensor,
    sizes: Sequence[object],
    index_map: Sequence[int],
    axes: Sequence[int],
    ndim: int,
) -> _Starts:
    indices = _as_positions(indices)
    shape = b.avals[0].shape
    starts: dict[int, Tensor] = {}
    inside = None
    for at, axis in enumerate(index_map):
        column = _column(indices, at, axes, ndim)
        room = b.size(shape[axis]) - b.size(sizes[axis])
        fits = (column >= 0) & (column <= room)
        inside = fits if inside is None else inside & fits
        # An axis without elements has no place where anything fits.
        starts[axis] = tf.maximum(tf.minimum(tf.maximum(column, 0), room), 0)
    return _Starts(starts, inside)


class _Layout(NamedTuple):
    """Which axes of the operand are indexed, and which are taken whole.

    ``first`` and ``last`` are the axes of the windows (of the result of a gather, of the updates
    of a scatter) that belong to them, and ``positions`` those of the indexed axes.
    """

    indexed: list[int]
    whole: list[int]
    first: list[int]
    last: list[int]
    positions: list[Tensor]
    inside: Any  # None where nothing is indexed


def _layout(
    b: Builder,
    indices: Tensor,
    window: ShapedArray,
    window_dims: Sequence[int],
    dropped: Sequence[int],
    index_map: Sequence[int],
    batching: dict[int, int],
    sizes: Sequence[object] | None,
) -> _Layout:
    shape, ndim = b.avals[0].shape, window.ndim
    batch_axes = [i for i in range(ndim) if i not in window_dims]
    kept = [a for a in range(len(shape)) if a not in (*dropped, *batching)]
    place = dict(zip(kept, window_dims, strict=True))
    if sizes is None:
        sizes = [window.shape[place[a]] if a in place else 1 for a in range(len(shape))]
    starts, inside = _window_starts(b, indices, sizes, index_map, batch_axes, ndim)
    whole = [a for a in kept if sizes[a] == shape[a]]
    indexed = [a for a in range(len(shape)) if a not in whole]
    last = [place[a] for a in whole]
    first = [i for i in range(ndim) if i not in last]
    positions: list[Tensor] = []
    for axis in indexed:
        position = starts.get(axis)
        if axis in place:
            offsets = _along(b, sizes[axis], place[axis], ndim)
            position = offsets if position is None else position + offsets
        elif axis in batching:
            position = _along(b, shape[axis], batch_axes[batching[axis]], ndim)
        if position is None:
            position = tf.zeros([1] * ndim, tf.int32)
        # Without the axes that are taken whole.
        positions.append(tf.squeeze(position, last) if last else position)
    return _Layout(indexed, whole, first, last, positions, inside)


@rule("gather")
def _gather(
    b: Builder,
    x: Tensor,
    indices: Tensor,
    dimension_numbers: Any,
    slice_sizes: Sequence[object],
    mode: Any = None,
    fill_value: Any = None,
    **_: object,
) -> Tensor:
    numbers, out = dimension_numbers, b.aval
    batching = dict(
        zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)
    )
    where = _layout(
        b,
        indices,
        out,
        numbers.offset_dims,
        numbers.collapsed_slice_dims,
        numbers.start_index_map,
        batching,
        slice_sizes,
    )
    fill = default_fill(out.dtype) if fill_value is None else fill_value
    inside: Tensor = where.inside
    if mode is not lax.GatherScatterMode.FILL_OR_DROP:
        inside = None
    if 0 in b.avals[0].shape:
        return b.full(out.shape, 0 if inside is None else fill, out.dtype)
    order = [*where.first, *where.last]
    result = _taken(b, x, where, b.shape([out.shape[i] for i in where.first]))
    result = permuted(result, [order.index(i) for i in range(out.ndim)])
    return result if inside is None else tf.where(inside, result, b.full((), fill, out.dtype))


def _taken(b: Builder, x: Tensor, where: _Layout, shape: Sequence[Any]) -> Tensor:
    """``x`` at positions of its indexed axes, which become those of ``shape``."""
    if not where.indexed:
        for _ in shape:
            x = tf.expand_dims(x, 0)
        whole = b.shape([b.avals[0].shape[a] for a in where.whole])
        return tf.broadcast_to(x, [*shape, *whole])
    x = permuted(x, [*where.indexed, *where.whole])
    if len(where.indexed) == 1:
        return tf.gather(x, tf.broadcast_to(where.positions[0], shape))
    columns = [tf.broadcast_to(p, shape) for p in where.positions]
    return tf.gather_nd(x, tf.stack(columns, -1))


Combine = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Rows, positions of shape ``(n, 1)`` and updates of ``n`` rows -> rows."""


def _scatter(
    b: Builder,
    xs: Sequence[Tensor],
    combine: Combine,
    params: Params,
    *,
    last_only: bool = False,
) -> Tensor:
    """All scatters: the indexed axes become one, with one more row for what is dropped."""
    x, indices, updates = xs
    if 0 in b.avals[0].shape or 0 in b.avals[2].shape:
        return x
    numbers, window = params["dimension_numbers"], b.avals[2]
    batching = dict(
        zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True)
    )
    where = _layout(
        b,
        indices,
        window,
        numbers.update_window_dims,
        numbers.inserted_window_dims,
        numbers.scatter_dims_to_operand_dims,
        batching,
        None,
    )
    shape = b.shape(b.avals[0])
    outer, inner = [shape[a] for a in where.indexed], [shape[a] for a in where.whole]
    count, total = 1, tf.zeros([1] * len(where.first), tf.int32)
    for n, position in zip(reversed(outer), reversed(where.positions), strict=True):
        total, count = total + position * count, count * n
    if params["mode"] is not lax.GatherScatterMode.CLIP and where.inside is not None:
        inside = tf.squeeze(where.inside, where.last) if where.last else where.inside
        total = tf.where(inside, total, count)
    rows = b.shape([window.shape[i] for i in where.first])
    positions = tf.reshape(tf.broadcast_to(total, rows), [-1])
    if last_only:
        positions = _last_at(positions, count)
    order = [*where.indexed, *where.whole]
    flat = tf.reshape(permuted(x, order), [count, *inner])
    flat = tf.pad(flat, [[0, 1], *[[0, 0]] * len(inner)])
    updates = tf.reshape(permuted(updates, [*where.first, *where.last]), [math.prod(rows), *inner])
    out = combine(flat, positions[:, None], updates)
    out = tf.reshape(cut(out, 0, 0, count), [*outer, *inner])
    return permuted(out, [order.index(a) for a in range(len(order))])


def _last_at(positions: Tensor, end: Tensor) -> Tensor:
    """Positions with those at which a later update follows moved to ``end``."""
    numbers = tf.range(tf.size(positions))
    last = tf.math.unsorted_segment_max(numbers, positions, end + 1)
    return tf.where(tf.equal(tf.gather(last, positions), numbers), positions, end)


@rule("scatter")
def _scatter_set(b: Builder, *xs: Tensor, **params: Any) -> Tensor:
    # TensorFlow promises no order of updates of one element.
    is_one = all([type(n) is int and n <= 1 for n in b.avals[1].shape[:-1]])
    last_only = not is_one and not params["unique_indices"]
    return _scatter(b, xs, tf.tensor_scatter_nd_update, params, last_only=last_only)


def _added(target: Any) -> Any:
    def emit(b: Builder, *xs: Tensor, **params: Any) -> Any:
        if d.is_bool(b.aval.dtype):
            return NotImplemented
        return _scatter(b, xs, target, params)

    return emit


def _multiplied(rows: Tensor, positions: Tensor, updates: Tensor) -> Tensor:
    count = tf.shape(rows)[0]
    return rows * tf.math.unsorted_segment_prod(updates, positions[:, 0], count)


rule("scatter_add")(_added(tf.tensor_scatter_nd_add))
rule("scatter_sub")(_added(tf.tensor_scatter_nd_sub))
rule("scatter_mul")(_added(_multiplied))


def _extreme(target: Any) -> Any:
    def emit(b: Builder, *xs: Tensor, **params: Any) -> Any:
        dtype = b.aval.dtype
        if d.is_complex(dtype) or d.is_bool(dtype):
            return NotImplemented

        def reduced(rows: Tensor, positions: Tensor, updates: Tensor) -> Tensor:
            out = target(rows, positions, updates)
            if not d.is_float(dtype):
                return out
            # TensorFlow forgets NaNs of the updates.
            nans = tf.where(tf.math.is_nan(updates), updates, tf.zeros_like(updates))
            seen = tf.tensor_scatter_nd_add(tf.zeros_like(rows), positions, nans)
            return tf.where(tf.math.is_nan(seen), seen, out)

        return _scatter(b, xs, reduced, params)

    return emit


rule("scatter_max")(_extreme(tf.tensor_scatter_nd_max))
rule("scatter_min")(_extreme(tf.tensor_scatter_nd_min))
