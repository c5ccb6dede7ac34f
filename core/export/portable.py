"""Portable artifacts: a Jaxpr as serialised StableHLO that another process and library can run."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core._jaxlib import mlir
from tracebridge.core._jaxlib.xla import XlaRuntimeError
from tracebridge.core.control.calls.compiler_options import lifted_options
from tracebridge.core.errors.export_errors import ExportError
from tracebridge.core.ir.traverse import applications
from tracebridge.core.lowering.embedding import OfConsumer
from tracebridge.core.lowering.module import LoweredModule, lower_module
from tracebridge.core.mlir.context import building
from tracebridge.core.sharding.partition_spec import entry_names

if TYPE_CHECKING:
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.jaxpr import Jaxpr

PLATFORM = "portable"
"""The platform for which programs are lowered: no rules of one platform apply."""

# Targets that XLA itself expands on every platform, so that no library of ours must be loaded.
PORTABLE_TARGETS = frozenset(
    {
        "shape_assertion",
        "Qr",
        "ProductOfElementaryHouseholderReflectors",
        "Eigh",
        "Sharding",
        "SPMDFullToShardShape",
        "SPMDShardToFullShape",
        "stablehlo.dynamic_reduce_window",
        "stablehlo.dynamic_rng_bit_generator",
        "stablehlo.dynamic_top_k",
        "mhlo.topk",
    }
)


@final
class PortableProgram:
    """A serialised program.

    ``data``: the artifact. ``constants``: arrays that main takes before the inputs.
    ``functions``: those of the consumer that it calls, by their numbers.
    ``in_avals`` and ``out_avals``: of the inputs (all of them, also unused ones) and the results.
    ``platforms``: those that it runs on, in the order of their numbers.
    """

    __slots__ = (
        "constants",
        "data",
        "functions",
        "in_avals",
        "name",
        "out_avals",
        "platforms",
    )

    def __init__(
        self,
        name: str,
        data: bytes,
        constants: tuple[Any, ...],
        in_avals: tuple[ShapedArray, ...],
        out_avals: tuple[ShapedArray, ...],
        platforms: tuple[str, ...] = (),
        functions: Sequence[Any] = (),
    ) -> None:
        self.name = name
        self.data = data
        self.constants = constants
        self.in_avals = in_avals
        self.out_avals = out_avals
        self.platforms = platforms
        self.functions = tuple(functions)


def portable_program(
    jaxpr: Jaxpr,
    name: str,
    *,
    target: str | None = None,
    names: Sequence[str] = (),
    platforms: Sequence[str] = (),
    allowed: Collection[str] = (),
    located: bool = False,
    embed_constants: bool = False,
    spread: bool = False,
) -> PortableProgram:
    """Lower and serialise ``jaxpr`` for consumers of StableHLO version ``target`` or later.

    Args:
        jaxpr: the program; dimensions of its inputs may be symbolic.
        name: what messages call the program.
        target: a version such as ``"1.8.0"``; None is the newest that can be written.
        names: what messages about sizes call the inputs.
        platforms: the platforms that it is for, such as ``"cuda"``; those for which an operation
            of the program has no rule are left out. With several main takes a leading ``i32``,
            the number of the one that it runs on.
        allowed: targets of custom calls that the consumer knows besides ``PORTABLE_TARGETS``.
        located: operations keep the lines of the user's code that made them. Equal functions of
            different lines are then different programs.
        spread: whether the consumer knows how arguments and results are split over devices; what
            is inside is left to it.
        embed_constants: the artifact holds all constants, and main takes the inputs alone.

    Raises:
        ExportError: the program calls something that only this process has, runs on none of
            the platforms, or splits values over devices.
    """
    # Options of a compiler say nothing to the consumers.
    jaxpr, _ = lifted_options(jaxpr)
    if not spread:
        _check_whole(jaxpr, name)
    served = _platforms_of(jaxpr, name, platforms)
    lowered = lower_module(
        jaxpr,
        name,
        PLATFORM,
        keep_unused=True,
        platforms=served,
        names=names,
        located=located,
        embed_constants=embed_constants,
    )
    check_portable(lowered, name, allowed)
    with building():
        mlir.expand_chlo(lowered.module)
        data = _serialized(lowered.module, name, target)
    functions = [k.function for k in lowered.keepalives if type(k) is OfConsumer]
    avals = tuple(jaxpr.in_avals), tuple(jaxpr.out_avals)
    return PortableProgram(name, data, lowered.hoisted, *avals, served, functions)


def _serialized(module: Any, name: str, target: str | None) -> bytes:
    """The artifact of a module.

    Raises:
        ExportError: something in it cannot be written for ``target``.
    """
    try:
        return mlir.serialize_portable_artifact(module, target)
    except XlaRuntimeError as error:
        found = re.search(r"failed to legalize operation '([^']+)'", str(error))
        what = f"an operation {found[1]} of the program" if found else "the program"
        raise ExportError(
            f"export of {name}: {what} cannot be written in StableHLO {target}",
            hint="leave that part out, or export for a newer version",
        ) from error


def _check_whole(jaxpr: Jaxpr, name: str) -> None:
    """Raise if the program splits values: consumers run it on one device, whole.

    Raises:
        ExportError: names the sharding.
    """
    for app in applications(jaxpr):
        sharding = app.primitive.wanted_sharding(app.params)
        mesh = getattr(sharding, "mesh", None)
        if mesh is not None and any([_n_parts(entry, mesh) > 1 for entry in sharding.spec]):
            raise ExportError(
                f"export of {name}: the program splits a value as {sharding}, but exported "
                "programs run on one device and hold no shardings",
                hint="export the function without with_sharding_constraint, shardings of jit and "
                "device_put, or with a mesh of one device",
            )


def _n_parts(entry: Any, mesh: Any) -> int:
    """Into how many parts an entry of a specification splits an axis."""
    return math.prod([mesh.shape[axis] for axis in entry_names(entry)])


def _platforms_of(jaxpr: Jaxpr, name: str, platforms: Sequence[str]) -> tuple[str, ...]:
    """Those of ``platforms`` on which all operations run.

    Raises:
        ExportError: there is none.
    """
    served = list(platforms)
    for app in applications(jaxpr):
        left = [p for p in served if app.primitive.is_lowered_on(p, app.params)]
        if served and not left:
            raise ExportError(
                f"export of {name}: {app.primitive.name} has no rule for {', '.join(served)}",
                expected="all operations of the program on one of the platforms "
                + ", ".join(platforms),
            )
        served = left
    return tuple(served)


def check_portable(lowered: LoweredModule, name: str, allowed: Collection[str] = ()) -> None:
    """Raise if another process could not run the module.

    Raises:
        ExportError: host callbacks, or custom calls that are not known everywhere.
    """
    if lowered.callbacks:
        raise ExportError(
            f"export of {name}: the program calls {len(lowered.callbacks)} Python function(s) "
            "of this process (callbacks), which an exported program cannot reach",
            hint="leave debug.print, pure_callback and io_callback out of exported functions",
        )
    unknown = sorted(custom_call_targets(lowered.module) - PORTABLE_TARGETS - set(allowed))
    if unknown:
        raise ExportError(
            f"export of {name}: the program calls {', '.join(unknown)}, which only this "
            "process has registered",
            expected="operations of StableHLO alone; decompositions of dense linear algebra on "
            "the CPU and ffi calls are library functions",
            hint="compute that part outside of the exported function",
        )


def custom_call_targets(module: Any) -> set[str]:
    """The targets of all custom calls of a module."""
    found: set[str] = set()

    def visit(operation: Any) -> Any:
        if operation.name == "stablehlo.custom_call":
            found.add(mlir.ir.StringAttr(operation.attributes["call_target_name"]).value)
        return mlir.ir.WalkResult.ADVANCE

    with building():
        module.operation.walk(visit)
    return found


def smaller_version(one: str, other: str) -> str:
    """The older of two StableHLO versions."""
    return min(one, other, key=lambda v: tuple(int(part) for part in v.split(".")))
