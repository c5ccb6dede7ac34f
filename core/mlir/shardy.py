"""Shardings in StableHLO: the mesh of a module, and what operations say about it (dialect sdy).

Axes of the mesh keep their names if all are identifiers; otherwise they are called a0, a1, ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracebridge.core._jaxlib import mlir
from tracebridge.core.errors.runtime_errors import DevicePlacementError
from tracebridge.core.mlir.attrs import string
from tracebridge.core.sharding.equivalent import over_mesh
from tracebridge.core.sharding.partition_spec import PartitionSpec

if TYPE_CHECKING:
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.sharding.mesh import Mesh
    from tracebridge.core.sharding.named import NamedSharding


def _labels(mesh: Mesh) -> list[str]:
    """What the axes of the mesh are called in a module: strings, whatever their names are."""
    names = mesh.axis_names
    if all([isinstance(name, str) and name.isidentifier() for name in names]):
        return list(names)
    return [f"a{i}" for i in range(len(names))]


def define_mesh(module: Any, mesh: Mesh) -> None:
    """Write the mesh into a module, if it does not have it."""
    ir = mlir.ir
    for op in module.body.operations:
        if op.operation.name == "sdy.mesh" and op.attributes["sym_name"].value == "mesh":
            return
    pairs = zip(_labels(mesh), mesh.axis_sizes, strict=True)
    sizes = ", ".join([f'"{label}"={size}' for label, size in pairs])
    attributes = {
        "sym_name": string("mesh"),
        "mesh": ir.Attribute.parse(f"#sdy.mesh<[{sizes}]>"),
    }
    with ir.InsertionPoint.at_block_begin(module.body):
        ir.Operation.create("sdy.mesh", attributes=attributes)


def on_first_device(ctx: LoweringContext, n_results: int) -> dict[str, Any]:
    """Attributes of an operation that only the first device of the mesh carries out."""
    if ctx.mesh is None or ctx.mesh.size == 1:
        return {}
    ir = mlir.ir
    names = [
        op.attributes["sym_name"].value
        for op in ctx.module.body.operations
        if op.operation.name == "sdy.mesh"
    ]
    if "first_device" not in names:
        mesh = ir.Attribute.parse("#sdy.mesh<[], device_ids=[0]>")
        with ir.InsertionPoint.at_block_begin(ctx.module.body):
            ir.Operation.create(
                "sdy.mesh", attributes={"sym_name": string("first_device"), "mesh": mesh}
            )
    each = ", ".join(["<@first_device, []>"] * max(n_results, 1))
    return {"sdy.sharding": ir.Attribute.parse(f"#sdy.sharding_per_value<[{each}]>")}


def sharding_attribute(sharding: NamedSharding, ndim: int) -> Any:
    """How an array with ``ndim`` axes is split; unconstrained axes are left to XLA."""
    rows = (*sharding.axes, *[()] * ndim)[:ndim]
    entries = (*sharding.spec, *[None] * ndim)[:ndim]
    labels = _labels(sharding.mesh)
    dims = ", ".join(
        [
            "{?}" if entry is PartitionSpec.UNCONSTRAINED else _names(labels, axes)
            for axes, entry in zip(rows, entries, strict=True)
        ]
    )
    return mlir.ir.Attribute.parse(f"#sdy.sharding<@mesh, [{dims}]>")


def _names(labels: list[str], axes: tuple[int, ...]) -> str:
    return "{" + ", ".join([f'"{labels[a]}"' for a in axes]) + "}"


def split_operand(call: str, ctx: LoweringContext, x: Any, sharding: NamedSharding) -> Any:
    """The operand ``x`` of an equation, constrained to ``sharding`` in a program over a mesh.

    Raises:
        DevicePlacementError: the sharding is about other devices.
    """
    ndim = ctx.avals_in[0].ndim
    mesh = ctx.mesh
    axes_of_dims = None if mesh is None else over_mesh(mesh, sharding.on_mesh(mesh), ndim)
    if axes_of_dims is None:
        msg = f"{call}: {sharding} is about other devices than the program, which runs on "
        raise DevicePlacementError(f"{msg}{mesh}", hint="use one mesh in a program")
    operation = ctx.create(
        "sdy.sharding_constraint",
        results=[x.type],
        operands=[x],
        attributes={"sharding": sharding_attribute(axes_of_dims, ndim)},
    )
    return operation.results[0]
