"""custom_jvp: functions whose forward-mode derivative is given by the user."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.control.calls.closed_call import closed_call_p
from tracebridge.core.control.calls.inline_rules import (
    below,
    check_closed,
    check_not_closed_over,
    check_unmapped,
    describe,
    has_tangent,
    is_eager_trace,
    running_on,
    same_types,
    user_value,
)
from tracebridge.core.control.calls.permute import permute_jaxpr
from tracebridge.core.control.custom.custom_rule_call import CustomRuleCall, TracedRule
from tracebridge.core.control.custom.reduced_rules import ReducedJvpRule
from tracebridge.core.control.custom.rule_functions import (
    flat_function,
    flat_jvp_rule,
    flat_structure,
    split_functions,
)
from tracebridge.core.control.custom.symbolic_zeros import SymbolicZero, concrete_zeros
from tracebridge.core.dtypes.dtypes import float0
from tracebridge.core.errors.argument_errors import kind_of
from tracebridge.core.errors.transform_errors import ClosedOverValueError, CustomRuleError
from tracebridge.core.interpreters.batching import batch_jaxpr
from tracebridge.core.interpreters.jvp import JvpTrace, JvpTracer
from tracebridge.core.interpreters.linearize import LinearizeTrace
from tracebridge.core.interpreters.staging import close_jaxpr, stage
from tracebridge.core.interpreters.tangents import TangentTrace, TangentTracer
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.debug_info import DebugInfo, name_of, where_is
from tracebridge.core.ir.jaxpr import Jaxpr, eval_jaxpr
from tracebridge.core.ir.trace import Trace, current_trace, trace_for
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.ad_util import zeros_of
from tracebridge.core.tree.tree import PyTreeDef, flatten
from tracebridge.core.util.caching import BoundedCache

if TYPE_CHECKING:
    from tracebridge.core.ir.rule_contexts import BatchContext
    from tracebridge.core.ir.value import Value


Flags = tuple[bool, ...]


@final
class JvpCall:
    """A function and its rule, with the arguments that are not differentiated already bound.

    ``fun(*args)`` takes arguments of structure ``in_tree``; ``rule(primals, tangents)`` takes two
    tuples of that structure. ``owner`` is the function object of the user; ``memo`` remembers its
    traces, None where arguments were bound.
    """

    __slots__ = ("fun", "in_tree", "memo", "name", "owner", "rule", "rule_name",
                 "symbolic_zeros")  # fmt: skip

    def __init__(
        self,
        fun: Callable[..., Any],
        rule: Callable[..., Any],
        in_tree: PyTreeDef,
        name: str,
        rule_name: str,
        symbolic_zeros: bool,
        owner: object,
        memo: BoundedCache[Any] | None,
    ) -> None:
        self.fun = fun
        self.rule = rule
        self.in_tree = in_tree
        self.name = name
        self.rule_name = rule_name
        self.symbolic_zeros = symbolic_zeros
        self.owner = owner
        self.memo = memo

    def run_rule(
        self, primals: Sequence[Value], tangents: Sequence[Value | None]
    ) -> tuple[list[Any], list[Any], PyTreeDef]:
        """Results, their tangents (None: zero) and their structure; a tangent None is a zero."""
        filled_tangents = [
            self._zeros(p.aval.tangent) if t is None else t
            for p, t in zip(primals, tangents, strict=True)
        ]
        p_tree = self.in_tree.unflatten([user_value(p) for p in primals])
        t_tree = self.in_tree.unflatten([user_value(t) for t in filled_tangents])
        pair = self.rule(p_tree, t_tree)
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            msg = (
                f"{self.name}: its jvp rule {self.rule_name} returned {kind_of(pair)}, expected a "
                "pair (result, tangent of the result)"
            )
            raise CustomRuleError(msg)
        outs, out_tree = flatten(pair[0])
        out_tangents, tangent_tree = flatten(pair[1])
        outs = [as_value(o) for o in outs]
        if tangent_tree != out_tree:
            msg = (
                f"{self.name}: its jvp rule {self.rule_name} returned a result and a tangent of "
                "different structures"
            )
            raise CustomRuleError(
                msg,
                got=f"tangent {tangent_tree}",
                expected=f"{out_tree}, the structure of the result",
                hint="return an array of zeros for a tangent that is zero",
            )
        avals = [o.aval for o in outs]
        return outs, self._checked_tangents(out_tangents, avals, out_tree), out_tree

    def _zeros(self, aval: ShapedArray) -> Any:
        return SymbolicZero(aval) if self.symbolic_zeros else concrete_zeros(aval)

    def _checked_tangents(
        self, tangents: Sequence[Any], avals: Sequence[ShapedArray], tree: PyTreeDef
    ) -> list[Any]:
        """Tangents as values; None for zeros and where the result is no float."""
        checked_tangents: list[Any] = []
        got: list[ShapedArray] = []
        for t in tangents:
            if isinstance(t, SymbolicZero) or getattr(t, "dtype", None) == float0:
                checked_tangents.append(None)
                got.append(ShapedArray(t.shape, t.dtype))
                continue
            value = as_value(t)
            checked_tangents.append(value)
            got.append(value.aval)
        expected = [a.tangent for a in avals]
        if any(
            [g.shape != e.shape or g.dtype != e.dtype for g, e in zip(got, expected, strict=True)]
        ):
            msg = (
                f"{self.name}: the tangent that its jvp rule {self.rule_name} returned does not "
                "fit the result"
            )
            raise CustomRuleError(msg, got=describe(tree, got), expected=describe(tree, expected))
        return checked_tangents

    def check_results(
        self,
        outs: Sequence[Any],
        tree: PyTreeDef,
        avals: Sequence[ShapedArray],
        expected: PyTreeDef,
    ) -> None:
        """Raise unless the rule's results have the structure and types of the function's."""
        if tree != expected or not same_types(outs, avals):
            msg = (
                f"{self.name}: the result that its jvp rule {self.rule_name} returned differs in "
                f"type from what {self.name} returns"
            )
            raise CustomRuleError(
                msg,
                got=describe(tree, [o.aval for o in outs]),
                expected=describe(expected, avals),
            )


def call_custom_jvp(call: JvpCall, leaves: Sequence[object]) -> Any:
    """``call.fun`` on the arguments with the given leaves, under whatever traces are active."""
    values = [as_value(leaf) for leaf in leaves]
    outs, tree = _apply(trace_for(values), call, leaves, values)
    return tree.unflatten(outs)


def _apply(
    trace: Any, call: JvpCall, leaves: Sequence[object], values: Sequence[Any]
) -> tuple[list[Any], PyTreeDef]:
    if isinstance(trace, JvpTrace | LinearizeTrace):
        if not any([v._trace is trace for v in values]):
            with below(trace, call.name):
                return _apply(trace.parent, call, leaves, values)
        if isinstance(trace, JvpTrace):
            return _jvp(trace, call, values)
        return _linearize(trace, call, values)
    if isinstance(trace, TangentTrace) and not any([v._trace is trace for v in values]):
        # A rule calls its own function, or another one, at the primals.
        with running_on(trace.owner.parent):
            return _apply(trace.owner.parent, call, leaves, values)
    if is_eager_trace(trace):
        return flatten(call.fun(*call.in_tree.unflatten([user_value(v) for v in values])))
    return custom_jvp_call_p.call(call, values)


def _jvp(trace: Any, call: JvpCall, values: Sequence[Any]) -> tuple[list[Any], PyTreeDef]:
    primals = [v.primal if v._trace is trace else v for v in values]
    tangents = [v.tangent if v._trace is trace else None for v in values]
    with below(trace, call.name):
        outs, out_tangents, tree = call.run_rule(primals, tangents)
    _check_reach(trace, call, [*outs, *[t for t in out_tangents if t is not None]])
    pairs = zip(outs, out_tangents, strict=True)
    return [o if t is None else JvpTracer(trace, o, t) for o, t in pairs], tree


def _linearize(
    trace: LinearizeTrace, call: JvpCall, values: Sequence[Any]
) -> tuple[list[Any], PyTreeDef]:
    below_trace = TangentTrace(trace)
    primals = [v.primal if v._trace is trace else v for v in values]
    tangents = [
        TangentTracer(v.aval.tangent, below_trace, v.node) if v._trace is trace else None
        for v in values
    ]
    try:
        with below(trace, call.name, below_trace):
            outs, out_tangents, tree = call.run_rule(primals, tangents)
    finally:
        below_trace.done = True
    _check_reach(trace, call, outs)
    if any([o._trace is below_trace for o in outs]):
        msg = f"{call.name}: the result of its jvp rule {call.rule_name} depends on the tangents"
        raise CustomRuleError(msg, hint="compute the result from the primals alone")
    # A tangent that depends on no tangent of an argument can only be zero.
    return [
        trace.dual(o, t.node) if t is not None and t._trace is below_trace else o
        for o, t in zip(outs, out_tangents, strict=True)
    ], tree


def _check_reach(trace: Trace, call: JvpCall, values: Sequence[Any]) -> None:
    if any([v._trace is trace for v in values]):
        msg = f"{call.name}: its jvp rule {call.rule_name} returns a value that it closes over"
        raise ClosedOverValueError(msg, hint=f"pass that value to {call.name} as an argument")


# the equation ------------------------------------------------------------------------------------


@final
class JvpRule(TracedRule):
    """The rule of an equation, traced when it is needed.

    ``traced(nonzero)`` gives the Jaxpr (consts, primals, tangents marked by ``nonzero``) ->
    (results, nonzero tangents), and which results have a tangent.
    """

    __slots__ = ()
    _call: JvpCall
    _known: dict[Flags, tuple[Jaxpr, Flags, Flags]]

    def traced(self, nonzero: Flags) -> tuple[Jaxpr, Flags, Flags]:
        """The Jaxpr, which tangents it takes (not fewer than ``nonzero``), which it gives."""
        every = tuple([has_tangent(a) for a in self._avals])
        # A rule that asks for zeros may do without a product with 0, whoever called before.
        fewer = self._call.symbolic_zeros and not self._traced_for_all
        wanted = nonzero if fewer else every
        found = self._known.get(wanted)
        if found is None:
            jaxpr, nonzero_out = self._trace(wanted)
            check_closed(jaxpr, self._call.name, self._call.rule_name)
            n = len(self._const_avals)
            jaxpr = permute_jaxpr(jaxpr, [*self._const_avals, *range(jaxpr.n_in)]) if n else jaxpr
            found = self._known[wanted] = (jaxpr, wanted, nonzero_out)
        return found

    def trace_now(self) -> list[Any]:
        """Trace the rule for all tangents; the values it closes over, which become consts."""
        every = tuple([has_tangent(a) for a in self._avals])
        jaxpr, nonzero_out = self._trace(every)
        jaxpr, hoisted = close_jaxpr(jaxpr)
        jaxpr = permute_jaxpr(jaxpr, [*self._const_avals, *range(jaxpr.n_in)])
        self._known[every] = (jaxpr, every, nonzero_out)
        # Traced again it would close over the values anew.
        self._traced_for_all = bool(hoisted)
        self._const_avals = [*self._const_avals, *[h.aval for h in hoisted]]
        return hoisted

    def _trace(self, nonzero: Flags) -> tuple[Jaxpr, Flags]:
        call, n = self._call, len(self._avals)
        nonzero_out: list[bool] = []

        def run(*args: Any) -> list[Any]:
            given = iter(args[n:])
            tangents = [next(given) if nz else None for nz in nonzero]
            outs, out_tangents, tree = call.run_rule(args[:n], tangents)
            call.check_results(outs, tree, self._out_avals, self._out_tree)
            nonzero_out.extend([t is not None for t in out_tangents])
            return [*outs, *[t for t in out_tangents if t is not None]]

        tangent_avals = [a.tangent for a, nz in zip(self._avals, nonzero, strict=True) if nz]
        debug = DebugInfo(f"{call.rule_name}, jvp rule of {call.name}", where_is(call.rule))
        return stage(run, [*self._avals, *tangent_avals], debug), tuple(nonzero_out)


@final
class BatchedJvpRule:
    """The rule of a batched equation: the rule of the equation, batched.

    ``mapped`` says whether the results have the axis: all of them, or none.
    """

    __slots__ = ("_axis", "_base", "_dims", "_mapped", "_n_consts", "_size")

    def __init__(
        self,
        base: Any,
        n_consts: int,
        size: Any,
        axis: Any,
        dims: tuple[int | None, ...],
        mapped: bool,
    ) -> None:
        self._base = base
        self._n_consts = n_consts
        self._size = size
        self._axis = axis
        self._dims = dims
        self._mapped = mapped

    def traced(self, nonzero: Flags) -> tuple[Jaxpr, Flags, Flags]:
        """As ``JvpRule.traced``."""
        jaxpr, taken, given = self._base.traced(nonzero)
        arg_dims = self._dims[self._n_consts :]
        dims = (*self._dims, *[d for d, nz in zip(arg_dims, taken, strict=True) if nz])
        batched, out_dims = batch_jaxpr(jaxpr, self._size, self._axis, dims, self._mapped)
        if not self._mapped:
            check_unmapped(jaxpr.debug.name, out_dims)
        return batched, taken, given


@final
class CustomJvpCall(CustomRuleCall):
    """A call of a function with its own jvp rule, a JvpRule."""

    name = "custom_jvp_call"
    rule_class = JvpRule

    def bind(self, *args: Any, **params: Any) -> Any:
        """Apply a traced call; or the two functions, wrapped and flat, then the values."""
        if "call_jaxpr" in params:
            return super().bind(*args, **params)
        (fun, jvp), values = split_functions(self.name, 2, args, params)
        names, zeros = (name_of(fun), name_of(jvp)), bool(params.get("symbolic_zeros", False))
        tree = flat_structure(len(values))
        rule = flat_jvp_rule(jvp)
        call = JvpCall(flat_function(fun), rule, tree, *names, zeros, owner=fun, memo=None)
        return call_custom_jvp(call, values)

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        n = params["num_consts"]
        check_not_closed_over(params["call_jaxpr"].debug.name, tangents[:n])
        nonzero = tuple([t is not None for t in tangents[n:]])
        jaxpr, taken, given = params["rule"].traced(nonzero)
        filled = [
            zeros_of(p.aval.tangent) if t is None else t
            for p, t, take in zip(primals[n:], tangents[n:], taken, strict=True)
            if take
        ]
        results = eval_jaxpr(jaxpr, current_trace().process, [*primals, *filled])
        n_out = len(params["call_jaxpr"].outs)
        rest = iter(results[n_out:])
        return results[:n_out], [next(rest) if here else None for here in given]

    def transpose(self, ct: Sequence[Value | None], *args: Value, **params: Any) -> Sequence[Any]:
        """Where a rule calls the function on tangents, it must be linear: its own code says how."""
        return closed_call_p.transpose(ct, *args, jaxpr=params["call_jaxpr"])

    def reduced_rule(self, rule: object, used_outs: tuple[bool, ...]) -> Any:
        return ReducedJvpRule(rule, used_outs)

    def batched_rule(
        self,
        ctx: BatchContext,
        rule: object,
        num_consts: int,
        in_dims: tuple[int | None, ...],
        out_dims: tuple[int | None, ...],
    ) -> Any:
        mapped = any([d is not None for d in out_dims])
        return BatchedJvpRule(rule, num_consts, ctx.size, ctx.axis, in_dims, mapped)


custom_jvp_call_p = CustomJvpCall()
