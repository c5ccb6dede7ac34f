"""The function of a kernel: ``@steps(arrays, first, length)`` does some steps of a plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, final

from tracebridge.core.kernels.steps.code import Code
from tracebridge.core.kernels.steps.dots import Dots, write_dots
from tracebridge.core.kernels.steps.elementwise import Group, copy_of, write_group
from tracebridge.core.kernels.steps.products import Product, write_product
from tracebridge.core.kernels.steps.reductions import write_reduction
from tracebridge.core.kernels.steps.views import ALIGNED, View, bytes_of

if TYPE_CHECKING:
    from tracebridge.core.kernels.steps.plan import Plan
    from tracebridge.core.kernels.steps.values import Statement

Places = Callable[[Code, str], "list[tuple[str, str, str]]"]
"""In a step: names of slices, the arrays that they are of, how many bytes they are into these."""


def places_of_steps(plan: Plan, reverse: bool) -> Places:
    """A slice for each step lies one after another, or in the reverse order."""
    n_in, n_out, arrays = plan.n_consts + plan.n_carry, plan.n_carry, plan.arrays

    def places(code: Code, index: str) -> list[tuple[str, str, str]]:
        if reverse:
            last = code.line("sub nsw i64 %length, 1")
            index = code.line(f"sub nsw i64 {last}, {index}")
        names = [(f"%x{k}", f"%in{n_in + k}", a) for k, a in enumerate(arrays.in_avals[n_in:])]
        names += [(f"%y{k}", f"%out{n_out + k}", a) for k, a in enumerate(arrays.out_avals[n_out:])]
        return [
            (name, array, code.line(f"mul nsw i64 {index}, {bytes_of(a.shape, a.dtype)}"))
            for name, array, a in names
        ]

    return places


def places_of_parts(plan: Plan) -> Places:
    """A part of each array for each step."""
    n, arrays = plan.n_consts, plan.arrays

    def places(code: Code, index: str) -> list[tuple[str, str, str]]:
        index, indices = code.line(f"add nuw nsw i64 {index}, %first"), []
        for count in reversed(arrays.counts[1:]):
            indices.insert(0, code.line(f"urem i64 {index}, {count}"))
            index = code.line(f"udiv i64 {index}, {count}")
        indices.insert(0, index)
        found = []
        for k in range(len(arrays.in_avals) - n):
            at = code.offset(indices, arrays.operand_steps(n + k))
            found.append((f"%x{k}", f"%in{n + k}", at))
        for k in range(len(arrays.out_avals)):
            found.append((f"%y{k}", f"%out{k}", code.offset(indices, arrays.result_steps(k))))
        return found

    return places


def steps_function(plan: Plan, places: Places, lanes: int) -> str:
    """The text of the function; ``lanes``: float32 in a vector of the processor."""
    return _Writer(plan, places, lanes).text()


@final
class _Writer:
    def __init__(self, plan: Plan, places: Places, lanes: int) -> None:
        self.plan, self.places, self.lanes = plan, places, lanes
        self.code = Code()

    def text(self) -> str:
        arrays = self.plan.arrays
        given = [f"ptr noalias readonly %in{i}" for i in range(len(arrays.in_avals))]
        given += [f"ptr noalias %out{i}" for i in range(len(arrays.out_avals))]
        given += ["i64 %first", "i64 %length"]
        self._function()
        lines = [f"define internal void @steps({', '.join(given)}) {{", "entry:"]
        return "\n".join([*sorted(self.code.needs), *lines, *self.code.lines, "ret void", "}"])

    def _function(self) -> None:
        code, plan = self.code, self.plan
        size = max(plan.scratch, 1) + ALIGNED
        code.needs.add("declare ptr @llvm.ptrmask.p0.i64(ptr, i64)")
        code.lines += [
            f"%scratch = call ptr @malloc(i64 {size})",
            f"%scratch.end = getelementptr i8, ptr %scratch, i64 {ALIGNED}",
            f"%scratch.first = call ptr @llvm.ptrmask.p0.i64(ptr %scratch.end, i64 {-ALIGNED})",
        ]
        for name, at in plan.places.items():
            code.lines.append(f"{name} = getelementptr i8, ptr %scratch.first, i64 {at}")
        n, arrays = plan.n_consts, plan.arrays
        for k, carry in enumerate(plan.carries):
            self._copy(arrays.operand(n + k, f"%in{n + k}"), carry)
        if not arrays.by_rows:
            self._write(plan.before)
        code.loop("%length", 1, self._step)
        for k, carry in enumerate(plan.carries):
            self._copy(carry, arrays.result(k, f"%out{k}"))
        code.lines.append("call void @free(ptr %scratch)")

    def _copy(self, source: View, target: View) -> None:
        write_group(self.code, copy_of(source, target), self.lanes)

    def _step(self, index: str, _: Sequence[str]) -> Sequence[str]:
        for name, array, at in self.places(self.code, index):
            self.code.lines.append(f"{name} = getelementptr i8, ptr {array}, i64 {at}")
        if self.plan.arrays.by_rows and self.plan.before:
            self.code.when(self._is_new(index), lambda: self._write(self.plan.before))
        self._write(self.plan.step)
        self._write(self.plan.after)
        return ()

    def _is_new(self, index: str) -> str:
        """Whether what is the same for all rows is not that of the step before."""
        code = self.code
        at = code.line(f"add nuw nsw i64 {index}, %first")
        row = code.line(f"urem i64 {at}, {self.plan.arrays.counts[-1]}")
        first_row = code.line(f"icmp eq i64 {row}, 0")
        first_step = code.line(f"icmp eq i64 {index}, 0")
        return code.line(f"or i1 {first_row}, {first_step}")

    def _write(self, statements: Sequence[Statement]) -> None:
        for statement in statements:
            if isinstance(statement, Group):
                if statement.stores:
                    write_group(self.code, statement, self.lanes)
            elif isinstance(statement, Product):
                write_product(self.code, statement, self.lanes)
            elif isinstance(statement, Dots):
                write_dots(self.code, statement, self.lanes)
            else:
                write_reduction(self.code, statement, self.lanes)
