"""Calls of functions with rules of their own, as traces of users see them: functions again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tracebridge.core.compat.linear_util import WrappedFun, wrap_init
from tracebridge.core.control.custom.custom_jvp import custom_jvp_call_p
from tracebridge.core.control.custom.custom_vjp import custom_vjp_call_p
from tracebridge.core.control.custom.rule_functions import flat_structure
from tracebridge.core.ir.application import Application
from tracebridge.core.ir.jaxpr import Jaxpr, eval_jaxpr
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.ad_util import zeros_of


def process_custom_call(trace: Any, app: Application, args: Sequence[object]) -> Any:
    """Hand a call to the trace's method for such calls; NotImplemented if it has none.

    The methods are those of ``tracebridge.core.Trace``.
    """
    if app.primitive is custom_jvp_call_p and hasattr(trace, "process_custom_jvp_call"):
        consts, values, fun = _function(app, args)
        jvp = wrap_init(_jvp(app, consts), debug_info=fun.debug_info)
        return trace.process_custom_jvp_call(app.primitive, fun, jvp, values, symbolic_zeros=False)
    if app.primitive is custom_vjp_call_p and hasattr(trace, "process_custom_vjp_call"):
        consts, values, fun = _function(app, args)
        forward = app.params["rule"].forward((True,) * len(values))
        n_out = len(app.outs)

        def fwd(*primals_and_flags: object) -> list[Any]:
            results = _run(forward.jaxpr, [*consts, *primals_and_flags[::2]])
            return [*results[n_out:], *results[:n_out]]

        def bwd(*residuals_and_cotangents: object) -> list[Any]:
            split = len(residuals_and_cotangents) - n_out
            known = [as_value(g) for g in residuals_and_cotangents]
            return list(forward.backward(known[:split], known[split:]))

        def out_trees() -> tuple[Any, ...]:
            n_res = len(forward.jaxpr.outs) - n_out
            return flat_structure(n_out), flat_structure(n_res), [None] * n_res

        rules = [wrap_init(f, debug_info=fun.debug_info) for f in (fwd, bwd)]
        return trace.process_custom_vjp_call(
            app.primitive, fun, *rules, values, out_trees=out_trees, symbolic_zeros=False
        )
    return NotImplemented


def _run(jaxpr: Jaxpr, args: Sequence[object]) -> list[Any]:
    return eval_jaxpr(jaxpr, current_trace().process, [as_value(a) for a in args])


def _function(app: Application, args: Sequence[object]) -> tuple[list[Any], list[Any], WrappedFun]:
    """What the function closes over, its arguments, and the function of these."""
    n, jaxpr = app.params["num_consts"], app.params["call_jaxpr"]
    consts = list(args[:n])

    def fun(*values: object) -> list[Any]:
        return _run(jaxpr, [*consts, *values])

    return consts, list(args[n:]), wrap_init(fun, debug_info=jaxpr.debug)


def _jvp(app: Application, consts: Sequence[Any]) -> Callable[..., list[Any]]:
    """The rule as a function of arguments and tangents that gives results and tangents."""

    def jvp(*primals_and_tangents: object) -> list[Any]:
        n = len(primals_and_tangents) // 2
        values = [as_value(g) for g in primals_and_tangents]
        primals, tangents = [*consts, *values[:n]], [*[None] * len(consts), *values[n:]]
        outs, found = custom_jvp_call_p.jvp(primals, tangents, **app.params)
        filled = [
            zeros_of(o.aval.tangent) if t is None else t for o, t in zip(outs, found, strict=True)
        ]
        return [*outs, *filled]

    return jvp
