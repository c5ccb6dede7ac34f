"""How the arguments and results of an exported program are split over devices.

The program itself is one of whole arrays. What it says of devices stands beside it: it is called
on as many as it was exported for, in the order of whatever mesh it is called on, which splits
arguments and results in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tracebridge.core.errors.export_errors import ExportError
from tracebridge.core.mlir.shardy import split_operand
from tracebridge.core.sharding.abstract_mesh import AbstractMesh
from tracebridge.core.sharding.equivalent import over_mesh
from tracebridge.core.sharding.mesh import Mesh
from tracebridge.core.sharding.named import NamedSharding
from tracebridge.core.sharding.partition_spec import PartitionSpec

if TYPE_CHECKING:
    from tracebridge.core.ir.rule_contexts import LoweringContext

Specs = tuple[PartitionSpec | None, ...]


class Spread(NamedTuple):
    """The axes of the mesh with their sizes, and the specifications; None where nothing is said."""

    axes: tuple[tuple[str, int], ...]
    ins: Specs
    outs: Specs

    @property
    def n_devices(self) -> int:
        """How many devices take part."""
        return math.prod([size for _, size in self.axes])

    def hlo(self, spec: PartitionSpec | None, ndim: int) -> Any:
        """XLA's sharding of an array of ``ndim`` axes; None where nothing is said."""
        if spec is None:
            return None
        sizes, names = [s for _, s in self.axes], tuple([n for n, _ in self.axes])
        return NamedSharding(AbstractMesh(tuple(sizes), names), spec).hlo(ndim)

    def over(self, mesh: Mesh, spec: PartitionSpec | None, ndim: int) -> NamedSharding | None:
        """The sharding on the devices of ``mesh``, by its own names of axes where it has such."""
        if spec is None:
            return None
        shape = [size for _, size in self.axes]
        own = Mesh(mesh.devices.reshape(shape), tuple([name for name, _ in self.axes]))
        sharding = NamedSharding(own, spec)
        found = over_mesh(mesh, sharding, ndim)
        return sharding if found is None else found

    def constrain(
        self, name: str, ctx: LoweringContext, values: Sequence[Any], specs: Specs
    ) -> list[Any]:
        """Operands or results, split in a program over a mesh as they were for the export.

        Raises:
            ExportError: the program runs on another number of devices.
        """
        mesh = ctx.mesh
        n = 1 if mesh is None else mesh.size
        if n != self.n_devices:
            raise ExportError(
                f"{name}: the program was exported for {self.n_devices} devices, and is called on "
                f"{n}",
                hint="call it with arguments that are spread over as many devices as it is for, "
                "such as exported.in_shardings_jax(mesh) says",
            )
        if mesh is None or type(mesh) is not Mesh or ctx.manual:
            return list(values)
        found: list[Any] = []
        for value, spec in zip(values, specs, strict=True):
            ndim = len(value.type.shape)
            place = self.over(mesh, spec, ndim)
            if place is not None and place.mesh is mesh:
                value = split_operand(name, ctx, value, place)  # noqa: PLW2901 - the value, split
            found.append(value)
        return found

    def of_pullback(self, moving_outs: Sequence[int], moving_ins: Sequence[int]) -> Spread:
        """That of the program that takes these and cotangents of results."""
        cotangents = [self.outs[i] for i in moving_outs]
        return Spread(self.axes, (*self.ins, *cotangents), tuple([self.ins[i] for i in moving_ins]))

    def to_json(self) -> list[Any]:
        """As lists of names and sizes."""
        rows = [[None if s is None else _entries(s) for s in specs] for specs in self[1:]]
        return [[list(pair) for pair in self.axes], *rows]


def spread_of(mesh: Any, ins: Sequence[Any], outs: Sequence[Any]) -> Spread:
    """That of a program over ``mesh`` with these shardings; None where the compiler chooses."""
    names = {name: str(name) for name in mesh.axis_names}
    axes = tuple([(names[name], size) for name, size in mesh.shape_tuple])

    def specs(shardings: Sequence[Any]) -> Specs:
        return tuple([None if s is None else _renamed(s.spec, names) for s in shardings])

    return Spread(axes, specs(ins), specs(outs))


def _renamed(spec: PartitionSpec, names: dict[Any, str]) -> PartitionSpec:
    rows = [[names[n] for n in (e if isinstance(e, tuple) else (e,)) if n in names] for e in spec]
    return PartitionSpec(*[tuple(row) or None for row in rows])


def _entries(spec: PartitionSpec) -> list[list[str]]:
    return [list(e) if isinstance(e, tuple) else [] if e is None else [e] for e in spec]


def spread_from_json(saved: Any) -> Spread | None:
    """What ``Spread.to_json`` wrote."""
    if saved is None:
        return None
    axes, ins, outs = saved

    def specs(rows: Any) -> Specs:
        return tuple(
            [None if r is None else PartitionSpec(*[tuple(e) or None for e in r]) for r in rows]
        )

    return Spread(tuple([(str(n), int(s)) for n, s in axes]), specs(ins), specs(outs))
