"""The stages of a jitted function: Traced, Lowered, Compiled."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any, Protocol, final, runtime_checkable

import tracebridge.core.ir.pretty  # pyright: ignore[reportUnusedImport]  # noqa: F401 - Jaxprs print by it
from tracebridge.core._jaxlib.xla import platform_of
from tracebridge.core.aot.abstract import avals_of, signature_of, stand_in
from tracebridge.core.aot.compiler_ir import checked_dialect, costs_of, hlo_of, hlo_text
from tracebridge.core.aot.ref_stages import (
    call_with_references,
    captured_signatures,
    check_references,
    contents_of_references,
)
from tracebridge.core.aot.stage import Stage
from tracebridge.core.control.calls.entry import CallEntry
from tracebridge.core.control.calls.traced_call import (
    Arguments,
    TracedCall,
    argument_names,
    result_names,
)
from tracebridge.core.control.jit.cached_call import Jitted
from tracebridge.core.control.jit.jit import JitOptions, list_of
from tracebridge.core.errors.export_errors import ExportError
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.runtime_errors import (
    ArgumentMismatchError,
    BackendNotFoundError,
    DevicePlacementError,
)
from tracebridge.core.errors.tracer_errors import UnexpectedTracerError
from tracebridge.core.interpreters.low import low_jaxpr
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.float0 import has_float0, hide_float0
from tracebridge.core.ir.jaxpr import ClosedJaxpr, Jaxpr
from tracebridge.core.ir.primitive import is_high_jaxpr
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.user_type import high_values, low_avals, low_values, same_type
from tracebridge.core.kernels.costs import with_kernels
from tracebridge.core.lowering.module import LoweredModule, lower_module
from tracebridge.core.mlir.context import building
from tracebridge.core.mlir.onednn import with_calls
from tracebridge.core.runtime.arrays.placement import (
    MeshPlacement,
    choose_placement,
    is_spread,
    mesh_of,
    splits_values,
)
from tracebridge.core.runtime.arrays.signature import signature
from tracebridge.core.runtime.arrays.transfer import move
from tracebridge.core.runtime.backends.clients import (
    check_not_forked,
    default_placement,
    get_backend,
)
from tracebridge.core.runtime.backends.monitoring import LOWER, finished
from tracebridge.core.runtime.calls.dispatch import to_array
from tracebridge.core.runtime.programs.compile import compile_lowered, inspected
from tracebridge.core.runtime.programs.program import Program
from tracebridge.core.sharding.layout import row_major
from tracebridge.core.sharding.mesh import Mesh
from tracebridge.core.tree.prefix import equality_errors_of_structures
from tracebridge.core.tree.tree import PyTreeDef, flatten
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


@public_path("tracebridge.stages")
@final
class Compiled(Stage):
    """A compiled program: the result of ``jit(f).lower(...).compile()``.

    Called with arguments of the structure, shapes and dtypes that it was compiled for; static
    arguments are left out.

    >>> import tracebridge as tb
    >>> compiled = tb.jit(lambda x: x * 2).lower(1.0).compile()
    >>> print(compiled(3.0))
    6.0
    """

    __slots__ = ("_entry", "_program")

    def __init__(self, lowered: Stage, program: Program[Any], entry: CallEntry) -> None:
        super().__init__(lowered._name, lowered._args, lowered._avals, lowered._traced)
        self._program = program
        self._entry = entry

    @api_boundary
    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Run the program.

        Raises:
            ArgumentMismatchError: the arguments have another structure, shape or dtype.
            ForkedProcessError: this process was forked after XLA had been started.
        """
        check_not_forked()
        leaves, tree = flatten((args, kwargs))
        if tree != self._args.tree:
            leaves, tree = hide_float0(leaves, tree)  # no arguments of a program
        if tree != self._args.tree:
            raise self._wrong_structure(tree)
        refs = self._traced.refs
        # That of pmap is not made of a traced call, and has arrays only.
        whole = self._traced.whole if type(self._traced) is TracedCall else None
        if whole is not None and is_high_jaxpr(whole):
            arrays = low_values(self._checked(leaves), self._avals)
            outs = self._run([to_array(a) for a in arrays])
            return self.out_tree.unflatten(high_values(outs, whole.out_avals))
        if refs is None:
            return self._run([to_array(v) for v in self._checked(leaves)])
        outs = call_with_references(
            self._called(), self._args, refs, leaves, self._checked, self._run
        )
        return self.out_tree.unflatten(outs)

    def _run(self, arrays: list[Any]) -> Any:
        return self._entry.call(self._at_place(arrays))

    def _checked(self, leaves: Sequence[object]) -> list[Any]:
        """The arguments as values of the types that the program was compiled for."""
        arrays: list[Any] = []
        different: list[str] = []
        for i, (leaf, aval) in enumerate(zip(leaves, self._avals, strict=True)):
            value = as_value(leaf)
            if isinstance(value, Tracer):
                raise ArgumentMismatchError(
                    f"{self._called()}: {self._argument(i)} is a traced value of "
                    f"type {value.aval.str_short()}, but a compiled program runs on concrete "
                    "arrays only",
                    hint="call the jitted function itself inside transformations",
                )
            if not same_type(value.aval, aval):
                different.append(
                    f"{self._argument(i)} is {value.aval.str_short()}, but the "
                    f"program was compiled for {aval.str_short()}"
                )
            arrays.append(value)
        if different:
            raise ArgumentMismatchError(
                f"{self._called()}: {'; '.join(different)}",
                hint="compile it for these arguments too, or call the jitted function",
            )
        return arrays

    def _at_place(self, arrays: list[Any]) -> list[Any]:
        """The arrays at the program's place; an array committed elsewhere is an error."""
        for i, (array, placement) in enumerate(zip(arrays, self._places(), strict=True)):
            sig = array._sig
            if sig.sharding is placement:
                continue
            if sig.committed and sig.sharding.device_set != placement.device_set:
                raise DevicePlacementError(
                    f"{self._called()}: {self._argument(i)} is committed to {sig.sharding}, but "
                    f"the program was compiled for {placement}",
                    hint="move it with device_put(x, device)",
                )
            arrays[i] = move(array, placement, committed=sig.committed)
        return arrays

    def _places(self) -> Sequence[Any]:
        """The sharding of each argument."""
        placement = self._program.placement
        if is_spread(placement):
            return placement.in_shardings
        return [placement] * len(self._entry.sigs)

    def call(self, *args: object, **kwargs: object) -> Any:
        """The same as calling the object."""
        return self(*args, **kwargs)

    def _called(self) -> str:
        return f"the compiled program {self._name}"

    def _argument(self, index: int) -> str:
        return f"argument {argument_names(self._args.tree, self._args.parameters)[index]}"

    def _wrong_structure(self, tree: PyTreeDef) -> ArgumentMismatchError:
        found = equality_errors_of_structures(tree, self._args.tree)
        text = "; ".join(d.describe("given", "compiled for") for d in found[:3])
        return ArgumentMismatchError(
            f"{self._called()}: the arguments (args, kwargs) have another structure than those "
            f"that it was compiled for: {text}",
            hint="leave static arguments out; give the others as in the call of lower()",
        )

    def as_text(self) -> str:
        """The optimized HLO."""
        return "\n\n".join([m.to_string() for m in self._program.executable.hlo_modules()])

    def cost_analysis(self) -> dict[str, float]:
        """XLA's estimate of the compiled program: flops, bytes accessed, ..."""
        executable = self._program.executable
        costs = executable.cost_analysis()
        if executable.client.platform != "cpu":
            return costs
        text = self.as_text()
        return with_kernels(with_calls(costs, text), text)

    def memory_analysis(self) -> Any:
        """Sizes in bytes of arguments, results, temporary memory and code."""
        return self._program.executable.get_compiled_memory_stats()

    def runtime_executable(self) -> Any:
        """Jaxlib's executable."""
        return self._program.executable

    @property
    def input_formats(self) -> Any:
        """Tree ``(args, kwargs)`` of the ``Format`` of the arguments: row-major ones."""
        places = zip(self._avals, self._places()[: len(self._avals)], strict=True)
        return self.in_tree.unflatten([row_major(a.ndim, place) for a, place in places])

    @property
    def output_formats(self) -> Any:
        """Tree of the ``Format`` of the result."""
        results = self._program.signatures(True)[: self.out_tree.num_leaves]
        return self.out_tree.unflatten([row_major(s.aval.ndim, s.sharding) for s in results])

    @property
    def input_shardings(self) -> Any:
        """Tree ``(args, kwargs)`` of the shardings of the arguments."""
        return self.in_tree.unflatten(self._places()[: len(self._avals)])

    @property
    def output_shardings(self) -> Any:
        """Tree of the shardings of the result."""
        results = self._program.signatures(True)[: self.out_tree.num_leaves]
        return self.out_tree.unflatten([s.sharding for s in results])


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
