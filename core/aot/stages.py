"""The stages of a jitted function: Traced, Lowered, Compiled."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any, Protocol, final, runtime_checkable

import tracebridge.core.ir.pretty  # pyright: ignore[reportUnusedImport]  # noqa: F401 - Jaxprs print by it
from tracebridge.core._jaxlib.xla import platform_of
from tracebridge.core.aot.abstract import avals_of, signature_of, stand_in
from tracebridge.core.aot.compiled import Compiled
from tracebridge.core.aot.compiler_ir import checked_dialect, costs_of, hlo_of, hlo_text
from tracebridge.core.aot.ref_stages import (
    captured_signatures,
    check_references,
    contents_of_references,
)
from tracebridge.core.aot.stage import Stage
from tracebridge.core.control.calls.entry import CallEntry
from tracebridge.core.control.calls.traced_call import (
    Arguments,
    TracedCall,
    result_names,
)
from tracebridge.core.control.jit.cached_call import Jitted
from tracebridge.core.control.jit.jit import JitOptions, list_of
from tracebridge.core.errors.export_errors import ExportError
from tracebridge.core.errors.runtime_errors import (
    BackendNotFoundError,
    DevicePlacementError,
)
from tracebridge.core.errors.tracer_errors import UnexpectedTracerError
from tracebridge.core.interpreters.low import low_jaxpr
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.float0 import has_float0
from tracebridge.core.ir.jaxpr import ClosedJaxpr, Jaxpr
from tracebridge.core.ir.user_type import low_avals
from tracebridge.core.lowering.module import LoweredModule, lower_module
from tracebridge.core.mlir.context import building
from tracebridge.core.runtime.arrays.placement import (
    MeshPlacement,
    choose_placement,
    is_spread,
    mesh_of,
    splits_values,
)
from tracebridge.core.runtime.arrays.signature import signature
from tracebridge.core.runtime.backends.clients import (
    default_placement,
    get_backend,
)
from tracebridge.core.runtime.backends.monitoring import LOWER, finished
from tracebridge.core.runtime.programs.compile import compile_lowered, inspected
from tracebridge.core.sharding.mesh import Mesh
from tracebridge.core.util.public_path import public_path

logger = logging.getLogger("tracebridge.compile")

CompilerOptions = dict[str, str | bool | int | float]
"""XLA flags by name."""


@public_path("tracebridge.stages")
@runtime_checkable
class Wrapped(Protocol):
    """What ``jit`` returns: callable, with ways to look at its stages."""

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Run the compiled function."""
        ...

    def trace(self, *args: object, **kwargs: object) -> Traced:
        """Trace at these arguments."""
        ...

    def lower(self, *args: object, **kwargs: object) -> Lowered:
        """Trace and lower at these arguments."""
        ...

    def eval_shape(self, *args: object, **kwargs: object) -> Any:
        """Shapes and dtypes of the result."""
        ...

    def clear_cache(self) -> None:
        """Forget traces and compiled programs."""
        ...


