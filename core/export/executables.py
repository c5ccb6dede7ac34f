"""Compiled programs as bytes: what XLA made of a function, to be run without compiling again.

They are for the same version of jaxlib, the same platform and the same kind of machine. Unlike
exported programs they are machine code: loading them runs whatever is in them.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from tracebridge.core._jaxlib.ffi import KERNEL, ONEDNN
from tracebridge.core._jaxlib.version import JAXLIB_VERSION
from tracebridge.core._jaxlib.xla import (
    DeviceList,
    XlaRuntimeError,
    deserialize_executable,
    make_compile_options,
    platform_of,
    serialize_executable,
)
from tracebridge.core.aot.compiled import Compiled
from tracebridge.core.aot.stage import Stage
from tracebridge.core.config.scopes import Scope
from tracebridge.core.config.values import option
from tracebridge.core.control.calls.entry import CallEntry
from tracebridge.core.control.calls.traced_call import Arguments
from tracebridge.core.errors.argument_errors import ArgumentTypeError
from tracebridge.core.errors.export_errors import ExportError
from tracebridge.core.errors.runtime_errors import DevicePlacementError
from tracebridge.core.export.archive import damaged, pack_bytes, unpack_bytes
from tracebridge.core.ir.effects import ordered_effects
from tracebridge.core.lowering.module import LoweredModule, lower_module
from tracebridge.core.runtime.arrays.placement import MeshPlacement, is_spread, mesh_of
from tracebridge.core.runtime.arrays.signature import signature
from tracebridge.core.runtime.arrays.transfer import move
from tracebridge.core.runtime.backends.clients import backend_of
from tracebridge.core.runtime.programs.compile import compile_lowered
from tracebridge.core.runtime.programs.program import Program
from tracebridge.core.runtime.programs.spmd import jaxlibs_own, waiting_for_devices
from tracebridge.core.sharding.mesh import Mesh
from tracebridge.core.sharding.named import NamedSharding
from tracebridge.core.sharding.single_device import SingleDeviceSharding
from tracebridge.core.tree.tree import PyTreeDef

_KIND = "compiled"
_SAVE, _LOAD = "serialize", "deserialize_and_load"


@final
class SavedCall:
    """What is known of the function of a program that was loaded: the types of its results."""

    __slots__ = ("out_avals", "out_tree", "refs", "saved")

    def __init__(self, out_avals: Sequence[Any], out_tree: PyTreeDef, saved: bytes) -> None:
        self.out_avals = out_avals
        self.out_tree = out_tree
        self.refs = None
        self.saved = saved
        """The bytes that it came from: XLA cannot save again what it has loaded."""


def executable_to_bytes(compiled: Any) -> bytes:
    """The program with what a call of it needs; the trees of arguments and results are left out.

    Raises:
        ArgumentTypeError: ``compiled`` is something else.
        ExportError: the program needs this process, or the platform cannot save programs.
    """
    if not isinstance(compiled, Compiled):
        msg = f"{_SAVE}: got {compiled!r} of type {type(compiled).__name__}"
        raise ArgumentTypeError(msg, expected="the result of jit(f).lower(...).compile()")
    call: Any = compiled._traced
    if type(call) is SavedCall:
        return call.saved
    name, program = compiled._name, _program_to_save(compiled)
    try:
        client = backend_of(program.placement.device).client
        body = serialize_executable(client, jaxlibs_own(program.executable))
    except XlaRuntimeError as error:
        msg = f"{_SAVE}: the platform cannot save the program of {name}: {error}"
        raise ExportError(msg, hint="save the program before it is compiled: export") from error
    facts = {
        "name": name,
        "parameters": compiled._args.parameters,
        "given": compiled._args.donated,
        "avals": compiled._avals,
        "committed": compiled._entry.committed,
        "donated": compiled._entry.donated,
        "kept": program.kept,
        "out_avals": program.out_avals,
        "place": _described(program.placement),
        "out_places": [_place_described(s) for s in program.out_shardings],
        "constants": list(program.lowered.hoisted),
    }
    header = {"kind": _KIND, "made for": _made_for(program.placement.device)}
    return pack_bytes(header, [body, pickle.dumps(facts)])


def executable_from_bytes(
    saved: bytes, in_tree: PyTreeDef, out_tree: PyTreeDef, devices: Sequence[Any]
) -> Compiled:
    """The program of ``executable_to_bytes``, on devices of this process.

    ``devices`` are asked for those of the ids that the program had; failing that, its devices are
    the first ones.

    Raises:
        DevicePlacementError: there are too few devices.
        ExportError: the bytes are damaged, or were made for another jaxlib or platform.
    """
    header, blocks = unpack_bytes(saved, _LOAD)
    if header.get("kind") != _KIND or len(blocks) != 2:
        raise damaged(_LOAD, "it is no compiled program")
    here = _made_for(devices[0])
    if header["made for"] != here:
        raise ExportError(
            f"{_LOAD}: the program was compiled for {header['made for']}",
            expected=f"{here}",
            hint="compile it again, or use export, whose programs are not compiled yet",
        )
    body, pickled = blocks
    facts = pickle.loads(pickled)  # noqa: S301 - beside machine code, which is as powerful
    name = facts["name"]
    chosen = _devices_for(facts["place"][0], devices)
    try:
        device_list = DeviceList(tuple(chosen))
        options = _moved(facts["place"], chosen)
        client = backend_of(chosen[0]).client
        executable = deserialize_executable(client, body, device_list, options)
    except XlaRuntimeError as error:
        msg = f"{_LOAD}: XLA could not load the program of {name}: {error}"
        raise ExportError(msg, hint="compile it again") from error
    placement = _placement(facts["place"], chosen)
    place = _constant_place(placement)
    constants = [move(c, place, committed=False) for c in facts["constants"]]
    lowered = LoweredModule(None, name, facts["kept"], tuple(constants), [])
    places = [_place(p, placement, chosen) for p in facts["out_places"]]
    program: Program[Any] = Program(
        (waiting_for_devices(executable, placement), None),
        lowered,
        placement,
        facts["out_avals"],
        places,
        [c._buf for c in constants],
        facts["donated"],
    )
    avals = tuple(facts["avals"])
    args = Arguments(None, [], in_tree, donated=facts["given"], parameters=facts["parameters"])
    sigs = [signature(a, place, False) for a in avals]
    entry = CallEntry(name, program, out_tree, facts["committed"], facts["donated"], sigs)
    call: Any = SavedCall(facts["out_avals"], out_tree, saved)
    return Compiled(Stage(name, args, avals, call), program, entry)


def _program_to_save(compiled: Compiled) -> Program[Any]:
    """The program, compiled anew where the executable may be one that cannot be saved.

    These call a library by an address of this process, or come from the compilation cache.
    """
    program, name = compiled._program, compiled._name
    lowered, call = program.lowered, compiled._traced
    if call.refs is not None:
        msg = f"{_SAVE}: the program of {name} reads or writes references (Ref)"
        raise ExportError(msg, hint="pass their contents, and return what they become")
    if lowered.callbacks or ordered_effects(lowered.effects) or lowered.keepalives:
        msg = f"{_SAVE}: the program of {name} calls functions of this process"
        raise ExportError(msg, hint="leave callbacks, debug.print and breakpoints out")
    text = str(lowered.module)
    if ONEDNN not in text and KERNEL not in text and not option("compilation_cache_dir"):
        return program
    placement, donated = program.placement, compiled._entry.donated
    platform, mesh = platform_of(placement.device), mesh_of(placement)
    with Scope("platform_rules", False):
        plain = lower_module(call.whole, name, platform, donated=donated, mesh=mesh)
    plain.keepalives = ("an executable of its own",)
    return compile_lowered(plain, placement, program.out_avals, donated)


def _made_for(device: Any) -> str:
    client = device.client
    jaxlib = ".".join(map(str, JAXLIB_VERSION))
    return f"jaxlib {jaxlib}, {client.platform} ({client.platform_version})"


# places ------------------------------------------------------------------------------------------


def _described(placement: Any) -> tuple[Any, ...]:
    """Ids of devices, and for a mesh the names of its axes and the shardings over it."""
    if not is_spread(placement):
        return [placement.device.id], placement.memory_kind
    mesh = placement.mesh
    ins = [_place_described(s) for s in placement.in_shardings]
    outs = [None if s is None else _place_described(s) for s in placement.out_shardings]
    axes = mesh.axis_names, tuple(mesh.devices.shape), mesh.axis_types
    return [d.id for d in mesh.device_tuple], axes, ins, outs


def _place_described(sharding: Any) -> tuple[Any, str | None]:
    """Specification and memory; of one device no specification."""
    spec = sharding.spec if isinstance(sharding, NamedSharding) else None
    return spec, sharding.memory_kind


def _devices_for(ids: Sequence[int], devices: Sequence[Any]) -> list[Any]:
    by_id = {d.id: d for d in devices}
    if all(i in by_id for i in ids):
        return [by_id[i] for i in ids]
    if len(devices) < len(ids):
        msg = f"{_LOAD}: the program runs on {len(ids)} devices, but {len(devices)} are given"
        raise DevicePlacementError(msg, hint="give as many devices as it was compiled for")
    return list(devices[: len(ids)])


def _moved(described: tuple[Any, ...], devices: Sequence[Any]) -> Any:
    """Options that name the devices; None where they are those that the program was made for."""
    ids = [d.id for d in devices]
    if ids == list(described[0]):
        return None
    return make_compile_options(1, len(ids), [ids], spmd=len(described) > 2)


def _placement(described: tuple[Any, ...], devices: Sequence[Any]) -> Any:
    if len(described) == 2:
        return SingleDeviceSharding(devices[0], memory_kind=described[1])
    _, (names, shape, types), ins, outs = described
    mesh = Mesh(np.array(devices, object).reshape(shape), names, axis_types=types)
    over = MeshPlacement(mesh, ())
    return MeshPlacement(
        mesh,
        tuple([_place(p, over, devices) for p in ins]),
        tuple([None if p is None else _place(p, over, devices) for p in outs]),
    )


def _place(described: tuple[Any, str | None], placement: Any, devices: Sequence[Any]) -> Any:
    spec, kind = described
    if spec is None:
        return SingleDeviceSharding(devices[0], memory_kind=kind)
    return NamedSharding(placement.mesh, spec, memory_kind=kind)


def _constant_place(placement: Any) -> Any:
    return placement.replicated if is_spread(placement) else placement
