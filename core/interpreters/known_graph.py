"""A Jaxpr in two parts, what is known and what depends on unknown inputs, without repetitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.interpreters.graph import Graph, GraphEquation
from tracebridge.core.ir.values import Literal

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.jaxpr import Jaxpr


@final
class KnownGraph:
    """The equations of a Jaxpr whose inputs after the first ``n_known`` are unknown.

    ``graph.equations`` are the known ones, where equations with the same application and arguments
    have become one; ``unknown`` the others. ``outs``: numbers of the results.

    No equation may have both known and unknown results (``split_by_known``).
    """

    __slots__ = ("_seen", "graph", "outs", "unknown", "unknown_inputs")

    def __init__(self, jaxpr: Jaxpr, n_known: int) -> None:
        graph = self.graph = Graph()
        self._seen: dict[Any, int] = {}
        self.unknown: list[GraphEquation] = []
        numbers: list[int] = list(graph.inputs(jaxpr.in_avals))
        self.unknown_inputs = numbers[n_known:]
        is_unknown = set(self.unknown_inputs)
        numbers.extend([self._constant(c) for c in jaxpr.consts])
        for k, (app, idx) in enumerate(jaxpr.equations):
            source = None if jaxpr.sources is None else jaxpr.sources[k]
            args = [numbers[i] for i in idx]
            unknown = any([a in is_unknown for a in args])
            first = self._add(app, args, source, unknown=unknown)
            made = range(first, first + len(app.outs))
            if unknown:
                is_unknown.update(made)
            numbers.extend(made)
        self.outs = [numbers[i] for i in jaxpr.outs]

    def _constant(self, value: Any) -> int:
        if type(value) is not Literal:
            return self.graph.constant(value)
        # The bits count: zeros have signs, and a NaN is not equal to itself.
        key = (Literal, repr(value.value), value.aval)
        number = self._seen.get(key)
        if number is None:
            number = self._seen[key] = self.graph.constant(value)
        return number

    def _add(self, app: Application, args: list[int], source: object, *, unknown: bool) -> int:
        """The number of the first result of an equation, which may be there already."""
        graph = self.graph
        primitive = app.primitive
        can_merge = primitive.may_merge and not (app.effects or primitive.has_rules_of_users)
        key = (app, *args)
        if can_merge:
            number = self._seen.get(key)
            if number is not None:
                return number
        if unknown:
            first = len(graph.avals)
            graph.avals.extend(app.outs)
            self.unknown.append((app, args, first, source))
        else:
            first = graph.add(app, args, source)
        if can_merge:
            self._seen[key] = first
        return first

    def needed(self, outs: Sequence[int]) -> list[int]:
        """Known values that the unknown part reads to make ``outs``; drops what that does not."""
        made_by_unknown = set(self.unknown_inputs)
        for app, _, first, _ in self.unknown:
            made_by_unknown.update(range(first, first + len(app.outs)))
        live = set(outs)
        kept: list[GraphEquation] = []
        for equation in reversed(self.unknown):
            app, args, first, _ = equation
            needed = not live.isdisjoint(range(first, first + len(app.outs)))
            if needed or app.effects or app.primitive.has_rules_of_users:
                kept.append(equation)
                live.update(args)
        kept.reverse()
        self.unknown = kept
        return [n for n in sorted(live) if n not in made_by_unknown and n not in self.graph.consts]
