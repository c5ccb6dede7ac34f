"""Meshes: devices in a grid whose axes have names."""

from __future__ import annotations

import functools
import weakref
from collections import OrderedDict
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, final

import numpy as np

from tracebridge.core.config.scope_stack import Change
from tracebridge.core.config.state import SCOPES, enter_scope, with_entered_mesh
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.runtime_errors import DevicePlacementError
from tracebridge.core.errors.transform_errors import AxisSpecError
from tracebridge.core.sharding.abstract_mesh import AbstractDevice, AbstractMesh
from tracebridge.core.sharding.axis_types import (
    AxisType,
    TypedAxes,
    axis_names_of,
    axis_types_of,
)
from tracebridge.core.util.public_path import public_path

# The open ``with mesh`` blocks of each mesh, in all threads.
_ENTERED: weakref.WeakKeyDictionary[Mesh, list[Change]] = weakref.WeakKeyDictionary()
_INTERNED: weakref.WeakValueDictionary[tuple[Any, ...], Mesh] = weakref.WeakValueDictionary()


@public_path("tracebridge.sharding")
@final
class Mesh(TypedAxes):
    """Devices in a grid whose axes have names. Interned: compare with ``==``.

    Args:
        devices: an ndarray, or nested sequence, of devices.
        axis_names: a name for each axis of the grid.
        axis_types: an ``AxisType`` for each axis; ``Auto`` by default.

    Raises:
        AxisSpecError: the names do not fit the grid, or repeat.
        DevicePlacementError: a device appears twice.

    >>> import tracebridge as tb
    >>> mesh = tb.sharding.Mesh(tb.devices("cpu")[:1], ("x",))
    >>> mesh.shape["x"], mesh.size
    (1, 1)
    """

    __slots__ = ("__weakref__", "axis_names", "axis_types", "device_tuple", "devices")
    devices: np.ndarray[Any, Any]
    axis_names: tuple[Any, ...]
    axis_types: tuple[AxisType, ...]
    device_tuple: tuple[Any, ...]

    @api_boundary
    def __new__(
        cls,
        devices: object,
        axis_names: object,
        axis_types: tuple[AxisType, ...] | AxisType | None = None,
    ) -> Mesh:
        grid = _grid(devices)
        names = axis_names_of("Mesh", axis_names)
        if grid.ndim != len(names):
            msg = f"Mesh: devices have {grid.ndim} axes, but axis_names={names}"
            raise AxisSpecError(msg, expected="a name for each axis of the grid of devices")
        types = axis_types_of("Mesh", axis_types, len(names))
        # A grid without axes has one place, but no device.
        flat = tuple(grid.flat) if names else ()
        if len(set(flat)) != len(flat):
            raise DevicePlacementError("Mesh: a device appears twice in devices")
        key = (flat, grid.shape, names, types)
        cached = _INTERNED.get(key)
        if cached is None:
            cached = object.__new__(cls)
            grid.flags.writeable = False
            cached.devices = grid
            cached.device_tuple = flat
            cached.axis_names = names
            cached.axis_types = types
            cached = _INTERNED.setdefault(key, cached)
        return cached

    @property
    def axis_sizes(self) -> tuple[int, ...]:
        """The size of each axis."""
        return self.devices.shape

    @property
    def shape(self) -> OrderedDict[Any, int]:
        """The size of each axis by name."""
        return OrderedDict(zip(self.axis_names, self.devices.shape, strict=True))

    @property
    def shape_tuple(self) -> tuple[tuple[Any, int], ...]:
        """Pairs of names and sizes."""
        return tuple(zip(self.axis_names, self.devices.shape, strict=True))

    @property
    def size(self) -> int:
        """Number of devices; none without axes."""
        return len(self.device_tuple)

    @property
    def empty(self) -> bool:
        """Whether there are no axes."""
        return self.devices.ndim == 0

    @property
    def is_scalar(self) -> bool:
        """Whether it is one device without axes."""
        return self.size == 1 and not self.axis_names

    @property
    def device_ids(self) -> np.ndarray[Any, Any]:
        """The numbers of the devices, in the grid."""
        ids = [d.id for d in self.device_tuple]
        return np.asarray(ids, dtype=np.int64).reshape(self.devices.shape)

    @property
    def local_devices(self) -> list[Any]:
        """The devices of this process."""
        return [d for d in self.device_tuple if d.process_index == d.client.process_index()]

    @property
    def local_mesh(self) -> Mesh:
        """The part of the grid whose devices are of this process: the mesh itself, if it is one.

        Raises:
            DevicePlacementError: the devices of this process are no grid.
        """
        if not self.is_multi_process:
            return self
        local = set(self.local_devices)
        mine = np.array([d in local for d in self.device_tuple]).reshape(self.devices.shape)
        inside = np.ix_(
            *[
                mine.any(axis=tuple([a for a in range(mine.ndim) if a != axis]))
                for axis in range(mine.ndim)
            ]
        )
        if not mine[inside].all():
            raise DevicePlacementError(f"the devices of this process are no grid in {self}")
        return Mesh(self.devices[inside], self.axis_names, self.axis_types)

    def update(self, **changes: Any) -> Mesh:
        """The same with other ``devices``, ``axis_names`` or ``axis_types``."""
        return Mesh(
            changes.get("devices", self.devices),
            changes.get("axis_names", self.axis_names),
            changes.get("axis_types", self.axis_types),
        )

    @property
    def is_multi_process(self) -> bool:
        """Whether some devices belong to other processes."""
        return len(self.local_devices) != self.size

    @property
    def abstract_mesh(self) -> AbstractMesh:
        """The names and sizes of the axes, without the devices."""
        device = None
        if self.device_tuple:
            first = self.device_tuple[0]
            device = AbstractDevice(
                first.device_kind, getattr(first, "num_cores", None), first.platform
            )
        sizes = self.axis_sizes
        return AbstractMesh(sizes, self.axis_names, self.axis_types, abstract_device=device)

    def __enter__(self) -> Mesh:
        """Put the mesh in force for shardings inside a block.

        As ``with set_mesh(mesh)``, but computations on uncommitted arrays stay on one device.
        """
        change = enter_scope(with_entered_mesh, self)
        _ENTERED.setdefault(self, []).append(change)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        SCOPES.leave_one_of(_ENTERED[self])

    def __call__(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """``fun``, each call of which runs inside of ``with mesh:``; for decorators."""

        @functools.wraps(fun)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with self:
                return fun(*args, **kwargs)

        return inside

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        del memo
        return self

    def __reduce__(self) -> Any:
        msg = "a mesh names devices of this process and cannot be pickled"
        raise TypeError(msg)

    def __repr__(self) -> str:
        types = "" if self.empty else f", axis_types={self.axis_types}"
        return f"Mesh(axis_sizes={self.axis_sizes}, axis_names={self.axis_names}{types})"

    def __str__(self) -> str:
        if self.empty:
            return "Mesh()"
        sizes = ", ".join([f"{name!r}: {size}" for name, size in self.shape_tuple])
        return f"Mesh({sizes}, axis_types={self.axis_types})"


def _grid(devices: object) -> np.ndarray[Any, Any]:
    """An own object array of devices; NumPy must not look into a device."""
    given = np.asarray(devices, dtype=object)
    grid = np.empty(given.shape, dtype=object)
    grid[...] = given
    return grid


EMPTY_MESH = Mesh(np.empty((), dtype=object), ())
