"""Shardings in StableHLO: the mesh of a module, and what operations say about it (dialect sdy).

Axes of the mesh are called a0, a1, ..., so that their own names may be anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracebridge.core._jaxlib import mlir
from tracebridge.core.mlir.attrs import string
from tracebridge.core.sharding.partition_spec import PartitionSpec

if TYPE_CHECKING:
    from tracebridge.core.sharding.mesh import Mesh
    from tracebridge.core.sharding.named import NamedSharding


def define_mesh(module: Any, mesh: Mesh) -> None:
    """Write the mesh into a module, if it does not have it."""
    ir = mlir.ir
    operations = [op.operation.name for op in module.body.operations]
    if "sdy.mesh" in operations:
        return
    sizes = ", ".join([f'"a{i}"={size}' for i, size in enumerate(mesh.axis_sizes)])
    attributes = {
        "sym_name": string("mesh"),
        "mesh": ir.Attribute.parse(f"#sdy.mesh<[{sizes}]>"),
    }
    with ir.InsertionPoint.at_block_begin(module.body):
        ir.Operation.create("sdy.mesh", attributes=attributes)


def sharding_attribute(sharding: NamedSharding, ndim: int) -> Any:
    """How an array with ``ndim`` axes is split; unconstrained axes are left to XLA."""
    rows = (*sharding.axes, *[()] * ndim)[:ndim]
    entries = (*sharding.spec, *[None] * ndim)[:ndim]
    dims = ", ".join(
        [
            "{?}" if entry is PartitionSpec.UNCONSTRAINED else _names(axes)
            for axes, entry in zip(rows, entries, strict=True)
        ]
    )
    return mlir.ir.Attribute.parse(f"#sdy.sharding<@mesh, [{dims}]>")


def _names(axes: tuple[int, ...]) -> str:
    return "{" + ", ".join([f'"a{a}"' for a in axes]) + "}"


def constrain(ctx: Any, x: Any, sharding: NamedSharding, ndim: int) -> Any:
    """``x``, split over the mesh of the module in this way."""
    operation = ctx.create(
        "sdy.sharding_constraint",
        results=[x.type],
        operands=[x],
        attributes={"sharding": sharding_attribute(sharding, ndim)},
    )
    return operation.results[0]
