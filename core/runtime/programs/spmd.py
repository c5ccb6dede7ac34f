"""Programs over several devices: partitioned ones, and ones in replicas.

A partitioned program is written for whole arrays; XLA splits it (Shardy propagates the shardings
of the arguments to the results). A program in replicas is written for one device and runs on all.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np

from tracebridge.core._jaxlib import mlir
from tracebridge.core._jaxlib.mlir import module_to_bytecode
from tracebridge.core._jaxlib.xla import (
    HloSharding,
    XlaRuntimeError,
    make_compile_options,
    platform_of,
)
from tracebridge.core.errors.runtime_errors import CompileError
from tracebridge.core.errors.transform_errors import EffectError
from tracebridge.core.ir.aval import stored
from tracebridge.core.ir.effects import check_over_devices, ordered_effects
from tracebridge.core.mlir.context import building
from tracebridge.core.mlir.shardy import define_mesh, sharding_attribute
from tracebridge.core.runtime.arrays.placement import MeshPlacement, Placement, is_spread
from tracebridge.core.runtime.arrays.transfer import move
from tracebridge.core.runtime.backends.clients import backend_of
from tracebridge.core.runtime.backends.monitoring import COMPILE, finished
from tracebridge.core.runtime.effects.tokens import EffectfulExecutable
from tracebridge.core.runtime.programs.compile_or_load import compile_or_load
from tracebridge.core.runtime.programs.executables import EXECUTABLES
from tracebridge.core.runtime.programs.flags import with_flags
from tracebridge.core.runtime.programs.program import Program
from tracebridge.core.sharding.equivalent import over_mesh, sharding_at, stood_for
from tracebridge.core.sharding.named import NamedSharding
from tracebridge.core.sharding.partition_spec import PartitionSpec, entry_names
from tracebridge.core.sharding.single_device import SingleDeviceSharding

if TYPE_CHECKING:
    from tracebridge.core.lowering.module import LoweredModule
    from tracebridge.core.sharding.mesh import Mesh

logger = logging.getLogger("tracebridge.compile")
Options = tuple[tuple[str, Any], ...]


SpmdProgram: TypeAlias = Program[MeshPlacement]
"""A program over several devices."""


def _program(
    loaded: tuple[Any, Any],
    lowered: LoweredModule,
    placement: MeshPlacement,
    out_avals: Sequence[Any],
    out_shardings: Sequence[NamedSharding | SingleDeviceSharding],
    places: Sequence[NamedSharding],
    donated: tuple[int, ...] = (),
) -> SpmdProgram:
    """The program, with the Arrays that it closes over at ``places``."""
    constants = [
        move(c, place, committed=False)._buf
        for c, place in zip(lowered.hoisted, places, strict=True)
    ]
    program = Program(loaded, lowered, placement, out_avals, out_shardings, constants, donated)
    if type(program.executable) is not EffectfulExecutable:
        program.executable = waiting_for_devices(program.executable, placement)
    return program


def waiting_for_devices(executable: Any, placement: Placement) -> Any:
    """The executable; over several devices of the CPU one whose calls last until all are done."""
    waits = is_spread(placement) and placement.device.platform == "cpu" and placement.mesh.size > 1
    return PromptExecutable(executable) if waits else executable


def _constant_places(lowered: LoweredModule, placement: MeshPlacement) -> list[NamedSharding]:
    """Where Arrays that a program closes over go: they stay spread over the mesh, if they are."""
    found: list[NamedSharding] = []
    for array in lowered.hoisted:
        place = array._sig.sharding
        spread = isinstance(place, NamedSharding) and placement.mesh.size > 1
        own = over_mesh(placement.mesh, place, array.aval.ndim) if spread else None
        found.append(placement.replicated if own is None else own)
    return found


@final
class PromptExecutable:
    """An executable over several devices of the CPU, whose calls last until all are done.

    Devices that begin the next call keep threads for which those wait that have not ended the
    last one: without waits a sequence of calls with collectives stops for ever, and XLA ends the
    process. Attributes besides ``execute_sharded`` are the executable's own.
    """

    __slots__ = ("executable",)

    def __init__(self, executable: Any) -> None:
        self.executable = executable

    def __getattr__(self, name: str) -> Any:
        return getattr(self.executable, name)

    def execute_sharded(self, buffers: Sequence[Any]) -> Any:
        """Run the program; the results are to be consumed at once."""
        results = self.executable.execute_sharded(buffers, with_tokens=True)
        results.consume_token().block_until_ready()
        return results


def jaxlibs_own(executable: Any) -> Any:
    """The executable of jaxlib behind one that waits."""
    return executable.executable if type(executable) is PromptExecutable else executable


def compile_replicas(
    lowered: LoweredModule,
    placement: MeshPlacement,
    out_avals: Sequence[object],
    out_shardings: Sequence[NamedSharding],
    donated: tuple[int, ...] = (),
    options: Options = (),
) -> SpmdProgram:
    """A program that each device of a mesh runs on its own parts of the arguments.

    ``out_avals`` are those of whole results.
    """
    ids = [[d.id] for d in placement.replicas]
    options = with_flags(options, platform_of(placement.device))
    settings = make_compile_options(len(ids), 1, ids, env_overrides=options)
    loaded = _load(lowered, lowered.module, placement, settings, ("replicas", options))
    places = [placement.replicated] * len(lowered.hoisted)
    return _program(loaded, lowered, placement, out_avals, out_shardings, places, donated)


def compile_spmd(
    lowered: LoweredModule,
    placement: MeshPlacement,
    out_avals: Sequence[object],
    donated: tuple[int, ...] = (),
    options: Options = (),
) -> SpmdProgram:
    """A program for whole arrays, split over the devices of a mesh."""
    where = "programs that XLA splits over devices"
    if lowered.inspections:
        msg = f"{lowered.name}: inspect_array_sharding does not work in {where}"
        raise EffectError(msg, hint="inspect arrays on one device")
    if placement.mesh.size > 1:
        check_over_devices(lowered.effects, lowered.name, where)
    options = with_flags(options, platform_of(placement.device))
    avals = tuple(out_avals)
    whole: set[int] = set()
    while True:
        executable, key = _partitioned(lowered, placement, avals, whole, options)
        chosen = _chosen(placement, avals, whole)
        result_shardings = [
            _beside_type(placement, _usable(inferred, a), a) if wished is None else wished
            for inferred, wished, a in zip(
                _result_shardings(executable, placement, lowered, avals), chosen, avals, strict=True
            )
        ]
        nameless = {i for i, s in enumerate(result_shardings) if s is None} - whole
        if not nameless:
            break
        # No PartitionSpec of the mesh says how XLA splits these: keep them whole.
        whole |= nameless
    shardings = [stood_for(placement.replicated if s is None else s) for s in result_shardings]
    places = _constant_places(lowered, placement)
    return _program((executable, key), lowered, placement, avals, shardings, places, donated)


def _partitioned(
    lowered: LoweredModule,
    placement: MeshPlacement,
    out_avals: Sequence[object],
    whole: set[int],
    options: Options,
) -> tuple[Any, Any]:
    """The executable, with the results ``whole`` on each device, and its key."""
    mesh = placement.mesh
    with building():
        # A copy: a lowered module may be compiled again, for another placement.
        module = mlir.ir.Module.parse(module_to_bytecode(lowered.module))
        _annotate(module, lowered, placement, out_avals, whole)
    ids = [[d.id for d in mesh.device_tuple]]
    propagate = [
        *[s is None for s in _chosen(placement, out_avals, whole)],
        *[False] * len(ordered_effects(lowered.effects)),
    ]
    settings = make_compile_options(
        1, len(ids[0]), ids, spmd=True, env_overrides=options, propagate_to_outputs=propagate
    )
    return _load(lowered, module, placement, settings, ("spmd", options, tuple(propagate)))


def _annotate(
    module: Any,
    lowered: LoweredModule,
    placement: MeshPlacement,
    out_avals: Sequence[Any],
    whole: set[int],
) -> None:
    """Write the mesh and the shardings into a module."""
    ir = mlir.ir
    mesh = placement.mesh
    module.operation.attributes["mhlo.num_partitions"] = ir.IntegerAttr.get(
        ir.IntegerType.get_signless(32), mesh.size
    )
    main = _main(module)
    define_mesh(module, mesh)
    function_type = main.attributes["function_type"].value
    ranks = [ir.RankedTensorType(t).rank for t in function_type.inputs]
    out_ranks = [ir.RankedTensorType(t).rank for t in function_type.results]
    # Before the constants are the tokens of ordered effects.
    n_tokens = len(ranks) - len(lowered.hoisted) - len(lowered.kept)
    entries = [placement.replicated] * n_tokens
    entries += _constant_places(lowered, placement)
    entries += [placement.in_shardings[i] for i in lowered.kept]
    rows = [_sdy(s, rank) for s, rank in zip(entries, ranks, strict=True)]
    main.attributes["arg_attrs"] = ir.ArrayAttr.get(rows)
    chosen = _chosen(placement, out_avals, whole)
    main.attributes["res_attrs"] = ir.ArrayAttr.get(
        [
            _open(placement, a, rank) if s is None else _sdy(s, rank)
            for s, a, rank in zip(chosen, out_avals, out_ranks, strict=False)
        ]
        # The last results are the tokens of ordered effects.
        + [_sdy(placement.replicated, 1)] * len(ordered_effects(lowered.effects))
    )


def _main(module: Any) -> Any:
    """The function of a module that is called."""
    (main,) = [
        op
        for op in module.body.operations
        if op.operation.name == "func.func" and op.attributes["sym_name"].value == "main"
    ]
    return main


def _chosen(
    placement: MeshPlacement, out_avals: Sequence[Any], whole: set[int]
) -> list[NamedSharding | None]:
    """The shardings of results that are not left to XLA: those wished for, and those of types."""
    wished = placement.out_shardings or (None,) * len(out_avals)
    found: list[NamedSharding | None] = []
    for i, (w, a) in enumerate(zip(wished, out_avals, strict=True)):
        typed = _of_type(placement, a)
        if i in whole:
            found.append(typed or placement.replicated)
        elif w is None and _is_open(placement, a):
            found.append(None)
        else:
            found.append(typed if w is None else w)
    return found


def _of_type(placement: MeshPlacement, aval: Any) -> NamedSharding | None:
    """How the type of a result says that it is split, whole along others; None: it does not."""
    mesh, split = placement.mesh, aval.split
    if split is not None and split.mesh.shape_tuple == mesh.shape_tuple:
        return split.update(mesh=mesh.update(axis_types=split.mesh.axis_types))
    if mesh.explicit_axes and mesh.size > 1 and not placement.untyped:
        return NamedSharding(mesh, PartitionSpec(*[None] * aval.ndim))
    return None


def _is_open(placement: MeshPlacement, aval: Any) -> bool:
    """Whether a type says something of Explicit axes, and XLA chooses along those of type Auto."""
    typed = _of_type(placement, aval)
    return typed is not None and any([typed.mesh.shape[n] > 1 for n in typed.mesh.auto_axes])


def _open(placement: MeshPlacement, aval: Any, rank: int) -> Any:
    """The attributes of a result that XLA may split over axes of which its type says nothing."""
    typed = _of_type(placement, aval)
    if typed is None or not _is_open(placement, aval):
        return mlir.ir.DictAttr.get({})
    attribute = sharding_attribute(typed, rank, is_open=True)
    return mlir.ir.DictAttr.get({"sdy.sharding": attribute})


def _beside_type(
    placement: MeshPlacement, inferred: NamedSharding | None, aval: Any
) -> NamedSharding | None:
    """``inferred`` in the words of the type; None if that says something else."""
    typed = _of_type(placement, aval)
    if inferred is None or typed is None or not _is_open(placement, aval):
        return inferred
    free = typed.mesh.auto_axes
    found = (*inferred.spec, *[None] * aval.ndim)
    entries = [
        (*entry_names(own), *[name for name in entry_names(entry) if name in free])
        for own, entry in zip(typed.spec, found, strict=False)
    ]
    sharding = typed.with_spec(PartitionSpec(*entries))
    ndim = aval.ndim
    same = list(sharding.positions(ndim)) == list(inferred.positions(ndim))
    return sharding if same and sharding.parts_of(ndim) == inferred.parts_of(ndim) else None


def _sdy(sharding: NamedSharding, ndim: int) -> Any:
    """The attributes of an argument or result with this sharding."""
    return mlir.ir.DictAttr.get({"sdy.sharding": sharding_attribute(sharding, ndim)})


def _result_shardings(
    executable: Any, placement: MeshPlacement, lowered: LoweredModule, avals: Sequence[Any]
) -> list[NamedSharding | None]:
    """How XLA splits the results; None where no PartitionSpec of the mesh says it."""
    if not avals:
        return []
    mesh = placement.mesh
    protos = executable.get_output_shardings()
    if protos is None:  # a mesh of one device
        return _as_arguments(placement, lowered, avals)
    # Tokens of ordered effects are behind the results.
    found = [HloSharding.from_proto(p) for p in protos[: len(avals)]]
    return [named_from_hlo(s, mesh, a.ndim) for s, a in zip(found, avals, strict=True)]


def _as_arguments(
    placement: MeshPlacement, lowered: LoweredModule, avals: Sequence[Any]
) -> list[NamedSharding | None]:
    """For each result the specification of the first argument of its shape, over one device.

    Nothing is split there, so that each name is right; this one is it over more devices, mostly.
    Of explicit axes types say the names.
    """
    if not placement.mesh.are_all_axes_auto:
        return [placement.replicated] * len(avals)
    types = _main(lowered.module).attributes["function_type"].value.inputs
    n = len(lowered.kept)
    shapes = [tuple(mlir.ir.RankedTensorType(t).shape) for t in list(types)[len(types) - n :]]
    named: dict[tuple[int, ...], NamedSharding] = {}
    for shape, i in zip(shapes, lowered.kept, strict=True):
        place = placement.in_shardings[i]
        named.setdefault(shape, NamedSharding(placement.mesh, place.spec))
    return [named.get(stored(a).shape, placement.replicated) for a in avals]


def _usable(sharding: NamedSharding | None, aval: Any) -> NamedSharding | None:
    """None for a sharding into parts of different sizes: XLA pads them, arrays cannot."""
    if sharding is None:
        return None
    parts = sharding.parts_of(aval.ndim)
    even = not any([size % n for size, n in zip(aval.shape, parts, strict=True)])
    return sharding if even else None


def named_from_hlo(sharding: Any, mesh: Mesh, ndim: int) -> NamedSharding | None:
    """The sharding of an array by the axes of a mesh; None where no specification says it."""
    if sharding.is_replicated():
        return sharding_at(mesh, (1,) * ndim, [(0,) * ndim] * mesh.size)
    if not sharding.is_tiled():
        return None
    dims = sharding.tile_assignment_dimensions()
    table = np.asarray(sharding.tile_assignment_devices()).reshape(dims)
    positions: list[tuple[int, ...]] = [()] * mesh.size
    for place in np.ndindex(*table.shape):
        positions[int(table[place])] = tuple(place[:ndim])
    return sharding_at(mesh, tuple(dims[:ndim]), positions)


def _load(
    lowered: LoweredModule,
    module: Any,
    placement: MeshPlacement,
    settings: object,
    kind: tuple[Any, ...],
) -> tuple[Any, Any]:
    """The executable, and the key under which programs like this one share it, or None.

    ``kind`` is what the key says besides the module and the devices.
    """
    devices = placement.replicas
    key = None
    if not (lowered.callbacks or lowered.keepalives):
        with building():
            key = (module_to_bytecode(module), devices, kind)
        executable = EXECUTABLES.get(key)
        if executable is not None:
            return executable, key
    start = time.perf_counter()
    try:
        with building():
            executable = compile_or_load(
                backend_of(devices[0]).client,
                module,
                devices,
                settings,
                bytecode=None if key is None else key[0],
                host_callbacks=lowered.callbacks,
            )
    except XlaRuntimeError as error:
        msg = f"XLA could not compile {lowered.name} for {len(devices)} devices: {error}"
        raise CompileError(msg) from error
    finished(COMPILE, lowered.name, start, logger)
    if not lowered.callbacks and not ordered_effects(lowered.effects):
        return executable, key
    one = len(devices) == 1
    place = SingleDeviceSharding(devices[0]) if one else placement.replicated
    return EffectfulExecutable(executable, lowered, place), None
