"""NamedSharding: an array split over the named axes of a mesh."""

from __future__ import annotations

import math
import weakref
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast, final

import numpy as np

from tracebridge.core._jaxlib.xla import HloSharding, OpSharding, gspmd_sharding
from tracebridge.core.errors.filtering import hide_internal_frames
from tracebridge.core.errors.runtime_errors import DevicePlacementError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.errors.transform_errors import AxisSpecError
from tracebridge.core.sharding.abstract_mesh import AbstractMesh
from tracebridge.core.sharding.axis_types import AxisType
from tracebridge.core.sharding.mesh import Mesh
from tracebridge.core.sharding.partition_spec import PartitionSpec, entry_names
from tracebridge.core.sharding.sharding import (
    Sharding,
    count_parts,
    default_memory_kind,
    own_memory_kind,
)
from tracebridge.core.util.public_path import public_path

if TYPE_CHECKING:
    from collections.abc import Sequence

_INTERNED: weakref.WeakValueDictionary[tuple[Any, ...], NamedSharding] = (
    weakref.WeakValueDictionary()
)


@public_path("tracebridge")
@final
class NamedSharding(Sharding):
    """An array whose axes are split over the axes of a mesh, as a PartitionSpec says.

    Mesh axes that the specification does not name hold copies. Interned.

    Args:
        mesh: the devices; or an ``AbstractMesh``, for shapes of parts and for constraints.
        spec: for each axis of the array the mesh axes that split it.
        memory_kind: kind of memory on the devices; None is their default.

    Raises:
        AxisSpecError: the specification names an axis that the mesh does not have, or one twice.
        ArgumentValueError: the devices have no memory of this kind.

    >>> import tracebridge as tb
    >>> P = tb.sharding.PartitionSpec
    >>> mesh = tb.make_mesh((1,), ("x",), devices=tb.devices("cpu")[:1])
    >>> tb.sharding.NamedSharding(mesh, P("x")).shard_shape((4, 2))
    (4, 2)
    """

    # The dictionary holds what properties compute once.
    __slots__ = ("__dict__", "__weakref__", "_backend", "_memory_kind", "mesh", "spec")
    mesh: Mesh
    spec: PartitionSpec
    _memory_kind: str | None
    _backend: dict[int, Any]

    def __new__(
        cls, mesh: Mesh | AbstractMesh, spec: PartitionSpec, *, memory_kind: str | None = None
    ) -> NamedSharding:
        try:
            key = (mesh, spec, memory_kind)
            cached = _INTERNED.get(key)
            if cached is None:
                _check(mesh, spec)
                if memory_kind is not None and type(mesh) is Mesh and mesh.size:
                    kind = own_memory_kind("NamedSharding", mesh.device_tuple[0], memory_kind)
                    if kind is None:
                        return NamedSharding(mesh, spec)
                cached = object.__new__(cls)
                cached.mesh = cast("Mesh", mesh)  # an abstract one has the same axes
                cached.spec = spec
                cached._memory_kind = memory_kind
                cached._backend = {}
                cached = _INTERNED.setdefault(key, cached)
        except Exception as error:
            hide_internal_frames(error)
            raise
        return cached

    @property
    def device_tuple(self) -> tuple[Any, ...]:
        """The devices in the order of the mesh."""
        if type(self.mesh) is not Mesh:
            raise DevicePlacementError(
                f"{self!r} has no devices", expected="a sharding over a Mesh, not an AbstractMesh"
            )
        if not self.mesh.size:
            # XLA would end the process.
            raise DevicePlacementError(f"{self!r} has no devices", expected="a mesh with devices")
        return self.mesh.device_tuple

    @property
    def memory_kind(self) -> str | None:
        """The kind of memory on the devices; None where the mesh has no devices."""
        if self._memory_kind is not None or type(self.mesh) is not Mesh or not self.mesh.size:
            return self._memory_kind
        return default_memory_kind(self.mesh.device_tuple[0])

    @cached_property
    def axes(self) -> tuple[tuple[int, ...], ...]:
        """For each entry of the specification the positions of its mesh axes."""
        names = self.mesh.axis_names
        return tuple([tuple([names.index(n) for n in entry_names(e)]) for e in self.spec])

    @property
    def is_fully_replicated(self) -> bool:
        """Whether each device holds the whole array."""
        sizes = self.mesh.axis_sizes
        return all([sizes[a] == 1 for axes in self.axes for a in axes])

    @property
    def replicated_axes(self) -> frozenset[Any]:
        """The axes of the mesh along which devices hold the same."""
        named = {name for entry in self.spec for name in entry_names(entry)}
        return frozenset(self.mesh.axis_names) - named - self.spec.unreduced - self.spec.reduced

    def parts_of(self, ndim: int) -> tuple[int, ...]:
        """Into how many parts each axis of an array with ``ndim`` axes is split."""
        self._check_rank(ndim)
        sizes = self.mesh.axis_sizes
        parts = [math.prod([sizes[a] for a in axes]) for axes in self.axes]
        return (*parts, *[1] * ndim)[:ndim]

    def positions(self, ndim: int) -> Sequence[tuple[int, ...]]:
        """For each device, which part of each axis it holds."""
        self._check_rank(ndim)
        sizes = self.mesh.axis_sizes
        result: list[tuple[int, ...]] = []
        for place in np.ndindex(*sizes):
            row: list[int] = []
            for axes in self.axes:
                part = 0
                for a in axes:
                    part = part * sizes[a] + place[a]
                row.append(part)
            result.append((*row, *[0] * ndim)[:ndim])
        return result

    def backend_for(self, ndim: int) -> Any:
        """The jaxlib sharding of arrays with ``ndim`` axes."""
        found = self._backend.get(ndim)
        if found is None:
            made = gspmd_sharding(self.device_tuple, self.hlo(ndim), self._memory_kind)
            found = self._backend.setdefault(ndim, made)
        return found

    def hlo(self, ndim: int) -> Any:
        """How XLA says it, for an array of ``ndim`` axes."""
        parts = self.parts_of(ndim)
        if count_parts(parts) == 1:
            return HloSharding.replicate()
        sizes = self.mesh.axis_sizes
        used = [a for axes in self.axes for a in axes]
        rest = [a for a in range(len(sizes)) if a not in used]
        copies = math.prod([sizes[a] for a in rest])
        dims = [*parts, copies] if copies > 1 else [*parts]
        types = [OpSharding.Type.REPLICATED] if copies > 1 else []
        return HloSharding.iota_tile(dims, [*sizes], [*used, *rest], types)

    def _check_rank(self, ndim: int) -> None:
        if len(self.spec) > ndim:
            msg = f"{self!r} is for arrays with at least {len(self.spec)} axes, got {ndim}"
            raise ShapeMismatchError(msg)

    def update(self, **changes: Any) -> NamedSharding:
        """The same with other ``mesh``, ``spec`` or ``memory_kind``."""
        mesh = changes.get("mesh", self.mesh)
        kind = changes.get("memory_kind", self._memory_kind)
        return NamedSharding(mesh, changes.get("spec", self.spec), memory_kind=kind)

    def on_mesh(self, mesh: Mesh) -> NamedSharding:
        """The same over the devices of ``mesh``, if this one is abstract and has its axes."""
        abstract: Any = self.mesh
        if type(abstract) is Mesh or abstract.shape_tuple != mesh.shape_tuple:
            return self
        return self.update(mesh=mesh.update(axis_types=abstract.axis_types))

    def without_open_axes(self) -> NamedSharding:
        """The same with axes whole that are left to XLA."""
        open_axis = PartitionSpec.UNCONSTRAINED
        if not any([entry is open_axis for entry in self.spec]):
            return self
        entries = [None if entry is open_axis else entry for entry in self.spec]
        return self.update(spec=PartitionSpec(*entries))

    def with_spec(self, spec: PartitionSpec) -> NamedSharding:
        """The same with another specification."""
        return self.update(spec=spec)

    def with_memory_kind(self, kind: str) -> NamedSharding:
        """The same in another kind of memory."""
        return self.update(memory_kind=kind)

    def __repr__(self) -> str:
        kind = "" if self.memory_kind is None else f", memory_kind={self.memory_kind}"
        return f"NamedSharding(mesh={self.mesh}, spec={self.spec}{kind})"


def _check(mesh: object, spec: object) -> None:
    if not isinstance(mesh, Mesh | AbstractMesh):
        msg = f"NamedSharding: mesh is {mesh!r} of type {type(mesh).__name__}"
        raise AxisSpecError(msg, expected="a Mesh")
    if not isinstance(spec, PartitionSpec):
        msg = f"NamedSharding: spec is {spec!r} of type {type(spec).__name__}"
        raise AxisSpecError(msg, expected="a PartitionSpec")
    types: Any = mesh.axis_types
    if PartitionSpec.UNCONSTRAINED in tuple(spec) and types and AxisType.Auto not in types:
        raise AxisSpecError(
            f"NamedSharding: {spec} leaves an axis to the compiler (UNCONSTRAINED), but {mesh} has "
            "no axis of the type Auto that it could use"
        )
    named = [name for entry in spec for name in entry_names(entry)]
    for name in named:
        if name not in mesh.axis_names:
            msg = f"NamedSharding: {spec} names the axis {name!r}"
            raise AxisSpecError(msg, expected=f"axes of {mesh}")
        if named.count(name) > 1:
            raise AxisSpecError(f"NamedSharding: {spec} names the axis {name!r} twice")
