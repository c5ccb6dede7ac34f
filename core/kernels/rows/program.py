"""What a program does with each row of a frame: its values, and in which pass they are known.

Each value is either known at every place of a row, or one number for the whole row. A sum along a
row ends a pass, and what is made of it belongs to the next one: the level of a value is the number
of sums that lie one after another before it.

A row is done in parts, in each of which every operand either lies in memory as it is or is one
number: the channels of a group of an image, or the images of a batch. Where vectors go across rows,
a row is done whole, with as many neighbours as a vector has places.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any, NamedTuple, final

from tracebridge.core import lax
from tracebridge.core.ir.open_numbers import is_near_one
from tracebridge.core.ir.values import Literal
from tracebridge.core.kernels.equations import REDUCTIONS, exponent_of
from tracebridge.core.kernels.functions import TRANSCENDENTAL
from tracebridge.core.kernels.text import NAMES, number_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.kernels.rows.frame import Frame

_MOST_FACTORS = 8  # that a product is taken apart into, if it is summed
_MOST_TERMS = 4

RESHAPES = frozenset({lax.reshape_p, lax.squeeze_p})


class Node(NamedTuple):
    """A value: what makes it, of which values, with what type, and where it is known.

    ``along``: whether it differs within a row. ``level``: the pass in which it is known; of a
    number of the row, the pass before which it is. A reduction is made of what is summed and, if
    that is not all, of a factor that is one number for each part of a row.
    """

    kind: str  # load, number, index (of the row or in it), reduce, or the name of a primitive
    args: tuple[int, ...]
    dtype: Any
    along: bool
    level: int
    params: Any = None


def _described(node: Node) -> object:
    """The parameters of a value. Numbers of other types, or the same one, are written alike."""
    if node.kind != "number":
        return node.params
    return number_of(node.params, node.dtype)


class Place(NamedTuple):
    """Where a kernel reads or writes: an operand, or -1, and steps along the frame's axes.

    ``before``: elements that come first in the operand.
    """

    operand: int
    steps: tuple[int, ...]
    before: int = 0


class View(NamedTuple):
    """A part of an operand that the program reads: steps along the frame's axes, and the first."""

    steps: tuple[int, ...]
    before: int


Views = tuple["View | None", ...]
"""Of each operand of a kernel; None of those that it reads as a whole."""


class Target(NamedTuple):
    """Which array of a kernel a result of its program is, or a part of; None: all of it."""

    array: int
    view: View | None = None


class Written(NamedTuple):
    """The arrays that a kernel writes, and where each result of its program goes."""

    avals: tuple[ShapedArray, ...]
    targets: tuple[Target, ...]


class Result(NamedTuple):
    """A result: the value, and what of it.

    ``kind``: an array of the ``frame``, one number for each of the ``rows``, its sum over all rows
    (``columns``), or over the axes ``summed`` at the end of each row (``parts``), times a number of
    the part, the value ``factor``. ``place``: where it goes; the steps are those of the frame.
    """

    node: int
    kind: str
    summed: tuple[int, ...] = ()
    factor: int | None = None
    place: Place = Place(0, ())


def kind_of_sum(app: Application, frame: Frame) -> str | None:
    """What a reduction of an array of the frame is, as in ``Result``; None if nothing of it."""
    (aval,) = app.avals
    summed = frame.summed(aval.shape, app.params["axes"])
    if summed == frame.row:
        return "rows"
    if app.primitive is not lax.reduce_sum_p or not summed or frame.is_across:
        return None
    if summed == frame.lead:
        return "columns"
    return "parts" if frame.end(summed) else None


