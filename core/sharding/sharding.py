"""What all shardings have in common: which device holds which part of an array."""

from __future__ import annotations

import abc
import math
from typing import TYPE_CHECKING, Any, Self

from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.util.public_path import public_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Index = tuple[slice, ...]
    Shape = tuple[int, ...]


def own_memory_kind(call: str, device: Any, kind: str | None) -> str | None:
    """None for the kind of memory that ``device`` uses by default; other kinds as they are.

    Raises:
        ArgumentValueError: the device has no such memory.
    """
    if kind is None or kind == default_memory_kind(device):
        return None
    kinds = [memory.kind for memory in device.addressable_memories()]
    if kind not in kinds:
        msg = (
            f"{call}: memory_kind is {kind!r}. Could not find memory addressable by device "
            f"{device} of this kind. Device {device} can address the following memory kinds: "
            f"{', '.join(kinds)}"
        )
        raise ArgumentValueError(msg)
    return kind


def default_memory_kind(device: Any) -> str:
    """The kind of memory that a device uses by default."""
    return device.default_memory().kind


@public_path("tracebridge.sharding")
class Sharding(abc.ABC):
    """Which device holds which part of an array. Immutable and interned: compare with ``==``."""

    __slots__ = ()

    @property
    @abc.abstractmethod
    def device_tuple(self) -> tuple[Any, ...]:
        """The devices in the order of the parts."""

    @property
    @abc.abstractmethod
    def memory_kind(self) -> str | None:
        """The kind of memory on the devices; None where there are no devices."""

    @abc.abstractmethod
    def backend_for(self, ndim: int) -> Any:
        """The jaxlib sharding of arrays with ``ndim`` axes."""

    @abc.abstractmethod
    def parts_of(self, ndim: int) -> tuple[int, ...]:
        """Into how many parts each axis of an array with ``ndim`` axes is split.

        Raises:
            ShapeMismatchError: the sharding splits axes that the array does not have.
        """

    @abc.abstractmethod
    def positions(self, ndim: int) -> Sequence[tuple[int, ...]]:
        """For each device, which part of each axis it holds."""

    @property
    def device_set(self) -> set[Any]:
        """The devices that hold parts of the array."""
        return set(self.device_tuple)

    @property
    def num_devices(self) -> int:
        """Number of devices."""
        return len(self.device_tuple)

    @property
    def addressable_devices(self) -> set[Any]:
        """The devices of this process."""
        return {d for d in self.device_tuple if d.process_index == d.client.process_index()}

    @property
    def has_addressable_devices(self) -> bool:
        """Whether this process can reach some of the devices."""
        return bool(self.addressable_devices)

    def check_compatible_aval(self, aval_shape: Shape) -> None:
        """Do nothing for a shape that has the axes that the sharding splits.

        Raises:
            ShapeMismatchError: the sharding splits axes that the array does not have.
        """
        self.parts_of(len(aval_shape))

    @property
    def is_fully_addressable(self) -> bool:
        """Whether this process can reach all devices."""
        return len(self.addressable_devices) == self.num_devices

    @property
    @abc.abstractmethod
    def is_fully_replicated(self) -> bool:
        """Whether each device holds the whole array."""

    def shard_shape(self, global_shape: Shape) -> Shape:
        """The shape of one part.

        Raises:
            ShapeMismatchError: an axis cannot be split evenly.
        """
        parts = self.parts_of(len(global_shape))
        for axis, (size, n) in enumerate(zip(global_shape, parts, strict=True)):
            if size % n:
                msg = f"{self!r} splits axis {axis} of shape {tuple(global_shape)} into {n} parts"
                raise ShapeMismatchError(msg, expected=f"a size that is a multiple of {n}")
        return tuple([size // n for size, n in zip(global_shape, parts, strict=True)])

    def devices_indices_map(self, global_shape: Shape) -> Mapping[Any, Index]:
        """The part of the array that each device holds, as a tuple of slices."""
        part = self.shard_shape(global_shape)
        return {
            device: tuple(
                [
                    slice(None) if size == whole else slice(i * size, (i + 1) * size)
                    for i, size, whole in zip(position, part, global_shape, strict=True)
                ]
            )
            for device, position in zip(self.device_tuple, self.positions(len(part)), strict=True)
        }

    def addressable_devices_indices_map(self, global_shape: Shape) -> Mapping[Any, Index]:
        """The same for the devices of this process."""
        mine = self.addressable_devices
        every = self.devices_indices_map(global_shape)
        return {device: index for device, index in every.items() if device in mine}

    def is_equivalent_to(self, other: object, ndim: int) -> bool:
        """Whether both put the same parts of arrays with ``ndim`` axes on the same devices."""
        if self is other:
            return True
        return (
            isinstance(other, Sharding)
            and self.device_tuple == other.device_tuple
            and self.memory_kind == other.memory_kind
            and self.parts_of(ndim) == other.parts_of(ndim)
            and list(self.positions(ndim)) == list(other.positions(ndim))
        )

    @property
    def _device_assignment(self) -> tuple[Any, ...]:
        """The devices in order, under the name by which libraries ask for them."""
        return self.device_tuple

    @property
    def _addressable_device_assignment(self) -> tuple[Any, ...]:
        """Those of the devices that belong to this process, in order."""
        mine = self.addressable_devices
        return tuple([d for d in self.device_tuple if d in mine])

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        del memo
        return self

    def __reduce__(self) -> Any:
        msg = "a sharding names devices of this process and cannot be pickled"
        raise TypeError(msg)


def count_parts(parts: Sequence[int]) -> int:
    """The number of different parts."""
    return math.prod(parts)
