"""custom_dce: functions that say themselves how to compute only some of their results."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.control.calls.closed_call import CallPrimitive, closed_call, closed_call_p
from tracebridge.core.control.calls.inline_rules import check_closed, is_eager_trace, user_value
from tracebridge.core.control.calls.permute import permute_jaxpr
from tracebridge.core.control.calls.tangent_jaxpr import tangent_jaxpr
from tracebridge.core.control.custom.custom_staging import StagedCall, find_or_trace, trace_function
from tracebridge.core.control.custom.custom_vjp_call import up_to
from tracebridge.core.errors.argument_errors import kind_of
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.tracer_errors import UnexpectedTracerError
from tracebridge.core.errors.transform_errors import ClosedOverValueError, CustomRuleError
from tracebridge.core.interpreters.batching import batch_jaxpr
from tracebridge.core.interpreters.dce import dce_jaxpr
from tracebridge.core.interpreters.jvp import jvp_jaxpr
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.interpreters.transpose import transpose_jaxpr
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.debug_info import DebugInfo, where_is
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.linear_input import is_linear_input
from tracebridge.core.ir.trace import current_trace, trace_for
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.batch_util import mapped_to_front
from tracebridge.core.tree.paths import keystr
from tracebridge.core.tree.tree import PyTreeDef, flatten
from tracebridge.core.tree.treedefs import leaf_paths
from tracebridge.core.util.caching import BoundedCache

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.application import Application, Params
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Value


Flags = tuple[bool, ...]


@final
class DceCall:
    """A function and its rule, with static arguments bound.

    ``fun(*args)`` takes arguments of structure ``in_tree``; ``rule(used_outs, *args)`` may give
    None for results that are not used. ``memo`` remembers traces, None where there are statics.
    """

    __slots__ = ("fun", "in_tree", "memo", "name", "rule", "rule_name")

    def __init__(
        self,
        fun: Callable[..., Any],
        rule: Callable[..., Any],
        in_tree: PyTreeDef,
        names: tuple[str, str],
        memo: BoundedCache[Any] | None,
    ) -> None:
        self.fun = fun
        self.rule = rule
        self.in_tree = in_tree
        self.name, self.rule_name = names
        self.memo = memo


# Rules that are being traced: one that calls its own function means the function itself.
_BEING_TRACED: contextvars.ContextVar[frozenset[int]] = contextvars.ContextVar(
    "dce rules being traced", default=frozenset()
)


def _mark(call: DceCall) -> int:
    return id(getattr(call.rule, "func", call.rule))


def call_custom_dce(call: DceCall, leaves: Sequence[object]) -> Any:
    """``call.fun`` on the arguments with the given leaves, as one equation under a trace."""
    values = [as_value(leaf) for leaf in leaves]
    if is_eager_trace(trace_for(values)) or _mark(call) in _BEING_TRACED.get():
        return call.fun(*call.in_tree.unflatten([user_value(v) for v in values]))
    staged = find_or_trace(call, tuple([v.aval for v in values]), _trace)
    args = [*staged.consts, *values]
    outs = custom_dce_call_p.bind(*args, jaxpr=staged.jaxpr, rule=staged.rule, positions=None)
    return staged.out_tree.unflatten(outs)


def _trace(call: DceCall, avals: tuple[ShapedArray, ...]) -> StagedCall:
    jaxpr, consts, out_tree = trace_function(call, avals)
    rule = DceRule(call, jaxpr, [c.aval for c in consts], avals, out_tree)
    return StagedCall(jaxpr, consts, rule, out_tree)


# rules: reduced(used) gives the Jaxpr from all arguments to the used results ------------------


@final
class DceRule:
    """The rule of the user, traced for each set of used results."""

    __slots__ = ("_avals", "_call", "_const_avals", "_jaxpr", "_known", "_out_tree")

    def __init__(
        self,
        call: DceCall,
        jaxpr: Jaxpr,
        const_avals: list[ShapedArray],
        avals: tuple[ShapedArray, ...],
        out_tree: PyTreeDef,
    ) -> None:
        self._call = call
        self._jaxpr = jaxpr
        self._const_avals = const_avals
        self._avals = avals
        self._out_tree = out_tree
        self._known: dict[Flags, Jaxpr] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._call.name})"

    def reduced(self, used: Flags) -> Jaxpr:
        """(consts, arguments) -> used results; without a call of the rule if all are used."""
        if all(used):
            return self._jaxpr
        cached = self._known.get(used)
        if cached is None:
            token = _BEING_TRACED.set(_BEING_TRACED.get() | {_mark(self._call)})
            try:
                jaxpr = check_closed(self._trace(used), self._call.name, self._call.rule_name)
            except UnexpectedTracerError as error:
                name = self._call.name
                msg = (
                    f"{name}: its dce rule {self._call.rule_name} closes over a traced value, and "
                    "is itself traced when that value is gone"
                )
                hint = f"pass that value to {name} as an argument"
                raise ClosedOverValueError(msg, hint=hint) from error
            finally:
                _BEING_TRACED.reset(token)
            if self._const_avals:
                jaxpr = permute_jaxpr(jaxpr, [*self._const_avals, *range(jaxpr.n_in)])
            cached = self._known[used] = jaxpr
        return cached

    def _trace(self, used: Flags) -> Jaxpr:
        call = self._call

        def run(*args: Any) -> list[Any]:
            flags = self._out_tree.unflatten(used)
            result = call.rule(flags, *call.in_tree.unflatten(args))
            return self._checked(result, used)

        debug = DebugInfo(f"{call.rule_name}, dce rule of {call.name}", where_is(call.rule))
        return stage(run, self._avals, debug)

    def _checked(self, result: object, used: Flags) -> list[Any]:
        call, tree = self._call, self._out_tree
        start = f"{call.name}: its dce rule {call.rule_name} returned"
        try:
            leaves = up_to(tree, result, loose=True)
        except ValueError as error:
            msg = f"{start} a result of another structure than {call.name} does"
            got = str(flatten(result)[1])
            hint = "results that are not used may be None, also whole subtrees of them"
            raise CustomRuleError(msg, got=got, expected=str(tree), hint=hint) from error
        checked_results: list[Any] = []
        for i, (leaf, wanted) in enumerate(zip(leaves, used, strict=True)):
            if not wanted:
                continue
            where = f"result{keystr(leaf_paths(tree)[i])}"
            if leaf is None:
                msg = f"{start} None for {where}, which is used"
                raise CustomRuleError(msg, hint="look at used_outs to see what is needed")
            aval = self._jaxpr.out_avals[i]
            try:
                value = as_value(leaf)
            except UnsupportedDtypeError as error:
                msg = f"{start} {kind_of(leaf)} for {where}"
                raise CustomRuleError(msg, expected=aval.str_short()) from error
            if value.aval.shape != aval.shape or value.aval.dtype != aval.dtype:
                msg = f"{start} {where} of another type than {call.name} does"
                raise CustomRuleError(msg, got=value.aval.str_short(), expected=aval.str_short())
            checked_results.append(value)
        return checked_results


@final
class SomeResults:
    """A rule for some of the results of another one."""

    __slots__ = ("_base", "_chosen")

    def __init__(self, base: Any, chosen: Flags) -> None:
        self._base = base
        self._chosen = chosen

    def reduced(self, used: Flags) -> Jaxpr:
        """As ``DceRule.reduced``."""
        return self._base.reduced(spread_flags(self._chosen, used))


def spread_flags(chosen: Flags, used: Flags) -> Flags:
    """``used`` of the chosen ones, as flags of all."""
    given = iter(used)
    return tuple([c and next(given) for c in chosen])


@final
class DerivativeRule:
    """The rule of a derivative: results, then tangents of those in ``nonzero_out``.

    ``derive`` is jvp_jaxpr or tangent_jaxpr.
    """

    __slots__ = ("_base", "_derive", "_nonzero", "_nonzero_out")

    def __init__(self, base: Any, derive: Any, nonzero: Flags, nonzero_out: Flags) -> None:
        self._base = base
        self._derive = derive
        self._nonzero = nonzero
        self._nonzero_out = nonzero_out

    def reduced(self, used: Flags) -> Jaxpr:
        """As ``DceRule.reduced``: the rule for what is used as result or as tangent, derived."""
        n = len(self._nonzero_out)
        primal, tangent = used[:n], spread_flags(self._nonzero_out, used[n:])
        either = tuple([p or t for p, t in zip(primal, tangent, strict=True)])
        wanted = tuple([t for t, e in zip(tangent, either, strict=True) if e])
        jaxpr, given = self._derive(self._base.reduced(either), self._nonzero, wanted)
        kept = [p for p, e in zip(primal, either, strict=True) if e]
        kept += [t for t, g in zip(wanted, given, strict=True) if g]
        return dce_jaxpr(jaxpr, tuple(kept), keep_in=True)[0]


@final
class BatchedRule:
    """The rule of a batched equation; the results at ``out`` are batched."""

    __slots__ = ("_axis", "_base", "_dims", "_out", "_size")

    def __init__(
        self, base: Any, size: Any, axis: Any, dims: tuple[int | None, ...], out: Flags
    ) -> None:
        self._base = base
        self._size = size
        self._axis = axis
        self._dims = dims
        self._out = out

    def reduced(self, used: Flags) -> Jaxpr:
        """As ``DceRule.reduced``."""
        jaxpr = self._base.reduced(used)
        wanted = tuple([o for o, u in zip(self._out, used, strict=True) if u])
        batched, dims = batch_jaxpr(jaxpr, self._size, self._axis, self._dims, wanted)
        if tuple([d is not None for d in dims]) != wanted:
            msg = (
                f"{jaxpr.debug.name}: a result depends on a mapped argument, on which the same "
                "result of the function does not depend"
            )
            raise CustomRuleError(msg, hint="compute the same as the function does")
        return batched


# the equation ------------------------------------------------------------------------------------


@final
class CustomDceCall(CallPrimitive):
    """A call of a function with its own dce rule.

    ``positions`` None: the arguments are all those that ``rule`` knows. After dce only those at the
    ``positions`` are left, and other transformations treat it as a plain call.
    """

    name = "custom_dce_call"
    inlinable = False
    holds_functions = True
    wants_dce = True

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        return ctx.call_jaxpr(params["jaxpr"], operands, params["jaxpr"].debug.name)

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        jaxpr, rule = params["jaxpr"], params["rule"]
        if params["positions"] is not None:
            return closed_call_p.jvp(primals, tangents, jaxpr=jaxpr)
        nonzero = tuple([t is not None for t in tangents])
        both, nonzero_out = jvp_jaxpr(jaxpr, nonzero)
        derived = DerivativeRule(rule, jvp_jaxpr, nonzero, nonzero_out)
        given = [t for t in tangents if t is not None]
        results = self.bind(*primals, *given, jaxpr=both, rule=derived, positions=None)
        n = len(nonzero_out)
        rest = iter(results[n:])
        return results[:n], [next(rest) if nz else None for nz in nonzero_out]

    def linearize(
        self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any
    ) -> Any:
        """The call as it is, and a linear call that starts over, so that the rule works for it.

        Nothing sets the two apart: the compiler merges what they have in common.
        """
        jaxpr, rule = params["jaxpr"], params["rule"]
        if params["positions"] is not None:
            return closed_call_p.linearize(primals, tangents, jaxpr=jaxpr)
        outs = self.bind(*primals, **params)
        nonzero = tuple([t is not None for t in tangents])
        both, nonzero_out = tangent_jaxpr(jaxpr, nonzero)
        if not any(nonzero_out):
            return outs, [None] * len(outs)
        wanted = (*[False] * len(outs), *[True] * sum(nonzero_out))
        linear = dce_jaxpr(both, wanted, keep_in=True)[0]
        derived = DerivativeRule(rule, tangent_jaxpr, nonzero, nonzero_out)
        nonzero_tangents = [t for t in tangents if t is not None]
        some = SomeResults(derived, wanted)
        remaining_tangents = iter(
            self.bind(*primals, *nonzero_tangents, jaxpr=linear, rule=some, positions=None)
        )
        return outs, [next(remaining_tangents) if nz else None for nz in nonzero_out]

    def transpose(self, ct: Sequence[Value | None], *args: Value, **params: Any) -> Sequence[Any]:
        """Results without a cotangent are not used: the rule leaves them out."""
        linear = tuple([is_linear_input(a) for a in args])
        used = tuple([c is not None for c in ct])
        if params["positions"] is None:
            jaxpr = params["rule"].reduced(used)
        else:
            jaxpr = dce_jaxpr(params["jaxpr"], used, keep_in=True)[0]
        back, present = transpose_jaxpr(jaxpr, linear, None, instantiate=False)
        values = [a for a, is_linear in zip(args, linear, strict=True) if not is_linear]
        results = iter(closed_call(back, *values, *[c for c in ct if c is not None]))
        given = iter([next(results) if p else None for p in present])
        return [next(given) if is_linear else None for is_linear in linear]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        jaxpr, rule = params["jaxpr"], params["rule"]
        if params["positions"] is not None:
            return closed_call_p.batch(ctx, args, dims, jaxpr=jaxpr)
        moved, in_dims = mapped_to_front(args, dims)
        batched, out_dims = batch_jaxpr(jaxpr, ctx.size, ctx.axis, in_dims)
        out = tuple([d is not None for d in out_dims])
        derived = BatchedRule(rule, ctx.size, ctx.axis, in_dims, out)
        return self.bind(*moved, jaxpr=batched, rule=derived, positions=None), list(out_dims)

    def split_by_known(self, unknown: Flags, args: Sequence[Value], **params: Any) -> list[Any]:
        """Two calls, each of which leaves the results of the other one out."""
        return split_by_dce(self, unknown, args, params)

    def dce(self, used_outs: Flags, app: Application) -> tuple[Any, list[bool], list[bool]]:
        jaxpr, rule, old = app.params["jaxpr"], app.params["rule"], app.params["positions"]
        n = len(app.avals)
        positions = tuple(range(n)) if old is None else old
        smaller, used_in = dce_jaxpr(rule.reduced(used_outs), (True,) * sum(used_outs))
        needed = tuple([i for i, used in enumerate(used_in) if used])
        if not set(needed) <= set(positions):
            # The rule needs what an earlier choice of results could do without.
            smaller, used_in = dce_jaxpr(jaxpr, used_outs)
            needed = tuple([p for p, used in zip(positions, used_in, strict=True) if used])
        kept = [p in needed for p in positions]
        avals = tuple([a for a, keep in zip(app.avals, kept, strict=True) if keep])
        every = old is None and all(kept)
        params = {
            "jaxpr": smaller,
            "rule": SomeResults(rule, used_outs),
            "positions": None if every else needed,
        }
        return self.application(avals, params), kept, list(used_outs)


custom_dce_call_p = CustomDceCall()


def split_by_dce(
    primitive: Any, unknown: Flags, args: Sequence[Value], params: Params
) -> list[Any]:
    """An equation as two: of the results that need known arguments only, and of the others."""
    flags = primitive.unknown_outs(unknown, **params)
    app = primitive.application(tuple([a.aval for a in args]), params)
    process = current_trace().process
    found: list[list[Any]] = []
    for wanted in ([not u for u in flags], list(flags)):
        smaller, keep_args, keep_outs = primitive.dce(tuple(wanted), app)
        given = [a for a, keep in zip(args, keep_args, strict=True) if keep]
        outs = iter(process(smaller, given))
        found.append([next(outs) if keep else None for keep in keep_outs])
    known, rest = found
    return [rest[i] if u else known[i] for i, u in enumerate(flags)]
