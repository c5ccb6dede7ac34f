"""Shardings in StableHLO: the mesh of a module, and what operations say about it (dialect sdy).

Axes of the mesh keep their names if all are identifiers; otherwise they are called a0, a1, ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracebridge.core._jaxlib import mlir
from tracebridge.core.errors.runtime_errors import DevicePlacementError
from tracebridge.core.errors.transform_errors import AxisSpecError
from tracebridge.core.mlir.attrs import string
from tracebridge.core.sharding.axis_types import AxisType
from tracebridge.core.sharding.equivalent import over_mesh
from tracebridge.core.sharding.partition_spec import PartitionSpec, entry_names

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    if ctx.mesh is None or ctx.mesh.size == 1 or ctx.manual:
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


def sharding_attribute(sharding: NamedSharding, ndim: int, *, is_open: bool = False) -> Any:
    """How an array with ``ndim`` axes is split; unconstrained axes are left to XLA.

    If ``is_open``, XLA may split it further, over axes of the mesh that have the type Auto.
    """
    rows = (*sharding.axes, *[()] * ndim)[:ndim]
    entries = (*sharding.spec, *[None] * ndim)[:ndim]
    labels = _labels(sharding.mesh)
    dims = ", ".join(
        [
            "{?}" if entry is PartitionSpec.UNCONSTRAINED else _names(labels, axes, is_open=is_open)
            for axes, entry in zip(rows, entries, strict=True)
        ]
    )
    rest = ""
    if is_open:
        taken = {a for axes in rows for a in axes}
        pairs = enumerate(zip(labels, sharding.mesh.axis_types, strict=True))
        whole = [f'"{n}"' for a, (n, t) in pairs if t is not AxisType.Auto and a not in taken]
        rest = f", replicated={{{', '.join(whole)}}}" if whole else ""
    return mlir.ir.Attribute.parse(f"#sdy.sharding<@mesh, [{dims}]{rest}>")


def _names(labels: list[str], axes: tuple[int, ...], *, is_open: bool) -> str:
    parts = [f'"{labels[a]}"' for a in axes] + (["?"] if is_open else [])
    return "{" + ", ".join(parts) + "}"


def manual_computation(
    ctx: LoweringContext,
    operands: Sequence[Any],
    in_axes: Sequence[Sequence[Sequence[object]]],
    out_axes: Sequence[Sequence[Sequence[object]]],
    out_types: Sequence[Any],
    names: Sequence[object],
) -> Any:
    """The operation whose region, still empty, each device runs on its parts of the operands.

    ``in_axes`` and ``out_axes`` hold for each axis of an array the names of the axes of the mesh
    that split it; ``names`` are those that do, the others are left to XLA.
    """
    mesh: Any = ctx.mesh
    labels = dict(zip(mesh.axis_names, _labels(mesh), strict=True))
    rest = len(names) < len(mesh.axis_names)

    def dim(axes: Sequence[object]) -> str:
        parts = [f'"{labels[a]}"' for a in axes] + (["?"] if rest else [])
        return "{" + ", ".join(parts) + "}"

    def per_value(rows: Sequence[Sequence[Sequence[object]]], types: Sequence[Any]) -> Any:
        # Arrays of keys have more axes than their avals say.
        whole = [[*row, *[()] * (t.rank - len(row))] for row, t in zip(rows, types, strict=True)]
        each = [f"<@mesh, [{', '.join([dim(axes) for axes in row])}]>" for row in whole]
        return mlir.ir.Attribute.parse(f"#sdy.sharding_per_value<[{', '.join(each)}]>")

    manual = ", ".join([f'"{labels[n]}"' for n in names])
    return ctx.create(
        "sdy.manual_computation",
        results=list(out_types),
        operands=list(operands),
        attributes={
            "in_shardings": per_value(in_axes, [v.type for v in operands]),
            "out_shardings": per_value(out_axes, out_types),
            "manual_axes": mlir.ir.Attribute.parse(f"#sdy<manual_axes{{{manual}}}>"),
        },
        regions=1,
    )


def split_operand(call: str, ctx: LoweringContext, x: Any, sharding: NamedSharding) -> Any:
    """The operand ``x`` of an equation, constrained to ``sharding`` in a program over a mesh.

    Raises:
        DevicePlacementError: the sharding is about other devices.
    """
    ndim = mlir.ir.RankedTensorType(x.type).rank
    mesh = ctx.mesh
    if ctx.manual and mesh is not None:
        named = [n for entry in sharding.spec for n in entry_names(entry)]
        taken = [n for n in named if n in ctx.manual]
        if taken and len(ctx.manual) < len(mesh.axis_names):
            raise AxisSpecError(
                f"{call}: {sharding.spec} names the axis {taken[0]!r}, which is manual inside this "
                "shard_map: each device has its own part",
                hint="name only axes that the shard_map leaves to the compiler",
            )
        if len(ctx.manual) == len(mesh.axis_names):
            return x
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
