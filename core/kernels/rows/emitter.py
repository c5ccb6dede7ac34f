"""A row program as LLVM's text: a function that does some rows, pass after pass over each.

Vectors are written out; the last one of a row overlaps the one before where the length is no
multiple (the elements that it has again count for nothing in sums). What is expensive and read in
a later pass too is kept in a row of memory of its own; anything else is computed again from the
operands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

from tracebridge.core.kernels.functions import EXPENSIVE, elementwise
from tracebridge.core.kernels.rows.frame import Node, Place, RowProgram
from tracebridge.core.kernels.text import Text, float_text, type_of

_CHEAP = 8  # operations and loads that are repeated rather than kept
_FIRST = {"sum": 0.0, "max": float("-inf"), "min": float("inf")}
_COMBINED = {"sum": "fadd", "max": "fmax", "min": "fmin"}
_SIZES = {"i8": 1, "half": 2, "i16": 2, "i32": 4, "float": 4}  # bytes in memory
_ALIGNED = 64  # bytes, of rows in memory of our own
_MOST_ON_STACK = 1 << 14  # bytes
# An inverse of a number between these is a number with all its digits.
_LEAST_DIVISOR, _MOST_DIVISOR = 2.0**-100, 2.0**100


def block_function(program: RowProgram, lanes: int) -> str:
    """LLVM's text of ``@rows``: pointers to operands and results, two row numbers, sums of columns.

    ``lanes``: float32 in a vector of the processor.
    """
    return _Writer(program, lanes).text()


class Kept(NamedTuple):
    """Memory for a row of a value, and the pass that writes it."""

    place: str
    level: int


@final
class _Writer:
    def __init__(self, program: RowProgram, lanes: int) -> None:
        self.program, self.nodes = program, program.nodes
        self.length = program.length
        # Two vectors at a time: sums in a row are latencies otherwise.
        self.width = min(2 * lanes, 1 << (self.length.bit_length() - 1))
        self.names = [0]
        self.row = Text(self.names, 0)
        """What is done once for each row, with its loops."""
        self.entry: list[str] = []
        self.needs: set[str] = set()
        self.scalars: dict[int, str] = {}
        self.pointers: dict[Any, str] = {}
        self.passes = max([self._pass_of(n) for n in self._ends()], default=0) + 1
        self.kept = self._kept()
        self.on_heap = False

    # what is computed where

    def _reductions(self) -> list[int]:
        return [i for i, n in enumerate(self.nodes) if n.kind == "reduce"]

    def _ends(self) -> list[int]:
        """Nodes that are needed at every place of a row."""
        summed = [self.nodes[i].args[0] for i in self._reductions()]
        return [*summed, *[r.node for r in self.program.results if r.kind != "rows"]]

    def _pass_of(self, node: int) -> int:
        return self.nodes[node].level

    def _kept(self) -> dict[int, Kept]:
        """Nodes that one pass stores for later ones -> where."""
        computed: dict[int, int] = {}
        kept: dict[int, Kept] = {}
        for level in range(self.passes):
            stack = [n for n in self._ends() if self._pass_of(n) == level]
            here: set[int] = set()
            while stack:
                i = stack.pop()
                node = self.nodes[i]
                if i in here or not node.along or node.kind in ("load", "index"):
                    continue
                here.add(i)
                if i in computed and (node.kind in EXPENSIVE or self._price(i) > _CHEAP):
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

    def text(self) -> str:
        program = self.program
        n = len(program.jaxpr.in_avals)
        given = [f"ptr noalias readonly %in{i}" for i in range(n)]
        given += [f"ptr noalias %out{i}" for i in range(len(program.results))]
        given += ["i64 %from", "i64 %to", "ptr noalias %columns"]
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
        size = self.length * _SIZES[_stored(self.nodes[i])]
        return -(-size // _ALIGNED) * _ALIGNED

    def _all_passes(self) -> None:
        for level in range(self.passes):
            self._pass(level)
        for k, result in enumerate(self.program.results):
            if result.kind == "rows":
                self._store_number(result.node, f"%out{k}")
        self.needs |= self.row.needs

    def _store_number(self, node: int, out: str) -> None:
        kind, value = _stored(self.nodes[node]), self.scalar(node)
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
            at = self.pointer(node)
            return _as_flag(to, node, to.line(f"load {_stored(node)}, ptr {at}"))
        if node.kind == "index":
            return to.line(f"trunc i64 {self._coordinate(node.params)} to i32")
        assert node.kind != "reduce"  # those are there after their pass
        args = [self.scalar(a) for a in node.args]
        return elementwise(to, node.kind, args, self.dtypes(node), node.dtype, node.params)

    def dtypes(self, node: Node) -> list[Any]:
        """Of what a value is made of."""
        return [self.nodes[a].dtype for a in node.args]

    def pointer(self, node: Node) -> str:
        """Where the current row of an operand begins."""
        place: Place = node.params
        if place not in self.pointers:
            offset = self._offset(place)
            kind = _stored(node)
            text = f"getelementptr {kind}, ptr %in{place.operand}, i64 {offset}"
            self.pointers[place] = self.row.line(text)
        return self.pointers[place]

    def _offset(self, place: Place) -> str:
        lead, step = self.program.frame[:-1], self.length if place.along else 1
        plain, stride = [], step
        for size in reversed(lead):
            plain.append(0 if size == 1 else stride)
            stride *= size
        if place.strides == tuple(reversed(plain)):
            return self.row.line(f"mul nuw nsw i64 %r, {step}")
        total = "0"
        for axis, stride in enumerate(place.strides):
            if stride:
                part = self.row.line(f"mul nuw nsw i64 {self._coordinate(axis)}, {stride}")
                total = self.row.line(f"add nuw nsw i64 {total}, {part}")
        return total

    def _coordinate(self, axis: int) -> str:
        """The number of the row along a leading axis of the frame."""
        key = ("coordinate", axis)
        if key not in self.pointers:
            lead = self.program.frame[:-1]
            place = self.row.line(f"udiv i64 %r, {math.prod(lead[axis + 1 :])}")
            self.pointers[key] = self.row.line(f"urem i64 {place}, {lead[axis]}")
        return self.pointers[key]

    # one pass over a row

    def _pass(self, level: int) -> None:
        sums = [i for i in self._reductions() if self._pass_of(self.nodes[i].args[0]) == level]
        ends = [k for k, r in enumerate(self.program.results)
                if r.kind != "rows" and self._pass_of(r.node) == level]  # fmt: skip
        if not sums and not ends:
            return
        totals = {i: self._total(i) for i in sums}

        def body(fast: bool) -> _Pass:
            return _Pass(self, level, totals, ends, fast)

        fast = body(True)
        if fast.divisors:
            self._two_ways(fast, body(False))
        else:
            self.row.lines += [*fast.before.lines, *fast.loop]
        for i, total in totals.items():
            self.scalars[i] = self._combined(self.nodes[i].params, total)

    def _total(self, i: int) -> str:
        """Memory for the parts of a sum, which LLVM keeps in registers."""
        name, kind = f"%total{i}", f"<{self.width} x float>"
        self.entry.append(f"{name} = alloca {kind}, align {_ALIGNED}")
        first = ", ".join([f"float {float_text(_FIRST[self.nodes[i].params])}"] * self.width)
        self.row.lines.append(f"store {kind} <{first}>, ptr {name}")
        return name

    def _two_ways(self, fast: _Pass, exact: _Pass) -> None:
        """Products with inverses where all divisors have one, quotients elsewhere."""
        good = ""
        for i in fast.divisors:
            size = self.row.call("fabs", self.scalar(i))
            least = self.row.compare("oge", size, float_text(_LEAST_DIVISOR))
            most = self.row.compare("ole", size, float_text(_MOST_DIVISOR))
            both = self.row.op("and", least, most, "i1")
            good = self.row.op("and", good, both, "i1") if good else both
        one, other, after = [self.label() for _ in range(3)]
        self.row.lines.append(f"br i1 {good}, label %{one}, label %{other}")
        for label, way in ((one, fast), (other, exact)):
            self.row.lines += [f"{label}:", *way.before.lines, *way.loop, f"br label %{after}"]
        self.row.lines.append(f"{after}:")

    def _combined(self, kind: str, total: str) -> str:
        vector = f"<{self.width} x float>"
        parts = self.row.line(f"load {vector}, ptr {total}")
        function = f"@llvm.vector.reduce.{_COMBINED[kind]}.v{self.width}f32"
        if kind == "sum":
            self.needs.add(f"declare float {function}(float, {vector})")
            return self.row.line(f"call reassoc float {function}(float -0.0, {vector} {parts})")
        self.needs.add(f"declare float {function}({vector})")
        found = self.row.line(f"call nnan nsz float {function}({vector} {parts})")
        return self._unless_nan(parts, found)

    def _unless_nan(self, parts: str, found: str) -> str:
        """NaN, if any part is one: a test of all is cheaper than to care in each step."""
        flags, function = f"<{self.width} x i1>", f"@llvm.vector.reduce.or.v{self.width}i1"
        self.needs.add(f"declare i1 {function}({flags})")
        is_nan = self.row.line(f"fcmp uno <{self.width} x float> {parts}, {parts}")
        any_nan = self.row.line(f"call i1 {function}({flags} {is_nan})")
        return self.row.select(any_nan, float_text(float("nan")), found)

    def label(self) -> str:
        self.names[0] += 1
        return f"l{self.names[0]}"


@final
class _Pass:
    """The loop over the vectors of a row in one pass.

    ``fast``: divide by numbers of the row with their inverses; ``divisors``: those.
    """

    def __init__(
        self, writer: _Writer, level: int, totals: dict[int, str], ends: Sequence[int], fast: bool
    ) -> None:
        self.writer, self.level, self.fast = writer, level, fast
        self.totals, self.ends = totals, ends
        self.before = Text(writer.names, writer.width)
        """What is done once, before the loop: numbers spread over vectors."""
        self.divisors: list[int] = []
        self._spread: dict[Any, str] = {}
        self.loop = self._written()
        writer.needs |= self.before.needs

    def _written(self) -> list[str]:
        w = self.writer
        whole, rest = divmod(w.length, w.width)
        start, loop, after = w.label(), w.label(), w.label()
        j, following = f"%{loop}.j", f"%{loop}.next"
        body = self._body(j, None)
        lines = [f"br label %{start}", f"{start}:", f"br label %{loop}", f"{loop}:"]
        lines += [f"{j} = phi i64 [0, %{start}], [{following}, %{loop}]", *body]
        lines += [f"{following} = add nuw nsw i64 {j}, {w.width}"]
        lines += [f"%{loop}.more = icmp ult i64 {following}, {whole * w.width}"]
        lines += [f"br i1 %{loop}.more, label %{loop}, label %{after}", f"{after}:"]
        if rest:
            lines += self._body(str(w.length - w.width), rest)
        return lines

    def _body(self, j: str, new: int | None) -> list[str]:
        """One vector, at ``j``; ``new``: only so many of its last elements count in sums."""
        w = self.writer
        to = Text(w.names, w.width)
        at = _At(self, to, j)
        for i, total in self.totals.items():
            kind = w.nodes[i].params
            x = self._counted(to, at.value(w.nodes[i].args[0]), kind, new)
            old = to.line(f"load {to.type('float')}, ptr {total}")
            if kind == "sum":
                made = to.op("fadd reassoc", old, x)
            else:
                made = to.call(f"{kind}imum", old, x, flags="nsz ")
            to.lines.append(f"store {to.type('float')} {made}, ptr {total}")
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
        x = at.value(result.node)
        if result.kind == "columns":
            place = self._column(to, k, j)
            old = to.line(f"load {to.type('float')}, ptr {place}, align 4")
            made = to.op("fadd", old, self._counted(to, x, "sum", new))
            to.lines.append(f"store {to.type('float')} {made}, ptr {place}, align 4")
            return
        node = self.writer.nodes[result.node]
        _store(to, node, x, self._in_row(to, f"%out{k}", _stored(node), j))

    def _column(self, to: Text, k: int, j: str) -> str:
        """Where the sums of a column stand: all those of a block lie one after another."""
        w = self.writer
        results = w.program.results
        before = len([r for r in results[:k] if r.kind == "columns"]) * w.length
        at = to.line(f"add nuw nsw i64 {j}, {before}")
        return to.line(f"getelementptr float, ptr %columns, i64 {at}")

    def _in_row(self, to: Text, base: str, kind: str, j: str) -> str:
        first = self._once(("row of", base), lambda: self._first(base, kind))
        return to.line(f"getelementptr {kind}, ptr {first}, i64 {j}")

    def _first(self, base: str, kind: str) -> str:
        offset = self.before.line(f"mul nuw nsw i64 %r, {self.writer.length}")
        return self.before.line(f"getelementptr {kind}, ptr {base}, i64 {offset}")

    def _once(self, key: Any, make: Callable[[], str]) -> str:
        if key not in self._spread:
            self._spread[key] = make()
        return self._spread[key]

    def spread(self, i: int) -> str:
        """A number of the row at every place."""
        kind = type_of(self.writer.nodes[i].dtype)
        return self._once(i, lambda: self.before.splat(self.writer.scalar(i), kind))

    def inverse(self, i: int) -> str:
        def make() -> str:
            self.divisors.append(i)
            inverse = self.before.line(f"fdiv float {float_text(1.0)}, {self.writer.scalar(i)}")
            return self.before.splat(inverse, "float")

        return self._once(("inverse", i), make)


@final
class _At:
    """The values of one vector of a row."""

    def __init__(self, around: _Pass, to: Text, j: str) -> None:
        self.around, self.to, self.j = around, to, j
        self.known: dict[int, str] = {}

    def value(self, i: int) -> str:
        if i not in self.known:
            self.known[i] = self._made(i)
        return self.known[i]

    def _made(self, i: int) -> str:
        writer, to = self.around.writer, self.to
        node = writer.nodes[i]
        if node.kind == "number":
            return to.constant(node.params, type_of(node.dtype))
        if not node.along:
            return self.around.spread(i)
        if node.kind == "load":
            return self._loaded(node, writer.pointer(node))
        if node.kind == "index":
            return self._index()
        kept = writer.kept.get(i)
        if kept is not None and kept.level < self.around.level:
            return self._loaded(node, kept.place)
        made = self._computed(node)
        if kept is not None:
            at = to.line(f"getelementptr {_stored(node)}, ptr {kept.place}, i64 {self.j}")
            _store(to, node, made, at)
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

    def _loaded(self, node: Node, base: str) -> str:
        kind = _stored(node)
        at = self.to.line(f"getelementptr {kind}, ptr {base}, i64 {self.j}")
        loaded = self.to.line(f"load {self.to.type(kind)}, ptr {at}, align {_SIZES[kind]}")
        return _as_flag(self.to, node, loaded)

    def _index(self) -> str:
        to = self.to
        first = to.splat(to.line(f"trunc i64 {self.j} to i32"), "i32")
        steps = ", ".join([f"i32 {n}" for n in range(to.width)])
        return to.op("add", first, f"<{steps}>", "i32")


def _stored(node: Node) -> str:
    """LLVM's type of an element in memory."""
    kind = type_of(node.dtype)
    return "i8" if kind == "i1" else kind


def _as_flag(to: Text, node: Node, loaded: str) -> str:
    if _stored(node) != "i8":
        return loaded
    return to.compare("ne", loaded, to.constant(0, "i8"), "i8")


def _store(to: Text, node: Node, value: str, at: str) -> None:
    kind = _stored(node)
    if kind == "i8":
        value = to.widened("zext", value, "i1", "i8")
    to.lines.append(f"store {to.type(kind)} {value}, ptr {at}, align {_SIZES[kind]}")
