"""Programs without calls: what some equations stand for in their place."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tracebridge.core.interpreters.graph import Graph
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.traverse import distinct_applications, primitives_of
from tracebridge.core.lax.reduce.exp_sums import by_largest, shifted_exp_sum_p
from tracebridge.core.util.caching import BoundedCache

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.ir.primitive import Primitive


_SHIFTED: BoundedCache[Jaxpr] = BoundedCache("shifted sums by equation", 64)


def computed_by(app: Application) -> Jaxpr | None:
    """What a call computes of a function with derivatives of its own."""
    called = app.primitive.computes
    return None if called is None else app.params[called]


def with_shifts(app: Application) -> Jaxpr | None:
    """As ``computed_by``, and a sum of shifted exponentials with the largest one as the shift."""
    if app.primitive is shifted_exp_sum_p:
        return _SHIFTED.get_or_make(app, lambda: _by_largest(app))
    return computed_by(app)


def _by_largest(app: Application) -> Jaxpr:
    return stage(lambda x: list(by_largest(x, **app.params)), app.avals, locate=False)


def is_call(primitive: Primitive) -> bool:
    """Whether an equation may stand for others."""
    return bool(primitive.computes or primitive.inlinable or primitive is shifted_exp_sum_p)


def flat(jaxpr: Jaxpr, meaning: Callable[[Application], Jaxpr | None]) -> Jaxpr:
    """The program with the equations of ``meaning(app)`` for each ``app`` that has one."""
    calls = {p for p in primitives_of(jaxpr) if is_call(p)}
    if not calls:
        return jaxpr
    meanings: dict[Application, Jaxpr] = {}
    for app in distinct_applications(jaxpr):
        meant = meaning(app) if app.primitive in calls else None
        if meant is not None:
            meanings[app] = flat(meant, meaning)
    if not meanings:
        return jaxpr
    graph = Graph()
    inputs = graph.inputs(jaxpr.in_avals)
    numbers = [*inputs, *[graph.constant(c) for c in jaxpr.consts]]
    avals, equations, sources = graph.avals, graph.equations, jaxpr.sources
    for k, (app, idx) in enumerate(jaxpr.equations):
        source = sources[k] if sources else None
        args = [numbers[i] for i in idx]
        if app in meanings:
            numbers.extend(graph.inline(meanings[app], args, source))
            continue
        # As Graph.add does: this loop sees every equation.
        first = len(avals)
        equations.append((app, args, first, source))
        if app.multiple:
            avals.extend(app.outs)
            numbers.extend(range(first, first + len(app.outs)))
        else:
            avals.append(app.out)
            numbers.append(first)
    return graph.program(inputs, [numbers[i] for i in jaxpr.outs], jaxpr.debug)
