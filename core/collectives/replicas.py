"""Collectives in a program that runs on several devices: which replicas take part, and the ops.

The named axes of pmap are a grid of replicas, outermost first (``ctx.axis_env``). A program may
run on more replicas than the axes at an equation have elements; those beyond compute the same.
Inside a shard_map (``ctx.manual``) the grid is the mesh, and its elements are partitions of one
program, which operations with a channel reach.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracebridge.core._jaxlib import mlir
from tracebridge.core.errors.transform_errors import UnboundAxisNameError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.mlir.attrs import i64

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import LoweringContext


_U32 = np.dtype(np.uint32)
_I32 = np.dtype(np.int32)


def _grid(ctx: LoweringContext) -> np.ndarray[Any, Any]:
    """The numbers of the replicas, by position along the axes, and the rest as a last axis."""
    sizes = [size for _, size in ctx.axis_env]
    copies = ctx.n_replicas // math.prod(sizes)
    return np.arange(math.prod(sizes) * copies).reshape(*sizes, copies)


def _position(ctx: LoweringContext, name: object, call: str) -> int:
    """Which axis ``name`` is; the innermost one of that name."""
    names = [n for n, _ in ctx.axis_env]
    for i in range(len(names) - 1, -1, -1):
        if names[i] == name:
            return i
    raise UnboundAxisNameError(name, call=call, bound=names)


def replica_groups(
    ctx: LoweringContext, call: str, names: Sequence[object], index_groups: Any = None
) -> np.ndarray[Any, Any]:
    """Rows of replicas that communicate, in the order of their positions along the axes.

    Raises:
        UnboundAxisNameError: the program has no such axis.
    """
    axes = [_position(ctx, name, call) for name in names]
    grid = _grid(ctx)
    other_axes = [i for i in range(grid.ndim) if i not in axes]
    size = math.prod([ctx.axis_env[i][1] for i in axes])
    rows = grid.transpose(*other_axes, *axes).reshape(-1, size)
    if index_groups is None:
        return rows
    longest = max([len(group) for group in index_groups])
    padding = [(longest - len(group)) * [-1] for group in index_groups]  # as StableHLO wants it
    return np.concatenate(
        [
            np.pad(rows[:, list(group)], ((0, 0), (0, len(pad))), constant_values=-1)
            for group, pad in zip(index_groups, padding, strict=True)
        ]
    )


def position_name(name: object) -> str:
    """What a shard_map calls the ``i32`` scalar with the position along an axis of the mesh."""
    return f"position along {name!r}"


def _channel(ctx: LoweringContext, *, numbers: bool = True) -> dict[str, Any]:
    """Attributes of operations between partitions; ``numbers``: its groups may be either."""
    if not ctx.manual:
        return {}
    ctx.channels += 1
    parse = mlir.ir.Attribute.parse
    handle = parse(f"#stablehlo.channel_handle<handle = {ctx.channels}, type = 1>")
    more = {"use_global_device_ids": mlir.ir.UnitAttr.get()} if numbers else {}
    return {"channel_handle": handle, **more}


def axis_position(ctx: LoweringContext, name: object) -> Any:
    """The position of this replica along an axis, an ``i32`` scalar."""
    sizes = _grid(ctx).shape
    at = _position(ctx, name, "axis_index")
    if ctx.manual and position_name(name) in ctx.dims_by_name():
        return ctx.dim(position_name(name))
    scalar = ShapedArray((), _U32)
    # A program for one device that XLA asked for while it split another one has no such scalar.
    number = "partition_id" if ctx.manual else "replica_id"
    index = ctx.op1(f"stablehlo.{number}", [], scalar)
    stride = math.prod(sizes[at + 1 :])
    if stride != 1:
        index = ctx.op1("stablehlo.divide", [index, ctx.splat(stride, scalar)], scalar)
    index = ctx.op1("stablehlo.remainder", [index, ctx.splat(sizes[at], scalar)], scalar)
    return ctx.convert(index, scalar.update(dtype=_I32))


def all_reduce(
    ctx: LoweringContext, x: IrValue, aval: ShapedArray, groups: np.ndarray[Any, Any], combine: str
) -> Any:
    """``stablehlo.all_reduce`` by the operation ``combine``."""
    scalar = aval.update(shape=())
    attributes = {"replica_groups": ctx.dense_i64(groups), **_channel(ctx)}
    operation = ctx.op("stablehlo.all_reduce", [x], [aval], attributes, regions=1)
    _combining_block(ctx, operation, scalar, combine)
    return operation.results[0]


def reduce_scatter(
    ctx: LoweringContext,
    x: IrValue,
    aval: ShapedArray,
    groups: np.ndarray[Any, Any],
    dimension: int,
) -> Any:
    """``stablehlo.reduce_scatter`` of a sum, split along ``dimension``."""
    attributes = {
        "replica_groups": ctx.dense_i64(groups),
        "scatter_dimension": i64(dimension),
        **_channel(ctx),
    }
    operation = ctx.op("stablehlo.reduce_scatter", [x], [aval], attributes, regions=1)
    _combining_block(ctx, operation, aval.update(shape=()), "stablehlo.add")
    return operation.results[0]


def _combining_block(
    ctx: LoweringContext, operation: Any, scalar: ShapedArray, combine: str
) -> None:
    with ctx.block(operation.regions[0], [scalar, scalar]) as (a, b):
        ctx.finish([ctx.op1(combine, [a, b], scalar)])


def all_gather(
    ctx: LoweringContext,
    x: IrValue,
    aval: ShapedArray,
    groups: np.ndarray[Any, Any],
    dimension: int,
) -> Any:
    """``stablehlo.all_gather``, which concatenates along ``dimension``."""
    attributes = {
        "replica_groups": ctx.dense_i64(groups),
        "all_gather_dim": i64(dimension),
        **_channel(ctx),
    }
    return ctx.op1("stablehlo.all_gather", [x], aval, attributes)


def all_to_all(
    ctx: LoweringContext,
    x: IrValue,
    aval: ShapedArray,
    groups: np.ndarray[Any, Any],
    dimension: int,
) -> Any:
    """``stablehlo.all_to_all`` along one axis: part j goes to replica j of the group."""
    attributes = {
        "replica_groups": ctx.dense_i64(groups),
        "split_dimension": i64(dimension),
        "concat_dimension": i64(dimension),
        "split_count": i64(groups.shape[1]),
        **_channel(ctx, numbers=False),
    }
    operation = ctx.op("stablehlo.all_to_all", [x], [aval], attributes)
    return operation.results[0]


def permute(
    ctx: LoweringContext, x: IrValue, aval: ShapedArray, pairs: Sequence[tuple[int, int]]
) -> Any:
    """``stablehlo.collective_permute``; replicas that receive nothing get zeros."""
    table = np.asarray(pairs, np.int64).reshape(-1, 2)
    attributes = {"source_target_pairs": ctx.dense_i64(table), **_channel(ctx, numbers=False)}
    return ctx.op1("stablehlo.collective_permute", [x], aval, attributes)
