"""Devices of the engine and of DLPack: one table."""

from __future__ import annotations

from typing import Any, NamedTuple

from tracebridge.core.errors.argument_errors import ArgumentTypeError, kind_of
from tracebridge.core.errors.exchange_errors import ExchangeError
from tracebridge.core.runtime.backends.clients import default_placement, get_backend
from tracebridge.core.sharding.sharding import Sharding
from tracebridge.core.sharding.single_device import SingleDeviceSharding


class Row(NamedTuple):
    """One kind of device: DLPack's code, and platforms of the engine."""

    code: int
    platforms: tuple[str, ...]


CPU, CUDA, CUDA_HOST, ROCM, ROCM_HOST, CUDA_MANAGED = 1, 2, 3, 10, 11, 13
TABLE: tuple[Row, ...] = (
    Row(CPU, ("cpu",)),
    Row(CUDA, ("cuda", "gpu")),
    Row(ROCM, ("rocm",)),
)
# Memory of the host that a GPU can read as well: for the engine it is memory of the CPU.
_AS_CPU = frozenset({CPU, CUDA_HOST, ROCM_HOST})


def dlpack_device(device: Any) -> tuple[int, int]:
    """DLPack's ``(type, id)`` of a device of the engine."""
    for row in TABLE:
        if device.platform in row.platforms:
            return row.code, 0 if row.code == CPU else device.local_hardware_id
    msg = f"DLPack has no device type for {device}"
    raise ExchangeError(msg, hint="move the array to the CPU first: device_put(x, cpu_device)")


def placement_of(kind: int, ordinal: int) -> SingleDeviceSharding:
    """The placement of a tensor at DLPack's device ``(kind, ordinal)``.

    On the CPU that is the default device if it is a CPU device, else the first one.

    Raises:
        ExchangeError: the engine has no such kind of device.
        BackendNotFoundError: no back end for that kind is installed.
    """
    if kind in _AS_CPU:
        where = default_placement()
        return where if where.device.platform == "cpu" else get_backend("cpu").placement
    for row in TABLE:
        if row.code == kind or (kind == CUDA_MANAGED and row.code == CUDA):
            for device in get_backend(row.platforms[0]).devices:
                if device.local_hardware_id == ordinal:
                    return SingleDeviceSharding(device)
    msg = f"there is no device for tensors at DLPack device type {kind}, id {ordinal}"
    raise ExchangeError(msg, hint="move the tensor to the CPU in its own framework first")


def wanted_placement(device: object) -> Any:
    """The placement that a caller asked for by a device, a sharding, or None.

    Raises:
        ArgumentTypeError: it is something else.
    """
    if device is None or isinstance(device, Sharding):
        return device
    if not hasattr(device, "client"):
        msg = f"device is {kind_of(device)}, expected a device or a sharding"
        raise ArgumentTypeError(msg, hint="take one of tracebridge.devices()")
    return SingleDeviceSharding(device)
