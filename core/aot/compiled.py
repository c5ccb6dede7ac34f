"""The last stage of a jitted function: Compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from tracebridge.core.aot.ref_stages import call_with_references
from tracebridge.core.aot.stage import Stage
from tracebridge.core.control.calls.entry import CallEntry
from tracebridge.core.control.calls.traced_call import TracedCall, argument_names
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.runtime_errors import (
    ArgumentMismatchError,
    DevicePlacementError,
)
from tracebridge.core.ir.float0 import hide_float0
from tracebridge.core.ir.higher_order import is_high_jaxpr
from tracebridge.core.ir.shape_struct import struct_of
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.user_type import high_values, low_values, same_type
from tracebridge.core.kernels.costs import with_kernels
from tracebridge.core.mlir.onednn import with_calls
from tracebridge.core.runtime.arrays.placement import is_spread
from tracebridge.core.runtime.arrays.transfer import move
from tracebridge.core.runtime.backends.clients import check_not_forked
from tracebridge.core.runtime.calls.dispatch import to_array
from tracebridge.core.runtime.programs.program import Program
from tracebridge.core.sharding.layout import row_major
from tracebridge.core.tree.prefix import equality_errors_of_structures
from tracebridge.core.tree.tree import PyTreeDef, flatten
from tracebridge.core.util.public_path import public_path


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

    __slots__ = ("_entry", "_program", "_shardings")

    def __init__(self, lowered: Stage, program: Program[Any], entry: CallEntry) -> None:
        super().__init__(*lowered.parts)
        self._program = program
        self._entry = entry
        self._shardings = lowered.options_of_results

    @property
    def options_of_results(self) -> Any:
        return self._shardings

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
    def out_info(self) -> Any:
        """Tree of ``ShapeDtypeStruct`` of the result, with the shardings that it has."""
        found = self._program.signatures(True)
        places = [s.sharding for s in found[: self.out_tree.num_leaves]]
        structs = [struct_of(a, s) for a, s in zip(self._results, places, strict=True)]
        return self.out_tree.unflatten(structs)

    @property
    def output_shardings(self) -> Any:
        """Tree of the shardings of the result."""
        results = self._program.signatures(True)[: self.out_tree.num_leaves]
        return self.out_tree.unflatten([s.sharding for s in results])