@public_path("tracebridge.stages")
@final
class Traced(Stage):
    """A function traced at the avals of some arguments: the result of ``jit(f).trace``.

    >>> import tracebridge as tb
    >>> traced = tb.jit(lambda x: tb.lax.sin(x)).trace(1.0)
    >>> traced.out_info
    ShapeDtypeStruct(shape=(), dtype=float32, weak_type=True)
    """

    __slots__ = ("_jitted",)

    def __init__(
        self, jitted: Jitted, args: Arguments, avals: tuple[ShapedArray, ...], traced: TracedCall
    ) -> None:
        super().__init__(jitted.name, args, avals, traced)
        self._jitted = jitted

    @property
    def options_of_results(self) -> Any:
        return self._jitted.options.shardings

    @property
    def jaxpr(self) -> ClosedJaxpr:
        """The traced program."""
        return ClosedJaxpr(self._traced.whole)

    def as_text(self) -> str:
        """The traced program as text."""
        return str(self._traced.whole)

    def _place(self, step: str, *, inside: bool = True) -> tuple[Any, bool]:
        """Where the program runs, and whether an argument says so.

        ``inside``: whether operations of the program have a say.

        Raises:
            UnexpectedTracerError: the function closes over values of a trace that is running.
        """
        if self._traced.has_tracers():
            raise UnexpectedTracerError(
                f"jit({self._name}).{step}: the function uses values of an enclosing trace, "
                "so that it has no program of its own"
            )
        placed = self._jitted.options.placement
        fallback = default_placement()
        sigs = [
            signature_of(leaf, part, fallback)
            for leaf, aval in zip(self._args.leaves, self._avals, strict=True)
            for part in low_avals([aval])
        ]
        sigs += captured_signatures(f"jit({self._name}).{step}", self._traced.refs, fallback)
        avals = [s.aval for s in sigs]
        find = self._jitted.wishes if inside else self._jitted.option_wishes
        wishes = find(self._args, self._traced, avals, sigs)
        return choose_placement(sigs, self._name, None if placed is None else placed(), wishes)

    def lower(self, lowering_platforms: Sequence[str] | None = None) -> Lowered:
        """Lower to StableHLO.

        Args:
            lowering_platforms: platform to lower for, as a sequence of one name ("cpu", "cuda",
                "rocm", "tpu"). It need not be installed, but then the result cannot be compiled.
                None: the platform of the arguments, or the default one.

        Raises:
            UnexpectedTracerError: the function closes over values of a trace that is running.
        """
        placement, committed = self._place("lower")
        platform = platform_of(placement.device)
        if lowering_platforms is not None:
            if len(tuple(lowering_platforms)) != 1:
                msg = (
                    f"jit({self._name}).lower: lowering_platforms={lowering_platforms!r}, "
                    "expected a sequence of one platform"
                )
                raise BackendNotFoundError(
                    msg, hint="tracebridge.export lowers one program for several platforms"
                )
            (platform,) = lowering_platforms
            if platform != platform_of(placement.device):
                placement, committed = None, False
        start = time.perf_counter()
        module = module_of(self, self._jitted.options, platform, mesh=mesh_of(placement))
        finished(LOWER, self._name, start, logger)
        return Lowered(self, module, placement, committed, platform)


@public_path("tracebridge.stages")
@final
class Lowered(Stage):
    """A function lowered to StableHLO: the result of ``jit(f).lower``.

    >>> import tracebridge as tb
    >>> text = tb.jit(lambda x: tb.lax.sin(x)).lower(1.0).as_text()
    >>> 'stablehlo.sine' in text
    True
    """

    __slots__ = ("_committed", "_module", "_options", "_placement", "_platform")

    def __init__(
        self,
        traced: Traced,
        module: LoweredModule,
        placement: Any,
        committed: bool,
        platform: str,
    ) -> None:
        super().__init__(traced._name, traced._args, traced._avals, traced._traced)
        self._options = traced._jitted.options
        self._module = module
        self._placement = placement
        self._committed = committed
        self._platform = platform

    @property
    def options_of_results(self) -> Any:
        return self._options.shardings

    def as_text(self, dialect: str | None = None, *, debug_info: bool = False) -> str:
        """The program as text.

        Args:
            dialect: "stablehlo" (the default), "hlo", or "jaxpr" for the traced program.
            debug_info: show the names of arguments, results and operations, and the lines that
                operations come from.
        """
        if dialect == "jaxpr":
            return str(self._traced.whole)
        as_hlo = checked_dialect(dialect) == "hlo"
        module, mesh = self._module, mesh_of(self._placement)
        if debug_info:
            module = module_of(self, self._options, self._platform, located=True, mesh=mesh)
        if as_hlo:
            return hlo_text(module, metadata=debug_info)
        with building():
            return module.module.operation.get_asm(enable_debug_info=debug_info)

    def compiler_ir(self, dialect: str | None = None) -> Any:
        """The program as jaxlib's object: an MLIR module, or for "hlo" an XlaComputation."""
        if checked_dialect(dialect) == "hlo":
            return hlo_of(self._module)
        return self._module.module

    def cost_analysis(self) -> dict[str, float]:
        """XLA's estimate of the program before optimization: flops, bytes accessed, ..."""
        return costs_of(self._module)

    def compile(
        self,
        compiler_options: dict[str, Any] | None = None,
        *,
        device_assignment: Sequence[Any] | None = None,
    ) -> Compiled:
        """Compile for the device that the program was lowered for.

        Args:
            compiler_options: XLA flags by name, for this program only.
            device_assignment: the devices, which must be those that the program was lowered for.

        Raises:
            BackendNotFoundError: the program was lowered for a platform that is not installed.
            CompileError: XLA rejects the program or an option.
            DevicePlacementError: ``device_assignment`` names other devices.
        """
        placement = self._placement
        if placement is None:
            placement = get_backend(self._platform).placement
        check_assignment(f"jit({self._name})", device_assignment, placement)
        options = dict(self._options.compiler_options) | (compiler_options or {})
        whole, flags = low_jaxpr(self._traced.whole), tuple(sorted(options.items()))
        sigs = [signature(a, placement, False) for a in whole.in_avals]
        plain = self._traced.refs is None and whole is self._traced.whole
        out_tree = self.out_tree if plain else list_of(len(whole.outs))
        program = compile_lowered(
            inspected(self._module, whole, placement, flags),
            placement,
            whole.out_avals,
            self._given_memory,
            flags,
        )
        entry = CallEntry(
            self._name,
            program,
            out_tree,
            self._committed,
            self._given_memory,
            sigs,
        )
        return Compiled(self, program, entry)


