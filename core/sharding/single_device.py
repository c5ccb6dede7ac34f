"""The sharding of an array that lives whole on one device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from tracebridge.core._jaxlib.xla import single_device_sharding
from tracebridge.core.sharding.sharding import (
    Sharding,
    default_memory_kind,
    own_memory_kind,
)
from tracebridge.core.util.public_path import public_path

if TYPE_CHECKING:
    from collections.abc import Sequence

_INTERNED: dict[tuple[Any, str | None], SingleDeviceSharding] = {}


@public_path("tracebridge.sharding")
@final
class SingleDeviceSharding(Sharding):
    """All of an array on ``device``. Interned: compare with ``is`` or ``==``.

    ``memory_kind`` is a kind of memory of the device; None is its default.

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
            kind = own_memory_kind("SingleDeviceSharding", device, memory_kind)
            found = _INTERNED.get((device, kind))
            if found is None:
                found = object.__new__(cls)
                found.device = device
                found._memory_kind = kind
                found.backend_sharding = single_device_sharding(device, kind)
                found = _INTERNED.setdefault((device, kind), found)
            _INTERNED[key] = found
        return found

    @property
    def memory_kind(self) -> str | None:
        """The kind of memory on the device."""
        return self._memory_kind or default_memory_kind(self.device)

    @property
    def device_tuple(self) -> tuple[Any, ...]:
        """The device."""
        return (self.device,)

    @property
    def is_fully_replicated(self) -> bool:
        """Whether each device holds the whole array."""
        return True

    def backend_for(self, ndim: int) -> Any:
        """The jaxlib sharding, whatever the number of axes."""
        del ndim
        return self.backend_sharding

    def parts_of(self, ndim: int) -> tuple[int, ...]:
        """One part."""
        return (1,) * ndim

    def positions(self, ndim: int) -> Sequence[tuple[int, ...]]:
        """The only part."""
        return [(0,) * ndim]

    def with_memory_kind(self, kind: str) -> SingleDeviceSharding:
        """The same in another kind of memory."""
        return SingleDeviceSharding(self.device, memory_kind=kind)

    def __repr__(self) -> str:
        return f"SingleDeviceSharding(device={self.device!r}, memory_kind={self.memory_kind})"
