"""Forward mode: tracers that carry a tangent value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from tracebridge.core.config.state import enter_scope, leave_scope, with_trace
from tracebridge.core.config.values import option
from tracebridge.core.errors.tracer_errors import UnexpectedTracerError
from tracebridge.core.interpreters.graph import Graph, within
from tracebridge.core.interpreters.leaks import check_no_leaks
from tracebridge.core.interpreters.located import Located, located, origin_of, wants_location
from tracebridge.core.interpreters.staged_rules import staged_jvp
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.trace import Trace, current_trace
from tracebridge.core.ir.tracer import Tracer, known_value, shown
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.util.public_path import public_path

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.values import Value


@public_path("tracebridge.interpreters.ad", "JVPTracer")
@final
class JvpTracer(Tracer):
    """A primal with its tangent."""

    __slots__ = ("primal", "source", "tangent")

    def __init__(self, trace: Trace, primal: Value, tangent: Value) -> None:
        self.aval = primal.aval
        self._trace = trace
        self.primal = primal
        self.tangent = tangent

    @property
    def origin(self) -> Any:
        return origin_of(self, self.primal)

    def known(self) -> Any:
        return known_value(self.primal)

    def details(self) -> str:
        return f"(primal={shown(self.primal)}, tangent={shown(self.tangent)})"


@public_path("tracebridge.interpreters.ad", "JVPTrace")
class JvpTrace(Trace):
    """Runs each application's staged jvp rule on the parent trace."""

    __slots__ = ("parent",)
    scope_kind = "jvp"

    def __init__(self, parent: Trace) -> None:
        super().__init__()
        self.parent = parent

    def process(self, app: Application, args: Sequence[Value]) -> Any:
        if self.done:
            raise UnexpectedTracerError(tracer=next((a for a in args if a._trace is self), args[0]))
        mask = 0
        tangents: list[Value] = []
        primals: list[Value] = []
        for i, a in enumerate(args):
            if a._trace is self:
                mask |= 1 << i
                primals.append(a.primal)
                tangents.append(a.tangent)
            else:
                primals.append(a)
        if not mask:
            return self.parent.process(app, args)
        staged = staged_jvp(app, mask)
        results = iter(staged.replay(self.parent.process, primals + tangents))
        present = staged.extra[0]
        n = len(app.outs)
        outs = [next(results) for _ in range(n)]
        for i in range(n):
            if present[n + i]:
                outs[i] = JvpTracer(self, outs[i], next(results))
        return outs if app.multiple else outs[0]


@final
class LocatedJvpTrace(Located, JvpTrace):
    """With the lines that made its tracers."""

    __slots__ = ("label", "source")


def jvp_flat(
    fun: Callable[..., Sequence[Any]],
    primals: Sequence[Value],
    tangents: Sequence[Value | None],
    label: str = "",
) -> tuple[list[Value], list[Value | None]]:
    """Results and tangents of a flat function; ``None`` is a symbolic zero, both ways.

    ``label``: what messages call the transformation.
    """
    trace = JvpTrace(current_trace())
    if wants_location(label):
        trace = located(LocatedJvpTrace(trace.parent), label)
    args = [
        p if t is None else JvpTracer(trace, p, t) for p, t in zip(primals, tangents, strict=True)
    ]
    scope = enter_scope(with_trace, trace)
    try:
        results = [as_value(r) for r in fun(*args)]
    finally:
        leave_scope(scope)
        trace.done = True
    outs: list[Value] = []
    out_tangents: list[Value | None] = []
    for r in results:
        mine = r._trace is trace
        outs.append(r.primal if mine else r)
        out_tangents.append(r.tangent if mine else None)
    if option("check_tracer_leaks"):
        args = results = r = None
        check_no_leaks(trace)
    return outs, out_tangents


def jvp_jaxpr(
    jaxpr: Jaxpr, nonzero_in: tuple[bool, ...], instantiate: tuple[bool, ...] | bool = False
) -> tuple[Jaxpr, tuple[bool, ...]]:
    """The Jaxpr ``(primals, nonzero tangents) -> (results, tangents)``; which tangents it gives.

    ``instantiate`` says which tangents are given even if they are zero.
    """
    n_out = len(jaxpr.outs)
    wanted = (instantiate,) * n_out if isinstance(instantiate, bool) else instantiate
    key = ("jvp", nonzero_in, wanted)
    found = jaxpr.cache.get(key)
    if found is None:
        found = jaxpr.cache[key] = _make_jvp_jaxpr(jaxpr, nonzero_in, wanted)
    return found


def _make_jvp_jaxpr(
    jaxpr: Jaxpr, nonzero_in: tuple[bool, ...], wanted: tuple[bool, ...]
) -> tuple[Jaxpr, tuple[bool, ...]]:
    graph = Graph()
    primals = graph.inputs(jaxpr.in_avals)
    tangent_inputs = graph.inputs(
        [a.tangent for a, nz in zip(jaxpr.in_avals, nonzero_in, strict=True) if nz]
    )
    remaining_given = iter(tangent_inputs)
    tangents: list[int | None] = [next(remaining_given) if nz else None for nz in nonzero_in]
    tangents.extend([None] * len(jaxpr.consts))
    values = [*primals, *[graph.constant(c) for c in jaxpr.consts]]
    sources = jaxpr.sources
    for k, (app, idx) in enumerate(jaxpr.equations):
        source = None if sources is None else within("jvp", sources[k])
        args = [values[i] for i in idx]
        mask = 0
        for j, i in enumerate(idx):
            tangent = tangents[i]
            if tangent is not None:
                mask |= 1 << j
                args.append(tangent)
        n_out = len(app.outs)
        if not mask:
            first = graph.add(app, args, source)
            values.extend(range(first, first + n_out))
            tangents.extend([None] * n_out)
            continue
        staged = staged_jvp(app, mask)
        results = iter(graph.inline(staged.jaxpr, args, source))
        values.extend([next(results) for _ in range(n_out)])
        tangents.extend([next(results) if here else None for here in staged.extra[0][n_out:]])
    outs = [values[s] for s in jaxpr.outs]
    out_tangents = [tangents[s] for s in jaxpr.outs]
    for i, (out, want) in enumerate(zip(outs, wanted, strict=True)):
        if want and out_tangents[i] is None:
            out_tangents[i] = graph.zeros(graph.avals[out].tangent)
    primals_and_tangents = [*outs, *[t for t in out_tangents if t is not None]]
    result = graph.program([*primals, *tangent_inputs], primals_and_tangents, jaxpr.debug)
    return result, tuple([t is not None for t in out_tangents])
