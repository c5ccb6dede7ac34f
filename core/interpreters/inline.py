"""Inlining: replacing equations that call a Jaxpr by the equations of that Jaxpr."""

from __future__ import annotations

from typing import Any

from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.jaxpr import Jaxpr, eval_jaxpr
from tracebridge.core.ir.trace import current_trace


def inline_calls(jaxpr: Jaxpr, *, rules: bool = False) -> Jaxpr:
    """``jaxpr`` without jit and closed_call equations, at any depth of such calls.

    Primitives with the attribute ``inlinable`` are replaced by their parameter ``jaxpr``.
    ``rules``: nobody will differentiate it, so calls with derivatives of their own are too.
    """
    key = ("inlined", rules)
    cached = jaxpr.cache.get(key)
    if cached is not None:
        return cached

    def run(*args: Any) -> list[Any]:
        staging = current_trace().process

        def process(app: Any, values: Any) -> Any:
            primitive = app.primitive
            called = "jaxpr" if primitive.inlinable else primitive.computes if rules else None
            if called is not None:
                outs = eval_jaxpr(app.params[called], process, values)
                return outs if app.multiple else outs[0]
            return staging(app, values)

        return eval_jaxpr(jaxpr, process, args)

    cached = stage(run, jaxpr.in_avals, jaxpr.debug, locate=False)
    jaxpr.cache[key] = cached
    return cached
