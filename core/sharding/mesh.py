"""Meshes: devices in a grid whose axes have names."""

from __future__ import annotations

import enum
import math
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from tracebridge.core.errors.runtime_errors import DevicePlacementError
from tracebridge.core.errors.transform_errors import AxisSpecError


class AxisType(enum.Enum):
    """Who decides how arrays are split over an axis of a mesh."""

    Auto = enum.auto()
    Explicit = enum.auto()
    Manual = enum.auto()

    def __repr__(self) -> str:
        return self.name


_INTERNED: weakref.WeakValueDictionary[tuple[Any, ...], Mesh] = weakref.WeakValueDictionary()


@final
class Mesh:
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

    def __new__(
        cls,
        devices: Any,
        axis_names: Any,
        axis_types: tuple[AxisType, ...] | AxisType | None = None,
    ) -> Mesh:
        grid = _grid(devices)
        names = _names(axis_names)
        if grid.ndim != len(names):
            msg = f"Mesh: devices have {grid.ndim} axes, but axis_names={names}"
            raise AxisSpecError(msg, expected="a name for each axis of the grid of devices")
        if len(set(names)) != len(names):
            raise AxisSpecError(f"Mesh: axis_names={names} repeat a name")
        types = _types(axis_types, len(names))
        flat = tuple(grid.flat)
        if len(set(flat)) != len(flat):
            raise DevicePlacementError("Mesh: a device appears twice in devices")
        key = (flat, grid.shape, names, types)
        found = _INTERNED.get(key)
        if found is None:
            found = object.__new__(cls)
            grid.flags.writeable = False
            found.devices = grid
            found.device_tuple = flat
            found.axis_names = names
            found.axis_types = types
            found = _INTERNED.setdefault(key, found)
        return found

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
        """Number of devices."""
        return math.prod(self.devices.shape)

    @property
    def empty(self) -> bool:
        """Whether there are no axes."""
        return self.devices.ndim == 0

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
    def is_multi_process(self) -> bool:
        """Whether some devices belong to other processes."""
        return len(self.local_devices) != self.size

    def __reduce__(self) -> Any:
        msg = "a mesh names devices of this process and cannot be pickled"
        raise TypeError(msg)

    def __repr__(self) -> str:
        sizes = ", ".join([f"{name!r}: {size}" for name, size in self.shape_tuple])
        types = ", ".join([t.name for t in self.axis_types])
        return f"Mesh({sizes}, axis_types=({types}))"


def _grid(devices: Any) -> np.ndarray[Any, Any]:
    """An own object array of devices; NumPy must not look into a device."""
    given = np.asarray(devices, dtype=object)
    grid = np.empty(given.shape, dtype=object)
    grid[...] = given
    return grid


def _names(axis_names: Any) -> tuple[Any, ...]:
    if isinstance(axis_names, str) or not isinstance(axis_names, Sequence):
        return (axis_names,)
    return tuple(axis_names)


def _types(types: tuple[AxisType, ...] | AxisType | None, n: int) -> tuple[AxisType, ...]:
    if types is None or isinstance(types, AxisType):
        return (types or AxisType.Auto,) * n
    found: tuple[Any, ...] = tuple(types)
    if len(found) != n or not all([isinstance(t, AxisType) for t in found]):
        msg = f"Mesh: axis_types={types}"
        raise AxisSpecError(msg, expected=f"{n} values of AxisType, one for each axis")
    return found
