"""Programs with types of users become programs of arrays.

A value of such a type is taken apart into arrays where a program begins and ends; in between its
operations are replaced by what they are made of. Derivatives and batching come before: they see
the operations of users and their rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.higher_order import is_high_jaxpr
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.trace import Trace, current_trace, use_trace
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.user_type import high_values, low_avals, low_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core.ir.application import Application


@final
class LowTrace(Trace):
    """Takes applications to values of users apart; what is left is for the parent trace."""

    __slots__ = ("parent",)

    def __init__(self, parent: Trace) -> None:
        super().__init__()
        self.parent = parent

    def process(self, app: Application, args: Sequence[Any]) -> Any:
        if not app.high:
            return self.parent.process(app, args)
        with use_trace(self):
            return low_results(app, args)


def low_results(app: Application, args: Sequence[Any]) -> Any:
    """What ``app`` gives, by the operations that it is made of, under the current trace."""
    out = app.primitive.low(args, app.outs, **app.params)
    return list(out) if app.multiple else out


def low_jaxpr(jaxpr: Jaxpr) -> Jaxpr:
    """The program in terms of arrays: of those that its inputs and results consist of."""
    if not is_high_jaxpr(jaxpr):
        return jaxpr
    found = jaxpr.cache.get("low")
    if found is None:
        avals = low_avals(jaxpr.in_avals)
        found = jaxpr.cache["low"] = stage(_run_of(jaxpr), avals, jaxpr.debug, locate=False)
    return found


def _run_of(jaxpr: Jaxpr) -> Any:
    def run(*arrays: Any) -> list[Any]:
        trace = LowTrace(current_trace())
        with use_trace(trace):
            env = [*high_values(arrays, jaxpr.in_avals), *jaxpr.consts]
            for app, idx in jaxpr.equations:
                result = trace.process(app, [env[i] for i in idx])
                env.extend(result) if app.multiple else env.append(result)
            outs = [env[i] for i in jaxpr.outs]
            return low_values(outs, [as_value(o).aval for o in outs])

    return run


def call_low(bind: Any, jaxpr: Jaxpr, args: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
    """Results of types ``outs`` of a program by ``bind(arrays, program of arrays)``."""
    arrays = low_values(args, [a.aval for a in args])
    return high_values(bind(arrays, low_jaxpr(jaxpr)), outs)
