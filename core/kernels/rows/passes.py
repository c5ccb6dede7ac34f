"""One pass over a row as LLVM's text: loops over its parts, and over the vectors of each.

``across.py`` has what is different where vectors go across rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.kernels.functions import elementwise
from tracebridge.core.kernels.rows.counter import Counter
from tracebridge.core.kernels.rows.handler import LINE
from tracebridge.core.kernels.text import Text, constant_text, type_of

if TYPE_CHECKING:
    from tracebridge.core.kernels.rows.emitter import Writer
    from tracebridge.core.kernels.rows.program import Node

SIZES = {"i8": 1, "half": 2, "i16": 2, "i32": 4, "float": 4, "double": 8}  # bytes in memory


def stored(node: Node) -> str:
    """LLVM's type of an element in memory."""
    kind = type_of(node.dtype)
    return "i8" if kind == "i1" else kind


def as_flag(to: Text, node: Node, loaded: str) -> str:
    """What was read, a byte as a flag."""
    if stored(node) != "i8":
        return loaded
    return to.compare("ne", loaded, to.constant(0, "i8"), "i8")


def read(to: Text, node: Node, at: str) -> str:
    """A vector in memory."""
    kind = stored(node)
    return as_flag(to, node, to.line(f"load {to.type(kind)}, ptr {at}, align {SIZES[kind]}"))


def _store(to: Text, node: Node, value: str, at: str) -> None:
    kind = stored(node)
    if kind == "i8":
        value = to.widened("zext", value, "i1", "i8")
    to.lines.append(f"store {to.type(kind)} {value}, ptr {at}, align {SIZES[kind]}")


