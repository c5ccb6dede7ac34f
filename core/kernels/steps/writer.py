"""The function of a kernel: ``@steps(arrays, first, length)`` does some steps of a plan."""

from __future__ import annotations

from abc import ABC, abstractmethod
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
    return _OfWhole(plan, places, lanes).text()


class Writer(ABC):
    """The function while it is written; where arrays of the call are is left open."""

    names = "%in", "%out"
    """What names of operands and results begin with."""

    def __init__(self, plan: Plan, lanes: int) -> None:
        self.plan, self.lanes = plan, lanes
        self.code = Code()

    @abstractmethod
    def take(self, k: int, carry: View) -> None:
        """Copy the first value of a carry."""

    @abstractmethod
    def give(self, k: int, carry: View) -> None:
        """Copy the last value of a carry."""

    @abstractmethod
    def before_loop(self) -> int:
        """Find other memory; how many bytes of it are the function's own."""

    @abstractmethod
    def before_step(self, index: str) -> None:
        """Find the slices of a step."""

    @abstractmethod
    def after_step(self) -> None:
        """Give away what a step has made."""

    def text(self) -> str:
        """The text of the function."""
        arrays, (operand, result) = self.plan.arrays, self.names
        given = [f"ptr noalias readonly {operand}{i}" for i in range(len(arrays.in_avals))]
        given += [f"ptr noalias {result}{i}" for i in range(len(arrays.out_avals))]
        given += ["i64 %first", "i64 %length"]
        self._function()
        lines = [f"define internal void @steps({', '.join(given)}) {{", "entry:"]
        return "\n".join([*sorted(self.code.needs), *lines, *self.code.lines, "ret void", "}"])

    def _function(self) -> None:
        code, plan = self.code, self.plan
        code.needs.add("declare ptr @llvm.ptrmask.p0.i64(ptr, i64)")
        at = len(code.lines)
        twice = {view.base for k, there in plan.next.items() for view in (plan.carries[k], there)}
        for name, place in plan.places.items():
            named = f"{name}.first" if name in twice else name
            code.lines.append(f"{named} = getelementptr i8, ptr %scratch.first, i64 {place}")
        size = max(plan.scratch + self.before_loop(), 1) + ALIGNED
        code.lines[at:at] = [
            f"%scratch = call ptr @malloc(i64 {size})",
            f"%scratch.end = getelementptr i8, ptr %scratch, i64 {ALIGNED}",
            f"%scratch.first = call ptr @llvm.ptrmask.p0.i64(ptr %scratch.end, i64 {-ALIGNED})",
        ]
        for k, carry in enumerate(plan.carries):
            is_twice = k in plan.next
            self.take(k, carry._replace(base=f"{carry.base}.first") if is_twice else carry)
        if not plan.arrays.by_rows:
            self.write(plan.before)
        code.loop("%length", 1, self._step)
        for k, carry in enumerate(plan.carries):
            self.give(k, self._sides(k, "%length", ".last") if k in plan.next else carry)
        code.lines.append("call void @free(ptr %scratch)")

    def _sides(self, k: int, index: str, name: str = "") -> View:
        """Where a large carry is at a step; where the step writes it is the other side."""
        code, carry, there = self.code, self.plan.carries[k], self.plan.next[k]
        is_odd = code.line(f"trunc i64 {index} to i1")
        sides = [f"ptr {view.base}.first" for view in (carry, there)]
        named = [view.base + name for view in (carry, there)]
        for to, (even, odd) in zip(named, (sides, reversed(sides)), strict=True):
            code.lines.append(f"{to} = select i1 {is_odd}, {odd}, {even}")
        return carry._replace(base=named[0])

    def _step(self, index: str, _: Sequence[str]) -> Sequence[str]:
        for k in self.plan.next:
            self._sides(k, index)
        self.before_step(index)
        self.write(self.plan.step)
        self.write(self.plan.after)
        self.after_step()
        return ()

    def write(self, statements: Sequence[Statement]) -> None:
        """The text of some statements."""
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


@final
class _OfWhole(Writer):
    """Of arrays that lie in memory as the plan has them."""

    def __init__(self, plan: Plan, places: Places, lanes: int) -> None:
        super().__init__(plan, lanes)
        self.places = places

    def before_loop(self) -> int:
        return 0

    def after_step(self) -> None:
        return

    def take(self, k: int, carry: View) -> None:
        i = self.plan.n_consts + k
        self._copy(self.plan.arrays.operand(i, f"%in{i}"), carry)

    def give(self, k: int, carry: View) -> None:
        self._copy(carry, self.plan.arrays.result(k, f"%out{k}"))

    def _copy(self, source: View, target: View) -> None:
        write_group(self.code, copy_of(source, target), self.lanes)

    def before_step(self, index: str) -> None:
        for name, array, at in self.places(self.code, index):
            self.code.lines.append(f"{name} = getelementptr i8, ptr {array}, i64 {at}")
        fixed = [*self.plan.before, *self.plan.first]
        if self.plan.arrays.by_rows and fixed:
            self.code.when(self._is_new(index), lambda: self.write(fixed))

    def _is_new(self, index: str) -> str:
        """Whether what is the same for all rows is not that of the step before."""
        code = self.code
        at = code.line(f"add nuw nsw i64 {index}, %first")
        row = code.line(f"urem i64 {at}, {self.plan.arrays.counts[-1]}")
        first_row = code.line(f"icmp eq i64 {row}, 0")
        first_step = code.line(f"icmp eq i64 {index}, 0")
        return code.line(f"or i1 {first_row}, {first_step}")
