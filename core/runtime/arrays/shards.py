"""Parts of arrays over several devices: their buffers, and putting them together on the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import numpy as np

from tracebridge.core._jaxlib.xla import buffer_to_numpy, rewrap
from tracebridge.core.errors.runtime_errors import OtherProcessesError
from tracebridge.core.ir.aval import ShapedArray, stored
from tracebridge.core.sharding.single_device import SingleDeviceSharding
from tracebridge.core.util.public_path import public_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core.sharding.sharding import Sharding


@public_path("tracebridge")
@final
class Shard:
    """One part of an array: the device that holds it, where it lies in the array, its elements.

    Args:
        device: the device.
        sharding: where the whole array lives.
        global_shape: the shape of the whole array.
        data: the part as an array on the device; None if another process holds it.

    >>> import tracebridge as tb
    >>> (shard,) = tb.numpy.arange(3).addressable_shards
    >>> shard.index, shard.replica_id, shard.data.tolist()
    ((slice(None, None, None),), 0, [0, 1, 2])
    """

    __slots__ = ("_global_shape", "_sharding", "data", "device")

    def __init__(
        self, device: Any, sharding: Sharding, global_shape: tuple[int, ...], data: Any = None
    ) -> None:
        self.device = device
        self._sharding = sharding
        self._global_shape = tuple(global_shape)
        self.data = data

    @property
    def index(self) -> tuple[slice, ...]:
        """Which part it is: a tuple of slices of the whole array."""
        return self._sharding.devices_indices_map(self._global_shape)[self.device]

    @property
    def replica_id(self) -> int:
        """How many devices before this one hold the same part."""
        sharding = self._sharding
        ids = replica_ids(sharding.positions(len(self._global_shape)))
        return ids[sharding.device_tuple.index(self.device)]

    def __repr__(self) -> str:
        return (
            f"Shard(device={self.device!r}, index={self.index}, replica_id={self.replica_id}, "
            f"data={self.data})"
        )


def shard_aval(aval: ShapedArray, sharding: Sharding) -> ShapedArray:
    """The aval of one part."""
    return aval.update(shape=sharding.shard_shape(aval.shape))


def shard_buffers(buf: Any, aval: ShapedArray, sharding: Sharding) -> list[Any]:
    """The buffers of the parts that this process holds, in the order of their devices."""
    if type(sharding) is SingleDeviceSharding:
        return [buf]
    part = stored(shard_aval(aval, sharding))
    mine = [d for d in sharding.device_tuple if d in sharding.addressable_devices]
    kind = sharding.memory_kind
    # Buffers that C++ hands out have no aval yet.
    return [
        rewrap(raw, part, SingleDeviceSharding(device, memory_kind=kind).backend_sharding)
        for raw, device in zip(buf._arrays, mine, strict=True)
    ]


def replica_ids(positions: Sequence[tuple[int, ...]]) -> list[int]:
    """For each device, how many before it hold the same part."""
    seen: dict[tuple[int, ...], int] = {}
    result: list[int] = []
    for position in positions:
        result.append(seen.get(position, 0))
        seen[position] = result[-1] + 1
    return result


def is_readable(sharding: Sharding) -> bool:
    """Whether this process has all elements of arrays there."""
    if type(sharding) is SingleDeviceSharding:
        return True
    return sharding.is_fully_addressable or sharding.is_fully_replicated


def gather(buf: Any, aval: ShapedArray, sharding: Sharding) -> np.ndarray[Any, Any]:
    """The elements of the whole array as a read-only ndarray; waits for them."""
    raw = buf._arrays
    if sharding.is_fully_replicated:
        return buffer_to_numpy(raw[0])[0]
    if not sharding.is_fully_addressable:
        msg = f"the elements of {aval.str_short()} are asked for, but other processes hold a part"
        raise OtherProcessesError(
            msg,
            hint="read x.addressable_shards, what this process holds, or gather the whole with "
            "tracebridge.experimental.multihost_utils.process_allgather(x, tiled=True)",
        )
    whole = np.empty(aval.shape, aval.dtype)
    indices = sharding.addressable_devices_indices_map(aval.shape).values()
    copied: set[str] = set()
    # XLA keeps arrays without elements whole on each device, whatever it is told.
    for part, index in zip(raw, indices, strict=True) if whole.size else ():
        # Slices have no hash before Python 3.12.
        if str(index) not in copied:
            copied.add(str(index))
            whole[index] = buffer_to_numpy(part)[0]
    whole.flags.writeable = False
    return whole
