"""shard_map: a Jaxpr of blocks, run by each device of a mesh on its own.

In a program over the mesh it is one operation, whose region each device runs. In programs for one
device, and over a mesh of one, the blocks are elements of batches, as in vmap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tracebridge.core.collectives.replicas import position_name
from tracebridge.core.control.pmap.rules import DevicesProgram, NamedSizes
from tracebridge.core.control.shard_map.callbacks import called_once
from tracebridge.core.control.shard_map.places import Place, stacked_over
from tracebridge.core.control.shard_map.rules import (
    as_parts,
    asks_for_position,
    axes_scope,
    on_one_device,
    sizes_of,
    spread,
)
from tracebridge.core.errors.runtime_errors import DevicePlacementError
from tracebridge.core.errors.transform_errors import AxisSizeError, AxisSpecError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.mlir.shardy import manual_computation
from tracebridge.core.mlir.types import tensor_type
from tracebridge.core.runtime.arrays.placement import MeshPlacement, all_at, moving
from tracebridge.core.runtime.calls.dispatch import single_step_jaxpr
from tracebridge.core.runtime.calls.execute import LIST, make_run
from tracebridge.core.runtime.programs.compile import compile_jaxpr
from tracebridge.core.sharding.mesh import Mesh
from tracebridge.core.sharding.named import NamedSharding
from tracebridge.core.sharding.partition_spec import PartitionSpec

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.application import Application, Params
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext


_I32 = np.dtype(np.int32)


@final
class ShardMap(DevicesProgram):
    """Parameters: ``jaxpr`` of blocks; ``mesh``; ``names`` of the axes whose devices have blocks.

    ``typed`` are those of them along which types say what varies (``check_vma``).
    ``in_places`` and ``out_places`` say how whole arrays are spread over these axes; the other
    axes of the mesh are left to XLA. ``name`` is what messages call it.
    """

    name = "shard_map"
    place_names = ("in_places", "out_places")

    def scope(self, params: Params) -> AbstractContextManager[None]:
        return axes_scope(params)

    def whole(self, aval: ShapedArray, place: Place, params: Params) -> ShapedArray:
        return place.whole(aval, sizes_of(params), params["mesh"])

    def shared(self, aval: ShapedArray, place: Place, params: Params) -> NamedSizes:
        """Where types know it, cotangents of what devices share are shared already."""
        known = frozenset(params["typed"]) - aval.vma
        found = [n for n in params["names"] if n not in place.names and n not in known]
        sizes = sizes_of(params)
        return tuple([(name, sizes[name]) for name in found])

    def own_names(self, params: Params) -> Sequence[Any]:
        return params["names"]

    def own(self, aval: ShapedArray, params: Params) -> Place:
        same = frozenset(params["typed"]) - aval.vma
        return stacked_over([name for name in params["names"] if name not in same], aval)

    def derived(
        self, params: Params, jaxpr: Jaxpr, ins: Sequence[Any], outs: Sequence[Any]
    ) -> dict[str, Any]:
        return super().derived(params, spread(jaxpr, outs, params["typed"]), ins, outs)

    def untyped(self, params: Params, names: Sequence[object]) -> dict[str, Any]:
        return {"typed": tuple([name for name in params["typed"] if name not in names])}

    def behind(self, place: Place, names: Sequence[object]) -> Place:
        return place.behind(names)

    def axes_of_batch(self, ctx: BatchContext, params: Params) -> NamedSizes:
        """Those that ``vmap`` says, if they are axes of this mesh with blocks."""
        sizes = sizes_of(params)
        wanted = [name for name in ctx.spmd_name or () if name in sizes]
        places = (*params["in_places"], *params["out_places"])
        if any([name in p.names for p in places if p.stacked is not None for name in wanted]):
            # Residuals lie along all axes; the mapped axis stays whole, as it was before them.
            return ()
        used = frozenset().union(*[p.names for p in places])
        taken = [n for n in wanted if n in used or super(ShardMap, self).names_axis(n, params)]
        if taken:
            raise AxisSpecError(
                f"vmap: spmd_axis_name names the axis {taken[0]!r}, which "
                f"shard_map({params['name']}) splits by itself",
                expected="an axis of the mesh that no specification and no collective inside names",
            )
        parts = math.prod([sizes[n] for n in wanted])
        if wanted and (type(ctx.size) is not int or ctx.size % parts):
            raise AxisSizeError(
                f"vmap: spmd_axis_name is {wanted} of {parts} devices, but the mapped axis has "
                f"size {ctx.size}",
                expected=f"a multiple of {parts}",
            )
        if ctx.axis_name is not None and super().names_axis(ctx.axis_name, params):
            return ()
        return tuple([(name, sizes[name]) for name in wanted])

    def wanted_sharding(self, params: Params) -> NamedSharding:
        return NamedSharding(params["mesh"], PartitionSpec())

    def names_axis(self, axis_name: object, params: Params) -> bool:
        return axis_name not in params["names"] and super().names_axis(axis_name, params)

    # evaluation and lowering ---------------------------------------------------------------------

    def prepare(self, app: Application, arrays: Sequence[Any]) -> Any:
        """Eagerly: a function that runs the program on arrays like these."""
        params = app.params
        mesh = _mesh_of(params, arrays)
        partial = len(params["names"]) < len(mesh.axis_names)
        ins = [NamedSharding(mesh, place.spec) for place in params["in_places"]]
        outs = [None if partial else NamedSharding(mesh, p.spec) for p in params["out_places"]]
        if partial:
            # Arguments enter as they are; XLA chooses for the axes that are left to it.
            given = [getattr(a, "sharding", None) for a in arrays]
            ins = [
                s if isinstance(s, NamedSharding) and s.mesh is mesh else i
                for s, i in zip(given, ins, strict=True)
            ]
        placement = MeshPlacement(mesh, tuple(ins), tuple(outs))
        program = compile_jaxpr(single_step_jaxpr(app), params["name"], placement)
        run = make_run(program, len(arrays), LIST, committed=True)
        return run if all_at([a._sig for a in arrays], placement) else moving(run, placement)

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        mesh = ctx.mesh
        if mesh is None or mesh.size == 1:
            return ctx.inline_jaxpr(on_one_device(params), operands)
        _check_mesh(ctx, params)
        if not ctx.manual:
            left = [name for name in mesh.axis_names if name not in params["names"]]
            params = called_once(self, params, left)
        jaxpr = as_parts(params)
        outer = ctx.axis_env, ctx.n_replicas, ctx.manual
        dims: list[Any] = [(name, value, ()) for name, value in sorted(ctx.dims_by_name().items())]
        if asks_for_position(jaxpr):
            for name, size in sizes_of(params).items():
                along = ctx.iota(ShapedArray((size,), _I32), 0)
                dims.append((position_name(name), along, ((name,),)))
        computation = manual_computation(
            ctx,
            [*[value for _, value, _ in dims], *operands],
            [*[axes for _, _, axes in dims], *[p.axes for p in params["in_places"]]],
            [p.axes for p in params["out_places"]],
            [tensor_type(a) for a in ctx.avals_out],
            params["names"],
        )
        ctx.axis_env, ctx.n_replicas = mesh.shape_tuple, mesh.size
        ctx.manual = (*ctx.manual, *params["names"])
        scalar = tensor_type(ShapedArray((), _I32))
        one = tensor_type(ShapedArray((1,), _I32))
        types = [one if axes else scalar for _, _, axes in dims]
        types += [tensor_type(a) for a in jaxpr.in_avals]
        ctx.fill_function(computation, types, jaxpr, [name for name, _, _ in dims], "sdy.return")
        ctx.axis_env, ctx.n_replicas, ctx.manual = outer
        return list(computation.results)


shard_map_p = ShardMap()


def _mesh_of(params: Params, arrays: Sequence[Any]) -> Mesh:
    """The devices of an eager call: those of the mesh, or else of an argument."""
    mesh = params["mesh"]
    if type(mesh) is Mesh:
        return mesh
    for array in arrays:
        own = getattr(array.sharding, "mesh", None)
        if type(own) is Mesh and own.shape_tuple == mesh.shape_tuple:
            return own
    raise DevicePlacementError(
        f"shard_map({params['name']}): {mesh} has no devices",
        expected="a Mesh, or arguments that are spread over such a mesh",
    )


def _check_mesh(ctx: LoweringContext, params: Params) -> None:
    """Raise unless the program runs on the mesh, and no shard_map around has its axes."""
    own, call = params["mesh"], f"shard_map({params['name']})"
    mesh: Any = ctx.mesh
    same = own.shape_tuple == mesh.shape_tuple
    if not same or (type(own) is Mesh and own.device_tuple != mesh.device_tuple):
        raise DevicePlacementError(
            f"{call}: its mesh {own} is another, or of other devices, than that of the program, "
            f"which runs on {mesh}",
            hint="use one mesh in a program",
        )
    taken = [name for name in params["names"] if name in ctx.manual]
    if taken:
        raise AxisSpecError(
            f"{call}: the axis {taken[0]!r} is one of a shard_map around it, whose devices have "
            "their own blocks already",
            hint="give axis_names the axes that are left",
        )
