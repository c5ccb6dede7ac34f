"""The function of a kernel, and the interface that XLA calls it by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from tracebridge.core.kernels.interface import BEGINNING, SHARED, attribute_at, pointers
from tracebridge.core.kernels.sharing import HELP, HELPED, STATE_ROWS, arrays_of_block, state
from tracebridge.core.kernels.steps.code import Code
from tracebridge.core.kernels.steps.dots import Dots, write_dots
from tracebridge.core.kernels.steps.elementwise import Group, copy_of, write_group
from tracebridge.core.kernels.steps.plan import Plan
from tracebridge.core.kernels.steps.products import Product, write_product
from tracebridge.core.kernels.steps.reductions import write_reduction
from tracebridge.core.kernels.steps.values import Statement
from tracebridge.core.kernels.steps.views import ALIGNED, View, bytes_of
from tracebridge.core.kernels.waiting import ENTRY


def module_text(plan: Plan, reverse: bool, lanes: int) -> str:
    """The whole module of a kernel; ``lanes``: float32 in a vector of the processor."""
    return _Writer(plan, reverse, lanes).text()


@final
class _Writer:
    def __init__(self, plan: Plan, reverse: bool, lanes: int) -> None:
        self.plan, self.reverse, self.lanes = plan, reverse, lanes
        self.code = Code()
        body, n_carry = plan.body, plan.n_carry
        self.first_xs = plan.n_consts + n_carry
        self.n_in, self.n_out = body.n_in, len(body.outs)

    def text(self) -> str:
        given = [f"ptr noalias readonly %in{i}" for i in range(self.n_in)]
        given += [f"ptr noalias %out{i}" for i in range(self.n_out)]
        self._function()
        lines = [f"define internal void @steps({', '.join([*given, 'i64 %length'])}) {{", "entry:"]
        lines += [*self.code.lines, "ret void", "}"]
        shared = self.plan.arrays.count > 1
        rest = [self._block(), HELP, self._shared_handler()] if shared else [self._handler()]
        return "\n".join([*sorted(self.code.needs), *lines, SHARED, *rest])

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
        self._write(plan.before)
        code.loop("%length", 1, self._step)
        for k, carry in enumerate(plan.carries):
            self._copy(carry, arrays.result(k, f"%out{k}"))
        code.lines.append("call void @free(ptr %scratch)")

    def _copy(self, source: View, target: View) -> None:
        write_group(self.code, copy_of(source, target), self.lanes)

    def _step(self, index: str, _: Sequence[str]) -> Sequence[str]:
        code, plan = self.code, self.plan
        if self.reverse:
            last = code.line("sub nsw i64 %length, 1")
            index = code.line(f"sub nsw i64 {last}, {index}")
        xs = plan.arrays.in_avals[self.first_xs :]
        ys = plan.arrays.out_avals[plan.n_carry :]
        names = [(f"%x{k}", f"%in{self.first_xs + k}", a) for k, a in enumerate(xs)]
        names += [(f"%y{k}", f"%out{plan.n_carry + k}", a) for k, a in enumerate(ys)]
        for name, array, aval in names:
            at = code.line(f"mul nsw i64 {index}, {bytes_of(aval.shape, aval.dtype)}")
            code.lines.append(f"{name} = getelementptr i8, ptr {array}, i64 {at}")
        self._write(plan.step)
        self._write(plan.after)
        return ()

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

    def _handler(self) -> str:
        lines = [f"define ptr @{ENTRY}(ptr %frame) {{", "entry:", *BEGINNING, *attribute_at()]
        lines.append("%length = load i64, ptr %numbers")
        found, given = pointers(self.n_in, self.n_in + self.n_out)
        call = ", ".join([*[f"ptr {name}" for name in given], "i64 %length"])
        return "\n".join([*lines, *found, f"call void @steps({call})", "ret ptr null", "}"])

    def _block(self) -> str:
        """``@block``: all steps for part number ``%b``."""
        lines, names = arrays_of_block(self.n_in, self.n_in + self.n_out)
        for k, (name, step) in enumerate(
            zip(names, [x for xs in self.plan.arrays.steps() for x in xs], strict=True)
        ):
            lines += [
                f"%shift{k} = mul nuw nsw i64 %b, {step}",
                f"%part{k} = getelementptr i8, ptr {name}, i64 %shift{k}",
            ]
        lines += [
            f"%length.at = getelementptr i8, ptr %state, i64 {STATE_ROWS}",
            "%length = load i64, ptr %length.at",
        ]
        call = ", ".join([*[f"ptr %part{k}" for k in range(len(names))], "i64 %length"])
        return "\n".join(
            [
                "define internal void @block(ptr %state, i64 %b) {",
                "entry:",
                *lines,
                f"call void @steps({call})",
                "ret void",
                "}",
            ]
        )

    def _shared_handler(self) -> str:
        lines = [f"define ptr @{ENTRY}(ptr %frame) {{", "entry:", *BEGINNING, *attribute_at()]
        lines += [*state(self.n_in, self.n_in + self.n_out), *HELPED]
        return "\n".join([*lines, "call void @leave(ptr %state)", "ret ptr null", "}"])
