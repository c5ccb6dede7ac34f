"""Masking rules of operations that arrange entries."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import tracebridge.core.lax as lax
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.interpreters.specialize import specialize_aval
from tracebridge.core.ir.application import Application
from tracebridge.core.ir.values import literal
from tracebridge.core.lax.ad_util import full_of, stop_gradient_p
from tracebridge.core.lax.barriers import optimization_barrier_p
from tracebridge.core.lax.device_put import device_put_p
from tracebridge.core.lax.indexing.dynamic_slice import dynamic_slice_p, dynamic_update_slice_p
from tracebridge.core.lax.indexing.gather import gather_p
from tracebridge.core.lax.indexing.modes import GatherScatterMode
from tracebridge.core.lax.indexing.scatter import (
    scatter_add_p,
    scatter_max_p,
    scatter_min_p,
    scatter_mul_p,
    scatter_p,
    scatter_sub_p,
)
from tracebridge.core.lax.indexing.slice import slice_p
from tracebridge.core.lax.shape.broadcast import broadcast_in_dim_p
from tracebridge.core.lax.shape.concatenate import concatenate_p
from tracebridge.core.lax.shape.iota import dimension_size_p, iota_p
from tracebridge.core.lax.shape.pad import pad_p
from tracebridge.core.lax.shape.reshape import reshape_p, squeeze_p
from tracebridge.core.lax.shape.rev import rev_p
from tracebridge.core.lax.shape.roll import roll_p
from tracebridge.core.lax.shape.split import split_p
from tracebridge.core.lax.shape.stack import stack_p, tile_p, unstack_p
from tracebridge.core.lax.shape.transpose import transpose_p
from tracebridge.core.symbolic.dims import DimExpr
from tracebridge.core.transforms.masking.interpreter import RULES, Masker, rule_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core.ir.value import Value


_LAST = 2**31 - 1

# Entries stay at their positions from the start of each axis.
for _primitive in (
    broadcast_in_dim_p,
    device_put_p,
    iota_p,
    optimization_barrier_p,
    squeeze_p,
    stack_p,
    stop_gradient_p,
    transpose_p,
    unstack_p,
):
    RULES[_primitive] = Masker.direct


@rule_for(dimension_size_p)
def _dimension_size(masker: Masker, app: Application, args: Sequence[object]) -> Any:
    del args
    return lax.convert_element_type(masker.index(app.params["dim"]), app.params["dtype"])


@rule_for(reshape_p)
def _reshape(masker: Masker, app: Application, args: list[Any]) -> Any:
    """Entries keep their order, or every entry is looked up.

    They keep it where groups of axes become groups and only the first axis of each is padded.
    """
    (x,), (aval,) = args, app.avals
    if _keeps_order(list(aval.shape), list(app.out.shape)):
        return masker.direct(app, args)
    shape = tuple([masker.padded_size(d) for d in app.out.shape])
    position = _linear_position(masker, shape, app.out.shape)
    source: Any = literal(0, "int32")
    memory = 1
    for axis in reversed(range(aval.ndim)):
        size = masker.index(aval.shape[axis])
        coordinate = lax.rem(position, lax.max(size, literal(1, "int32")))
        position = lax.div(position, lax.max(size, literal(1, "int32")))
        source = lax.add(source, lax.mul(coordinate, literal(memory, "int32")))
        memory *= masker.padded_size(aval.shape[axis])
    flat = lax.reshape(x, (memory,))
    reshaped = lax.index_take(flat, [lax.reshape(source, (math.prod(shape),))], (0,))
    return lax.reshape(reshaped, shape)


def _linear_position(masker: Masker, shape: tuple[int, ...], logical: tuple[object, ...]) -> Any:
    """The position of each entry among those within the logical shape, in order."""
    position: Any = lax.full(shape, 0, "int32")
    stride: Any = literal(1, "int32")
    for axis in reversed(range(len(shape))):
        along = lax.broadcasted_iota("int32", shape, axis)
        position = lax.add(position, lax.mul(along, stride))
        stride = lax.mul(stride, masker.index(logical[axis]))
    return position


def _keeps_order(old: list[Any], new: list[Any]) -> bool:
    """Whether entries within the logical shape come in front, in every group of axes."""
    while old or new:
        left, right = _group(old, new)
        if left is None or right is None:
            return False
        for group in (left, right):
            if any([isinstance(d, DimExpr) for d in group[1:]]):
                return False
    return True


def _group(old: list[Any], new: list[Any]) -> tuple[list[Any] | None, list[Any] | None]:
    """Take the shortest groups of equal size off both shapes, from the end."""
    left: list[Any] = []
    right: list[Any] = []
    a: Any = 1
    b: Any = 1
    while True:
        if (left or right) and a == b:
            return left, right
        # The shape with the smaller group gives one more axis; symbolic sizes are the last ones.
        if old and (not new or isinstance(b, DimExpr) or (isinstance(a, int) and a <= b)):
            left.insert(0, old.pop())
            a = a * left[0]
        elif new:
            right.insert(0, new.pop())
            b = b * right[0]
        else:
            return None, None


@rule_for(slice_p)
def _slice(masker: Masker, app: Application, args: list[Any]) -> Any:
    """Windows that begin at a logical position move with it."""
    (x,), params = args, app.params
    starts, limits = list(params["start_indices"]), list(params["limit_indices"])
    for axis, start in enumerate(starts):
        if isinstance(start, DimExpr):
            size = masker.padded_size(limits[axis] - start)
            x = masker.window(x, axis, start, size)
            starts[axis], limits[axis] = 0, size
    sizes = [masker.padded_size(limit) for limit in limits]
    return slice_p.bind(
        x, start_indices=tuple(starts), limit_indices=tuple(sizes), strides=params["strides"]
    )


@rule_for(split_p)
def _split(masker: Masker, app: Application, args: list[Any]) -> list[Any]:
    axis, start = app.params["axis"], 0
    parts: list[Any] = []
    for size in app.params["sizes"]:
        parts.append(masker.window(args[0], axis, start, masker.padded_size(size)))
        start = start + size
    return parts


@rule_for(pad_p)
def _pad(masker: Masker, app: Application, args: list[Any]) -> Any:
    """What lies beyond the logical end becomes padding of the operation too."""
    x, value = args
    aval = app.avals[0]
    config = list(app.params["padding_config"])
    x = masker.fill(x, aval, range(aval.ndim), value)
    moved = [axis for axis, (low, _, _) in enumerate(config) if isinstance(low, DimExpr)]
    for axis in moved:
        low, high, interior = config[axis]
        # First behind the entries, then the whole moves to its logical position.
        config[axis] = (0, high + low, interior)
    sizes = tuple([tuple([masker.padded_size(v) for v in entry]) for entry in config])
    out = pad_p.bind(x, value, padding_config=sizes)
    for axis in moved:
        out = _rolled(masker, out, axis, app.params["padding_config"][axis][0])
    return out


def _rolled(masker: Masker, x: Value, axis: int, shift: object) -> Any:
    """``x`` with entries moved towards the end of an axis by a logical size, around the end."""
    n = x.aval.shape[axis]
    twice = lax.concatenate([x, x], axis)
    start = lax.sub(literal(n, "int32"), masker.index(shift))
    return lax.dynamic_slice_in_dim(twice, start, n, axis=axis)


@rule_for(rev_p)
def _rev(masker: Masker, app: Application, args: list[Any]) -> Any:
    """The padding, in front after the reversal, goes back to the end."""
    (x,), (aval,) = args, app.avals
    x = rev_p.bind(x, **app.params)
    for axis in app.params["dimensions"]:
        if isinstance(aval.shape[axis], DimExpr):
            x = _rolled(masker, x, axis, aval.shape[axis])
    return x


@rule_for(roll_p)
def _roll(masker: Masker, app: Application, args: list[Any]) -> Any:
    """The size of the axis is known, so it has no padding."""
    del masker
    return roll_p.bind(*args, **app.params)


@rule_for(concatenate_p)
def _concatenate(masker: Masker, app: Application, args: list[Any]) -> Any:
    """Each operand overwrites the padding of those before it."""
    axis = app.params["dimension"]
    if all([not isinstance(a.shape[axis], DimExpr) for a in app.avals[:-1]]):
        return masker.direct(app, args)
    out = full_of(specialize_aval(app.out, masker.padded), 0)
    position: Any = 0
    for x, aval in zip(args, app.avals, strict=True):
        out = lax.dynamic_update_slice_in_dim(out, x, masker.index(position), axis)
        position = position + aval.shape[axis]
    return out


@rule_for(tile_p)
def _tile(masker: Masker, app: Application, args: list[Any]) -> Any:
    """Each copy overwrites the padding of those before it."""
    (x,) = args
    for axis, (count, n) in enumerate(zip(app.params["reps"], app.avals[0].shape, strict=True)):
        if not isinstance(n, DimExpr) or count == 1:
            reps = [1] * axis + [masker.padded_size(count)] + [1] * (app.avals[0].ndim - axis - 1)
            x = tile_p.bind(x, reps=tuple(reps))
            continue
        shape = list(x.aval.shape)
        shape[axis] = masker.padded_size(count * n)
        out = full_of(x.aval.update(shape=tuple(shape)), 0)
        for i in range(count):
            out = lax.dynamic_update_slice_in_dim(out, x, masker.index(i * n), axis)
        x = out
    return x


@rule_for(dynamic_slice_p)
def _dynamic_slice(masker: Masker, app: Application, args: Sequence[object]) -> Any:
    x, *starts = args
    sizes = app.params["slice_sizes"]
    starts = [
        _clamped(masker, start, d, n)
        for start, d, n in zip(starts, app.avals[0].shape, sizes, strict=True)
    ]
    return masker.direct(app, [x, *starts])


@rule_for(dynamic_update_slice_p)
def _dynamic_update_slice(masker: Masker, app: Application, args: Sequence[object]) -> Any:
    """The update must not bring padding into the logical part of the operand."""
    x, update, *starts = args
    sizes = app.avals[1].shape
    for d, n in zip(app.avals[0].shape, sizes, strict=True):
        if isinstance(n, DimExpr) and n != d:
            msg = (
                f"mask: dynamic_update_slice of {app.avals[0].str_short()} with "
                f"{app.avals[1].str_short()}: the update is padded"
            )
            raise ShapeMismatchError(msg, expected="static sizes, or whole axes")
    starts = [
        _clamped(masker, start, d, n)
        for start, d, n in zip(starts, app.avals[0].shape, sizes, strict=True)
    ]
    return masker.direct(app, [x, update, *starts])


def _clamped(masker: Masker, start: Any, dim: object, size: object) -> Any:
    """A start that keeps its window within the logical axis."""
    if not isinstance(dim, DimExpr):
        return start
    dtype = start.aval.dtype
    last = lax.convert_element_type(masker.index(dim - size), dtype)
    return lax.max(literal(0, dtype), lax.min(start, last))


@rule_for(gather_p)
def _gather(masker: Masker, app: Application, args: list[Any]) -> Any:
    """Indices beyond the logical end are out of bounds, as those beyond the end are."""
    x, indices = args
    aval, params = app.avals[0], masker.params(app)
    looked_at = [
        i for i in params["dimension_numbers"].start_index_map if isinstance(aval.shape[i], DimExpr)
    ]
    if looked_at and params["mode"] is GatherScatterMode.CLIP:
        indices = _clipped(masker, app, indices)
    out = gather_p.bind(x, indices, **params)
    if looked_at and params["mode"] is GatherScatterMode.FILL_OR_DROP:
        # The same look-up, of whether the entries are there, decides where the filler goes.
        here = full_of(x.aval.update(dtype="bool", weak_type=False), True)
        here = masker.fill(here, aval.update(dtype="bool"), looked_at, literal(False, "bool"))
        in_bounds = gather_p.bind(here, indices, **{**params, "fill_value": False})
        nowhere = lax.broadcast_in_dim(literal(-1, "int32"), indices.aval.shape, ())
        nowhere = lax.convert_element_type(nowhere, indices.aval.dtype)
        out = lax.select(in_bounds, out, gather_p.bind(x, nowhere, **params))
    return out


def _clipped(masker: Masker, app: Application, indices: Value) -> Any:
    """Indices clipped to the logical sizes."""
    shape, sizes = app.avals[0].shape, app.params["slice_sizes"]
    which = app.params["dimension_numbers"].start_index_map
    bounds = [lax.reshape(masker.index(shape[i] - sizes[i]), (1,)) for i in which]
    limit = lax.convert_element_type(lax.concatenate(bounds, 0), indices.aval.dtype)
    last = lax.broadcast_in_dim(limit, indices.aval.shape, (indices.aval.ndim - 1,))
    return lax.max(literal(0, indices.aval.dtype), lax.min(indices, last))


@rule_for(scatter_p, scatter_add_p, scatter_max_p, scatter_min_p, scatter_mul_p, scatter_sub_p)
def _scatter(masker: Masker, app: Application, args: list[Any]) -> Any:
    """Updates beyond their logical end go nowhere; those into the padding do no harm."""
    x, indices, updates = args
    aval = app.avals[1]
    nowhere = literal(_LAST, indices.aval.dtype)
    indices = masker.fill(indices, aval, range(aval.ndim - 1), nowhere)
    params = {**masker.params(app), "mode": GatherScatterMode.FILL_OR_DROP}
    return app.primitive.bind(x, indices, updates, **params)
