"""Shardings over different meshes that put the same parts on the same devices."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Final

from tracebridge.core.sharding.mesh import Mesh
from tracebridge.core.sharding.named import NamedSharding
from tracebridge.core.sharding.partition_spec import PartitionSpec
from tracebridge.core.sharding.single_device import SingleDeviceSharding


def over_mesh(mesh: Mesh, sharding: NamedSharding, ndim: int) -> NamedSharding | None:
    """The sharding over ``mesh`` that puts the same parts on the same devices, if there is one."""
    if sharding.mesh is mesh:
        return sharding
    if type(sharding.mesh) is not Mesh or sharding.device_tuple != mesh.device_tuple:
        return None
    return sharding_at(mesh, sharding.parts_of(ndim), sharding.positions(ndim))


def sharding_at(
    mesh: Mesh, parts: Sequence[int], positions: Sequence[tuple[int, ...]]
) -> NamedSharding | None:
    """The sharding over ``mesh`` that puts these parts on its devices, if it has a name."""
    ndim = len(parts)
    axes = [name for name, size in mesh.shape_tuple if size > 1]
    for choice in itertools.product(range(-1, ndim), repeat=len(axes)):
        entries = [tuple([n for n, c in zip(axes, choice, strict=True) if c == d])
                   for d in range(ndim)]  # fmt: skip
        if tuple([math.prod([mesh.shape[n] for n in names]) for names in entries]) != tuple(parts):
            continue
        for ordered in itertools.product(*map(itertools.permutations, entries)):
            sharding = NamedSharding(mesh, PartitionSpec(*_trimmed(ordered)))
            if list(sharding.positions(ndim)) == list(positions):
                return sharding
    return None


_ALONE: Final = "the only device"


def stand_in(sharding: SingleDeviceSharding) -> NamedSharding:
    """A sharding over a mesh of the device, in the memory of ``sharding``."""
    mesh = Mesh([sharding.device], _ALONE)
    return NamedSharding(mesh, PartitionSpec(), memory_kind=sharding.memory_kind)


def stood_for(sharding: NamedSharding) -> NamedSharding | SingleDeviceSharding:
    """What a sharding stands in for; others as they are."""
    if sharding.mesh.axis_names != (_ALONE,):
        return sharding
    (device,) = sharding.device_tuple
    return SingleDeviceSharding(device, memory_kind=sharding.memory_kind)


def _trimmed(entries: Sequence[tuple[Any, ...]]) -> Sequence[tuple[Any, ...]]:
    """Without empty entries at the end."""
    n = len(entries)
    while n and not entries[n - 1]:
        n -= 1
    return entries[:n]
