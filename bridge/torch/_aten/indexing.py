"""Slices at computed positions, gather and scatter."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from tracebridge.core import lax
from tracebridge.core.dtypes import dtypes as d
from tracebridge.core.ir.values import Literal
from tracebridge.core.lax.indexing.gather import default_fill
from tracebridge.torch._aten.builder import Builder, aten, rule, without_counterpart
from tracebridge.torch._aten.carriers import carrier, is_wide_unsigned, number
from tracebridge.torch._aten.integers import in_order, masked

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Params


def _start(b: Builder, i: int, start: fx.Proxy, room: Any) -> Any:
    """Where a slice starts, moved so that it fits: an int where it is known."""
    literal = b.literals[i]
    if type(literal) is Literal and isinstance(room, int):
        return min(max(int(literal.value), 0), room)
    start = b.convert(start, torch.int64)
    if is_wide_unsigned(b.avals[i].dtype):
        # From 2**63 on.
        start = b.call(aten.where.ScalarOther, b.call(aten.ge.Scalar, start, 0), start, 2**63 - 1)
    start = b.call(aten.clamp_min.default, start, 0)
    if isinstance(room, int):
        return b.call(aten.clamp_max.default, start, room)
    return b.call(
        aten.clamp_max.Tensor,
        start,
        b.call(aten.full.default, [], room, dtype=torch.int64, device=b.device),
    )


@rule("dynamic_slice")
def _dynamic_slice(
    b: Builder, x: fx.Proxy, *starts: fx.Proxy, slice_sizes: Sequence[object]
) -> Any:
    shape = b.avals[0].shape
    for axis, (start, n, size) in enumerate(zip(starts, shape, slice_sizes, strict=True)):
        if n is size or n == size:
            continue
        room, length = b.size(n) - b.size(size), b.size(size)
        at = _start(b, axis + 1, start, room)
        if isinstance(at, int):
            x = b.call(aten.slice.Tensor, x, axis, at, at + length)
        else:
            rows = b.call(aten.add.Tensor, b.arange(length), at)
            x = b.call(aten.index_select.default, x, axis, rows)
    return x


@rule("dynamic_update_slice")
def _dynamic_update_slice(b: Builder, x: fx.Proxy, update: fx.Proxy, *starts: fx.Proxy) -> Any:
    shape, sizes = b.avals[0].shape, b.avals[1].shape
    ndim = len(shape)
    partial = [a for a in range(ndim) if shape[a] != sizes[a]]
    if not partial:
        return update
    rows: dict[int, Any] = {}
    for axis in partial:
        room = b.size(shape[axis]) - b.size(sizes[axis])
        at = _start(b, axis + 2, starts[axis], room)
        if isinstance(at, int) and len(partial) == 1:
            return b.call(aten.slice_scatter.default, x, update, axis, at, at + b.size(sizes[axis]))
        more = aten.add.Scalar if isinstance(at, int) else aten.add.Tensor
        rows[axis] = b.call(more, b.arange(b.size(sizes[axis])), at)
    if len(partial) == 1:
        return b.call(aten.index_copy.default, x, partial[0], rows[partial[0]], update)
    # Axes that are updated along their whole length come last.
    order = [*partial, *[a for a in range(ndim) if a not in partial]]
    moved, update = (b.call(aten.permute.default, v, order) for v in (x, update))
    indices = [
        b.call(aten.reshape.default, rows[a], [-1] + [1] * (len(partial) - 1 - i))
        for i, a in enumerate(partial)
    ]
    out = b.call(aten.index_put.default, moved, indices, update)
    return b.call(aten.permute.default, out, [order.index(a) for a in range(ndim)])


# gather and scatter -------------------------------------------------------------------------------


def _positions(b: Builder, indices: fx.Proxy, aval: Any) -> Any:
    """Index vectors as ``int64``, those that no signed number holds far outside."""
    indices = b.convert(indices, torch.int64)
    if is_wide_unsigned(aval.dtype):
        inside = b.call(aten.ge.Scalar, indices, 0)
        indices = b.call(aten.where.ScalarOther, inside, indices, 2**62)
    return indices


def _column(b: Builder, indices: fx.Proxy, at: int, axes: list[int], ndim: int) -> Any:
    """One entry of each index vector, with the axes of the vectors at ``axes`` of ``ndim``."""
    column = b.call(aten.select.int, indices, -1, at)
    for axis in range(ndim):
        if axis not in axes:
            column = b.call(aten.unsqueeze.default, column, axis)
    return column


def _along(b: Builder, n: Any, axis: int, ndim: int) -> Any:
    """The numbers below ``n`` along one of ``ndim`` axes."""
    return b.call(
        aten.reshape.default, b.arange(b.size(n)), [1] * axis + [-1] + [1] * (ndim - axis - 1)
    )


def _window_starts(
    b: Builder,
    indices: fx.Proxy,
    shape: Sequence[object],
    sizes: Sequence[object],
    index_map: Sequence[int],
    axes: list[int],
    ndim: int,
) -> tuple[dict[int, Any], Any]:
    """Where windows start along each indexed axis, and whether they are inside as they are."""
    starts: dict[int, Any] = {}
    inside = None
    for at, axis in enumerate(index_map):
        column = _column(b, indices, at, axes, ndim)
        room = b.size(shape[axis]) - b.size(sizes[axis])
        ok = b.call(
            aten.logical_and.default,
            b.call(aten.ge.Scalar, column, 0),
            b.call(aten.le.Scalar, column, room),
        )
        inside = ok if inside is None else b.call(aten.logical_and.default, inside, ok)
        low = b.call(aten.clamp_min.default, column, 0)
        limited = b.call(aten.clamp_max.default, low, room)
        # An axis without elements has no place where anything fits.
        starts[axis] = b.call(aten.clamp_min.default, limited, 0)
    return starts, inside


@rule("gather")
def _gather(
    b: Builder,
    x: fx.Proxy,
    indices: fx.Proxy,
    dimension_numbers: Any,
    slice_sizes: Sequence[object],
    mode: Any = None,
    fill_value: Any = None,
    **_: object,
) -> Any:
    numbers, shape, out = dimension_numbers, b.avals[0].shape, b.aval
    ndim = out.ndim
    batch_axes = [i for i in range(ndim) if i not in numbers.offset_dims]
    indices = _positions(b, indices, b.avals[1])
    starts, inside = _window_starts(
        b, indices, shape, slice_sizes, numbers.start_index_map, batch_axes, ndim
    )
    dropped = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    kept = [a for a in range(len(shape)) if a not in dropped]
    place = dict(zip(kept, numbers.offset_dims, strict=True))
    batching = dict(
        zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)
    )
    whole = [a for a in kept if slice_sizes[a] == shape[a]]
    indexed = [a for a in range(len(shape)) if a not in whole]
    last = [place[a] for a in whole]
    positions: list[Any] = []
    for axis in indexed:
        position = starts.get(axis)
        if axis in place:
            offsets = _along(b, slice_sizes[axis], place[axis], ndim)
            position = offsets if position is None else b.call(aten.add.Tensor, position, offsets)
        elif axis in batching:
            position = _along(b, shape[axis], batch_axes[batching[axis]], ndim)
        if position is None:
            position = b.full([1] * ndim, 0, torch.int64)
        # Without the axes that are taken whole.
        positions.append(b.call(aten.squeeze.dims, position, last) if last else position)
    result = _taken(
        b, x, positions, indexed, whole, [i for i in range(ndim) if i not in last], last
    )
    if mode is not lax.GatherScatterMode.FILL_OR_DROP or inside is None:
        return result
    fill = default_fill(out.dtype) if fill_value is None else fill_value
    other = b.full([], number(fill, out.dtype), carrier(out.dtype))
    return b.call(aten.where.self, inside, result, other)


def _taken(
    b: Builder,
    x: fx.Proxy,
    positions: Sequence[fx.Proxy],
    indexed: Sequence[int],
    whole: Sequence[int],
    first: Sequence[int],
    last: Sequence[int],
) -> Any:
    """``x`` at ``positions`` of its axes ``indexed``; results have those axes at ``first``."""
    out_shape = b.shape([b.aval.shape[i] for i in first])
    if not indexed:
        moved = x
        for _ in first:
            moved = b.call(aten.unsqueeze.default, moved, 0)
        moved = b.call(aten.expand.default, moved, [*out_shape, *[-1] * len(whole)])
    else:
        if [*indexed, *whole] != list(range(len(indexed) + len(whole))):
            x = b.call(aten.permute.default, x, [*indexed, *whole])
        positions = [b.call(aten.expand.default, positions[0], out_shape), *positions[1:]]
        moved = b.call(aten.index.Tensor, x, positions)
    order = [*first, *last]
    if order == list(range(len(order))):
        return moved
    return b.call(aten.permute.default, moved, [order.index(i) for i in range(len(order))])


def _flat_positions(b: Builder, indices: fx.Proxy, numbers: Any, mode: Any) -> Any:
    """The position of each update in the flat operand; one past its end for those dropped."""
    shape, update = b.avals[0].shape, b.avals[2]
    ndim = update.ndim
    batch_axes = [i for i in range(ndim) if i not in numbers.update_window_dims]
    dropped = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    kept = [a for a in range(len(shape)) if a not in dropped]
    place = dict(zip(kept, numbers.update_window_dims, strict=True))
    sizes = [update.shape[place[a]] if a in place else 1 for a in range(len(shape))]
    starts, inside = _window_starts(
        b, indices, shape, sizes, numbers.scatter_dims_to_operand_dims, batch_axes, ndim
    )
    batching = dict(
        zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True)
    )
    total: Any = None
    stride: Any = 1
    for axis in reversed(range(len(shape))):
        position = starts.get(axis)
        if axis in place:
            offsets = _along(b, sizes[axis], place[axis], ndim)
            position = offsets if position is None else b.call(aten.add.Tensor, position, offsets)
        elif axis in batching:
            position = _along(b, shape[axis], batch_axes[batching[axis]], ndim)
        if position is not None:
            step = b.call(aten.mul.Scalar, position, stride)
            total = step if total is None else b.call(aten.add.Tensor, total, step)
        stride = stride * b.size(shape[axis])
    if total is None:
        total = b.full([1] * ndim, 0, torch.int64)
    if mode is not lax.GatherScatterMode.CLIP and inside is not None:
        total = b.call(aten.where.ScalarOther, inside, total, stride)
    total = b.call(aten.expand.default, total, b.shape(update))
    return b.call(aten.reshape.default, total, [-1]), stride


def _scatter(
    b: Builder,
    xs: Sequence[fx.Proxy],
    combine: Callable[..., fx.Proxy],
    params: Params,
    *,
    last_only: bool = False,
) -> fx.Proxy:
    """All scatters: one place more at the end of the flat operand takes what is dropped."""
    x, indices, updates = xs
    indices = _positions(b, indices, b.avals[1])
    positions, end = _flat_positions(b, indices, params["dimension_numbers"], params["mode"])
    if last_only:
        positions = _last_at(b, positions, end)
    flat = b.call(aten.reshape.default, x, [-1])
    flat = b.call(aten.constant_pad_nd.default, flat, [0, 1], 0)
    out = combine(flat, positions, b.call(aten.reshape.default, updates, [-1]))
    out = b.call(aten.slice.Tensor, out, 0, 0, -1)
    return b.call(aten.reshape.default, out, b.shape(b.avals[0]))


def _last_at(b: Builder, positions: fx.Proxy, end: Any) -> Any:
    """Positions with those at which a later update follows moved to ``end``."""
    count = math.prod(b.shape(b.avals[2]))
    numbers = b.arange(count)
    last = b.full([end + 1], 0, torch.int64)
    last = b.call(aten.scatter.src, last, 0, positions, numbers)
    stays = b.call(aten.eq.Tensor, b.call(aten.gather.default, last, 0, positions), numbers)
    return b.call(aten.where.ScalarOther, stays, positions, end)


def _may_repeat(b: Builder, params: Params) -> bool:
    """Whether an element may be set twice, and derivatives ask which of the updates stays."""
    update, vectors = b.literals[2], b.avals[1].shape[:-1]
    is_one = all([type(n) is int and n <= 1 for n in vectors])
    is_smooth = isinstance(update, fx.Proxy) and d.is_inexact(b.avals[2].dtype)
    return is_smooth and not is_one and not params["unique_indices"]


@rule("scatter")
def _scatter_set(b: Builder, *xs: fx.Proxy, **params: Any) -> Any:
    def combine(flat: fx.Proxy, positions: fx.Proxy, updates: fx.Proxy) -> Any:
        return b.call(aten.scatter.src, flat, 0, positions, updates)

    # torch's derivative would give each of them what only the last one has.
    return _scatter(b, xs, combine, params, last_only=_may_repeat(b, params))


@rule("scatter_add")
def _scatter_add(b: Builder, *xs: fx.Proxy, **params: Any) -> Any:
    def combine(flat: fx.Proxy, positions: fx.Proxy, updates: fx.Proxy) -> Any:
        return b.call(aten.scatter_add.default, flat, 0, positions, updates)

    return masked(b, _scatter(b, xs, combine, params), b.aval.dtype)


@rule("scatter_sub")
def _scatter_sub(b: Builder, *xs: fx.Proxy, **params: Any) -> Any:
    def combine(flat: fx.Proxy, positions: fx.Proxy, updates: fx.Proxy) -> Any:
        minus = b.call(aten.neg.default, updates)
        return b.call(aten.scatter_add.default, flat, 0, positions, minus)

    return masked(b, _scatter(b, xs, combine, params), b.aval.dtype)


def _reducing(kind: str) -> Any:
    def emit(b: Builder, *xs: fx.Proxy, **params: Any) -> Any:
        dtype = b.aval.dtype
        if d.is_complex(dtype):
            raise without_counterpart(b.app)  # its lowering is no operation of ours either
        turned = is_wide_unsigned(dtype) and kind != "prod"

        def combine(flat: fx.Proxy, positions: fx.Proxy, updates: fx.Proxy) -> Any:
            if turned:
                flat, updates = in_order(b, flat), in_order(b, updates)
            out = b.call(
                aten.scatter_reduce.two, flat, 0, positions, updates, kind, include_self=True
            )
            return in_order(b, out) if turned else out

        return masked(b, _scatter(b, xs, combine, params), dtype)

    return emit


rule("scatter_mul")(_reducing("prod"))
rule("scatter_max")(_reducing("amax"))
rule("scatter_min")(_reducing("amin"))
