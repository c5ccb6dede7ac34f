"""Elementwise equations over arrays of one shape: one nest of loops, values in registers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, final

import numpy as np

from tracebridge.core.kernels.functions import elementwise
from tracebridge.core.kernels.steps.boxes import Boxes, Number, Source, cells, part_of
from tracebridge.core.kernels.steps.code import Code
from tracebridge.core.kernels.steps.transposes import edges, transpose_of, write_transpose
from tracebridge.core.kernels.steps.views import SIZES, View, collapsed, without_ones
from tracebridge.core.kernels.text import Text, float_text, type_of

_FLOAT = np.dtype(np.float32)
_LONG_ROW = 2  # vectors: fewer are divided as fast as a number is inverted
_LONG_CELL = 8  # vectors: fewer of them may begin anywhere
_LARGE, _MOVE = 2.0**100, 2.0**64


class Node(NamedTuple):
    """A value of a group: an array in memory, a number, or a primitive of other values."""

    kind: str  # load, number, or the name of a primitive
    args: tuple[int, ...]
    dtype: Any
    params: Any = None  # the view or boxes of a load


@final
class Group:
    """Equations over ``shape``, without axes of size 1, and where their results go."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.nodes: list[Node] = []
        self.stores: list[tuple[int, View]] = []
        self._known: dict[Any, int] = {}

    def add(self, node: Node) -> int:
        """The number of a value; that of a load or number that is there already."""
        if node.kind not in ("load", "number"):
            self.nodes.append(node)
            return len(self.nodes) - 1
        # Views are equal or not; equal numbers, as 0.0 and -0.0 are, may be different ones.
        key = node if isinstance(node.params, View) else (repr(node.params), node.dtype)
        if key not in self._known:
            self._known[key] = len(self.nodes)
            self.nodes.append(node)
        return self._known[key]

    def load(self, view: View | Boxes) -> int:
        """The number of an array in memory, as large as the group or a single number."""
        if isinstance(view, Boxes):
            view = view.squeezed()
            assert view.shape == self.shape
            return self.add(Node("load", (), view.dtype, view))
        view = _squeezed(view)
        if not view.shape:
            view = view._replace(shape=self.shape, strides=(0,) * len(self.shape))
        assert view.shape == self.shape
        return self.add(Node("load", (), view.dtype, view))

    def store(self, node: int, view: View) -> None:
        """Write a value to memory."""
        self.stores.append((node, _squeezed(view)))

    def copied(self) -> tuple[View, View] | None:
        """The source and the target, if the group does nothing but copy."""
        if len(self.nodes) == len(self.stores) == 1 and isinstance(self.nodes[0].params, View):
            return self.nodes[0].params, self.stores[0][1]
        return None

    def boxes(self) -> list[Boxes]:
        """What is loaded box by box."""
        return [n.params for n in self.nodes if isinstance(n.params, Boxes)]

    def reads(self) -> list[View]:
        """What is read in memory."""
        loaded = [n.params for n in self.nodes if n.kind == "load"]
        views = [v for v in loaded if isinstance(v, View)]
        return views + [v for boxes in self.boxes() for v in boxes.views()]

    def number(self, value: Number) -> int:
        """The number of a value that stands in the program."""
        return self.add(Node("number", (), value.dtype, value.value))

    def source(self, value: Source) -> int:
        """The number of an array whose elements are there."""
        return self.number(value) if isinstance(value, Number) else self.load(value)


_SMALL, _SMALL_UNEVEN = 4, 7
"""Elements that are done one by one, the second number if no vector takes all and each takes few
instructions. Often they have been written apart, as parts of a stack, and a processor waits where
it loads together what it has just stored apart."""
CHEAP = frozenset({"load", "number", "add", "sub", "mul", "neg", "max", "min", "select_n"})


def copy_of(value: Source, out: View) -> Group:
    """What writes the elements of an array to another one."""
    group = Group(without_ones(out.shape))
    group.store(group.source(value), out)
    return group


def _squeezed(view: View) -> View:
    if 1 not in view.shape:
        return view
    kept = [(n, s) for n, s in zip(view.shape, view.strides, strict=True) if n != 1]
    return view._replace(shape=without_ones(view.shape), strides=tuple([s for _, s in kept]))


def write_group(code: Code, group: Group, lanes: int) -> None:
    """The loops of a group."""
    copied = group.copied()
    found = None if copied is None else transpose_of(*copied, lanes)
    if found is None:
        _Writer(code, group, lanes).write()
        return
    write_transpose(code, found)
    for source, target in edges(found):
        _Writer(code, copy_of(source, target), lanes).write()


