"""Compilation: a Jaxpr becomes a program for one device."""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracebridge.core._jaxlib.mlir import module_to_bytecode
from tracebridge.core._jaxlib.xla import (
    COMPILER_DIES_OF_SIZES,
    XlaRuntimeError,
    make_compile_options,
    platform_of,
    without_tiles,
)
from tracebridge.core.config import env
from tracebridge.core.errors.runtime_errors import CompileError
from tracebridge.core.errors.transform_errors import EffectError
from tracebridge.core.ir.effects import ordered_effects
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.lowering.module import LoweredModule, lower_module
from tracebridge.core.mlir.context import building
from tracebridge.core.runtime.arrays.failures import check_host_holds
from tracebridge.core.runtime.arrays.placement import MeshPlacement, mesh_of
from tracebridge.core.runtime.arrays.transfer import move
from tracebridge.core.runtime.backends.clients import backend_of, check_not_forked
from tracebridge.core.runtime.backends.monitoring import COMPILE, LOWER, finished
from tracebridge.core.runtime.effects.tokens import EffectfulExecutable
from tracebridge.core.runtime.programs.compile_or_load import compile_or_load
from tracebridge.core.runtime.programs.executables import EXECUTABLES
from tracebridge.core.runtime.programs.flags import with_flags, without_emitters
from tracebridge.core.runtime.programs.program import Program
from tracebridge.core.runtime.programs.schedule import (
    may_need_less,
    needs_less,
    without_schedule,
)
from tracebridge.core.runtime.programs.spmd import compile_spmd

if TYPE_CHECKING:
    from tracebridge.core.runtime.arrays.placement import Placement
    from tracebridge.core.sharding.single_device import SingleDeviceSharding

logger = logging.getLogger("tracebridge.compile")

# Whoever sets this table in ``XLA_FLAGS`` chooses all of its entries.
_EXTRA_OPTIONS = "xla_backend_extra_options"


def compile_jaxpr(
    jaxpr: Jaxpr,
    name: str,
    placement: Placement,
    *,
    keep_unused: bool = False,
    donated: tuple[int, ...] = (),
    compiler_options: tuple[tuple[str, Any], ...] = (),
    of_library: bool = False,
) -> Program[Any]:
    """Lower and compile ``jaxpr`` for the device or the devices of ``placement``.

    ``of_library``: it is a function of the library, whose loops are short.
    """
    check_not_forked()
    if type(placement) is MeshPlacement:
        # XLA may split results and arguments in different ways.
        donated = ()
    start = time.perf_counter()
    lowered = lower_module(
        jaxpr,
        name,
        platform_of(placement.device),
        keep_unused=keep_unused,
        donated=donated,
        mesh=mesh_of(placement),
        of_library=of_library,
    )
    finished(LOWER, name, start, logger)
    lowered = inspected(lowered, jaxpr, placement, compiler_options)
    return compile_lowered(lowered, placement, jaxpr.out_avals, donated, compiler_options)


def inspected(
    lowered: LoweredModule,
    jaxpr: Jaxpr,
    placement: Placement,
    options: tuple[tuple[str, Any], ...],
) -> LoweredModule:
    """``lowered``, which is that of ``jaxpr``, after its inspections of values on a mesh.

    Raises:
        EffectError: there are some in inner programs.
    """
    if not lowered.inspections or type(placement) is not MeshPlacement:
        return lowered
    _inspect(jaxpr, lowered.name, placement, len(lowered.inspections), options)
    lowered = copy.copy(lowered)
    lowered.inspections = ()
    return lowered


