"""Grids of devices for meshes; the sharding over one device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracebridge._api.args.placements import single_device
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.runtime_errors import DevicePlacementError
from tracebridge.core.errors.transform_errors import AxisSpecError
from tracebridge.core.runtime.backends.clients import get_backend
from tracebridge.core.sharding.single_device import SingleDeviceSharding

Grid = np.ndarray[Any, Any]


@api_boundary
def make_single_device_sharding(
    device: object, *, memory_kind: str | None = None
) -> SingleDeviceSharding:
    """The sharding of arrays that live whole on one device.

    Args:
        device: the device.
        memory_kind: kind of memory on the device; None is its default.

    Raises:
        DevicePlacementError: ``device`` is no device.

    >>> import tracebridge as tb
    >>> tb.sharding.make_single_device_sharding(tb.devices("cpu")[0]).num_devices
    1
    """
    checked_device = single_device("make_single_device_sharding: device", device)
    return SingleDeviceSharding(checked_device, memory_kind=memory_kind)


@api_boundary
def create_device_mesh(
    mesh_shape: Sequence[int],
    devices: Sequence[object] | None = None,
    *,
    contiguous_submeshes: bool = False,
    allow_split_physical_axes: bool = False,
) -> Grid:
    """Devices in a grid, for a ``Mesh``.

    Args:
        mesh_shape: the size of each axis; their product is the number of devices.
        devices: the devices; by default all of the default platform.
        contiguous_submeshes: accepted for compatibility. It is about devices of several hosts
            with a torus between them; here devices keep their order, in which those of one
            process stand together.
        allow_split_physical_axes: likewise.

    Returns:
        An ndarray of devices of the shape ``mesh_shape``, in their order.

    Raises:
        AxisSpecError: ``mesh_shape`` contains something else than positive ints.
        DevicePlacementError: the number of devices is another.

    >>> import tracebridge as tb
    >>> from tracebridge.experimental.mesh_utils import create_device_mesh
    >>> create_device_mesh((1, 1), tb.devices("cpu")[:1]).shape
    (1, 1)
    """
    del contiguous_submeshes, allow_split_physical_axes
    sizes = _sizes("create_device_mesh: mesh_shape", mesh_shape)
    return _grid("create_device_mesh", sizes, _listed(devices))


@api_boundary
def create_hybrid_device_mesh(
    mesh_shape: Sequence[int],
    dcn_mesh_shape: Sequence[int],
    devices: Sequence[object] | None = None,
    *,
    process_is_granule: bool = False,
    should_sort_granules_by_key: bool = True,
    allow_split_physical_axes: bool = False,
) -> Grid:
    """Devices of several groups in one grid: each axis runs over groups, then inside a group.

    Args:
        mesh_shape: the grid inside a group of devices with a fast network.
        dcn_mesh_shape: the grid of the groups; as many axes.
        devices: the devices; by default all of the default platform.
        process_is_granule: whether the devices of one process are a group. By default the
            attribute ``slice_index`` of the devices tells their group.
        should_sort_granules_by_key: put the groups in the order of their numbers; otherwise in
            that in which ``devices`` names them.
        allow_split_physical_axes: as in ``create_device_mesh``.

    Returns:
        An ndarray of devices whose axes have the products of the two sizes.

    Raises:
        AxisSpecError: the two shapes have different numbers of axes.
        DevicePlacementError: there are other numbers of groups, or of devices in one, or the
            devices have no ``slice_index``.

    >>> import tracebridge as tb
    >>> from tracebridge.experimental.mesh_utils import create_hybrid_device_mesh
    >>> one = tb.devices("cpu")[:1]
    >>> create_hybrid_device_mesh((1,), (1,), one, process_is_granule=True).shape
    (1,)
    """
    del allow_split_physical_axes
    call = "create_hybrid_device_mesh"
    inner = _sizes(f"{call}: mesh_shape", mesh_shape)
    outer = _sizes(f"{call}: dcn_mesh_shape", dcn_mesh_shape)
    if len(inner) != len(outer):
        msg = f"{call}: mesh_shape={inner}, dcn_mesh_shape={outer}"
        raise AxisSpecError(msg, expected="as many axes in both")
    attribute = "process_index" if process_is_granule else "slice_index"
    groups: dict[Any, list[Any]] = {}
    for device in _listed(devices):
        key = getattr(device, attribute, None)
        if key is None:
            raise DevicePlacementError(
                f"{call}: {device!r} has no {attribute}",
                hint="give process_is_granule=True where a process is a group",
            )
        groups.setdefault(key, []).append(device)
    keys = sorted(groups) if should_sort_granules_by_key else list(groups)
    if len(keys) != math.prod(outer):
        msg = f"{call}: dcn_mesh_shape={outer} needs {math.prod(outer)} groups, but there are "
        raise DevicePlacementError(f"{msg}{len(keys)}")
    grids = [_grid(call, inner, groups[key]) for key in keys]
    return _interleaved(grids, inner, outer)


def _interleaved(grids: Sequence[Grid], inner: tuple[int, ...], outer: tuple[int, ...]) -> Grid:
    """Grids of groups as one grid, whose axes run over the groups first."""
    n = len(inner)
    whole = np.empty((len(grids), *inner), dtype=object)
    for i, grid in enumerate(grids):
        whole[i] = grid
    whole = whole.reshape(*outer, *inner)
    order = [axis for i in range(n) for axis in (i, n + i)]
    return whole.transpose(order).reshape([a * b for a, b in zip(outer, inner, strict=True)])


def _sizes(name: str, sizes: Sequence[int]) -> tuple[int, ...]:
    found = tuple([int(n) for n in sizes])
    if any([n < 1 for n in found]):
        raise AxisSpecError(f"{name}: got {found}", expected="positive sizes")
    return found


def _listed(devices: Sequence[object] | None) -> list[Any]:
    if devices is None:
        return list(get_backend().devices)
    return list(np.asarray(devices, dtype=object).flat)


def _grid(call: str, sizes: tuple[int, ...], devices: Sequence[object]) -> Grid:
    n = math.prod(sizes)
    if len(devices) != n:
        msg = f"{call}: mesh_shape={sizes} needs {n} devices, but there are {len(devices)}"
        raise DevicePlacementError(
            msg, hint="give devices=..., or on CPU set TRACEBRIDGE_NUM_CPU_DEVICES before first use"
        )
    grid = np.empty(n, dtype=object)
    grid[:] = list(devices)
    return grid.reshape(sizes)
