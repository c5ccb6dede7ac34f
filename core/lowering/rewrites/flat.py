"""Programs without calls: what some equations stand for in their place."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tracebridge.core.interpreters.graph import Graph

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.jaxpr import Jaxpr


def computed_by(app: Application) -> Jaxpr | None:
    """What a call computes of a function with derivatives of its own."""
    called = app.primitive.computes
    return None if called is None else app.params[called]


def flat(jaxpr: Jaxpr, meaning: Callable[[Application], Jaxpr | None]) -> Jaxpr:
    """The program with the equations of ``meaning(app)`` for each ``app`` that has one."""
    meanings = [meaning(app) for app, _ in jaxpr.equations]
    if all([m is None for m in meanings]):
        return jaxpr
    graph = Graph()
    inputs = graph.inputs(jaxpr.in_avals)
    numbers = [*inputs, *[graph.constant(c) for c in jaxpr.consts]]
    for k, (app, idx) in enumerate(jaxpr.equations):
        source = jaxpr.sources[k] if jaxpr.sources else None
        args, meant = [numbers[i] for i in idx], meanings[k]
        if meant is None:
            first = graph.add(app, args, source)
            numbers.extend(range(first, first + len(app.outs)))
        else:
            numbers.extend(graph.inline(flat(meant, meaning), args, source))
    return graph.program(inputs, [numbers[i] for i in jaxpr.outs], jaxpr.debug)
