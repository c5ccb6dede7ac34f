"""The stages of a function mapped over devices: ``pmap(f).lower(...)`` and its compiled program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast, final

from tracebridge.core.aot.abstract import avals_of
from tracebridge.core.aot.compiled import Compiled
from tracebridge.core.aot.compiler_ir import checked_dialect, costs_of, hlo_of, hlo_text
from tracebridge.core.aot.stage import Stage
from tracebridge.core.aot.stages import check_assignment
from tracebridge.core.control.calls.entry import CallEntry
from tracebridge.core.control.calls.traced_call import TracedCall
from tracebridge.core.control.pmap.call import Mapped, Pmapped, close_program
from tracebridge.core.control.pmap.program import compile_lowered_pmap, lower_pmap, pmap_placement
from tracebridge.core.errors.tracer_errors import UnexpectedTracerError
from tracebridge.core.ir.aval import ShapedArray, batched_aval
from tracebridge.core.ir.jaxpr import ClosedJaxpr
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.mlir.context import building
from tracebridge.core.runtime.arrays.signature import signature
from tracebridge.core.runtime.calls.dispatch import to_array


@final
class _TracedMap:
    """What stages want to know of a traced call."""

    __slots__ = ("out_avals", "out_tree", "refs")

    def __init__(self, mapped: Mapped) -> None:
        self.refs = None  # mapped functions use none
        params = mapped.params
        self.out_tree = mapped.out_tree
        outs = zip(params["jaxpr"].out_avals, params["out_axes"], strict=True)
        self.out_avals = [batched_aval(a, params["axis_size"], axis) for a, axis in outs]


@final
class LoweredMap(Stage):
    """A mapped function lowered to the StableHLO that each device runs.

    >>> import tracebridge as tb
    >>> lowered = tb.pmap(lambda x: x * 2).lower(tb.numpy.ones(1))
    >>> 'stablehlo.multiply' in lowered.as_text()
    True
    """

    __slots__ = ("_donated", "_mapped", "_module", "_placement")

    def __init__(
        self, name: str, args: Any, avals: tuple[ShapedArray, ...], mapped: Mapped
    ) -> None:
        super().__init__(name, args, avals, cast("TracedCall", _TracedMap(mapped)))
        n = len(mapped.hoisted)
        self._mapped = mapped
        self._donated = tuple([i + n for i in args.donated])
        self._placement = pmap_placement(mapped.params)
        self._module = lower_pmap(mapped.params, self._placement, self._donated)

    def as_text(self, dialect: str | None = None) -> str:
        """The program as text: "stablehlo" (the default), "hlo", or "jaxpr" for an element's."""
        if dialect == "jaxpr":
            return str(ClosedJaxpr(self._mapped.params["jaxpr"]))
        if checked_dialect(dialect) == "hlo":
            return hlo_text(self._module)
        with building():
            return str(self._module.module)

    def compiler_ir(self, dialect: str | None = None) -> Any:
        """The program as jaxlib's object: an MLIR module, or for "hlo" an XlaComputation."""
        return hlo_of(self._module) if checked_dialect(dialect) == "hlo" else self._module.module

    def cost_analysis(self) -> dict[str, float]:
        """XLA's estimate of one device's program before optimization: flops, ..."""
        return costs_of(self._module)

    def compile(
        self,
        compiler_options: dict[str, Any] | None = None,
        *,
        device_assignment: Sequence[Any] | None = None,
    ) -> Compiled:
        """Compile for the devices of the map.

        Args:
            compiler_options: XLA flags by name, for this program only.
            device_assignment: the devices, which must be those of the map.

        Raises:
            CompileError: XLA rejects the program or an option.
            DevicePlacementError: ``device_assignment`` names other devices.
        """
        check_assignment(f"pmap({self._name})", device_assignment, self._placement)
        mapped = self._mapped
        options = tuple(sorted((compiler_options or {}).items()))
        program = compile_lowered_pmap(
            mapped.params, self._module, self._placement, self._donated, options
        )
        close_program(program, [to_array(h) for h in mapped.hoisted])
        sigs = [
            signature(a, place, True)
            for a, place in zip(self._avals, program.placement.in_shardings, strict=True)
        ]
        donated, tree = self._args.donated, self._traced.out_tree
        entry = CallEntry(self._name, program, tree, True, donated, sigs)
        return Compiled(self, program, entry)


def lower_map(pmapped: Pmapped, args: tuple[Any, ...], kwargs: dict[str, Any]) -> LoweredMap:
    """``pmap(f).lower(*args, **kwargs)``; stand-ins such as ShapeDtypeStruct are arguments too.

    Raises:
        UnexpectedTracerError: the function closes over values of a trace that is running.
    """
    call = pmapped.options.resolve(args, kwargs)
    avals = avals_of(f"pmap({pmapped.name})", call)
    mapped = pmapped.trace(call, avals, len(args))
    if any([isinstance(h, Tracer) for h in mapped.hoisted]):
        raise UnexpectedTracerError(
            f"pmap({pmapped.name}).lower: the function uses values of an enclosing trace, so that "
            "it has no program of its own"
        )
    return LoweredMap(pmapped.name, call, avals, mapped)
