"""What a program does with each row of a frame: its values, and in which pass they are known.

Each value is either known at every place of a row, or one number for the whole row. A sum along a
row ends a pass, and what is made of it belongs to the next one: the level of a value is the number
of sums that lie one after another before it.

A row is done in parts, in each of which every operand either lies in memory as it is or is one
number: the channels of a group of an image, or the images of a batch.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, final

from tracebridge.core import lax
from tracebridge.core.ir.values import Literal
from tracebridge.core.kernels.equations import REDUCTIONS, exponent_of
from tracebridge.core.kernels.functions import TRANSCENDENTAL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.kernels.rows.frame import Frame

RESHAPES = frozenset({lax.reshape_p, lax.squeeze_p})


class Node(NamedTuple):
    """A value: what makes it, of which values, with what type, and where it is known.

    ``along``: whether it differs within a row. ``level``: the pass in which it is known; of a
    number of the row, the pass before which it is.
    """

    kind: str  # load, number, index (of the row or in it), reduce, or the name of a primitive
    args: tuple[int, ...]
    dtype: Any
    along: bool
    level: int
    params: Any = None


class Place(NamedTuple):
    """Where a kernel reads or writes: an operand, or -1, and steps along the frame's axes."""

    operand: int
    steps: tuple[int, ...]


class Result(NamedTuple):
    """A result: the value, and what of it.

    ``kind``: an array of the ``frame``, one number for each of the ``rows``, its sum over all rows
    (``columns``), or over the axes ``summed`` at the end of each row (``parts``).
    """

    node: int
    kind: str
    summed: tuple[int, ...] = ()


def kind_of_sum(app: Application, frame: Frame) -> str | None:
    """What a reduction of an array of the frame is, as in ``Result``; None if nothing of it."""
    (aval,) = app.avals
    summed = frame.summed(aval.shape, app.params["axes"])
    if summed == frame.row:
        return "rows"
    if app.primitive is not lax.reduce_sum_p or not summed:
        return None
    if summed == frame.lead:
        return "columns"
    return "parts" if frame.end(summed) else None


