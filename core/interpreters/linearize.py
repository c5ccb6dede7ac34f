"""Linearization: the primal runs once, linear equations are recorded on a tape.

A dual tracer holds a primal and the number of a tape node. The absence of a node is the symbolic
zero. The tape is a list of ``(application, mask, args, node)``: ``args`` holds node numbers at the
linear positions (the bits of ``mask``) and values elsewhere; results get the numbers from ``node``
on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from tracebridge.core.config.state import enter_scope, leave_scope, with_trace
from tracebridge.core.config.values import option
from tracebridge.core.errors.tracer_errors import UnexpectedTracerError
from tracebridge.core.interpreters.leaks import check_no_leaks
from tracebridge.core.interpreters.linear_graph import LinearGraph
from tracebridge.core.interpreters.located import Located, located, origin_of, wants_location
from tracebridge.core.interpreters.staged_rules import staged_linearize
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.name_scopes import ScopedTape, entered
from tracebridge.core.ir.trace import Trace, current_trace
from tracebridge.core.ir.tracer import Tracer, known_value, shown
from tracebridge.core.ir.typeof import as_value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracebridge.core.ir.application import Application, Params
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.trace import Process
    from tracebridge.core.ir.values import Value

TapeEntry = tuple["Application", int, list[Any], int]


@final
class DualTracer(Tracer):
    """A primal and the tape node of its tangent."""

    __slots__ = ("node", "primal", "source")
    primal: Any
    node: int

    @property
    def origin(self) -> Any:
        return origin_of(self, self.primal)

    def known(self) -> Any:
        return known_value(self.primal)

    def details(self) -> str:
        return f"(primal={shown(self.primal)})"


_new = DualTracer.__new__


@final
class TapeNode:
    """A tangent in a rule that is not staged."""

    __slots__ = ("aval", "number")

    def __init__(self, aval: ShapedArray, number: int) -> None:
        self.aval = aval
        self.number = number


class LinearizeTrace(Trace):
    """Runs primal equations on the parent trace and records linear ones."""

    __slots__ = ("parent", "size", "tape")
    scope_kind = "jvp"

    def __init__(self, parent: Trace) -> None:
        super().__init__()
        self.parent = parent
        self.tape: list[TapeEntry] = []
        self.size = 0

    def dual(self, primal: Value, node: int) -> DualTracer:
        """The tracer of ``primal`` with tangent ``node``."""
        tracer = _new(DualTracer)
        tracer.aval = primal.aval
        tracer._trace = self
        tracer.primal = primal
        tracer.node = node
        return tracer

    def input(self, primal: Value) -> DualTracer:
        """A tracer with a fresh node: an input of the linear function."""
        node = self.size
        self.size = node + 1
        return self.dual(primal, node)

    def process(self, app: Application, args: Sequence[Value]) -> Any:
        mask = 0
        primals: list[Any] = []
        nodes: list[int] = []
        for i, a in enumerate(args):
            if a._trace is self:
                mask |= 1 << i
                primals.append(a.primal)
                nodes.append(a.node)
            else:
                primals.append(a)
        if not mask:
            return self.parent.process(app, args)
        if self.done:
            raise UnexpectedTracerError(tracer=next(a for a in args if a._trace is self))
        staged_rules = app.staged_linearizes
        staged = None if staged_rules is None else staged_rules.get(mask)
        if staged is None:
            if staged_rules is None and app.primitive.stages_when_repeated:
                outs = self._unstaged(app, mask, primals, nodes)
                if outs is not None:
                    return outs
            staged = staged_linearize(app, mask)
        env: list[Any] = [*primals, *nodes, *staged.consts]
        process = self.parent.process
        for inner, idx in staged.primal_equations:
            result = process(inner, [env[i] for i in idx])
            if inner.multiple:
                env.extend(result)
            else:
                env.append(result)
        size = self.size
        tape = self.tape
        for inner, idx, linear in staged.linear_equations:
            tape.append((inner, linear, [env[i] for i in idx], size))
            for _ in inner.outs:
                env.append(size)
                size += 1
        self.size = size
        if not app.multiple:
            ((variable, tangent),) = staged.outs
            return env[variable] if tangent is None else self.dual(env[variable], env[tangent])
        return [env[s] if t is None else self.dual(env[s], env[t]) for s, t in staged.outs]

    def _unstaged(
        self, app: Application, mask: int, primals: list[Any], nodes: list[int]
    ) -> list[Any] | None:
        """The first time that an application of several results is linearized: none is staged."""
        app.staged_linearizes = {}
        remaining_nodes = iter(nodes)
        tangents = [
            TapeNode(a.tangent, next(remaining_nodes)) if mask >> i & 1 else None
            for i, a in enumerate(app.avals)
        ]
        result = app.primitive.linearize_unstaged(self, primals, tangents, app.params)
        if result is NotImplemented:
            return None
        outs, out_nodes = result
        return [
            out if node is None else self.dual(out, node)
            for out, node in zip(outs, out_nodes, strict=True)
        ]

    def record(self, primitive: Any, operands: Sequence[Any], params: Params) -> range:
        """Append a linear equation to the tape, linear in the nodes among ``operands``.

        Gives the numbers of the nodes of its results.
        """
        app = primitive.application(tuple([x.aval for x in operands]), params)
        mask = 0
        args: list[Any] = []
        for i, x in enumerate(operands):
            if type(x) is TapeNode:
                mask |= 1 << i
                args.append(x.number)
            else:
                args.append(x)
        first = self.size
        self.tape.append((app, mask, args, first))
        self.size = first + len(app.outs)
        return range(first, self.size)


@final
class LocatedLinearizeTrace(Located, LinearizeTrace):
    """With the lines that made its tracers."""

    __slots__ = ("label", "source")


@final
class Linearized:
    """A linear function as a tape: from input nodes ``0..n_in-1`` to ``out_nodes``."""

    __slots__ = ("in_avals", "out_avals", "out_nodes", "size", "tape")

    def __init__(
        self,
        tape: list[TapeEntry],
        size: int,
        in_avals: list[ShapedArray],
        out_nodes: list[int | None],
        out_avals: list[ShapedArray],
    ) -> None:
        self.tape = tape
        self.size = size
        self.in_avals = in_avals
        self.out_nodes = out_nodes
        self.out_avals = out_avals

    def forward(self, process: Process, tangents: Sequence[Value]) -> list[Value | None]:
        """Push tangents through; ``None`` is a symbolic zero."""
        env: list[Any] = [None] * self.size
        env[: len(tangents)] = tangents
        if type(self.tape) is ScopedTape:
            for part, names in reversed(list(self.tape.parts())):
                with entered(names):
                    _push(part, env, process)
        else:
            _push(self.tape, env, process)
        return [None if n is None else env[n] for n in self.out_nodes]


def _push(tape: Sequence[TapeEntry], env: list[Any], process: Process) -> None:
    for app, mask, args, node in tape:
        values = [env[a] if mask >> i & 1 else a for i, a in enumerate(args)]
        result = process(app, values)
        if app.multiple:
            env[node : node + len(result)] = result
        else:
            env[node] = result


def linearize_flat(
    fun: Callable[..., Sequence[Any]],
    primals: Sequence[Value],
    active: Sequence[bool] | None = None,
    label: str = "",
) -> tuple[list[Value], Linearized]:
    """Results of a flat function at ``primals`` and its linearization.

    ``active`` says which primals are inputs of the linear function (default: all). ``label``: what
    messages call the transformation.
    """
    trace = LinearizeTrace(current_trace())
    if wants_location(label):
        trace = located(LocatedLinearizeTrace(trace.parent), label)
    flags = [True] * len(primals) if active is None else active
    args = [trace.input(p) if f else p for p, f in zip(primals, flags, strict=True)]
    scope = enter_scope(with_trace, trace)
    try:
        results = [as_value(r) for r in fun(*args)]
    finally:
        leave_scope(scope)
        trace.done = True
    outs: list[Value] = []
    nodes: list[int | None] = []
    for r in results:
        mine = r._trace is trace
        outs.append(r.primal if mine else r)
        nodes.append(r.node if mine else None)
    in_avals = [p.aval.tangent for p, f in zip(primals, flags, strict=True) if f]
    linear = Linearized(trace.tape, trace.size, in_avals, nodes, [o.aval.tangent for o in outs])
    if option("check_tracer_leaks"):
        args = results = r = None
        check_no_leaks(trace)
    return outs, linear


@final
class LinearizedJaxpr:
    """A Jaxpr split for reverse mode.

    ``primal``: inputs -> (results, residuals). ``linear``: (forwarded inputs, residuals, nonzero
    tangents) -> tangents of the results in ``nonzero_out``. ``forwarded``: inputs of the primal
    that serve as residuals as they are.
    """

    __slots__ = ("forwarded", "linear", "n_residuals", "nonzero_out", "primal")

    def __init__(
        self,
        primal: Jaxpr,
        linear: Jaxpr,
        forwarded: tuple[int, ...],
        n_residuals: int,
        nonzero_out: tuple[bool, ...],
    ) -> None:
        self.primal = primal
        self.linear = linear
        self.forwarded = forwarded
        self.n_residuals = n_residuals
        self.nonzero_out = nonzero_out


def linearize_jaxpr(
    jaxpr: Jaxpr, nonzero_in: tuple[bool, ...], instantiate: tuple[bool, ...] | bool = False
) -> LinearizedJaxpr:
    """Split ``jaxpr`` for tangents at the inputs ``nonzero_in``.

    ``instantiate`` says which results get a tangent even if it is zero.
    """
    n_out = len(jaxpr.outs)
    wanted = (instantiate,) * n_out if isinstance(instantiate, bool) else instantiate
    key = ("linearize", nonzero_in, wanted)
    found = jaxpr.cache.get(key)
    if found is None:
        found = jaxpr.cache[key] = _split(jaxpr, nonzero_in, wanted)
    return found


def _split(jaxpr: Jaxpr, nonzero_in: tuple[bool, ...], wanted: tuple[bool, ...]) -> LinearizedJaxpr:
    """Linearize in a graph; residuals are the values of the primal program that the tape uses."""
    linear = LinearGraph(jaxpr, nonzero_in)
    graph, n_in = linear.graph, jaxpr.n_in
    used = linear.residuals()
    forwarded = [n for n in used if n < n_in]
    computed = [n for n in used if n >= n_in]
    primal = graph.program(linear.inputs, [*linear.outs, *computed], jaxpr.debug)
    first = len(graph.equations)
    tangents = linear.tangent_outs
    for i, (out, want) in enumerate(zip(linear.outs, wanted, strict=True)):
        if want and tangents[i] is None:
            tangents[i] = graph.zeros(graph.avals[out].tangent)
    linear_jaxpr = graph.program(
        [*forwarded, *computed, *linear.tangents],
        [t for t in tangents if t is not None],
        jaxpr.debug,
        [*linear.tape, *graph.equations[first:]],
        keep_effects=False,
    )
    nonzero_out = tuple([t is not None for t in tangents])
    return LinearizedJaxpr(primal, linear_jaxpr, tuple(forwarded), len(computed), nonzero_out)