class Pass:
    """The loops of one pass.

    ``fast``: divide by numbers of the row with their inverses; ``divisors``: those.
    """

    def __init__(
        self, writer: Writer, level: int, totals: dict[int, str], ends: Sequence[int], fast: bool
    ) -> None:
        self.writer, self.level, self.fast = writer, level, fast
        self.totals, self.ends = totals, ends
        self.streamed = writer.streamed
        self.sizes = writer.parts
        """How many parts there are along each axis that counts them."""
        self.before = writer.new_text(writer.width)
        """What is done once, before the loops: numbers spread over vectors."""
        self.part = writer.new_text(writer.width) if self.sizes else self.before
        """What is done before each part."""
        self.after = writer.new_text(writer.width)
        """What is done after each part."""
        self.number = f"%{writer.label()}.part"
        results = writer.program.results
        self.results = [k for k in ends if results[k].kind == "parts"]
        """Sums over parts that are results."""
        self.summed = {results[k].node for k in self.results}
        """What is summed over each part by itself."""
        self.summed |= {writer.nodes[i].args[0] for i in totals if len(writer.nodes[i].args) > 1}
        self.divisors: list[int] = []
        self._made: dict[Any, str] = {}
        self.loop = self._written()
        for text in (self.before, self.part, self.after):
            writer.needs |= text.needs

    def _written(self) -> list[str]:
        self._begin_sums()
        lines = self.over_vectors()
        self._end_sums()
        lines += self.after.lines
        if not self.sizes:
            return lines
        n, start, again, last, end = self.number, *[self.writer.label() for _ in range(4)]
        return [
            f"br label %{start}", f"{start}:", f"br label %{again}", f"{again}:",
            f"{n} = phi i64 [0, %{start}], [{n}.next, %{last}]",
            *self.part.lines,
            *lines,
            f"br label %{last}", f"{last}:",
            f"{n}.next = add nuw nsw i64 {n}, 1",
            f"{n}.more = icmp ult i64 {n}.next, {math.prod(self.sizes)}",
            f"br i1 {n}.more, label %{again}, label %{end}", f"{end}:",
        ]  # fmt: skip

    def over_vectors(self) -> list[str]:
        """The loop over the vectors of a part."""
        w = self.writer
        whole, rest = divmod(w.inner, w.width)
        lines = self.counted_loop(whole * w.width, w.width)
        if rest:
            lines += self._body(str(w.inner - w.width), rest)
        return lines

    def counted_loop(self, end: int, step: int) -> list[str]:
        """The loop over places from 0 to ``end``."""
        w = self.writer
        start, loop, after = w.label(), w.label(), w.label()
        j, following = f"%{loop}.j", f"%{loop}.next"
        body = self._body(j, None)
        lines = [f"br label %{start}", f"{start}:", f"br label %{loop}", f"{loop}:"]
        lines += [f"{j} = phi i64 [0, %{start}], [{following}, %{loop}.last]", *body]
        lines += [f"br label %{loop}.last", f"{loop}.last:"]
        lines += [f"{following} = add nuw nsw i64 {j}, {step}"]
        lines += [f"%{loop}.more = icmp ult i64 {following}, {end}"]
        return [*lines, f"br i1 %{loop}.more, label %{loop}, label %{after}", f"{after}:"]

    def _body(self, j: str, new: int | None) -> list[str]:
        """One vector, at ``j``; ``new``: only so many of its last elements count in sums."""
        w = self.writer
        to = w.new_text(w.width)
        at = _At(self, to, j)
        for i, total in self.totals.items():
            kind = w.nodes[i].params
            if self._is_of_parts(i):
                continue
            x = self._counted(to, at.value(w.nodes[i].args[0]), kind, new)
            old = to.line(f"load {to.type(to.real)}, ptr {total}")
            if kind == "sum":
                made = to.op("fadd reassoc", old, x)
            else:
                made = to.call(f"{kind}imum", old, x, flags="nsz ")
            to.lines.append(f"store {to.type(to.real)} {made}, ptr {total}")
        for i in sorted(self.summed):
            self._add(to, w.sum_of_part(i), self._counted(to, at.value(i), "sum", new))
        for k in self.ends:
            self._end(to, at, k, j, new)
        w.needs |= to.needs
        return to.lines

    def _counted(self, to: Text, x: str, kind: str, new: int | None) -> str:
        if new is None or kind != "sum":
            return x
        flags = ", ".join(
            [f"i1 {'true' if i >= to.width - new else 'false'}" for i in range(to.width)]
        )
        return to.select(f"<{flags}>", x, to.constant(0.0))

    def _end(self, to: Text, at: _At, k: int, j: str, new: int | None) -> None:
        result = self.writer.program.results[k]
        if result.kind == "parts":
            return
        x = at.value(result.node)
        if result.kind == "frame":
            node, first = self.writer.nodes[result.node], self.writer.target(result)
            there = self.at(to, first, node, result.place.steps, j)
            if result.place.operand in self.streamed:
                self._stream(to, node, x, there)
            else:
                _store(to, node, x, there)
        else:
            self._add(to, self._column(to, k, j), self._counted(to, x, "sum", new), SIZES[to.real])

    def _stream(self, to: Text, node: Node, x: str, at: str) -> None:
        """Write whole lines: past the caches, which would read them first, where it is asked."""
        past, here, after = [self.writer.label() for _ in range(3)]
        kind = to.type(stored(node))
        to.lines += [
            f"br i1 %past, label %{past}, label %{here}", f"{past}:",
            f"store {kind} {x}, ptr {at}, align {LINE}, !nontemporal !0",
            f"br label %{after}", f"{here}:",
        ]  # fmt: skip
        _store(to, node, x, at)
        to.lines += [f"br label %{after}", f"{after}:"]

    def _add(self, to: Text, place: str, x: str, apart: int = 0) -> None:
        """Add a vector to one in memory; ``apart``: bytes, of a place where no vector begins."""
        align = f", align {apart}" if apart else ""
        old = to.line(f"load {to.type(to.real)}, ptr {place}{align}")
        made = to.op("fadd", old, x)
        to.lines.append(f"store {to.type(to.real)} {made}, ptr {place}{align}")

    def _column(self, to: Text, k: int, j: str) -> str:
        """Where the sums of a column stand: all those of a block lie one after another."""
        w = self.writer
        before = len([r for r in w.program.results[:k] if r.kind == "columns"]) * w.length
        first = self.in_row("%columns", w.real, before)
        return to.line(f"getelementptr {w.real}, ptr {first}, i64 {j}")

    # sums over parts that are results

    def _is_of_parts(self, i: int) -> bool:
        """Whether a reduction is added up after each part, from the sum over the part."""
        node = self.writer.nodes[i]
        return node.params == "sum" and node.args[0] in self.summed

    def _begin_sums(self) -> None:
        kind, zeros = self.part.type(self.part.real), self.part.constant(0.0)
        for i in sorted(self.summed):
            self.part.lines.append(f"store {kind} {zeros}, ptr {self.writer.sum_of_part(i)}")

    def _end_sums(self) -> None:
        w, to = self.writer, self.after
        found = {
            i: to.line(f"load {to.type(to.real)}, ptr {w.sum_of_part(i)}")
            for i in sorted(self.summed)
        }
        for i, total in self.totals.items():
            if self._is_of_parts(i):
                of_part, *factor = w.nodes[i].args
                self._add(to, total, self._times(found[of_part], factor))
        for k in self.results:
            result = w.program.results[k]
            factor = [] if result.factor is None else [result.factor]
            self._store_sum(k, self._times(found[result.node], factor))

    def _times(self, x: str, factor: Sequence[int]) -> str:
        """A sum over a part times a number of the part."""
        at = _At(self, self.part, "0")
        return self.after.op("fmul", x, at.value(factor[0])) if factor else x

    def _store_sum(self, k: int, x: str) -> None:
        w, to, real = self.writer, self.after, self.writer.real
        frame, vector = w.program.frame, to.type(w.real)
        summed = w.program.results[k].summed
        steps = frame.contiguous([i for i in range(len(frame.sizes)) if i not in summed])
        place = self.at_part(w.target(w.program.results[k]), real, steps)
        function = f"@llvm.vector.reduce.fadd.{to.suffix()}"
        to.needs.add(f"declare {real} {function}({real}, {vector})")
        total = to.line(f"call reassoc {real} {function}({real} -0.0, {vector} {x})")
        several = math.prod([frame.sizes[i] for i in summed]) // w.inner
        if several > 1:  # the sum goes over so many parts
            nth = to.line(f"urem i64 {self.number}, {several}")
            is_first = to.line(f"icmp eq i64 {nth}, 0")
            old = to.line(f"load {real}, ptr {place}")
            zero = constant_text(0.0, real)
            old = to.line(f"select i1 {is_first}, {real} {zero}, {real} {old}")
            total = to.line(f"fadd {real} {old}, {total}")
        to.lines.append(f"store {real} {total}, ptr {place}")

    # places

    def once(self, key: Any, make: Callable[[], str]) -> str:
        """What ``make`` writes outside the loop over vectors, once."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def _offset(self, steps: Sequence[int]) -> str:
        """How many elements of a row lie before the part, with these steps."""
        counter = Counter(self.part, self.number, self.sizes, self._made)
        return counter.offset([steps[i] for i in self.writer.program.outer])

    def at_part(self, base: str, kind: str, steps: Sequence[int]) -> str:
        """Where the current part of an array begins."""
        row = self.writer.row_of(base, kind, steps)

        def make() -> str:
            return self.part.line(f"getelementptr {kind}, ptr {row}, i64 {self._offset(steps)}")

        return self.once(("part of", row), make) if self.sizes else row

    def at(self, to: Text, base: str, node: Node, steps: Sequence[int], j: str) -> str:
        """Where a vector of an array lies."""
        kind = stored(node)
        first = self.at_part(base, kind, steps)
        return to.line(f"getelementptr {kind}, ptr {first}, i64 {j}")

    def in_kept(self, to: Text, node: Node, place: str, j: str) -> str:
        """Where a vector lies in memory that has a row of a value."""
        kind = stored(node)
        return to.line(f"getelementptr {kind}, ptr {self.in_row(place, kind)}, i64 {j}")

    def in_row(self, base: str, kind: str, before: int = 0) -> str:
        """Where the current part begins in memory that has one row; ``before``: elements first."""

        def make() -> str:
            first = self.part.line(f"getelementptr {kind}, ptr {base}, i64 {before}")
            if not self.sizes:
                return first
            place = self.part.line(f"mul nuw nsw i64 {self.number}, {self.writer.inner}")
            return self.part.line(f"getelementptr {kind}, ptr {first}, i64 {place}")

        return self.once(("in row", base, before), make)

    # values that are the same at all places of a part

    def spread(self, i: int) -> str:
        """A number of the row at every place."""
        kind = type_of(self.writer.nodes[i].dtype)
        return self.once(i, lambda: self.before.splat(self.writer.scalar(i), kind))

    def of_part(self, i: int) -> str:
        """A number of the part at every place."""

        def make() -> str:
            node, to = self.writer.nodes[i], self.part
            kind = stored(node)
            at = self.at_part(self.writer.source(node), kind, node.params.steps)
            return as_flag(to, node, to.splat(to.line(f"load {kind}, ptr {at}"), kind))

        return self.once(i, make)

    def loaded(self, to: Text, i: int, j: str) -> str:
        """A vector of an operand."""
        node = self.writer.nodes[i]
        if self._is_one_number(node):
            return self.of_part(i)
        at = self.at(to, self.writer.source(node), node, node.params.steps, j)
        return read(to, node, at)

    def _is_one_number(self, node: Node) -> bool:
        """Whether what is read is the same within a part."""
        return not node.params.steps[self.writer.program.frame.row[-1]]

    def index(self, to: Text, i: int, j: str) -> str:
        """The index at each place."""
        start = self._first_index(i)
        if self._is_one_number(self.writer.nodes[i]):
            return start
        first = to.splat(to.line(f"trunc i64 {j} to i32"), "i32")
        return to.op("add", start, to.op("add", first, to.places(), "i32"), "i32")

    def _first_index(self, i: int) -> str:
        """The first index of the part, at every place."""

        def make() -> str:
            steps = self.writer.nodes[i].params.steps
            first = self.writer.offset(steps)
            if self.sizes:
                first = self.part.line(f"add nuw nsw i64 {first}, {self._offset(steps)}")
            return self.part.splat(self.part.line(f"trunc i64 {first} to i32"), "i32")

        return self.once(("index", i), make)

    def inverse(self, i: int) -> str:
        """The inverse of a number of the row at every place."""

        def make() -> str:
            self.divisors.append(i)
            real, number = self.writer.real, self.writer.scalar(i)
            inverse = self.before.line(f"fdiv {real} {constant_text(1.0, real)}, {number}")
            return self.before.splat(inverse, real)

        return self.once(("inverse", i), make)


@final
class _At:
    """The values of one vector of a row."""

    def __init__(self, around: Pass, to: Text, j: str) -> None:
        self.around, self.to, self.j = around, to, j
        self.known: dict[int, str] = {}

    def value(self, i: int) -> str:
        if i not in self.known:
            self.known[i] = self._made(i)
        return self.known[i]

    def _made(self, i: int) -> str:
        around, to = self.around, self.to
        writer = around.writer
        node = writer.nodes[i]
        if node.kind == "number":
            return to.constant(node.params, type_of(node.dtype))
        if not node.along:
            return around.spread(i)
        kept = writer.kept.get(i)
        if kept is not None and kept.level < around.level:
            return read(to, node, around.in_kept(to, node, kept.place, self.j))
        if node.kind == "load":
            made = around.loaded(to, i, self.j)
        elif node.kind == "index":
            made = around.index(to, i, self.j)
        else:
            made = self._computed(node)
        if kept is not None:
            _store(to, node, made, around.in_kept(to, node, kept.place, self.j))
        return made

    def _computed(self, node: Node) -> str:
        nodes = self.around.writer.nodes
        if node.kind == "div" and self.around.fast:
            divisor = nodes[node.args[1]]
            if not divisor.along and divisor.kind != "number":
                inverse = self.around.inverse(node.args[1])
                return self.to.op("fmul", self.value(node.args[0]), inverse)
        args = [self.value(a) for a in node.args]
        dtypes = self.around.writer.dtypes(node)
        return elementwise(self.to, node.kind, args, dtypes, node.dtype, node.params)
