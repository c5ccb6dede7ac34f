"""Arrays that are put together of parts.

The cotangent of an array of which only slices are read, queries, keys and values of one product
say, is a sum: of each slice's cotangent, filled up with zeros. XLA writes each of them in full and
adds them; where the slices are all of the array, it is their concatenation. Where a part has -0 the
sum has 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np

from tracebridge.core import lax
from tracebridge.core.ir.values import Literal

if TYPE_CHECKING:
    from tracebridge.core.interpreters.graph import Graph
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.value import Value
    from tracebridge.core.lowering.rewrites.factors import Producers

_LEAST_ELEMENTS = 1 << 15
"""Elements: what is smaller stays in a cache, and is fused."""


Plan = tuple[Callable[..., Any], Sequence[int]]


class Parts(NamedTuple):
    """Places of an axis, and values that stand there among zeros."""

    axis: int
    at: dict[int, tuple[int, int]]
    """First place -> number of places, the value."""

    def with_others(self, others: Parts) -> Parts | None:
        """The parts of a sum; None if they may overlap."""
        if self.axis != others.axis or not self.at.keys().isdisjoint(others.at):
            return None
        merged = Parts(self.axis, dict(sorted([*self.at.items(), *others.at.items()])))
        ends = [start + n for start, (n, _) in merged.at.items()]
        starts = [*merged.at][1:]
        return merged if all([e <= s for e, s in zip(ends, starts, strict=False)]) else None

    def fill(self, size: int) -> bool:
        """Whether all places have a value."""
        return sum([n for n, _ in self.at.values()]) == size


@final
class Joins:
    """The values of a graph that are parts among zeros, while it is made."""

    __slots__ = ("_graph", "_parts")

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._parts: dict[int, Parts] = {}

    def padded(self, app: Application, args: Sequence[int], number: int) -> None:
        """Remember what the equation of the value ``number``, a pad, puts where."""
        shape = (*app.avals[0].shape, *app.out.shape)
        if not all([type(n) is int for n in shape]) or app.out.size < _LEAST_ELEMENTS:
            return
        value = self._graph.consts.get(args[1])
        if type(value) is not Literal or np.any(np.asarray(value.value) != 0):
            return
        config = app.params["padding_config"]
        axes = [i for i, sizes in enumerate(config) if sizes != (0, 0, 0)]
        if len(axes) == 1 and config[axes[0]][2] == 0 <= min(config[axes[0]]):
            (axis,) = axes
            there = {config[axis][0]: (app.avals[0].shape[axis], args[0])}
            self._parts[number] = Parts(axis, there)

    def added(self, app: Application, args: Sequence[int], number: int) -> Plan | None:
        """A sum, the value ``number``, as a concatenation: its function and what that takes."""
        x, y = [self._parts.get(a) for a in args]
        both = None if x is None or y is None else x.with_others(y)
        if both is None:
            return None
        self._parts[number] = both
        if not both.fill(app.out.shape[both.axis]):
            return None

        def run(*values: Value) -> Any:
            return lax.concatenate_p.bind(*values, dimension=both.axis)

        return run, [number for _, number in both.at.values()]

    def added_to_part(self, args: Sequence[int], is_there: Callable[[int], bool]) -> Plan | None:
        """A sum with one part among zeros, added to the places of the part alone.

        ``is_there``: whether a value is an array in memory, which nothing is fused with.
        """
        for whole, padded in (args, reversed(args)):
            parts = self._parts.get(padded)
            if parts is None or len(parts.at) != 1 or whole in self._parts:
                continue
            ((start, (size, part)),) = parts.at.items()
            if not is_there(part) or not is_there(whole):
                continue
            return partial(_with_added, parts.axis, start, size), [whole, part]
        return None


def _with_added(axis: int, start: int, size: int, whole: Value, part: Value) -> Any:
    """``whole`` with ``part`` added to so many of its places: XLA writes it where ``whole`` is."""
    there = lax.slice_in_dim(whole, start, start + size, axis=axis)
    starts = [start if i == axis else 0 for i in range(len(whole.shape))]
    return lax.dynamic_update_slice(whole, lax.add(there, part), starts)


def moved_join(app: Application, args: Sequence[int], made_by: Producers) -> Plan | None:
    """Arrays joined along a new axis, which is then moved, are joined where it goes.

    Axes of one element may come and go before, and move as they like.
    """
    number = args[0]
    while (made := made_by.get(number)) is not None and _is_of_ones(made[0]):
        number = made[1][0]
    if made is None or made[0].primitive is not lax.concatenate_p:
        return None
    join, operands = made
    dimension, permutation = join.params["dimension"], app.params["permutation"]
    if len(operands) < 2 or any([a.shape[dimension] != 1 for a in join.avals]):
        return None
    long = [i for i, n in enumerate(app.avals[0].shape) if n != 1]
    moved = long[[i for i, n in enumerate(join.out.shape) if n != 1].index(dimension)]
    others = [p for p in permutation if p in long and p != moved]
    if others != sorted(others):
        return None
    place = permutation.index(moved)
    shape = (*app.out.shape[:place], 1, *app.out.shape[place + 1 :])

    def run(*parts: Value) -> Any:
        there = [lax.reshape(x, shape) for x in parts]
        return lax.concatenate_p.bind(*there, dimension=place)

    return run, operands


def _is_of_ones(app: Application) -> bool:
    """Whether a reshape only makes or takes away axes of one element."""
    if app.primitive is not lax.reshape_p:
        return False
    before, after = [[n for n in a.shape if n != 1] for a in (app.avals[0], app.out)]
    return before == after
