"""The sharding of an array that lives whole on one device."""

from __future__ import annotations

from typing import Any, final

from tracebridge.core._jaxlib.xla import single_device_sharding

_INTERNED: dict[tuple[Any, str | None], SingleDeviceSharding] = {}


@final
class SingleDeviceSharding:
    """All of an array on ``device``. Interned: compare with ``is`` or ``==``.

    ``backend_sharding`` is the jaxlib object that C++ calls take.
    """

    __slots__ = ("_memory_kind", "backend_sharding", "device")
    device: Any
    backend_sharding: Any
    _memory_kind: str | None

    def __new__(cls, device: Any, *, memory_kind: str | None = None) -> SingleDeviceSharding:
        key = (device, memory_kind)
        found = _INTERNED.get(key)
        if found is None:
            found = object.__new__(cls)
            found.device = device
            found._memory_kind = memory_kind
            found.backend_sharding = single_device_sharding(device, memory_kind)
            found = _INTERNED.setdefault(key, found)
        return found

    @property
    def memory_kind(self) -> str | None:
        """The kind of memory on the device, or None for its default."""
        return self._memory_kind

    @property
    def device_set(self) -> set[Any]:
        """The devices that hold the array."""
        return {self.device}

    @property
    def is_fully_addressable(self) -> bool:
        """Whether this process can reach all devices."""
        return self.device.process_index == self.device.client.process_index()

    @property
    def is_fully_replicated(self) -> bool:
        """Whether each device holds the whole array."""
        return True

    def __reduce__(self) -> Any:
        msg = "a sharding names devices of this process and cannot be pickled"
        raise TypeError(msg)

    def __repr__(self) -> str:
        return f"SingleDeviceSharding(device={self.device!r})"
