"""Equations that rewrites put into a graph, without running functions on tracers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, final

from tracebridge.core import lax
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.values import Literal, python_scalar
from tracebridge.core.ir.varied import differ, together

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracebridge.core.interpreters.graph import Graph
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.primitive import Primitive


@final
class Emission:
    """What a rewrite adds to a graph. ``leaves``: the values that it is made of.

    Types are those that operations would find on tracers; functions such as ``broadcast`` leave
    out the same equations that do nothing.
    """

    __slots__ = ("_made", "_numbers", "graph", "leaves", "source")

    def __init__(self, graph: Graph, leaves: Sequence[int], source: object = None) -> None:
        self.graph, self.leaves, self.source = graph, leaves, source
        self._made: dict[Callable[[Emission], int], int] = {}
        self._numbers: dict[Any, int] = {}

    def made(self, make: Callable[[Emission], int]) -> int:
        """What ``make`` adds, which is added once."""
        number = self._made.get(make)
        if number is None:
            number = self._made[make] = make(self)
        return number

    def apply(self, primitive: Primitive, *args: int, **params: Any) -> int:
        """The result of a primitive that has one."""
        graph = self.graph
        avals = tuple([graph.avals[a] for a in args])
        if len(args) > 1 and differ(avals):
            program = stage(lambda *values: together(values), avals, locate=False)
            return self.apply(primitive, *graph.inline(program, args, self.source), **params)
        return graph.add(primitive.application(avals, params), args, self.source)

    def number(self, value: float, beside: int) -> int:
        """A number of the program, as operand beside a value."""
        aval = self.graph.avals[beside]
        # Zeros of both signs are equal.
        key = value, math.copysign(1.0, value), aval.dtype, aval.vma
        known = self._numbers.get(key)
        if known is None:
            scalar = aval.update(shape=(), weak_type=True)
            constant = Literal(python_scalar(value, aval.dtype), scalar)
            known = self._numbers[key] = self.graph.constant(constant)
        return known

    def shape(self, number: int) -> tuple[Any, ...]:
        """The shape of a value."""
        return self.graph.avals[number].shape

    def reshape(self, x: int, shape: tuple[Any, ...]) -> int:
        """The elements in another shape."""
        return x if self.shape(x) == shape else self.apply(lax.reshape_p, x, new_sizes=shape)

    def broadcast(self, x: int, shape: tuple[Any, ...], places: tuple[int, ...]) -> int:
        """Elements repeated; ``places`` are in order."""
        if self.shape(x) == shape and places == tuple(range(len(shape))):
            return x
        return self.apply(lax.broadcast_in_dim_p, x, shape=shape, broadcast_dimensions=places)

    def full(self, aval: ShapedArray, value: Any) -> int:
        """An array all of whose elements are one number of the program."""
        number = Literal(python_scalar(value, aval.dtype), aval.update(shape=()))
        scalar = self.graph.constant(number)
        return self.broadcast(scalar, aval.shape, ()) if aval.ndim else scalar

    def slice(self, x: int, starts: tuple[int, ...], limits: tuple[int, ...]) -> int:
        """A part without gaps."""
        if limits == self.shape(x) and not any(starts):
            return x
        params = {"start_indices": starts, "limit_indices": limits, "strides": (1,) * len(starts)}
        return self.apply(lax.slice_p, x, **params)

    def over(self, primitive: Primitive, x: int, axes: Sequence[int]) -> int:
        """A reduction over axes, if there are any."""
        return self.apply(primitive, x, axes=tuple(sorted(axes))) if axes else x