@final
class _Writer:
    """The loops over the boxes of a group: bands of rows, and cells of these rows."""

    def __init__(self, code: Code, group: Group, lanes: int) -> None:
        self.code, self.group, self.lanes = code, group, lanes

    def write(self) -> None:
        for band, columns in cells(self.group.shape, self.group.boxes()):
            self._band(band, self._aligned(columns))

    def _aligned(self, columns: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Cells of which those with many vectors begin where most arrays have a vector."""
        found: list[tuple[int, int]] = []
        for a, b in columns:
            first = -(-a // self.lanes) * self.lanes
            if first > a and b - first >= _LONG_CELL * self.lanes:
                found += [(a, first), (first, b)]
            else:
                found.append((a, b))
        return found

    def _band(self, band: Sequence[tuple[int, int]], columns: Sequence[tuple[int, int]]) -> None:
        first = [a for a, _ in band]
        found = [
            _Cell(self.code, self.group, self.lanes, [*first, a], [*[b for _, b in band], b])
            for a, b in columns
        ]
        if len(found) < 2:
            cell = found[0] if found else _Cell(self.code, self.group, self.lanes, [], [])
            cell.collapse()
            self.code.nest(cell.sizes[:-1], cell.row)
            return

        def row(outer: list[str]) -> None:
            for cell in found:
                cell.row(outer)

        self.code.nest([b - a for a, b in band], row)


@final
class _Cell:
    """A part of a group in which each array is a view or a number."""

    def __init__(
        self, code: Code, group: Group, lanes: int, starts: Sequence[int], limits: Sequence[int]
    ) -> None:
        self.code, self.group, self.lanes = code, group, lanes
        self.loads: dict[int, View] = {}
        self.numbers: dict[int, Number] = {}
        for i, node in enumerate(group.nodes):
            if node.kind == "load":
                source = part_of(node.params, starts, limits)
                if isinstance(source, Number):
                    self.numbers[i] = source
                else:
                    assert isinstance(source, View)  # no part ends within a cell
                    self.loads[i] = source
        steps = [1] * len(starts)
        self.stores = [view.part(starts, limits, steps) for _, view in group.stores]
        self.sizes = [b - a for a, b in zip(starts, limits, strict=True)]
        self.steps: dict[int, Sequence[int]] = {i: v.strides for i, v in self.loads.items()}
        self.store_steps: list[Sequence[int]] = [v.strides for v in self.stores]
        self.row_of: dict[Any, str] = {}
        """Where the current innermost row of each array begins."""
        self.inverses: dict[int, tuple[str, str]] = {}
        """Of divisors that are one number for the current row: see `_inverse`."""

    def collapse(self) -> None:
        """Take axes together that go through all arrays."""
        views = [*self.loads.values(), *self.stores]
        self.sizes, strides = collapsed(tuple(self.sizes), [v.strides for v in views])
        self.steps = dict(zip(self.loads, strides, strict=False))
        self.store_steps = list(strides[len(self.loads) :])

    def _divisors(self) -> set[int]:
        """Loads that others are divided by, of one number for each of some long rows."""
        if self.sizes[-1] < _LONG_ROW * self.lanes:
            return set()
        found = {n.args[1] for n in self.group.nodes if n.kind == "div" and n.dtype == _FLOAT}
        return {i for i in found if i in self.loads and self.steps[i][-1] == 0}

    def row(self, outer: list[str]) -> None:
        """The loop over a row."""
        code, group = self.code, self.group
        for i, view in self.loads.items():
            self.row_of[i] = self._start(view, outer, self.steps[i])
        for k, view in enumerate(self.stores):
            self.row_of["store", k] = self._start(view, outer, self.store_steps[k])
        self.inverses = {i: self._inverse(self.row_of[i]) for i in self._divisors()}
        n = self.sizes[-1]
        cheap = all([node.kind in CHEAP for node in group.nodes])
        apart = n <= _SMALL or (n <= _SMALL_UNEVEN and cheap)
        width = 1 if apart else min(2 * self.lanes, floor_of_two(n))

        def body(j: str, _: Sequence[str]) -> Sequence[str]:
            self._vector(j, width)
            return ()

        whole = 0 if width == 1 else n // width * width
        if whole:  # no element twice: it may be written over what it is made of
            code.loop(whole, width, body)
        for j, rest in pieces(n - whole, width):
            self._vector(str(whole + j), rest)

    def _start(self, view: View, outer: list[str], strides: Sequence[int]) -> str:
        offset = self.code.offset(outer, strides[:-1], view.offset)
        return self.code.element(view.kind, view.base, offset)

    def _inverse(self, at: str) -> tuple[str, str]:
        """Two numbers whose product divides by that at ``at``; the second one is mostly 1.

        It moves divisors without an inverse to where they have one, with all its digits.
        """
        to = self.code.text(0)
        x = to.line(f"load float, ptr {at}, align 4")
        size = to.call("fabs", x)
        is_small = to.compare("olt", size, float_text(1 / _LARGE))
        is_large = to.compare("ogt", size, float_text(_LARGE))
        moved = to.select(is_large, float_text(1 / _MOVE), float_text(1.0))
        move = to.select(is_small, float_text(_MOVE), moved)
        return to.op("fdiv", float_text(1.0), to.op("fmul", x, move)), move

    def _vector(self, j: str, width: int) -> None:
        to, values = self.code.text(width), {}
        nodes = self.group.nodes
        for i, node in enumerate(nodes):
            if i in self.loads:
                kind, step = self.loads[i].kind, self.steps[i][-1]
                values[i] = load(to, self.row_of[i], kind, j, step)
            elif node.kind in ("number", "load"):
                value = self.numbers[i].value if i in self.numbers else node.params
                values[i] = to.constant(value, type_of(node.dtype))
            elif node.kind == "div" and node.args[1] in self.inverses:
                values[i] = values[node.args[0]]
                for factor in self.inverses[node.args[1]]:
                    values[i] = to.op("fmul", values[i], to.splat(factor, "float"))
            else:
                args, dtypes = [values[a] for a in node.args], [nodes[a].dtype for a in node.args]
                values[i] = elementwise(to, node.kind, args, dtypes, node.dtype, node.params)
        for k, (i, _) in enumerate(self.group.stores):
            step = self.store_steps[k][-1]
            store(to, self.row_of["store", k], self.stores[k].kind, values[i], j, step)


def floor_of_two(n: int) -> int:
    """The largest power of two that is not above ``n``."""
    return 1 << (n.bit_length() - 1)


def pieces(n: int, most: int) -> list[tuple[int, int]]:
    """Starts and widths of vectors of powers of two, at most ``most``, for ``n`` elements."""
    found, at = [], 0
    while at < n:
        width = min(most, floor_of_two(n - at))
        found.append((at, width))
        at += width
    return found


def load(to: Text, row: str, kind: str, j: str, step: int) -> str:
    """A vector of elements that lie ``step`` apart, from element ``j`` on."""
    if step == 0:
        x = to.line(f"load {kind}, ptr {row}, align {SIZES[kind]}")
        return _flag(to, kind, to.splat(x, kind))
    if step == 1 or to.width == 1:
        at = _at(to, row, kind, j, step)
        return _flag(to, kind, to.line(f"load {to.type(kind)}, ptr {at}, align {SIZES[kind]}"))
    first, found = _at(to, row, kind, j, step), "poison"
    for k in range(to.width):
        at = first if k == 0 else to.line(f"getelementptr {kind}, ptr {first}, i64 {k * step}")
        x = to.line(f"load {kind}, ptr {at}, align {SIZES[kind]}")
        found = to.line(f"insertelement {to.type(kind)} {found}, {kind} {x}, i32 {k}")
    return _flag(to, kind, found)


def _at(to: Text, row: str, kind: str, j: str, step: int) -> str:
    if j.isdecimal():
        j = str(int(j) * step)
    elif step != 1:
        j = to.line(f"mul nsw i64 {j}, {step}")
    return row if j == "0" else to.line(f"getelementptr {kind}, ptr {row}, i64 {j}")


def _flag(to: Text, kind: str, x: str) -> str:
    return to.compare("ne", x, to.constant(0, "i8"), "i8") if kind == "i8" else x


def store(to: Text, row: str, kind: str, x: str, j: str, step: int) -> None:
    """Write a vector to elements that lie ``step`` apart."""
    if kind == "i8":
        x = to.widened("zext", x, "i1", "i8")
    first = _at(to, row, kind, j, step)
    if step == 1 or to.width == 1:
        to.lines.append(f"store {to.type(kind)} {x}, ptr {first}, align {SIZES[kind]}")
        return
    for k in range(to.width):
        at = first if k == 0 else to.line(f"getelementptr {kind}, ptr {first}, i64 {k * step}")
        part = to.line(f"extractelement {to.type(kind)} {x}, i32 {k}")
        to.lines.append(f"store {kind} {part}, ptr {at}, align {SIZES[kind]}")