@final
class RowProgram:
    """The values of a Jaxpr over a frame: ``nodes``, each after those that it is made of."""

    def __init__(self, jaxpr: Jaxpr, frame: Frame, views: Views, written: Written) -> None:
        self.frame, self.jaxpr, self.views = frame, jaxpr, views
        self.n_arrays = len(written.avals)
        """That the kernel writes."""
        self.nodes: list[Node] = []
        self.inside: list[bool] = []
        """Of each node: whether it differs within a part of a row."""
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
        for v, (array, view) in zip(jaxpr.outs, written.targets, strict=True):
            result = sums[v] if v in sums else self._result(v)
            place = Place(array, *(view or View(frame.whole, 0)))
            self.results.append(result._replace(place=place))
        self.end = end = self._end()
        """The axes of the frame that vectors go along."""
        self.inner = math.prod([frame.sizes[i] for i in end])
        """Elements of a part of a row, or neighbouring rows, that vectors go along."""
        self.outer = [i for i in (frame.lead if frame.is_across else frame.row) if i not in end]
        """The axes of the frame that count the parts of a row, or those pieces of all rows."""

    @property
    def length(self) -> int:
        """Elements of a row."""
        return self.frame.length

    def _end(self) -> list[int]:
        """The last axes, of those that vectors go along, along which nothing changes its way."""
        frame = self.frame
        least = frame.tail(frame.whole)
        for node in self.nodes:
            if isinstance(node.params, Place):
                least = min(least, frame.tail(node.params.steps))
        frames = [frame.tail(r.place.steps) for r in self.results if r.kind == "frame"]
        ends = [r.summed for r in self.results if r.kind == "parts"]
        least = min([least, *frames, *[math.prod([frame.sizes[i] for i in end]) for end in ends]])
        found: list[int] = []
        for i in reversed(frame.of_vectors):
            if math.prod([frame.sizes[k] for k in (i, *found)]) > least:
                break
            found.insert(0, i)
        return found

    # making nodes

    def _add(self, node: Node) -> int:
        params = node.params
        key = node if params is None or node.kind == "load" else (node[:5], repr(params))
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = len(self.nodes)
            self.nodes.append(node)
            self.inside.append(self._is_inside(node))
        return number

    def _is_inside(self, node: Node) -> bool:
        if isinstance(node.params, Place):
            steps = node.params.steps
            return node.along if self.frame.is_across else steps[self.frame.row[-1]] > 0
        return node.along and any([self.inside[a] for a in node.args])

    def _number(self, value: Literal) -> int:
        return self._add(Node("number", (), value.aval.dtype, False, 0, value.value))

    def _sum(self, app: Application, v: int) -> Result:
        """The sum of columns or of parts that an equation is."""
        kind, node = kind_of_sum(app, self.frame), self._whole(v)
        assert kind is not None
        if kind != "parts":
            return Result(node, kind)
        summed = tuple(self.frame.summed(app.avals[0].shape, app.params["axes"]))
        inside, factors = self._factors(node)
        if not factors:
            return Result(node, kind, summed)
        return Result(self._product(inside), kind, summed, self._product(factors))

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
        view = self.views[v]
        if view is not None:
            return self._read("load", Place(v, *view), self._avals[v].dtype)
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
        """A reduction. What a sum has as a factor in all of a row is multiplied after it.

        So a sum times a number that is made of another sum takes no pass of its own; and what is
        one number for each part is multiplied after each part.
        """
        if kind != "sum":
            return self._reduction([x], kind)
        terms = self._terms(x)
        inside = [self._factors(term)[0] for term, _ in terms]
        level = max([self.nodes[i].level for i in itertools.chain(*inside)])
        if len(terms) == 1 or level == self.nodes[x].level:
            return self._sum_of_product(x)
        total = -1
        for term, sign in terms:  # each one is known in an earlier pass
            made = self._sum_of_product(term)
            made = made if sign > 0 else self._product([made, self._minus_one])
            total = made if total < 0 else self._both("add", total, made)
        return total

    def _terms(self, x: int) -> list[tuple[int, int]]:
        """A value as a sum of some that differ within parts, with signs."""
        found: list[tuple[int, int]] = []
        todo = [(x, 1)]
        while todo:
            i, sign = todo.pop()
            node = self.nodes[i]
            inside = all([self.inside[a] for a in node.args])
            if node.kind == "neg":
                todo.append((node.args[0], -sign))
            elif node.kind in ("add", "sub") and inside:
                signs = sign, sign if node.kind == "add" else -sign
                todo.extend(reversed(list(zip(node.args, signs, strict=True))))
            else:
                found.append((i, sign))
        return found if len(found) <= _MOST_TERMS else [(x, 1)]

    def _sum_of_product(self, x: int) -> int:
        inside, factors = self._factors(x)
        if not factors:
            return self._reduction([x], "sum")
        of_parts = [f for f in factors if self.nodes[f].along]
        of_rows = [f for f in factors if not self.nodes[f].along]
        made = [self._product(inside)]
        made += [self._product(of_parts)] if of_parts else []
        return self._product([self._reduction(made, "sum"), *of_rows])

    def _reduction(self, args: Sequence[int], kind: str) -> int:
        level = max([self.nodes[a].level for a in args])
        dtype = self.nodes[args[0]].dtype
        return self._add(Node("reduce", tuple(args), dtype, False, level + 1, kind))

    def _factors(self, x: int) -> tuple[list[int], list[int]]:
        """A product as factors that differ within parts, and others; all in one if it is none.

        What is one number in all of a part is summed as it is. Most numbers that stand in the
        program stay where they are: they may be there so that a sum does not overflow.
        """
        inside: list[int] = []
        others: list[int] = []
        todo = [x]
        while todo:
            node = self.nodes[i := todo.pop()]
            stays = any([self._stays(a) for a in node.args])
            if node.kind == "neg":
                others.append(self._minus_one)
                todo.append(node.args[0])
            elif node.kind == "mul" and self.inside[i] and not stays:
                todo.extend(reversed(node.args))
            else:
                (inside if self.inside[i] else others).append(i)
        are_numbers = all([self.nodes[f].kind == "number" for f in others])
        is_one = are_numbers or not inside or len(inside) > _MOST_FACTORS
        return ([x], []) if is_one else (inside, others)

    def _stays(self, i: int) -> bool:
        """Whether a number is one that would not leave a sum as large as it was, or larger."""
        return self.nodes[i].kind == "number" and not is_near_one(self.nodes[i].params)

    @property
    def _minus_one(self) -> int:
        return self._add(Node("number", (), self.frame.dtype, False, 0, -1.0))

    def _product(self, factors: Sequence[int]) -> int:
        made = factors[0]
        for factor in factors[1:]:
            made = self._both("mul", made, factor)
        return made

    def _both(self, kind: str, a: int, b: int) -> int:
        x, y = self.nodes[a], self.nodes[b]
        node = Node(kind, (a, b), x.dtype, x.along or y.along, max(x.level, y.level))
        return self._add(node)

    def described(self) -> str:
        """All that the text depends on: not how many rows there are, along the first axis."""
        frame = self.frame
        sizes = frame.sizes if frame.along[0] else (0, *frame.sizes[1:])
        nodes = [(*n[:2], NAMES[n.dtype], *n[3:5], _described(n)) for n in self.nodes]
        return repr((sizes, frame.along, frame.real, len(self.jaxpr.in_avals), nodes, self.results))

    def operations(self) -> tuple[int, int]:
        """How many a row takes: cheap ones, and exponentials and their like."""
        made = [n for n in self.nodes if n.kind not in ("load", "number", "index")]
        along = [n.along or n.kind == "reduce" for n in made]
        dear = sum([a for n, a in zip(made, along, strict=True) if n.kind in TRANSCENDENTAL])
        return (sum(along) - dear) * self.length, dear * self.length
