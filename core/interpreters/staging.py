"""Staging: running a Python function on tracers to get its Jaxpr.

A tracer of this trace is also the variable of the Jaxpr. Processing an application appends one
tuple; a single backward pass at the end drops dead equations, collects constants and numbers the
variables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from tracebridge.core._jaxlib.xla import Traceback
from tracebridge.core.config.state import enter_scope, leave_scope, with_trace
from tracebridge.core.config.values import option
from tracebridge.core.errors.tracer_errors import UnexpectedTracerError
from tracebridge.core.interpreters.known import number_of
from tracebridge.core.interpreters.leaks import check_no_leaks
from tracebridge.core.ir.check import check_jaxpr
from tracebridge.core.ir.debug_info import NO_DEBUG_INFO, DebugInfo
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.name_stack import NAME_SCOPES, NamedSource, current_names, in_use, no_names
from tracebridge.core.ir.source_info import describe_line
from tracebridge.core.ir.trace import Trace
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.values import Literal
from tracebridge.core.util.public_path import public_path

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.values import Value

get_traceback = Traceback.get_traceback


@public_path("tracebridge.interpreters.partial_eval", "DynamicJaxprTracer")
@final
class StagedTracer(Tracer):
    """Tracer and variable of a staged program."""

    __slots__ = ("live", "source", "variable")
    live: bool
    variable: int
    source: Any

    @property
    def origin(self) -> str | None:
        """The argument that the tracer stands for, or the line that made it and its arguments."""
        source = getattr(self, "source", None)
        trace: StagingTrace = self._trace  # type: ignore[assignment]  # no other trace makes these
        if isinstance(source, int):
            return f"argument {trace.debug.argument(source)} of {trace.debug.label}"
        line = "" if source is None else describe_line(source)
        inputs, around = _inputs_of(self, trace)
        facts = [line] if line else []
        if inputs:
            names = [trace.debug.argument(i) for i in inputs]
            facts.append(f"depends on {_values_of(names)} of {trace.debug.label}")
        facts += [need.removeprefix("it ") for t in around[:1] if (need := t.describe_need())]
        return ", ".join(facts) or None

    def describe_need(self) -> str:
        source = getattr(self, "source", None)
        if not isinstance(source, int):
            return self.describe_origin()
        debug = self._trace.debug  # type: ignore[attr-defined]  # no other trace makes these
        return f"it depends on {_values_of([debug.argument(source)])} of {debug.label}"

    def needs_arguments(self) -> bool:
        if isinstance(getattr(self, "source", None), int):
            return True
        trace: StagingTrace = self._trace  # type: ignore[assignment]  # no other trace makes these
        inputs, around = _inputs_of(self, trace)
        return bool(inputs) or any([t.needs_arguments() for t in around])

    def known(self) -> Any:
        trace: StagingTrace = self._trace  # type: ignore[assignment]  # no other trace makes these
        known = trace.known
        if known is None:
            return None
        # A program of devices computes numbers in a way of its own.
        compute = getattr(known, "number_of", None)
        if compute is not None:
            return compute(self, trace.equations)
        return number_of(self, trace.equations, known)

    def details(self) -> str:
        source = getattr(self, "source", None)
        if not isinstance(source, int):
            return ""
        debug = self._trace.debug  # type: ignore[attr-defined]  # no other trace makes these
        return f"({debug.argument(source)})"


_MAX_NAMES = 5


def _values_of(names: list[str]) -> str:
    """The values of arguments, named in a sentence."""
    if len(names) == 1:
        return f"the value of the argument {names[0]}"
    if len(names) > _MAX_NAMES:
        return f"the values of the arguments {', '.join(names[:_MAX_NAMES])}, ..."
    return f"the values of the arguments {', '.join(names[:-1])} and {names[-1]}"


def _inputs_of(tracer: StagedTracer, trace: StagingTrace) -> tuple[list[int], list[Tracer]]:
    """What a staged value was computed from: inputs by number, and tracers of traces around."""
    needed = {id(tracer)}
    found: set[int] = set()
    around: dict[int, Tracer] = {}
    for app, args, outs, _ in reversed(trace.equations):
        if any([id(o) in needed for o in (outs if app.multiple else (outs,))]):
            for a in args:
                if a._trace is trace:
                    needed.add(id(a))
                    if isinstance(a.source, int):
                        found.add(a.source)
                elif isinstance(a, Tracer):
                    around[id(a)] = a
    return sorted(found), list(around.values())


_new = StagedTracer.__new__


@final
class StagingTrace(Trace):
    """Records applications as equations."""

    __slots__ = ("captures", "debug", "equations", "known", "lines", "locate")

    def __init__(self, debug: DebugInfo = NO_DEBUG_INFO, *, locate: bool | None = None) -> None:
        super().__init__()
        # The mutable references that the program uses, where it may use any.
        self.captures: Any = None
        self.debug = debug
        # The arrays of the inputs, where Python code may ask for numbers (checkpoint, concrete).
        self.known: Sequence[Any] | None = None
        self.equations: list[tuple[Any, ...]] = []
        self.lines: bool = option("source_locations") if locate is None else locate
        # Programs that are derived from others have no lines, but the names that those have.
        self.locate = self.lines or in_use[0]

    @property
    def label(self) -> str:  # type: ignore[override]  # the debug information may come later
        return self.debug.name

    def input(self, aval: ShapedArray, index: int) -> StagedTracer:
        """A tracer for input ``index`` of the program."""
        tracer = _new(StagedTracer)
        tracer.aval = aval
        tracer._trace = self
        tracer.live = False
        tracer.source = index
        return tracer

    def process(self, app: Application, args: Sequence[Value]) -> Any:
        for a in args:
            if a._trace is not self and a._trace is not None:
                self.check_foreign(a)
        source = None
        if self.locate:
            source = get_traceback() if self.lines else None
            names = current_names()
            if names:
                source = NamedSource(names, source)
        if app.multiple:
            outs: Any = []
            for aval in app.outs:
                out = _new(StagedTracer)
                out.aval = aval
                out._trace = self
                out.live = False
                out.source = source
                outs.append(out)
            self.equations.append((app, args, outs, source))
            # The caller may change its list; the equation keeps its own.
            return list(outs)
        out = _new(StagedTracer)
        out.aval = app.out
        out._trace = self
        out.live = False
        out.source = source
        self.equations.append((app, args, out, source))
        return out

    def check_foreign(self, tracer: Any) -> None:
        """Tracers of enclosing traces are constants here; those of finished traces are leaks."""
        if self.done or tracer._trace.done:
            raise UnexpectedTracerError(tracer=tracer)

    def finalize(
        self,
        inputs: Sequence[StagedTracer],
        outputs: Sequence[Value],
        hoisted: list[Value] | None = None,
    ) -> Jaxpr:
        """The Jaxpr from ``inputs`` to ``outputs``, without dead equations; see ``stage``."""
        const_variables: dict[int, int] = {}
        consts: list[Value] = []
        kept = self._mark_live(outputs, const_variables, consts)
        first = 0
        if hoisted is not None:
            hoisted.extend([c for c in consts if type(c) is not Literal])
            first = len(hoisted)
        for i, tracer in enumerate(inputs, first):
            tracer.variable = i
        next_variable = first + len(inputs)
        if first:
            for i, c in enumerate(hoisted or ()):
                const_variables[id(c)] = i
            consts = [c for c in consts if type(c) is Literal]
        for i, c in enumerate(consts, next_variable):
            const_variables[id(c)] = i
        next_variable += len(consts)
        equations: list[Any] = []
        sources: list[Any] = []
        for app, args, outs, source in reversed(kept):
            variables = tuple(
                [a.variable if a._trace is self else const_variables[id(a)] for a in args]
            )
            equations.append((app, variables))
            sources.append(source)
            if app.multiple:
                for out in outs:
                    out.variable = next_variable
                    next_variable += 1
            else:
                outs.variable = next_variable
                next_variable += 1
        out_variables = [
            o.variable if o._trace is self else const_variables[id(o)] for o in outputs
        ]
        return Jaxpr(
            [t.aval for t in (*hoisted, *inputs)] if hoisted else [t.aval for t in inputs],
            consts,
            equations,
            out_variables,
            [o.aval for o in outputs],
            sources if self.locate else None,
            self.debug,
        )

    def _mark_live(
        self, outputs: Sequence[Value], const_variables: dict[int, int], consts: list[Value]
    ) -> list[tuple[Any, ...]]:
        """Equations that are needed for results or effects, last first; fills the constants.

        The keys of ``const_variables`` are their ids; variables are assigned later.
        """
        kept: list[tuple[Any, ...]] = []

        def add_const(value: Value) -> None:
            if id(value) not in const_variables:
                const_variables[id(value)] = len(consts)
                consts.append(value)

        for o in outputs:
            if o._trace is self:
                o.live = True  # type: ignore[attr-defined] - the tracer of this trace
            else:
                add_const(o)
        for equation in reversed(self.equations):
            app, args, outs, _ = equation
            needed = any([o.live for o in outs]) if app.multiple else outs.live
            # What users define may mark a place for an interpreter of theirs.
            if needed or app.effects or app.primitive.has_rules_of_users:
                kept.append(equation)
                for a in args:
                    if a._trace is self:
                        a.live = True
                    elif id(a) not in const_variables:
                        add_const(a)
        return kept


def stage(
    fun: Callable[..., Sequence[Any]],
    in_avals: Sequence[ShapedArray],
    debug: DebugInfo = NO_DEBUG_INFO,
    *,
    locate: bool | None = None,
    captures: Any = None,
    known: Sequence[Any] | None = None,
    hoisted: list[Value] | None = None,
) -> Jaxpr:
    """The Jaxpr of ``fun``, which maps flat values to a flat sequence of values.

    Values of enclosing traces that ``fun`` closes over become constants of the Jaxpr. With a list
    ``hoisted`` they and arrays become leading inputs, and are appended to it. ``captures``: a
    ``control.ref.Captures``, if ``fun`` may use mutable references of the outside; they become
    further inputs and results. ``known``: the arrays of the inputs, if Python code in ``fun`` may
    depend on them.
    """
    trace = StagingTrace(debug, locate=locate)
    trace.captures = captures
    trace.known = known
    inputs: Sequence[Any] = [trace.input(aval, i) for i, aval in enumerate(in_avals)]
    scope = enter_scope(with_trace, trace)
    # What is derived from a program is remembered with it: names of the moment have no part in it.
    derived = NAME_SCOPES.enter(no_names) if locate is False and trace.locate else None
    try:
        outputs: Sequence[Any] = [as_value(o) for o in fun(*inputs)]
        if captures is not None:
            inputs, outputs = captures.close(inputs, outputs)
        for o in outputs:
            if o._trace is not trace and o._trace is not None:
                trace.check_foreign(o)
        jaxpr = trace.finalize(inputs, outputs, hoisted)
    finally:
        leave_scope(scope)
        if derived is not None:
            NAME_SCOPES.leave(derived)
        trace.done = True
        trace.equations = []
        trace.known = None
    if option("enable_checks"):
        check_jaxpr(jaxpr)
    if option("check_tracer_leaks"):
        inputs = outputs = ()
        o = None
        check_no_leaks(trace, debug.name)
    return jaxpr


def close_jaxpr(jaxpr: Jaxpr) -> tuple[Jaxpr, list[Value]]:
    """Turn constants that are arrays or tracers into leading inputs; give those values too."""
    hoisted = [c for c in jaxpr.consts if type(c) is not Literal]
    if not hoisted:
        return jaxpr, hoisted
    n_in, n_hoisted = jaxpr.n_in, len(hoisted)
    table: list[int] = [n_hoisted + i for i in range(n_in)]
    n_const = len(jaxpr.consts)
    lead, literal_variable = 0, n_hoisted + n_in
    for c in jaxpr.consts:
        if type(c) is Literal:
            table.append(literal_variable)
            literal_variable += 1
        else:
            table.append(lead)
            lead += 1
    fixed = n_in + n_const
    equations = [
        (app, tuple([i if i >= fixed else table[i] for i in idx])) for app, idx in jaxpr.equations
    ]
    closed = Jaxpr(
        [*[c.aval for c in hoisted], *jaxpr.in_avals],
        [c for c in jaxpr.consts if type(c) is Literal],
        equations,
        [i if i >= fixed else table[i] for i in jaxpr.outs],
        jaxpr.out_avals,
        jaxpr.sources,
        jaxpr.debug,
    )
    return closed, hoisted
