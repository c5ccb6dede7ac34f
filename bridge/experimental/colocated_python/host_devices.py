"""The CPU devices on the hosts of other devices."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracebridge._api.devices.devices import devices as devices_of
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.sharding.mesh import Mesh


def colocated_cpu_devices(devices_or_mesh: Any) -> Any:
    """The CPU devices that belong to devices: one for each, in the same order.

    Args:
        devices_or_mesh: sequence of devices, or a mesh. CPU devices belong to themselves.

    Returns:
        A list of devices, or a mesh of the same shape and with the same names.

    Raises:
        ArgumentValueError: there are fewer CPU devices than other ones.

    >>> import tracebridge as tb
    >>> from tracebridge.experimental import colocated_python
    >>> colocated_python.colocated_cpu_devices(tb.devices("cpu")) == tb.devices("cpu")
    True
    """
    if isinstance(devices_or_mesh, Mesh):
        mesh = devices_or_mesh
        flat = colocated_cpu_devices(list(mesh.devices.flat))
        placed = np.array(flat, object).reshape(mesh.devices.shape)
        return Mesh(placed, mesh.axis_names, axis_types=mesh.axis_types)
    return [_cpu_of(device) for device in devices_or_mesh]


def _cpu_of(device: Any) -> Any:
    if device.platform == "cpu":
        return device
    among = [d for d in device.client.local_devices() if d.process_index == device.process_index]
    cpus = [d for d in devices_of("cpu") if d.process_index == device.process_index]
    place = among.index(device)
    if place >= len(cpus):
        msg = f"colocated_cpu_devices: {device} is number {place}, of {len(cpus)} CPU devices"
        raise ArgumentValueError(msg)
    return cpus[place]
