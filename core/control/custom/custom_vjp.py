"""custom_vjp: functions whose reverse-mode derivative is given by the user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.control.calls.inline_rules import (
    below,
    check_not_closed_over,
    has_tangent,
    is_eager_trace,
    running_on,
    user_value,
)
from tracebridge.core.control.custom.custom_lin import custom_lin, forward_mode
from tracebridge.core.control.custom.custom_rule_call import CustomRuleCall
from tracebridge.core.control.custom.custom_staging import run_in_place
from tracebridge.core.control.custom.custom_vjp_call import VjpCall
from tracebridge.core.control.custom.custom_vjp_rule import BatchedVjpRule, VjpRule
from tracebridge.core.control.custom.reduced_rules import ReducedVjpRule
from tracebridge.core.control.custom.remat_opt import remat_opt_p
from tracebridge.core.control.custom.rule_functions import flat_vjp_call, split_functions
from tracebridge.core.control.refs.ref import check_passed_once, has_refs, hide_refs
from tracebridge.core.errors.ref_errors import RefError
from tracebridge.core.errors.transform_errors import ClosedOverValueError
from tracebridge.core.interpreters.jvp import JvpTrace
from tracebridge.core.interpreters.linearize import LinearizeTrace
from tracebridge.core.interpreters.tangents import TangentTrace
from tracebridge.core.ir.jaxpr import eval_jaxpr
from tracebridge.core.ir.trace import current_trace, trace_for
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.tree.tree import PyTreeDef, flatten

if TYPE_CHECKING:
    from tracebridge.core.ir.rule_contexts import BatchContext
    from tracebridge.core.ir.value import Value


def call_custom_vjp(call: VjpCall, leaves: Sequence[object]) -> Any:
    """``call.fun`` on the arguments with the given leaves, under whatever traces are active."""
    if has_refs(leaves):
        check_passed_once(call.name, leaves)
        leaves, call.in_tree = hide_refs(leaves, call.in_tree)
        call.has_refs = True
    values = [as_value(leaf) for leaf in leaves]
    outs, tree = _apply(trace_for(values), call, leaves, values)
    if has_refs(outs):
        msg = f"{call.name}: a custom_vjp function returned a reference"
        raise RefError(msg, hint="return its content ref[...]")
    return tree.unflatten(outs)


def _apply(
    trace: Any, call: VjpCall, leaves: Sequence[object], values: Sequence[Any]
) -> tuple[list[Any], PyTreeDef]:
    mine = any([v._trace is trace for v in values])
    if isinstance(trace, JvpTrace | LinearizeTrace):
        if not mine:
            with below(trace, call.name):
                return _apply(trace.parent, call, leaves, values)
        if isinstance(trace, JvpTrace):
            raise forward_mode(call.name)
        if call.optimize_remat and not call.has_refs and not is_eager_trace(trace.parent):
            return custom_vjp_call_p.call(call, values)
        return _linearize(trace, call, values)
    if isinstance(trace, TangentTrace) and not mine:
        with running_on(trace.owner.parent):
            return _apply(trace.owner.parent, call, leaves, values)
    if call.has_refs and not is_eager_trace(trace):
        return run_in_place(call, values)
    if is_eager_trace(trace):
        return flatten(call.fun(*call.in_tree.unflatten([user_value(v) for v in values])))
    return custom_vjp_call_p.call(call, values)


def _linearize(
    trace: LinearizeTrace, call: VjpCall, values: Sequence[Any]
) -> tuple[list[Any], PyTreeDef]:
    primals = [v.primal if v._trace is trace else v for v in values]
    perturbed = [v._trace is trace for v in values]
    with below(trace, call.name):
        outs, residuals, out_tree, res_tree = call.run_fwd(primals, perturbed)
    if any([v._trace is trace for v in (*outs, *residuals)]):
        msg = f"{call.name}: its forward rule {call.fwd_name} returns a value that it closes over"
        raise ClosedOverValueError(msg, hint=f"pass that value to {call.name} as an argument")
    in_avals = [p.aval for p in primals]
    out_avals = [o.aval for o in outs]

    def backward(residuals: Sequence[object], cts: Sequence[Value | None]) -> list[Any]:
        tree = res_tree.unflatten([user_value(r) for r in residuals])
        return call.run_bwd(tree, cts, out_avals, out_tree, in_avals)

    app = custom_lin(backward, call.name, residuals, in_avals, perturbed, out_avals)
    n = len(residuals)
    nodes = [v.node for v in values if v._trace is trace]
    start = trace.size
    mask = ((1 << len(nodes)) - 1) << n
    trace.tape.append((app, mask, [*residuals, *nodes], start))
    trace.size = start + len(app.outs)
    results: list[Any] = []
    for o in outs:
        if has_tangent(o.aval):
            results.append(trace.dual(o, start))
            start += 1
        else:
            results.append(o)
    return results, out_tree


# the equation ------------------------------------------------------------------------------------


@final
class CustomVjpCall(CustomRuleCall):
    """A call of a function with its own vjp rules, a VjpRule."""

    name = "custom_vjp_call"
    rule_class = VjpRule

    def bind(self, *args: Any, **params: Any) -> Any:
        """Apply a traced call; or the three functions, wrapped and flat, then the values."""
        if "call_jaxpr" in params:
            return super().bind(*args, **params)
        functions, values = split_functions(self.name, 3, args, params)
        zeros = bool(params.get("symbolic_zeros", False))
        call = flat_vjp_call(functions, len(values), params["out_trees"], zeros)
        return call_custom_vjp(call, values)

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        raise forward_mode(params["call_jaxpr"].debug.name)

    def linearize(
        self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any
    ) -> Any:
        """The forward rule, and a linear equation that keeps the backward rule."""
        n, jaxpr = params["num_consts"], params["call_jaxpr"]
        name = jaxpr.debug.name
        check_not_closed_over(name, tangents[:n])
        perturbed = tuple([t is not None for t in tangents[n:]])
        forward = params["rule"].forward(perturbed)
        if params["rule"].optimize_remat:
            results = remat_opt_p.bind(*primals, jaxpr=forward.jaxpr, fun=jaxpr)
        else:
            results = eval_jaxpr(forward.jaxpr, current_trace().process, primals)
        n_out = len(jaxpr.outs)
        outs, residuals = results[:n_out], results[n_out:]
        in_avals = [p.aval for p in primals[n:]]
        app = custom_lin(forward.backward, name, residuals, in_avals, perturbed, jaxpr.out_avals)
        nonzero_tangents = [t for t in tangents[n:] if t is not None]
        remaining_tangents = iter(current_trace().process(app, [*residuals, *nonzero_tangents]))
        return outs, [next(remaining_tangents) if has_tangent(a) else None for a in jaxpr.out_avals]

    def reduced_rule(self, rule: object, used_outs: tuple[bool, ...]) -> Any:
        return ReducedVjpRule(rule, used_outs)

    def batched_rule(
        self,
        ctx: BatchContext,
        rule: object,
        num_consts: int,
        in_dims: tuple[int | None, ...],
        out_dims: tuple[int | None, ...],
    ) -> Any:
        return BatchedVjpRule(rule, num_consts, out_dims, ctx.size, ctx.axis, in_dims)


custom_vjp_call_p = CustomVjpCall()
