"""Which values a forward program keeps for its backward program, and what that computes again.

The choice is a cheapest cut. Each value between the inputs and what the backward program reads is
either not needed there, kept (which costs the time to write and read it back), or computed again
from others that are there (which costs the time of its equation). Reductions, loops and other
equations of some cost are never repeated, nor are contractions, but for large ones of short sums.

Times are in milliseconds for one million elements of float32, from two cores with AVX-512; only
their ratios matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, final

from tracebridge.core.dtypes.dtypes import float32
from tracebridge.core.interpreters.own_extrema import compared_with_extrema
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.user_type import low_avals
from tracebridge.core.lax.contract.dot import dot_general_p
from tracebridge.core.util.min_cut import FlowNetwork

if TYPE_CHECKING:
    from tracebridge.core.interpreters.graph import Graph, GraphEquation
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.aval import ShapedArray

_REPEAT = {
    Cost.FREE: 0.002,
    Cost.MOVES_DATA: 0.02,
    Cost.CHEAP: 0.01,
    Cost.EXPENSIVE: 0.19,
    Cost.COMPOSED: 0.3,
}
_KEEP = 0.1  # writing four megabytes and reading them back
# Memory counts, and the system has to map it first: an exponential of so many millions of elements
# is rather computed again. Chains of them take as long as if they were kept, single ones half of
# that; 1e6 elements, for which the heap has room, take twice as long.
_LARGE, _OF_LARGE = 1.0, 2.5
_MILLION = 1e6
# A product of batches that gives far more than it reads, by short sums, as scores of attention do.
# Kernels compute it again next to what reads it (8 heads of 512x64: 7 percent of the time without
# what they save by not writing it); sums of more than 64 products take too long.
_WIDE, _LONGEST, _PRODUCT = 4.0, 64, 0.0001


class ResidualPlan(NamedTuple):
    """What is kept, and the equations that make the rest of what is needed out of that."""

    kept: list[int]
    redone: list[GraphEquation]


def elements(aval: ShapedArray) -> float:
    """Millions of elements; symbolic sizes count as a thousand."""
    size = 1.0
    for d in aval.shape:
        size *= d if type(d) is int else 1000.0
    return size / _MILLION


def can_repeat(app: Application) -> bool:
    """Whether an equation may be run once more in the backward program."""
    primitive = app.primitive
    if primitive is dot_general_p:
        return _is_wide(app)
    return primitive.cost in _REPEAT and not app.effects and not primitive.has_rules_of_users


def _is_wide(app: Application) -> bool:
    """Whether a product of batches gives far more than it reads, by short sums, as scores do."""
    size = elements(app.out)
    if not app.params["dimension_numbers"][1][0] or app.out.dtype != float32 or size <= _LARGE:
        return False
    return _length(app) <= _LONGEST and all([size >= _WIDE * elements(a) for a in app.avals])


def _length(app: Application) -> float:
    """How many products the sums of a contraction have."""
    (summed, _), _ = app.params["dimension_numbers"]
    sizes = [app.avals[0].shape[i] for i in summed]
    return math.prod([n if type(n) is int else 1000.0 for n in sizes], start=1.0)


def plan_residuals(
    graph: Graph,
    equations: Sequence[GraphEquation],
    free: Callable[[int], bool],
    needed: Sequence[int],
    prices: Prices,
) -> ResidualPlan:
    """The cheapest way to have the values ``needed``.

    ``equations`` make the values of the forward program; those that are ``free`` are there in any
    case.
    """
    made_by = _made_by(equations)
    # What equals a maximum is asked beside it, not of an array that is computed again.
    compared = compared_with_extrema([e[:3] for e in equations])
    region = _region(made_by, free, needed, compared)
    if not region:
        return ResidualPlan(list(needed), [])
    needs_cut = [n for n in needed if not free(n)]
    cut = _Cut(graph, made_by, region, free, prices)
    kept, redone = cut.best(needs_cut)
    available = [n for n in needed if free(n)]
    chosen = dict.fromkeys([*available, *kept])
    again = [e for e in equations if id(e) in redone]
    for _, args, _, _ in again:
        # Values that cost nothing, read by what is computed again.
        chosen.update(dict.fromkeys([a for a in args if free(a) and a not in graph.consts]))
    return ResidualPlan(list(chosen), again)


@final
class Prices:
    """What keeping values costs, and computing them again.

    ``outs``: results of the forward program. ``overhead``: of keeping one value, beside its
    elements. ``may_keep``: whether values of a kind can be kept at all.
    """

    def __init__(
        self,
        graph: Graph,
        outs: Iterable[int],
        overhead: float,
        may_keep: Callable[[ShapedArray], bool] = lambda _: True,
    ) -> None:
        self.avals, self.overhead, self.may_keep = graph.avals, overhead, may_keep
        # Values that the forward program needs for its results, and those that it sums up.
        self.live = set(outs)
        self.reduced: set[int] = set()
        for app, args, first, _ in reversed(graph.equations):
            if not self.live.isdisjoint(range(first, first + len(app.outs))):
                self.live.update(args)
                if app.primitive.cost is Cost.REDUCTION:
                    self.reduced.update(args)

    def time(self, app: Application) -> float:
        """What running an equation takes."""
        size = max([elements(a) for a in (*app.outs, *app.avals)], default=0.0)
        if app.primitive is dot_general_p:
            return _PRODUCT * _length(app) * size
        return _REPEAT[app.primitive.cost] * size

    def again(self, equation: GraphEquation) -> float:
        """What running an equation in the backward program costs.

        Next to nothing if the forward program does not need it for itself.
        """
        app, _, first, _ = equation
        is_live = not self.live.isdisjoint(range(first, first + len(app.outs)))
        return self.time(app) * (1.0 if is_live else 0.01)

    def keeping(self, number: int, equation: GraphEquation | None) -> float:
        """What keeping a value costs; ``equation``: what could make it again, if anything."""
        aval = self.avals[number]
        if equation is None:
            return self._moving(aval)
        if not self.may_keep(aval):
            return math.inf
        app = equation[0]
        price = self._moving(aval)
        # The value gets a kernel of its own beside the one that reduces it, or that contains its
        # cheap instructions.
        if app.primitive.cost is Cost.COMPOSED or number in self.reduced:
            price += self.time(app)
        return price

    def _moving(self, aval: ShapedArray) -> float:
        parts = low_avals([aval])
        size = sum([elements(a) * a.dtype.itemsize for a in parts]) / 4
        return self.overhead + _KEEP * size * (_OF_LARGE if size > _LARGE else 1.0)


def redo_all(graph: Graph, needed: Sequence[int], free: Callable[[int], bool]) -> ResidualPlan:
    """Everything again, from what is there."""
    redone = []
    wanted = set(needed)
    for equation in reversed(graph.equations):
        app, args, first, _ = equation
        if any([n in wanted and not free(n) for n in range(first, first + len(app.outs))]):
            redone.append(equation)
            wanted.update(args)
    redone.reverse()
    kept = [n for n in sorted(wanted) if free(n)]
    return ResidualPlan(kept, redone)


def _made_by(equations: Sequence[GraphEquation]) -> dict[int, GraphEquation]:
    return {
        n: equation
        for equation in equations
        for n in range(equation[2], equation[2] + len(equation[0].outs))
    }


def _region(
    made_by: dict[int, GraphEquation],
    free: Callable[[int], bool],
    needed: Sequence[int],
    compared: Collection[int],
) -> dict[int, GraphEquation]:
    """Equations that might be repeated for the sake of ``needed``, by identity."""
    region: dict[int, GraphEquation] = {}
    waiting = list(needed)
    seen = set(waiting)
    while waiting:
        number = waiting.pop()
        equation = made_by.get(number)
        if equation is None or free(number) or number in compared or not can_repeat(equation[0]):
            continue
        region[id(equation)] = equation
        for a in equation[1]:
            if a not in seen:
                seen.add(a)
                waiting.append(a)
    return region


class _Cut:
    """The network: per value a node before and one after it is kept, per equation a node.

    Nodes on the sink's side are there in the backward program. An edge from the source to an
    equation is cut, and paid, where the equation is repeated; the edge between the nodes of
    a value where the value is kept.
    """

    def __init__(
        self,
        graph: Graph,
        made_by: dict[int, GraphEquation],
        region: dict[int, GraphEquation],
        free: Callable[[int], bool],
        prices: Prices,
    ) -> None:
        self.graph, self.made_by, self.region = graph, made_by, region
        self.free, self.prices = free, prices
        self.network = FlowNetwork(2)
        self.of_equation: dict[int, int] = {}
        self.of_value: dict[int, tuple[int, int]] = {}

    def best(self, needed: Sequence[int]) -> tuple[list[int], Collection[int]]:
        """Numbers of the values to keep, and identities of the equations to repeat."""
        for equation in self.region.values():
            self.add_equation(equation)
        for number in needed:
            self.network.add(self.value(number)[1], 1, math.inf)
        source_side = self.network.source_side(0, 1)
        kept = [n for n, (a, b) in self.of_value.items() if source_side[a] and not source_side[b]]
        return kept, {e for e, node in self.of_equation.items() if not source_side[node]}

    def add_equation(self, equation: GraphEquation) -> None:
        """Its node, and edges from what it reads."""
        node = self.equation(equation)
        for a in dict.fromkeys(equation[1]):
            if a not in self.graph.consts and not self.free(a):
                self.network.add(self.value(a)[1], node, math.inf)

    def equation(self, equation: GraphEquation) -> int:
        """The node of an equation that may be repeated."""
        node = self.of_equation.get(id(equation))
        if node is None:
            node = self.of_equation[id(equation)] = self.network.node()
            self.network.add(0, node, self.prices.again(equation))
        return node

    def value(self, number: int) -> tuple[int, int]:
        """The nodes before and after a value."""
        nodes = self.of_value.get(number)
        if nodes is None:
            before, after = nodes = self.network.node(), self.network.node()
            self.of_value[number] = nodes
            equation = self.made_by.get(number)
            repeats = equation is not None and id(equation) in self.region
            if equation is None or not repeats:
                self.network.add(0, before, math.inf)
            else:
                self.network.add(self.equation(equation), before, math.inf)
            price = self.prices.keeping(number, equation if repeats else None)
            self.network.add(before, after, price)
        return nodes