def _inspect(
    jaxpr: Jaxpr,
    name: str,
    placement: MeshPlacement,
    n_inspections: int,
    options: tuple[tuple[str, Any], ...],
) -> None:
    """Tell the inspections how XLA splits values: those of a program that also gives them out.

    Raises:
        EffectError: there are some in inner programs, whose values cannot be given out.
    """
    inspected = [
        (callback, idx[0])
        for app, idx in jaxpr.equations
        if (callback := app.primitive.sharding_callback(app.params)) is not None
    ]
    if len(inspected) != n_inspections:
        msg = f"{name}: inspect_array_sharding of a value in a loop, branch or inner function"
        raise EffectError(msg, hint="inspect values of the outer function, or arrays")
    variables = [i for _, i in inspected]
    every = jaxpr.variable_avals()
    avals = [every[i] for i in variables]
    outs, out_avals = (*jaxpr.outs, *variables), (*jaxpr.out_avals, *avals)
    wider = Jaxpr(jaxpr.in_avals, jaxpr.consts, jaxpr.equations, outs, out_avals, debug=jaxpr.debug)
    n, platform = len(jaxpr.outs), platform_of(placement.device)
    wished = (*placement.out_shardings, *[None] * len(outs))[: len(outs)]
    place = MeshPlacement(placement.mesh, placement.in_shardings, tuple(wished))
    lowered = lower_module(wider, name, platform, keep_unused=True, mesh=placement.mesh)
    lowered.inspections = ()
    program = compile_spmd(lowered, place, out_avals, (), options)
    for (callback, _), sharding in zip(inspected, program.out_shardings[n:], strict=True):
        callback(sharding)


def compile_lowered(
    lowered: LoweredModule,
    placement: Placement,
    out_avals: Sequence[Any],
    donated: tuple[int, ...] = (),
    compiler_options: tuple[tuple[str, Any], ...] = (),
) -> Program[Any]:
    """Compile a lowered module, or find the executable of an equal one."""
    check_not_forked()
    if type(placement) is MeshPlacement:
        return compile_spmd(lowered, placement, out_avals, (), compiler_options)
    with building():
        bytecode = module_to_bytecode(lowered.module)
    given = compiler_options
    compiler_options = with_flags(given, platform_of(placement.device))
    if lowered.without_emitters:
        compiler_options = without_emitters(compiler_options)
    own = lowered.callbacks or lowered.keepalives
    others = None if own else without_schedule(compiler_options, given)
    about = lowered.without_tiles, others is None
    key = None if own else (bytecode, placement, compiler_options, about)
    executable = None if key is None else EXECUTABLES.get(key)
    if executable is None:
        if COMPILER_DIES_OF_SIZES and platform_of(placement.device) == "cpu":
            check_host_holds(lowered.name, out_avals)
        shared = None if own else bytecode
        executable = _compile(lowered, placement, compiler_options, shared)
        size = len(bytecode)
        if others is not None and may_need_less(executable, lowered.largest, size):
            other = _compile(lowered, placement, others, shared)
            executable = other if needs_less(other, executable) else executable
    for inspect in lowered.inspections:
        inspect(placement)
    from_device = [_constant_on(c, placement) for c in lowered.hoisted]
    places = [placement] * len(out_avals)
    loaded = executable, key
    program = Program(loaded, lowered, placement, out_avals, places, from_device, donated)
    if lowered.callbacks or ordered_effects(lowered.effects):
        program.executable = EffectfulExecutable(program.executable, lowered, placement)
    return program


def release(program: Program[Any]) -> None:
    """Let the executable of ``program`` go together with the programs that use it now."""
    if program.key is not None:
        EXECUTABLES.release(program.key)


def _constant_on(array: Any, placement: SingleDeviceSharding) -> Any:
    return move(array, placement, committed=False)._buf


def _compile(
    lowered: LoweredModule,
    placement: SingleDeviceSharding,
    options: tuple[tuple[str, Any], ...],
    bytecode: bytes | None,
) -> Any:
    device = placement.device
    start = time.perf_counter()
    settings = make_compile_options(device_assignment=[[device.id]], env_overrides=options)
    if lowered.without_tiles and _EXTRA_OPTIONS not in env.xla_flags():
        settings = without_tiles(settings)
    try:
        with building():
            executable = compile_or_load(
                backend_of(device).client,
                lowered.module,
                (device,),
                settings,
                bytecode=bytecode,
                host_callbacks=lowered.callbacks,
            )
    except XlaRuntimeError as error:
        msg = f"XLA could not compile {lowered.name}: {error}"
        raise CompileError(msg) from error
    finished(COMPILE, lowered.name, start, logger)
    return executable
