"""A row program as LLVM's text: a function that does some rows, pass after pass over each.

Vectors are written out; the last one of a row overlaps the one before where the length is no
multiple (the elements that it has again count for nothing in sums). What is expensive and read in
a later pass too is kept in a row of memory of its own; anything else is computed again from the
operands.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from tracebridge.core.kernels.exponentials import AVX512
from tracebridge.core.kernels.functions import EXPENSIVE, elementwise
from tracebridge.core.kernels.rows.counter import Counter
from tracebridge.core.kernels.rows.handler import LINE
from tracebridge.core.kernels.rows.passes import SIZES, Pass, as_flag, stored
from tracebridge.core.kernels.rows.program import Node, Place, Result, RowProgram
from tracebridge.core.kernels.text import Text, constant_text, type_of

_CHEAP = 8  # operations and loads that are repeated rather than kept
_FIRST = {"sum": 0.0, "max": float("-inf"), "min": float("inf")}
_COMBINED = {"sum": "fadd", "max": "fmax", "min": "fmin"}
_SUFFIXES = {"float": "f32", "double": "f64"}
_SLOWEST = frozenset({"erf", "erfc", "ndtr"})
_ALIGNED = 64  # bytes, of rows in memory of our own
_MOST_ON_STACK = 1 << 14  # bytes
# An inverse of a number between these is a number with all its digits.
_DIVISORS = {"float": (2.0**-100, 2.0**100), "double": (2.0**-1000, 2.0**1000)}


class Kept(NamedTuple):
    """Memory for a row of a value, and the pass that writes it."""

    place: str
    level: int


class Writer:
    """One kernel while it is written: vectors along rows.

    ``lanes``: of float32 in a vector of the processor; of float64 there are half as many.
    """

    keeps: frozenset[str] = EXPENSIVE
    """Kinds of values that are never made again in a later pass."""
    again: frozenset[str] = frozenset({"load", "index"})
    """Kinds that always are."""

    def __init__(self, program: RowProgram, lanes: int) -> None:
        self.program, self.nodes = program, program.nodes
        self.real = program.frame.real
        """The type of numbers that are computed."""
        self.lanes = lanes * SIZES["float"] // SIZES[self.real]
        self.length, self.inner = program.length, program.inner
        # Several vectors at a time: sums in a row and long functions are latencies otherwise.
        vectors = 4 if _is_slow(self.nodes) and lanes < AVX512 else 2
        self.width = min(vectors * self.lanes, 1 << (self.inner.bit_length() - 1))
        self.names = [0]
        self.row = self.new_text(0)
        """What is done once for each row, with its loops."""
        self.parts = [program.frame.sizes[i] for i in program.outer]
        """How many parts of a row there are along each axis that counts them."""
        self.entry: list[str] = []
        self.needs: set[str] = set()
        self.scalars: dict[int, str] = {}
        self.pointers: dict[Any, str] = {}
        self.passes = max([level for _, level in self._ends()], default=0) + 1
        self.kept = self._kept()
        self.on_heap = False

    def new_text(self, width: int) -> Text:
        """Lines for vectors of ``width``, 0 for numbers."""
        return Text(self.names, width, self.real)

    # what is computed where

    def _reductions(self) -> list[int]:
        return [i for i, n in enumerate(self.nodes) if n.kind == "reduce"]

    def _ends(self) -> list[tuple[int, int]]:
        """Nodes that are needed at every place of a row, and the passes in which they are."""
        sums = self._reductions()
        ends = [(self.nodes[i].args[0], self.nodes[i].level - 1) for i in sums]
        results = [r for r in self.program.results if r.kind != "rows"]
        return [*ends, *[(r.node, self._pass_of(r)) for r in results]]

    def _pass_of(self, result: Result) -> int:
        used = [result.node, *([] if result.factor is None else [result.factor])]
        return max([self.nodes[i].level for i in used])

    def _kept(self) -> dict[int, Kept]:
        """Nodes that one pass stores for later ones -> where."""
        computed: dict[int, int] = {}
        kept: dict[int, Kept] = {}
        for level in range(self.passes):
            stack = [n for n, when in self._ends() if when == level]
            here: set[int] = set()
            while stack:
                i = stack.pop()
                node = self.nodes[i]
                if i in here or not node.along or node.kind in self.again:
                    continue
                here.add(i)
                if i in computed and (node.kind in self.keeps or self._price(i) > _CHEAP):
                    kept.setdefault(i, Kept(f"%kept{len(kept)}", computed[i]))
                    continue
                stack.extend(node.args)
            for i in here:
                computed.setdefault(i, level)
        return kept

    def _price(self, i: int) -> int:
        """Operations and loads of a value at one place, up to a little more than is cheap."""
        total, stack = 0, [i]
        while stack and total <= _CHEAP:
            node = self.nodes[stack.pop()]
            total += 1
            if node.along:
                stack.extend([a for a in node.args if self.nodes[a].kind != "number"])
        return total

    # the function

    @property
    def unit(self) -> int:
        """Elements that are done at a time."""
        return self.length

    @property
    def moved(self) -> int:
        """Bytes of large arrays that are read and written at a time."""
        loads = [n for n in self.nodes if n.kind == "load" and all(n.params.steps)]
        results = [self.nodes[r.node] for r in self.program.results if r.kind == "frame"]
        return self.unit * sum([SIZES[stored(n)] for n in (*loads, *results)])

    @property
    def streamed(self) -> tuple[int, ...]:
        """The arrays that are written in whole lines, of results each of which is.

        None where functions take longer than memory: such stores do not wait for each other.
        """
        if _is_slow(self.nodes):
            return ()
        results = [r for r in self.program.results if r.kind == "frame"]
        others = {r.place.operand for r in results if not _fills_lines(self, r)}
        return tuple(sorted({r.place.operand for r in results} - others))

    def text(self) -> str:
        """LLVM's text of ``@rows``.

        It takes pointers to operands and results, two row numbers, one to sums of columns, and
        whether results that fill lines are written past the caches.
        """
        program = self.program
        n = len(program.jaxpr.in_avals)
        given = [f"ptr noalias readonly %in{i}" for i in range(n)]
        given += [f"ptr noalias %out{i}" for i in range(program.n_arrays)]
        given += ["i64 %from", "i64 %to", "ptr noalias %columns"]
        given += ["i1 %past"] if self.streamed else []
        self._memory()
        self._all_passes()
        lines = [f"define internal void @rows({', '.join(given)}) alwaysinline {{", "entry:"]
        lines += [
            *self.entry,
            "br label %row",
            "row:",
            "%r = phi i64 [%from, %entry], [%next, %done]",
        ]
        lines += [*self.row.lines, "br label %done", "done:", "%next = add nuw nsw i64 %r, 1"]
        lines += ["%more = icmp slt i64 %next, %to", "br i1 %more, label %row, label %end"]
        lines += [
            "end:",
            *(["call void @free(ptr %kept)"] if self.on_heap else []),
            "ret void",
            "}",
        ]
        return "\n".join([*sorted(self.needs), *lines])

    def _memory(self) -> None:
        """Memory for rows that are kept; not on the stack, if much: that of a thread is small."""
        sizes = {k.place: self._bytes(i) for i, k in self.kept.items()}
        self.on_heap = sum(sizes.values()) > _MOST_ON_STACK
        if not self.on_heap:
            for place, size in sizes.items():
                self.entry.append(f"{place} = alloca [{size} x i8], align {_ALIGNED}")
            return
        total = _ALIGNED
        for place, size in sizes.items():
            self.entry.append(f"{place} = getelementptr i8, ptr %kept.first, i64 {total}")
            total += size
        self.entry[:0] = [
            f"%kept = call ptr @malloc(i64 {total})",
            f"%kept.first = call ptr @llvm.ptrmask.p0.i64(ptr %kept, i64 {-_ALIGNED})",
        ]
        self.needs.add("declare ptr @llvm.ptrmask.p0.i64(ptr, i64)")

    def _bytes(self, i: int) -> int:
        """Of a row of a value, up to where the next one may begin."""
        size = self.kept_elements * SIZES[stored(self.nodes[i])]
        return -(-size // _ALIGNED) * _ALIGNED

    @property
    def kept_elements(self) -> int:
        """How many there are of a value that is kept."""
        return self.length

    def _all_passes(self) -> None:
        for level in range(self.passes):
            self._pass(level)
        for result in self.program.results:
            if result.kind == "rows":
                self.store_number(result.node, self.target(result))
        self.needs |= self.row.needs

    def store_number(self, node: int, out: str) -> None:
        """Write a result that is one number of the row."""
        kind, value = stored(self.nodes[node]), self.scalar(node)
        if kind == "i8":
            value = self.row.line(f"zext i1 {value} to i8")
        at = self.row.line(f"getelementptr {kind}, ptr {out}, i64 %r")
        self.row.lines.append(f"store {kind} {value}, ptr {at}")

    # numbers of a row

    def scalar(self, i: int) -> str:
        """The name of a value that is the same along the row."""
        if i not in self.scalars:
            self.scalars[i] = self._made_scalar(self.nodes[i])
        return self.scalars[i]

    def _made_scalar(self, node: Node) -> str:
        to = self.row
        if node.kind == "number":
            return to.constant(node.params, type_of(node.dtype))
        if node.kind == "load":
            return self.loaded_number(node)
        if node.kind == "index":
            return self.index_number(node)
        assert node.kind != "reduce"  # those are there after their pass
        args = [self.scalar(a) for a in node.args]
        return elementwise(to, node.kind, args, self.dtypes(node), node.dtype, node.params)

    def loaded_number(self, node: Node) -> str:
        """A number of the row that is read."""
        at = self.pointer(node)
        return as_flag(self.row, node, self.row.line(f"load {stored(node)}, ptr {at}"))

    def index_number(self, node: Node) -> str:
        """The index of the row."""
        return self.row.line(f"trunc i64 {self.offset(node.params.steps)} to i32")

    def dtypes(self, node: Node) -> list[Any]:
        """Of what a value is made of."""
        return [self.nodes[a].dtype for a in node.args]

    def pointer(self, node: Node) -> str:
        """Where the current row of an operand begins."""
        return self.row_of(self.source(node), stored(node), node.params.steps)

    def source(self, node: Node) -> str:
        """Where the first element of an operand lies that the program reads."""
        return self._first(f"%in{node.params.operand}", node.params, stored(node))

    def target(self, result: Result) -> str:
        """Where the first element of a result lies."""
        return self._first(f"%out{result.place.operand}", result.place, self.kind_of(result))

    def kind_of(self, result: Result) -> str:
        """LLVM's type of an element of a result."""
        return stored(self.nodes[result.node])

    def _first(self, array: str, place: Place, kind: str) -> str:
        if not place.before:
            return array
        name = f"{array}.from{place.before}"
        line = f"{name} = getelementptr {kind}, ptr {array}, i64 {place.before}"
        if line not in self.entry:
            self.entry.append(line)
        return name

    def row_of(self, base: str, kind: str, steps: Sequence[int]) -> str:
        """Where the current row of an array begins."""
        key = base, tuple(steps)
        if key not in self.pointers:
            text = f"getelementptr {kind}, ptr {base}, i64 {self.offset(steps)}"
            self.pointers[key] = self.row.line(text)
        return self.pointers[key]

    def offset(self, steps: Sequence[int]) -> str:
        """How many elements before the current row there are, with these steps."""
        key = "offset", tuple(steps)
        if key not in self.pointers:
            frame = self.program.frame
            at = Counter(self.row, "%r", [frame.sizes[i] for i in frame.lead], self.pointers)
            self.pointers[key] = at.offset([steps[i] for i in frame.lead])
        return self.pointers[key]

    # one pass over a row

    def _pass(self, level: int) -> None:
        sums = [i for i in self._reductions() if self.nodes[i].level - 1 == level]
        ends = [k for k, r in enumerate(self.program.results)
                if r.kind != "rows" and self._pass_of(r) == level]  # fmt: skip
        if not sums and not ends:
            return
        totals = {i: self._total(i) for i in sums}

        def body(fast: bool) -> Pass:
            return self.new_pass(level, totals, ends, fast)

        fast = body(True)
        if fast.divisors:
            self._two_ways(fast, body(False))
        else:
            self.row.lines += [*fast.before.lines, *fast.loop]
        for i, total in totals.items():
            self.scalars[i] = self.combined(self.nodes[i].params, total)

    def new_pass(self, level: int, totals: dict[int, str], ends: Sequence[int], fast: bool) -> Pass:
        """The loops of a pass."""
        return Pass(self, level, totals, ends, fast)

    def _total(self, i: int) -> str:
        """Memory for the parts of a sum, which LLVM keeps in registers."""
        name, kind = f"%total{i}", f"<{self.width} x {self.real}>"
        self.entry.append(f"{name} = alloca {kind}, align {_ALIGNED}")
        number = constant_text(_FIRST[self.nodes[i].params], self.real)
        first = ", ".join([f"{self.real} {number}"] * self.width)
        self.row.lines.append(f"store {kind} <{first}>, ptr {name}")
        return name

    def _two_ways(self, fast: Pass, exact: Pass) -> None:
        """Products with inverses where all divisors have one, quotients elsewhere."""
        good, (lowest, highest) = "", _DIVISORS[self.real]
        for i in fast.divisors:
            size = self.row.call("fabs", self.scalar(i))
            least = self.row.compare("oge", size, self.row.constant(lowest))
            most = self.row.compare("ole", size, self.row.constant(highest))
            both = self.row.op("and", least, most, "i1")
            good = self.row.op("and", good, both, "i1") if good else both
        good = self.in_all(good)
        one, other, after = [self.label() for _ in range(3)]
        self.row.lines.append(f"br i1 {good}, label %{one}, label %{other}")
        for label, way in ((one, fast), (other, exact)):
            self.row.lines += [f"{label}:", *way.before.lines, *way.loop, f"br label %{after}"]
        self.row.lines.append(f"{after}:")

    def in_all(self, flag: str) -> str:
        """Whether a flag of the row is set in all rows that are done together."""
        return flag

    def combined(self, kind: str, total: str) -> str:
        """The reduction of the row, from its parts."""
        real, vector = self.real, f"<{self.width} x {self.real}>"
        parts = self.row.line(f"load {vector}, ptr {total}")
        function = f"@llvm.vector.reduce.{_COMBINED[kind]}.v{self.width}{_SUFFIXES[real]}"
        if kind == "sum":
            self.needs.add(f"declare {real} {function}({real}, {vector})")
            return self.row.line(f"call reassoc {real} {function}({real} -0.0, {vector} {parts})")
        self.needs.add(f"declare {real} {function}({vector})")
        found = self.row.line(f"call nnan nsz {real} {function}({vector} {parts})")
        return _unless_nan(self, parts, found)

    def sum_of_part(self, i: int) -> str:
        """Memory for the sum of a value over a part of a row."""
        name = f"%part{i}"
        line = f"{name} = alloca <{self.width} x {self.real}>, align {_ALIGNED}"
        if line not in self.entry:
            self.entry.append(line)
        return name

    def label(self) -> str:
        self.names[0] += 1
        return f"l{self.names[0]}"


def _is_slow(nodes: Sequence[Node]) -> bool:
    """Whether functions take longer than memory."""
    return any([n.kind in _SLOWEST for n in nodes])


def _unless_nan(writer: Writer, parts: str, found: str) -> str:
    """NaN, if any part is one: a test of all is cheaper than to care in each step."""
    width, to = writer.width, writer.row
    flags, function = f"<{width} x i1>", f"@llvm.vector.reduce.or.v{width}i1"
    writer.needs.add(f"declare i1 {function}({flags})")
    is_nan = to.line(f"fcmp uno <{width} x {writer.real}> {parts}, {parts}")
    any_nan = to.line(f"call i1 {function}({flags} {is_nan})")
    return to.select(any_nan, to.constant(math.nan), found)


def _fills_lines(writer: Writer, result: Result) -> bool:
    """Whether each vector of a result begins with a line of the cache, and fills lines."""
    program, line = writer.program, LINE // SIZES[writer.real]
    if writer.kind_of(result) != writer.real or writer.width % line or writer.inner % line:
        return False
    steps = [n for i, n in enumerate(result.place.steps) if i not in program.end]
    return all([n % line == 0 for n in (result.place.before, *steps)])
