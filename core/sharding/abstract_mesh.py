"""Meshes without devices: names and sizes of axes."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, final

from tracebridge.core.errors.transform_errors import AxisSpecError
from tracebridge.core.sharding.axis_types import (
    AxisType,
    TypedAxes,
    axis_names_of,
    axis_types_of,
)
from tracebridge.core.util.public_path import public_path


@public_path("tracebridge.sharding")
@final
class AbstractDevice:
    """The kind of device that an abstract mesh is meant for.

    >>> import tracebridge as tb
    >>> tb.sharding.AbstractDevice("cpu", None, "cpu")
    AbstractDevice(device_kind='cpu', num_cores=None, platform='cpu')
    """

    __slots__ = ("device_kind", "num_cores", "platform")

    def __init__(self, device_kind: str, num_cores: int | None, platform: str) -> None:
        self.device_kind = device_kind
        self.num_cores = num_cores
        self.platform = platform

    def _key(self) -> tuple[Any, ...]:
        return self.device_kind, self.num_cores, self.platform

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, AbstractDevice) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        kind, cores, platform = self._key()
        return f"AbstractDevice(device_kind={kind!r}, num_cores={cores}, platform={platform!r})"


@public_path("tracebridge.sharding")
@final
class AbstractMesh(TypedAxes):
    """The names and sizes of the axes of a mesh, without its devices. Immutable.

    Args:
        axis_sizes: the size of each axis.
        axis_names: a name for each axis.
        axis_types: an ``AxisType`` for each axis, or one for all; ``Auto`` by default.
        abstract_device: the kind of device that the mesh is meant for.

    Raises:
        AxisSpecError: sizes and names do not fit, or a name repeats.

    >>> import tracebridge as tb
    >>> mesh = tb.sharding.AbstractMesh((4, 2), ("x", "y"))
    >>> mesh.shape["x"], mesh.size
    (4, 8)
    """

    __slots__ = ("_abstract_device", "_names", "_sizes", "_types")

    def __init__(
        self,
        axis_sizes: tuple[int, ...],
        axis_names: tuple[Any, ...],
        axis_types: AxisType | tuple[AxisType, ...] | None = None,
        *,
        abstract_device: AbstractDevice | None = None,
    ) -> None:
        self._sizes = tuple(axis_sizes)
        self._names = axis_names_of("AbstractMesh", axis_names)
        if len(self._sizes) != len(self._names):
            msg = f"AbstractMesh: axis_sizes={self._sizes}, but axis_names={self._names}"
            raise AxisSpecError(msg, expected="a name for each size")
        self._types = axis_types_of("AbstractMesh", axis_types, len(self._names))
        self._abstract_device = abstract_device

    @property
    def axis_sizes(self) -> tuple[int, ...]:
        """The size of each axis."""
        return self._sizes

    @property
    def axis_names(self) -> tuple[Any, ...]:
        """The name of each axis."""
        return self._names

    @property
    def axis_types(self) -> tuple[AxisType, ...]:
        """The type of each axis."""
        return self._types

    @property
    def abstract_device(self) -> AbstractDevice | None:
        """The kind of device that the mesh is meant for."""
        return self._abstract_device

    @property
    def abstract_mesh(self) -> AbstractMesh:
        """The mesh itself."""
        return self

    @property
    def shape(self) -> OrderedDict[Any, int]:
        """The size of each axis by name."""
        return OrderedDict(self.shape_tuple)

    @property
    def shape_tuple(self) -> tuple[tuple[Any, int], ...]:
        """Pairs of names and sizes."""
        return tuple(zip(self._names, self._sizes, strict=True))

    @property
    def size(self) -> int:
        """Number of devices; none without axes."""
        return math.prod(self._sizes) if self._names else 0

    @property
    def empty(self) -> bool:
        """Whether there are no axes."""
        return not self._names

    def update(self, **changes: Any) -> AbstractMesh:
        """The same with other ``axis_sizes``, ``axis_names``, ``axis_types``, ``abstract_device``.

        >>> import tracebridge as tb
        >>> tb.sharding.AbstractMesh((2,), ("x",)).update(axis_sizes=(4,))
        AbstractMesh('x': 4, axis_types=(Auto,))
        """
        return AbstractMesh(
            changes.get("axis_sizes", self._sizes),
            changes.get("axis_names", self._names),
            changes.get("axis_types", self._types),
            abstract_device=changes.get("abstract_device", self._abstract_device),
        )

    def update_axis_types(self, name_to_type: Mapping[Any, AxisType]) -> AbstractMesh:
        """The same, where the axes that ``name_to_type`` names have other types.

        >>> import tracebridge as tb
        >>> mesh = tb.sharding.AbstractMesh((2, 4), ("x", "y"))
        >>> mesh.update_axis_types({"y": tb.sharding.AxisType.Explicit}).axis_types
        (Auto, Explicit)
        """
        pairs = zip(self._names, self._types, strict=True)
        return self.update(axis_types=tuple([name_to_type.get(n, t) for n, t in pairs]))

    def _key(self) -> tuple[Any, ...]:
        return self._sizes, self._names, self._types, self._abstract_device

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, AbstractMesh) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        sizes = "".join([f"{name!r}: {size}, " for name, size in self.shape_tuple])
        return f"AbstractMesh({sizes}axis_types={self._types})"


EMPTY_ABSTRACT_MESH = AbstractMesh((), ())
