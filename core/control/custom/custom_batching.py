"""custom_vmap: functions with a batching rule of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.control.calls.closed_call import CallPrimitive
from tracebridge.core.control.calls.inline_rules import is_eager_trace, running_on, user_value
from tracebridge.core.control.calls.tangent_jaxpr import tangent_jaxpr
from tracebridge.core.control.custom.custom_batching_rules import (
    DerivativeRule,
    SomeResults,
    TransposedRule,
    VmapCall,
    VmapRule,
    closes_over,
)
from tracebridge.core.control.custom.custom_dce import split_by_dce
from tracebridge.core.control.custom.custom_staging import StagedCall, find_or_trace, trace_function
from tracebridge.core.errors.tracer_errors import UnexpectedTracerError
from tracebridge.core.interpreters.batching import BatchTrace
from tracebridge.core.interpreters.dce import dce_jaxpr
from tracebridge.core.interpreters.jvp import jvp_jaxpr
from tracebridge.core.interpreters.transpose import transpose_jaxpr
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.jaxpr import eval_jaxpr
from tracebridge.core.ir.linear_input import is_linear_input
from tracebridge.core.ir.trace import current_trace, trace_for
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.batch_util import move_batch_axis
from tracebridge.core.tree.tree import PyTreeDef, flatten

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Value


Flags = tuple[bool, ...]


def call_custom_vmap(call: VmapCall, leaves: Sequence[object]) -> Any:
    """``call.fun`` on the arguments with the given leaves, under whatever traces are active."""
    values = [as_value(leaf) for leaf in leaves]
    outs, tree = _apply(trace_for(values), call, leaves, values)
    return tree.unflatten(outs)


def _apply(
    trace: Any, call: VmapCall, leaves: Sequence[object], values: Sequence[Any]
) -> tuple[list[Any], PyTreeDef]:
    if is_eager_trace(trace):
        return flatten(call.fun(*call.in_tree.unflatten([user_value(v) for v in values])))
    if not isinstance(trace, BatchTrace):
        return _staged(call, values)
    if not any([v._trace is trace for v in values]):
        with _below(trace, call):
            return _apply(trace.parent, call, leaves, values)
    return _batch_now(trace, call, values)


def _batch_now(
    trace: BatchTrace, call: VmapCall, values: Sequence[Any]
) -> tuple[list[Any], PyTreeDef]:
    """Run the rule on the trace below, where it may close over whatever it likes."""
    flags = tuple([v._trace is trace for v in values])
    with _below(trace, call):
        moved = [
            move_batch_axis(v.value, v.dim, 0) if mine else v
            for v, mine in zip(values, flags, strict=True)
        ]
        user_values = [user_value(v) for v in moved]
        outs, batched, tree = call.run_rule(trace.size, flags, user_values)
        _check_now(call, [v.aval for v in values], outs, batched, tree, trace.size)
    results_in_front: list[Any] = []
    for out, is_batched in zip(outs, batched, strict=True):
        if out._trace is trace:
            raise closes_over(call)
        results_in_front.append(trace.input(out, 0) if is_batched else out)
    return results_in_front, tree


def _check_now(
    call: VmapCall,
    avals: list[ShapedArray],
    outs: list[Any],
    batched: Flags,
    tree: PyTreeDef,
    size: Any,
) -> None:
    """Compare what a rule gave with what the function gives, if the function can be traced."""
    try:
        staged = find_or_trace(call, tuple(avals), _trace)
    except Exception:  # noqa: BLE001  # then it cannot be used where this would matter
        return
    staged.rule.check(outs, batched, tree, size)


@contextlib.contextmanager
def _below(trace: BatchTrace, call: VmapCall) -> Iterator[None]:
    """Run on the parent of ``trace``, whose tracers are out of reach meanwhile."""
    trace.done = True
    try:
        with running_on(trace.parent):
            yield
    except UnexpectedTracerError as error:
        raise closes_over(call) from error
    finally:
        trace.done = False


# the equation ------------------------------------------------------------------------------------


def _staged(call: VmapCall, values: Sequence[Any]) -> tuple[list[Any], PyTreeDef]:
    staged = find_or_trace(call, tuple([v.aval for v in values]), _trace)
    outs = custom_vmap_call_p.bind(*staged.consts, *values, jaxpr=staged.jaxpr, rule=staged.rule)
    return outs, staged.out_tree


def _trace(call: VmapCall, avals: tuple[ShapedArray, ...]) -> StagedCall:
    jaxpr, consts, out_tree = trace_function(call, avals)
    return StagedCall(jaxpr, consts, VmapRule(call, jaxpr, len(consts), out_tree), out_tree)


@final
class CustomVmapCall(CallPrimitive):
    """A call of a function with its own batching rule; ``rule`` is one of custom_batching_rules.

    What is derived from it has a rule that is derived in the same way. Linearization leaves the
    call as it is and adds a linear one that starts over; the compiler merges what they share.
    """

    name = "custom_vmap_call"
    inlinable = False
    holds_functions = True

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        return ctx.call_jaxpr(params["jaxpr"], operands, params["jaxpr"].debug.name)

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        nonzero = tuple([t is not None for t in tangents])
        jaxpr, nonzero_out = jvp_jaxpr(params["jaxpr"], nonzero)
        rule = DerivativeRule(params["rule"], jaxpr, jvp_jaxpr, nonzero, nonzero_out)
        given = [t for t in tangents if t is not None]
        results = self.bind(*primals, *given, jaxpr=jaxpr, rule=rule)
        n = len(nonzero_out)
        rest = iter(results[n:])
        return results[:n], [next(rest) if nz else None for nz in nonzero_out]

    def linearize(
        self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any
    ) -> Any:
        outs = self.bind(*primals, **params)
        nonzero = tuple([t is not None for t in tangents])
        both, nonzero_out = tangent_jaxpr(params["jaxpr"], nonzero)
        if not any(nonzero_out):
            return outs, [None] * len(outs)
        wanted = (*[False] * len(outs), *[True] * sum(nonzero_out))
        linear = dce_jaxpr(both, wanted, keep_in=True)[0]
        rule = DerivativeRule(params["rule"], both, tangent_jaxpr, nonzero, nonzero_out)
        some = SomeResults(rule, linear, wanted)
        given = [t for t in tangents if t is not None]
        rest = iter(self.bind(*primals, *given, jaxpr=linear, rule=some))
        return outs, [next(rest) if nz else None for nz in nonzero_out]

    def transpose(self, ct: Sequence[Value | None], *args: Value, **params: Any) -> Sequence[Any]:
        linear = tuple([is_linear_input(a) for a in args])
        ct_in = tuple([c is not None for c in ct])
        jaxpr, present = transpose_jaxpr(params["jaxpr"], linear, ct_in, instantiate=False)
        rule = TransposedRule(params["rule"], jaxpr, linear, ct_in, present)
        values = [a for a, is_linear in zip(args, linear, strict=True) if not is_linear]
        given = [c for c in ct if c is not None]
        results = iter(self.bind(*values, *given, jaxpr=jaxpr, rule=rule))
        cts = iter([next(results) if p else None for p in present])
        return [next(cts) if is_linear else None for is_linear in linear]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        moved = [
            a if d is None else move_batch_axis(a, d, 0) for a, d in zip(args, dims, strict=True)
        ]
        flags = tuple([d is not None for d in dims])
        jaxpr, batched = params["rule"].batched(ctx.size, flags)
        outs = eval_jaxpr(jaxpr, current_trace().process, moved)
        return outs, [0 if b else None for b in batched]

    def split_by_known(self, unknown: Flags, args: Sequence[Value], **params: Any) -> list[Any]:
        """Two calls, each of which leaves the results of the other one out."""
        return split_by_dce(self, unknown, args, params)

    def dce(self, used_outs: Flags, app: Application) -> tuple[Any, list[bool], list[bool]]:
        """All arguments stay: the rule may use them in another way than the function does."""
        jaxpr = dce_jaxpr(app.params["jaxpr"], used_outs, keep_in=True)[0]
        rule = SomeResults(app.params["rule"], jaxpr, used_outs)
        smaller = self.application(app.avals, {"jaxpr": jaxpr, "rule": rule})
        return smaller, [True] * len(app.avals), list(used_outs)


custom_vmap_call_p = CustomVmapCall()
