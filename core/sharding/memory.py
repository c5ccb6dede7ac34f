"""Memories by their role, whatever a device calls them."""

from __future__ import annotations

import enum
from typing import Any

from tracebridge.core.sharding.sharding import Sharding, default_memory_kind
from tracebridge.core.util.public_path import public_path


@public_path("tracebridge.memory")
class Space(enum.Enum):
    """A memory: of the device, or of its host; ``Any`` is the one where an array is."""

    Device = enum.auto()
    Host = enum.auto()
    Any = enum.auto()

    def __repr__(self) -> str:
        return f"Space.{self.name}"


def in_space(sharding: Sharding, space: Space) -> Sharding:
    """The sharding in another memory of its devices.

    Raises:
        ArgumentValueError: the devices have no memory of the host.
    """
    if space is Space.Any:
        return sharding
    named: Any = sharding
    return named.with_memory_kind(kind_of_space(space, sharding.device_tuple[0]))


def kind_of_space(space: Space, device: object) -> str:
    """What a device calls a memory."""
    return default_memory_kind(device) if space is Space.Device else "pinned_host"