def module_of(
    stage: Stage,
    options: JitOptions,
    platform: str,
    *,
    located: bool = False,
    mesh: Mesh | None = None,
) -> LoweredModule:
    """The module for a platform; ``located``: with names and lines, to be read."""
    tree = stage.out_tree
    paths = result_names(tree) if located else ()
    return lower_module(
        stage._traced.whole,
        stage._name,
        platform,
        keep_unused=options.keep_unused,
        donated=stage._given_memory,
        mesh=mesh,
        located=located,
        result_names=paths,
    )


def check_assignment(call: str, devices: Sequence[Any] | None, placement: Any) -> None:
    """Raise DevicePlacementError unless ``devices`` are those of ``placement``, in its order."""
    if devices is None:
        return
    own = placement.mesh if is_spread(placement) else placement
    if tuple(devices) != tuple(own.device_tuple):
        raise DevicePlacementError(
            f"{call}.lower().compile: device_assignment is {tuple(devices)}",
            expected=f"{tuple(own.device_tuple)}, for which the program was lowered",
            hint="move the arguments, or name the devices in the shardings of jit",
        )


def program_for_export(traced: Traced) -> tuple[Jaxpr, MeshPlacement | None]:
    """The program of a traced function, if it is one of values alone, and its mesh, if it has one.

    Raises:
        ExportError: it reads or writes references.
        UnexpectedTracerError: the function closes over values of a trace that is running.
    """
    name = traced.fun_name
    if traced._traced.refs is not None:
        msg = f"export of {name}: the program reads or writes references (Ref)"
        raise ExportError(msg, hint="pass their contents, and return what they become")
    program = traced._traced.whole
    # Of what is inside only constraints need devices: shard_map computes all blocks on one.
    placement = traced._place("export", inside=False)[0]
    says = splits_values(program)
    if says and not is_spread(placement):
        placement = traced._place("export")[0]
    if not is_spread(placement):
        return program, None
    given = [*placement.in_shardings, *[s for s in placement.out_shardings or () if s is not None]]
    says = says or placement.mesh.size > 1 or any([any(s.axes) for s in given])
    return program, placement if says else None


def trace_stage(jitted: Jitted, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Traced:
    """``jit(f).trace(*args, **kwargs)``; stand-ins such as ShapeDtypeStruct are arguments too."""
    name = f"jit({jitted.name})"
    call = jitted.resolve(jitted, args, kwargs)
    if has_float0(call.leaves):
        call.hide_float0()
    passed = contents_of_references(name, call)
    avals = avals_of(name, call)
    traced = jitted.trace(call, avals, refs=True)
    check_references(name, traced, passed)
    # Stages live on: they know where the arguments are and do not keep their memory.
    call.leaves = [stand_in(leaf, aval) for leaf, aval in zip(call.leaves, avals, strict=True)]
    return Traced(jitted, call, avals, traced)
