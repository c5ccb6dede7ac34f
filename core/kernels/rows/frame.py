"""What a program does with each row of a frame: its values, and in which pass they are known.

The frame is the shape of the large arrays; its last axis is the row. Each value is either known at
every place of a row, or one number for the whole row. A sum along a row ends a pass, and what is
made of it belongs to the next one: the level of a value is the number of sums that lie one after
another before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, final

from tracebridge.core import lax
from tracebridge.core.ir.values import Literal
from tracebridge.core.kernels.equations import REDUCTIONS, exponent_of
from tracebridge.core.kernels.functions import TRANSCENDENTAL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.jaxpr import Jaxpr

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
    """Where a kernel reads an operand: strides along the leading axes; ``along`` rows or not."""

    operand: int
    strides: tuple[int, ...]
    along: bool


class Result(NamedTuple):
    """A result: the value, and whether it is an array of the frame, of rows, or a sum over rows."""

    node: int
    kind: str  # frame, rows, columns


def is_rows_shape(shape: Sequence[Any], frame: Sequence[int]) -> bool:
    """Whether an array has one number for each row of the frame."""
    lead = tuple(frame[:-1])
    return tuple(shape) in (lead, (*lead, 1))


@final
class RowProgram:
    """The values of a Jaxpr over a frame: ``nodes``, each after those that it is made of."""

    def __init__(self, jaxpr: Jaxpr, frame: tuple[int, ...]) -> None:
        self.frame, self.jaxpr = frame, jaxpr
        self.nodes: list[Node] = []
        self.results: list[Result] = []
        self._known: dict[Any, int] = {}
        self._env: list[int | None] = [None] * jaxpr.n_in
        self._avals = jaxpr.variable_avals()
        for value in jaxpr.consts:
            assert isinstance(value, Literal)  # others are operands
            self._env.append(self._number(value))
        columns: dict[int, int] = {}
        for app, args in jaxpr.equations:
            if is_sum_of_columns(app, len(frame)):
                columns[len(self._env)] = self._whole(args[0])
                self._env.append(None)
            else:
                self._env.append(self._equation(app, args))
        for v in jaxpr.outs:
            self.results.append(self._result(v, columns))

    @property
    def length(self) -> int:
        """Elements of a row."""
        return self.frame[-1]

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

    def _result(self, v: int, columns: dict[int, int]) -> Result:
        if v in columns:
            return Result(columns[v], "columns")
        node = self._env[v]
        assert node is not None
        return Result(node, "frame" if self._avals[v].shape == self.frame else "rows")

    def _whole(self, v: int) -> int:
        """The node of a variable that an elementwise equation or a sum reads."""
        node = self._env[v]
        if node is not None:
            return node
        shape = self._avals[v].shape
        if not shape:
            return self._load(v, ())
        if shape == self.frame:
            return self._load(v, range(len(shape)))
        return self._load(v, range(len(self.frame) - 1))

    def _load(self, v: int, axes: Sequence[int]) -> int:
        """An operand whose axes run along these axes of the frame."""
        aval, n = self._avals[v], len(self.frame)
        strides = [0] * (n - 1)
        along, stride = False, 1
        for axis, size in reversed(list(zip(axes, aval.shape, strict=False))):
            if size != 1:
                if axis == n - 1:
                    along = True
                else:
                    strides[axis] = stride
                stride *= size
        return self._add(Node("load", (), aval.dtype, along, 0, Place(v, tuple(strides), along)))

    def _equation(self, app: Any, args: Sequence[int]) -> int:
        primitive, params = app.primitive, app.params
        if primitive in REDUCTIONS:
            x = self._whole(args[0])
            node = self.nodes[x]
            kind = REDUCTIONS[primitive]
            return self._add(Node("reduce", (x,), node.dtype, False, node.level + 1, kind))
        if primitive is lax.broadcast_in_dim_p:
            node = self._env[args[0]]
            return self._load(args[0], params["broadcast_dimensions"]) if node is None else node
        if primitive in RESHAPES:
            return self._whole(args[0])
        if primitive is lax.iota_p:
            along = params["dimension"] == len(self.frame) - 1
            return self._add(Node("index", (), app.out.dtype, along, 0, params["dimension"]))
        if primitive is lax.pow_p:
            params, args = {"y": exponent_of(self.jaxpr, args[1])}, args[:1]
        operands = tuple([self._whole(a) for a in args])
        read = [self.nodes[a] for a in operands]
        along, level = any([n.along for n in read]), max([n.level for n in read])
        made = Node(primitive.name, operands, app.out.dtype, along, level, params or None)
        return self._add(made)

    def operations(self) -> tuple[int, int]:
        """How many a row takes: cheap ones, and exponentials and their like."""
        made = [n for n in self.nodes if n.kind not in ("load", "number", "index")]
        along = [n.along or n.kind == "reduce" for n in made]
        dear = sum([a for n, a in zip(made, along, strict=True) if n.kind in TRANSCENDENTAL])
        return (sum(along) - dear) * self.length, dear * self.length


def is_sum_of_columns(app: Application, n: int) -> bool:
    """Whether an equation sums over the rows of a frame of ``n`` axes."""
    return app.primitive is lax.reduce_sum_p and tuple(app.params["axes"]) != (n - 1,)


def can_be_read(aval: ShapedArray, axes: Sequence[int], frame: Sequence[int]) -> bool:
    """Whether a broadcast of an operand to the frame is a way to read it: row by row."""
    sizes = [frame[axis] for axis in axes]
    fits = all([n in (1, size) for n, size in zip(aval.shape, sizes, strict=True)])
    return fits and list(axes) == sorted(axes)
