"""The compiled program of a pmap: one replica for each element, each on its own device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracebridge.core._jaxlib.xla import platform_of
from tracebridge.core.control.pmap.jaxprs import (
    as_parts,
    inner_devices_given,
    inner_replicas,
    n_processes,
    total_size,
)
from tracebridge.core.errors.runtime_errors import DevicePlacementError
from tracebridge.core.ir.aval import batched_aval
from tracebridge.core.ir.effects import check_over_devices
from tracebridge.core.lowering.module import LoweredModule, lower_module
from tracebridge.core.runtime.arrays.placement import MeshPlacement
from tracebridge.core.runtime.backends.clients import check_not_forked, get_backend
from tracebridge.core.runtime.programs.spmd import SpmdProgram, compile_replicas
from tracebridge.core.sharding.mesh import Mesh
from tracebridge.core.sharding.named import NamedSharding
from tracebridge.core.sharding.partition_spec import PartitionSpec

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Params


def local_devices(params: Params) -> list[Any]:
    """The devices that a map may use, in order."""
    if params["devices"] is not None:
        return [d for d in params["devices"] if d.process_index == d.client.process_index()]
    return get_backend(params["backend"]).client.local_devices()


def check_device_count(params: Params, inner: int = 1) -> None:
    """Raise unless there are enough devices for the map and the maps inside it.

    Raises:
        DevicePlacementError: says how many are needed, and for what.
    """
    size, name, given_devices = params["axis_size"], params["name"], params["devices"]
    devices = local_devices(params)
    if given_devices is not None and len(devices) != size:
        msg = f"pmap({name}): the mapped axis has size {size}, but devices has {len(devices)}"
        raise DevicePlacementError(msg, expected="one device for each element")
    if given_devices is not None and inner > 1:
        msg = f"pmap({name}): devices is given, but there is another pmap inside"
        raise DevicePlacementError(msg, hint="leave devices out, or use vmap inside")
    several = n_processes(params)
    if several > 1 and size * inner != len(devices):
        msg = f"pmap({name}): the program runs in {several} processes; in this one {size * inner} "
        raise DevicePlacementError(
            f"{msg}devices are needed, but it has {len(devices)}",
            expected="in each process one element for each of its devices",
            hint="use vmap for maps inside of maps and for more elements, or shard_map",
        )
    if size * inner > len(devices):
        nested = (
            "" if inner == 1 else f" (the maps inside need {inner} for each of {size} elements)"
        )
        msg = (
            f"pmap({name}): {size * inner} devices are needed{nested}, but there are {len(devices)}"
        )
        raise DevicePlacementError(
            msg,
            hint="map fewer elements, use vmap, or on CPU set TRACEBRIDGE_NUM_CPU_DEVICES="
            f"{size * inner} before the first use",
        )


def pmap_placement(params: Params) -> MeshPlacement:
    """The devices and how the arguments are split over them."""
    jaxpr, size = params["jaxpr"], params["axis_size"]
    inner = inner_replicas(jaxpr)
    check_device_count(params, inner)
    if inner_devices_given(jaxpr):
        msg = f"pmap({params['name']}): a pmap inside gives devices"
        raise DevicePlacementError(msg, hint="give devices only where no pmap is around")
    name = params["axis_name"]
    label = name if isinstance(name, str) else "pmap"
    devices = np.empty(size * inner, dtype=object)
    devices[:] = local_devices(params)[: size * inner]
    if inner == 1:
        mesh = Mesh(devices, (label,))
    else:
        mesh = Mesh(devices.reshape(size, inner), (label, f"{label}, inner"))
    shardings = tuple([split_at(mesh, axis) for axis in params["in_axes"]])
    return MeshPlacement(mesh, shardings, replicas=_replicas(params, mesh))


def _replicas(params: Params, mesh: Mesh) -> tuple[Any, ...] | None:
    """The devices of all processes, those of this one as they are in ``mesh``.

    Raises:
        DevicePlacementError: processes have different numbers of devices.
    """
    if n_processes(params) == 1:
        return None
    given = params["devices"]
    every = get_backend(params["backend"]).devices if given is None else given
    by_process: dict[int, list[Any]] = {}
    for device in every:
        by_process.setdefault(device.process_index, []).append(device)
    counts = {index: len(devices) for index, devices in by_process.items()}
    if set(counts.values()) != {mesh.size}:
        msg = f"pmap({params['name']}): the numbers of devices by process are {counts}"
        raise DevicePlacementError(msg, expected="as many in each process")
    return tuple([d for _, devices in sorted(by_process.items()) for d in devices])


def split_at(mesh: Mesh, axis: int | None) -> NamedSharding:
    """An array whose ``axis`` is mapped, or that all devices hold."""
    if axis is None:
        return NamedSharding(mesh, PartitionSpec())
    return NamedSharding(mesh, PartitionSpec(*[None] * axis, mesh.axis_names[0]))


def lower_pmap(
    params: Params, placement: MeshPlacement, donated: tuple[int, ...] = ()
) -> LoweredModule:
    """The module that each device runs.

    Raises:
        EffectError: the function has ordered effects that need one order for all devices.
    """
    if placement.mesh.size > 1:
        where = "programs for several devices"
        check_over_devices(params["jaxpr"].effects, f"pmap({params['name']})", where)
    return lower_module(
        as_parts(params),
        params["name"],
        platform_of(placement.device),
        donated=donated,
        axis_env=((params["axis_name"], total_size(params)),),
        n_replicas=len(placement.replicas),
    )


def compile_pmap(params: Params, donated: tuple[int, ...] = ()) -> SpmdProgram:
    """The program of whole arguments and results."""
    check_not_forked()
    placement = pmap_placement(params)
    return compile_lowered_pmap(params, lower_pmap(params, placement, donated), placement, donated)


def compile_lowered_pmap(
    params: Params,
    lowered: LoweredModule,
    placement: MeshPlacement,
    donated: tuple[int, ...] = (),
    options: tuple[tuple[str, Any], ...] = (),
) -> SpmdProgram:
    """The program of whole arguments and results, of its module."""
    size = params["axis_size"]
    outs = list(zip(params["jaxpr"].out_avals, params["out_axes"], strict=True))
    return compile_replicas(
        lowered,
        placement,
        [batched_aval(aval, size, axis) for aval, axis in outs],
        [split_at(placement.mesh, axis) for _, axis in outs],
        donated,
        options,
    )
