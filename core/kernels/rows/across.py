"""Rows that do not lie one after another: vectors have the same place of neighbouring rows.

A softmax over the channels of an image is such a program. What is one number of a row is a vector
here, and a reduction needs no last step within one. Rows are done by units of as many neighbours as
a vector has places; the last unit of a piece overlaps the one before where it is no whole one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, final

from tracebridge.core.kernels.functions import EXPENSIVE
from tracebridge.core.kernels.rows.counter import Counter
from tracebridge.core.kernels.rows.emitter import Writer
from tracebridge.core.kernels.rows.handler import LINE
from tracebridge.core.kernels.rows.passes import SIZES, Pass, as_flag, read, stored
from tracebridge.core.kernels.text import Text

if TYPE_CHECKING:
    from tracebridge.core.kernels.rows.program import Node, RowProgram

_TOGETHER = 256  # bytes at a time: what lies one after another comes from memory together
_MOST_KEPT = 1 << 18  # bytes of a value of a unit: what a core's second cache has room for


@final
class Across(Writer):
    """One kernel while it is written: vectors across rows.

    Operands are kept for later passes: their places in memory, often powers of two apart, share
    few sets of a cache.
    """

    keeps = EXPENSIVE | {"load"}
    again = frozenset({"index"})

    def __init__(self, program: RowProgram, lanes: int) -> None:
        super().__init__(program, lanes)
        lanes, size = self.lanes, SIZES[self.real]
        self.width = _TOGETHER // size
        while self.width > lanes and size * self.width * self.length > _MOST_KEPT:
            self.width //= 2
        self.width = min(self.width, 1 << (self.inner.bit_length() - 1))
        self.row = self.new_text(self.width)
        self.parts = []
        frame = program.frame
        self.outer_sizes = [frame.sizes[i] for i in program.outer]
        """How many pieces of neighbouring rows there are along each axis that counts them."""
        self.n_pieces = -(-self.inner // self.width)
        """Units of a piece."""

    @property
    def n_units(self) -> int:
        """How many units of rows there are."""
        return math.prod(self.outer_sizes) * self.n_pieces

    @property
    def unit(self) -> int:
        """Elements of a unit of rows."""
        return self.length * self.width

    @property
    def kept_elements(self) -> int:
        """How many there are of a value that is kept."""
        return self.length * self.width

    def first_row(self) -> str:
        """Where the unit begins within its piece."""
        if "first" not in self.pointers:
            n, to = self.n_pieces, self.row
            nth = to.line(f"urem i64 %r, {n}")
            first = to.line(f"mul nuw nsw i64 {nth}, {self.width}")
            last = self.inner - self.width
            is_over = to.line(f"icmp ugt i64 {first}, {last}")
            self.pointers["first"] = to.line(f"select i1 {is_over}, i64 {last}, i64 {first}")
            self.pointers["piece"] = to.line(f"udiv i64 %r, {n}")
        return self.pointers["first"]

    def offset(self, steps: Sequence[int]) -> str:
        """How many elements before the first row of the unit there are, with these steps."""
        key = "offset", tuple(steps)
        if key not in self.pointers:
            first = self.first_row()
            counter = Counter(self.row, self.pointers["piece"], self.outer_sizes, self.pointers)
            total = counter.offset([steps[i] for i in self.program.outer])
            if self.goes_along(steps):
                total = self.row.line(f"add nuw nsw i64 {total}, {first}")
            self.pointers[key] = total
        return self.pointers[key]

    def goes_along(self, steps: Sequence[int]) -> bool:
        """Whether an array with these steps has other elements for each row of a unit."""
        return steps[-1] != 0

    def vector(self, to: Text, node: Node, at: str) -> str:
        """What is read at a place: a vector, or one number for all rows of the unit."""
        if self.goes_along(node.params.steps):
            return read(to, node, at)
        kind = stored(node)
        return as_flag(to, node, to.splat(to.line(f"load {kind}, ptr {at}"), kind))

    def loaded_number(self, node: Node) -> str:
        """The numbers of the rows that are read."""
        return self.vector(self.row, node, self.pointer(node))

    def index_number(self, node: Node) -> str:
        """The index of each row."""
        to = self.row
        first = to.splat(to.line(f"trunc i64 {self.offset(node.params.steps)} to i32"), "i32")
        if not self.goes_along(node.params.steps):
            return first
        return to.op("add", first, to.places(), "i32")

    def store_number(self, node: int, out: str) -> None:
        """Write a result that is one number of each row."""
        kind, value, to = stored(self.nodes[node]), self.scalar(node), self.row
        if kind == "i8":
            value = to.widened("zext", value, "i1", "i8")
        at = self.row_of(out, kind, self.program.frame.by_row)
        to.lines.append(f"store {to.type(kind)} {value}, ptr {at}, align {SIZES[kind]}")

    def new_pass(self, level: int, totals: dict[int, str], ends: Sequence[int], fast: bool) -> Pass:
        """The loops of a pass."""
        return AcrossPass(self, level, totals, ends, fast)

    def in_all(self, flag: str) -> str:
        """Whether a flag is set in all rows of the unit."""
        flags, function = self.row.type("i1"), f"@llvm.vector.reduce.and.v{self.width}i1"
        self.needs.add(f"declare i1 {function}({flags})")
        return self.row.line(f"call i1 {function}({flags} {flag})")

    def combined(self, kind: str, total: str) -> str:
        """The reductions of the rows."""
        del kind
        return self.row.line(f"load {self.row.type(self.real)}, ptr {total}")


@final
class AcrossPass(Pass):
    """The loop over the places of a row, of all rows of a unit at a time."""

    writer: Across

    def over_vectors(self) -> list[str]:
        """The loop over the places of a row."""
        return self.counted_loop(self.writer.length, 1)

    def at(self, to: Text, base: str, node: Node, steps: Sequence[int], j: str) -> str:
        """Where the vector of a place lies."""
        kind = stored(node)
        first = self.writer.row_of(base, kind, steps)
        return to.line(f"getelementptr {kind}, ptr {first}, i64 {self._along(to, steps, j)}")

    def _along(self, to: Text, steps: Sequence[int], j: str) -> str:
        """How many elements lie between the beginning of a row and a place in it."""
        frame = self.writer.program.frame
        counter = Counter(to, j, [frame.sizes[i] for i in frame.row], {})
        return counter.offset([steps[i] for i in frame.row])

    def in_kept(self, to: Text, node: Node, place: str, j: str) -> str:
        """Where the vector of a place lies in memory of our own."""
        at = to.line(f"mul nuw nsw i64 {j}, {self.writer.width}")
        return to.line(f"getelementptr {stored(node)}, ptr {place}, i64 {at}")

    def loaded(self, to: Text, i: int, j: str) -> str:
        """An operand at a place of the rows."""
        node = self.writer.nodes[i]
        steps = node.params.steps
        at = self.at(to, self.writer.source(node), node, steps, j)
        if self.writer.goes_along(steps):
            self._fetch_next(to, node, at)
        return self.writer.vector(to, node, at)

    def _fetch_next(self, to: Text, node: Node, at: str) -> None:
        """Ask for what the next unit reads here: no processor foresees such steps."""
        size = SIZES[stored(node)] * self.writer.width
        to.needs.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        for line in range(0, size, LINE):
            place = to.line(f"getelementptr i8, ptr {at}, i64 {size + line}")
            to.lines.append(f"call void @llvm.prefetch.p0(ptr {place}, i32 0, i32 2, i32 1)")

    def index(self, to: Text, i: int, j: str) -> str:
        """The index at a place of the rows."""
        steps = self.writer.nodes[i].params.steps
        along = to.line(f"trunc i64 {self._along(to, steps, j)} to i32")
        first = self.once(("index", i), lambda: self._first_index_of_rows(i))
        return to.op("add", first, to.splat(along, "i32"), "i32")

    def _first_index_of_rows(self, i: int) -> str:
        return self.writer.index_number(self.writer.nodes[i])

    def spread(self, i: int) -> str:
        """The numbers of the rows."""
        return self.writer.scalar(i)

    def inverse(self, i: int) -> str:
        """The inverses of numbers of the rows."""

        def make() -> str:
            self.divisors.append(i)
            one = self.before.constant(1.0)
            return self.before.op("fdiv", one, self.writer.scalar(i))

        return self.once(("inverse", i), make)
