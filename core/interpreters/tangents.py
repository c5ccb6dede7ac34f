"""Tangent tracers: a user's derivative rule runs on the primals and appends to the tape.

While ``LinearizeTrace`` calls such a rule, its primals are values of the parent trace (numbers,
outside of jit) and its tangents are tracers of this trace. What the rule does with tangents is
linear and goes to the tape; the rest runs on the parent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.errors.tracer_errors import UnexpectedTracerError
from tracebridge.core.interpreters.split_by_known import split_by_known, unknown_results
from tracebridge.core.ir.jaxpr import Jaxpr, eval_jaxpr
from tracebridge.core.ir.trace import Trace
from tracebridge.core.ir.tracer import Tracer

if TYPE_CHECKING:
    from tracebridge.core.interpreters.linearize import LinearizeTrace
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.values import Value


@final
class TangentTracer(Tracer):
    """A node of the tape as a value."""

    __slots__ = ("node",)

    def __init__(self, aval: ShapedArray, trace: Trace, node: int) -> None:
        self.aval = aval
        self._trace = trace
        self.node = node


@final
class TangentTrace(Trace):
    """Puts applications to tangents on the tape of a LinearizeTrace."""

    __slots__ = ("owner",)

    def __init__(self, owner: LinearizeTrace) -> None:
        super().__init__()
        self.owner = owner

    def process(self, app: Application, args: Sequence[Value]) -> Any:
        return self._process(app, args, is_split=False)

    def _process_split(self, app: Application, args: Sequence[Value]) -> Any:
        """Process an equation of a program that has been split by known as far as it can be."""
        return self._process(app, args, is_split=True)

    def _process(self, app: Application, args: Sequence[Value], *, is_split: bool) -> Any:
        mask = 0
        values: list[Any] = []
        for i, a in enumerate(args):
            if a._trace is self:
                mask |= 1 << i
                values.append(a.node)
            else:
                values.append(a)
        if not mask:
            return self.owner.parent.process(app, args)
        if self.done:
            raise UnexpectedTracerError(tracer=next(a for a in args if a._trace is self))
        flags = tuple([bool(mask >> i & 1) for i in range(len(args))])
        if app.multiple and not is_split and not all(unknown_results(app, flags)):
            return eval_jaxpr(_split(app, flags), self._process_split, args)
        owner = self.owner
        node = owner.size
        owner.tape.append((app, mask, values, node))
        owner.size = node + len(app.outs)
        outs = [TangentTracer(aval, self, node + i) for i, aval in enumerate(app.outs)]
        return outs if app.multiple else outs[0]


def _split(app: Application, unknown: tuple[bool, ...]) -> Jaxpr:
    """The application as a program in which only linear equations depend on tangents."""
    staged_rules = app.staged_linearizes
    if staged_rules is None:
        staged_rules = app.staged_linearizes = {}
    key = ("split_by_known", unknown)
    found = staged_rules.get(key)
    if found is None:
        n = len(app.avals)
        outs = range(n, n + len(app.outs))
        whole = Jaxpr(app.avals, (), ((app, tuple(range(n))),), outs, app.outs)
        found = staged_rules[key] = split_by_known(whole, unknown)
    return found