@final
class RowProgram:
    """The values of a Jaxpr over a frame: ``nodes``, each after those that it is made of."""

    def __init__(self, jaxpr: Jaxpr, frame: Frame) -> None:
        self.frame, self.jaxpr = frame, jaxpr
        self.nodes: list[Node] = []
        self.results: list[Result] = []
        self._known: dict[Any, int] = {}
        self._env: list[int | None] = [None] * jaxpr.n_in
        self._avals = jaxpr.variable_avals()
        for value in jaxpr.consts:
            assert isinstance(value, Literal)  # others are operands
            self._env.append(self._number(value))
        sums: dict[int, Result] = {}
        for app, args in jaxpr.equations:
            if app.primitive in REDUCTIONS and kind_of_sum(app, frame) != "rows":
                sums[len(self._env)] = self._sum(app, args[0])
                self._env.append(None)
            else:
                self._env.append(self._equation(app, args))
        for v in jaxpr.outs:
            self.results.append(sums[v] if v in sums else self._result(v))
        end = self._end()
        self.inner = math.prod([frame.sizes[i] for i in end])
        """Elements of a part of a row."""
        self.outer = [i for i in frame.row if i not in end]
        """The axes of the frame that count the parts of a row."""

    @property
    def length(self) -> int:
        """Elements of a row."""
        return self.frame.length

    def _end(self) -> list[int]:
        """The last axes of a row along which nothing changes its way."""
        frame = self.frame
        least = frame.tail(frame.whole)
        for node in self.nodes:
            if isinstance(node.params, Place):
                least = min(least, frame.tail(node.params.steps))
        ends = [r.summed for r in self.results if r.kind == "parts"]
        least = min([least, *[math.prod([frame.sizes[i] for i in end]) for end in ends]])
        found: list[int] = []
        for i in reversed(frame.row):
            if math.prod([frame.sizes[k] for k in (i, *found)]) > least:
                break
            found.insert(0, i)
        return found

    # making nodes

    def _add(self, node: Node) -> int:
        key = node._replace(params=repr(node.params)) if node.kind != "load" else node
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = len(self.nodes)
            self.nodes.append(node)
        return number

    def _number(self, value: Literal) -> int:
        return self._add(Node("number", (), value.aval.dtype, False, 0, value.value))

    def _sum(self, app: Application, v: int) -> Result:
        """The sum of columns or of parts that an equation is."""
        kind, summed = kind_of_sum(app, self.frame), ()
        assert kind is not None
        if kind == "parts":
            summed = tuple(self.frame.summed(app.avals[0].shape, app.params["axes"]))
        return Result(self._whole(v), kind, summed)

    def _result(self, v: int) -> Result:
        node = self._env[v]
        assert node is not None
        is_whole = self._avals[v].shape in self.frame.shapes
        return Result(node, "frame" if is_whole else "rows")

    def _whole(self, v: int) -> int:
        """The node of a variable that an elementwise equation or a sum reads."""
        node = self._env[v]
        if node is not None:
            return node
        frame, shape = self.frame, self._avals[v].shape
        if not shape:
            return self._load(v, (0,) * len(frame.sizes))
        return self._load(v, frame.whole if shape in frame.shapes else frame.by_row)

    def _load(self, v: int, steps: tuple[int, ...]) -> int:
        """An operand that is read with these steps."""
        return self._read("load", Place(v, steps), self._avals[v].dtype)

    def _read(self, kind: str, place: Place, dtype: Any) -> int:
        along = any([place.steps[i] for i in self.frame.row])
        return self._add(Node(kind, (), dtype, along, 0, place))

    def _equation(self, app: Any, args: Sequence[int]) -> int:
        primitive, params = app.primitive, app.params
        if primitive in REDUCTIONS:
            return self._reduced(self._whole(args[0]), REDUCTIONS[primitive])
        if primitive is lax.broadcast_in_dim_p:
            node, shape = self._env[args[0]], app.out.shape
            if node is not None or shape not in self.frame.shapes:
                return self._whole(args[0])
            (aval,), axes = app.avals, params["broadcast_dimensions"]
            return self._load(args[0], self.frame.steps(aval.shape, axes, shape))
        if primitive in RESHAPES:
            return self._whole(args[0])
        if primitive is lax.iota_p:
            axis, shape = params["dimension"], app.out.shape
            steps = self.frame.steps((shape[axis],), (axis,), shape)
            return self._read("index", Place(-1, steps), app.out.dtype)
        if primitive is lax.pow_p:
            params, args = {"y": exponent_of(self.jaxpr, args[1])}, args[:1]
        operands = tuple([self._whole(a) for a in args])
        read = [self.nodes[a] for a in operands]
        along, level = any([n.along for n in read]), max([n.level for n in read])
        made = Node(primitive.name, operands, app.out.dtype, along, level, params or None)
        return self._add(made)

    def _reduced(self, x: int, kind: str) -> int:
        """A reduction; what is known later than the rest of a product is multiplied afterwards.

        So a sum of a row, times a number that is made of another sum, takes no pass of its own.
        """
        core, factors = x, []
        while kind == "sum" and self.nodes[core].kind in ("mul", "neg"):
            args = self.nodes[core].args
            inside = [a for a in args if self.nodes[a].along]
            if len(inside) != 1:
                break
            factors.append([a for a in args if a not in inside])
            core = inside[0]
        if self.nodes[core].level == self.nodes[x].level:
            core, factors = x, []
        node = self.nodes[core]
        made = self._add(Node("reduce", (core,), node.dtype, False, node.level + 1, kind))
        for factor in reversed(factors):
            operands = (made, *factor)
            level = max([self.nodes[a].level for a in operands])
            name = "mul" if factor else "neg"
            made = self._add(Node(name, operands, node.dtype, False, level))
        return made

    def operations(self) -> tuple[int, int]:
        """How many a row takes: cheap ones, and exponentials and their like."""
        made = [n for n in self.nodes if n.kind not in ("load", "number", "index")]
        along = [n.along or n.kind == "reduce" for n in made]
        dear = sum([a for n, a in zip(made, along, strict=True) if n.kind in TRANSCENDENTAL])
        return (sum(along) - dear) * self.length, dear * self.length
