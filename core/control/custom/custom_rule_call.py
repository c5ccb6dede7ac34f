"""What the equations of custom_jvp and custom_vjp share, and their rules."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from tracebridge.core.control.calls.closed_call import closed_call_p
from tracebridge.core.control.calls.inline_rules import batch_call
from tracebridge.core.control.custom.custom_staging import (
    DerivativeRule,
    DifferentiatedCall,
    StagedCall,
    find_or_trace,
    run_in_place,
    trace_with_rule,
)
from tracebridge.core.interpreters.dce import dce_jaxpr
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.higher_order import HigherOrderPrimitive
from tracebridge.core.lax.batch_util import mapped_to_front
from tracebridge.core.tree.tree import PyTreeDef

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Value


class TracedRule:
    """A rule of the user for one equation, traced when it is needed.

    ``_known``: what it was traced to, by the arguments that have tangents.
    """

    __slots__ = (
        "_avals", "_call", "_const_avals", "_known", "_out_avals", "_out_tree", "_traced_for_all",
    )  # fmt: skip

    def __init__(
        self,
        call: Any,
        const_avals: list[ShapedArray],
        avals: tuple[ShapedArray, ...],
        out_avals: tuple[ShapedArray, ...],
        out_tree: PyTreeDef,
    ) -> None:
        self._call = call
        self._const_avals = const_avals
        self._avals = avals
        self._out_avals = out_avals
        self._out_tree = out_tree
        self._known: dict[tuple[bool, ...], Any] = {}
        # Whether there is no other trace than that for all tangents.
        self._traced_for_all = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._call.name})"


class CustomRuleCall(HigherOrderPrimitive):
    """A call of ``call_jaxpr``, a function with a derivative ``rule`` of its own.

    Arguments are ``num_consts`` values that the function or its rule closed over, then those of
    the function.
    """

    computes = "call_jaxpr"
    effect_place = "in_custom_rules"
    holds_functions = True
    rule_class: ClassVar[Callable[..., DerivativeRule]]

    def call(self, call: DifferentiatedCall, values: Sequence[Any]) -> tuple[list[Any], PyTreeDef]:
        """Results and their structure: of one equation, or in place if it cannot be one."""
        avals = tuple([v.aval for v in values])
        staged = find_or_trace(call, avals, self._trace)
        if staged is None:
            return run_in_place(call, values)
        consts = staged.consts
        outs = self.bind(
            *consts, *values,
            call_jaxpr=staged.jaxpr, rule=staged.rule, num_consts=len(consts),
        )  # fmt: skip
        return outs, staged.out_tree

    def _trace(self, call: DifferentiatedCall, avals: tuple[ShapedArray, ...]) -> StagedCall | None:
        return trace_with_rule(call, avals, self.rule_class)

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> list[ShapedArray]:
        del avals
        return list(params["call_jaxpr"].out_avals)

    def low(self, args: Sequence[Any], outs: Sequence[Any], **params: Any) -> list[Any]:
        """The function itself: nobody differentiates any more."""
        return closed_call_p.low(args, outs, jaxpr=params["call_jaxpr"])

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        return ctx.inline_jaxpr(params["call_jaxpr"], operands)

    @abc.abstractmethod
    def batched_rule(
        self,
        ctx: BatchContext,
        rule: object,
        num_consts: int,
        in_dims: tuple[int | None, ...],
        out_dims: tuple[int | None, ...],
    ) -> Any:
        """The rule of the batched call."""

    @abc.abstractmethod
    def reduced_rule(self, rule: object, used_outs: tuple[bool, ...]) -> Any:
        """The rule of the call of which only some results are used."""

    def dce(
        self, used_outs: tuple[bool, ...], app: Application
    ) -> tuple[Any, list[bool], list[bool]]:
        """The call without unused results; its rule may need all arguments."""
        params = app.params
        jaxpr, _ = dce_jaxpr(params["call_jaxpr"], used_outs, keep_in=True)
        rule = params["rule"] if all(used_outs) else self.reduced_rule(params["rule"], used_outs)
        smaller = self.application(app.avals, {**params, "call_jaxpr": jaxpr, "rule": rule})
        return smaller, [True] * len(app.avals), list(used_outs)

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        args, in_dims = mapped_to_front(args, dims)
        jaxpr, out_dims = batch_call(params["call_jaxpr"], ctx.size, ctx.axis, in_dims)
        n = params["num_consts"]
        rule = self.batched_rule(ctx, params["rule"], n, in_dims, tuple(out_dims))
        return self.bind(*args, call_jaxpr=jaxpr, rule=rule, num_consts=n), list(out_dims)
