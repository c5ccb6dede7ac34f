"""The rules of a custom_vjp equation, traced when they are needed, and batched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

import tracebridge.core.lax as lax
from tracebridge.core.control.calls.inline_rules import (
    check_closed,
    check_unmapped,
    describe,
    has_tangent,
    same_types,
    user_value,
)
from tracebridge.core.control.calls.permute import permute_jaxpr
from tracebridge.core.control.custom.custom_rule_call import TracedRule
from tracebridge.core.control.custom.custom_vjp_call import VjpCall
from tracebridge.core.control.custom.symbolic_zeros import concrete_zeros
from tracebridge.core.errors.transform_errors import CustomRuleError
from tracebridge.core.interpreters.batching import batch_flat, batch_jaxpr
from tracebridge.core.interpreters.staging import close_jaxpr, stage
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.debug_info import DebugInfo, where_is
from tracebridge.core.ir.jaxpr import Jaxpr, eval_jaxpr
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.lax.batch_util import broadcast_batch, move_batch_axis
from tracebridge.core.tree.tree import PyTreeDef

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value


Flags = tuple[bool, ...]


@final
class Forward:
    """A traced forward rule: (consts, arguments) -> (results, residuals); what goes back."""

    __slots__ = ("backward", "jaxpr")

    def __init__(self, jaxpr: Jaxpr, backward: Callable[..., list[Any]]) -> None:
        self.jaxpr = jaxpr
        self.backward = backward


@final
class VjpRule(TracedRule):
    """The rules of an equation, traced when they are needed."""

    __slots__ = ()
    _call: VjpCall
    _known: dict[Flags, Forward]

    @property
    def optimize_remat(self) -> bool:
        """Whether the forward rule gives way to the function where nothing is kept."""
        return self._call.optimize_remat

    def forward(self, perturbed: Flags) -> Forward:
        """The forward rule for tangents at some arguments."""
        every = tuple([has_tangent(a) for a in self._avals])
        fewer = self._call.symbolic_zeros and not self._traced_for_all
        wanted = perturbed if fewer else every
        found = self._known.get(wanted)
        if found is None:
            jaxpr, res_tree = self._trace_fwd(wanted)
            check_closed(jaxpr, self._call.name, self._call.fwd_name)
            if self._const_avals:
                jaxpr = permute_jaxpr(jaxpr, [*self._const_avals, *range(jaxpr.n_in)])
            found = self._known[wanted] = Forward(jaxpr, self._backward(res_tree))
        return found

    def trace_now(self) -> list[Any]:
        """Trace both rules for all tangents; the values they close over, which become consts."""
        every = tuple([has_tangent(a) for a in self._avals])
        jaxpr, res_tree = self._trace_fwd(every)
        fwd, fwd_values = close_jaxpr(jaxpr)
        n_out = len(self._out_avals)
        res_avals = jaxpr.out_avals[n_out:]
        bwd, bwd_values = close_jaxpr(self._trace_bwd(res_tree, res_avals))
        n_fwd, n_bwd = len(fwd_values), len(bwd_values)
        self._traced_for_all = bool(n_fwd or n_bwd)
        # What the backward rule closed over goes along with the residuals.
        order = [
            *self._const_avals,
            *range(n_fwd),
            *[v.aval for v in bwd_values],
            *range(n_fwd, fwd.n_in),
        ]
        n_before = len(self._const_avals) + n_fwd
        fwd = permute_jaxpr(fwd, order)
        fwd = permute_jaxpr(fwd, None, [*fwd.outs, *range(n_before, n_before + n_bwd)])
        n_res = len(res_avals)
        flags = [has_tangent(a) for a in self._out_avals]

        def backward(residuals: Sequence[Any], cts: Sequence[Any]) -> list[Any]:
            filled = [
                concrete_zeros(a.tangent) if ct is None else ct
                for ct, a, here in zip(cts, self._out_avals, flags, strict=True)
                if here
            ]
            args = [*residuals[n_res:], *residuals[:n_res], *filled]
            results = iter(eval_jaxpr(bwd, current_trace().process, args))
            return [next(results) if here else None for here in every]

        self._known[every] = Forward(fwd, backward)
        values = [*fwd_values, *bwd_values]
        self._const_avals = [*self._const_avals, *[v.aval for v in values]]
        return values

    def _trace_fwd(self, perturbed: Flags) -> tuple[Jaxpr, PyTreeDef]:
        call = self._call
        trees: list[PyTreeDef] = []

        def run(*args: Any) -> list[Any]:
            outs, residuals, out_tree, res_tree = call.run_fwd(args, perturbed)
            if out_tree != self._out_tree or not same_types(outs, self._out_avals):
                msg = (
                    f"{call.name}: the result that its forward rule {call.fwd_name} returned "
                    f"differs in type from what {call.name} returns"
                )
                raise CustomRuleError(
                    msg,
                    got=describe(out_tree, [o.aval for o in outs]),
                    expected=describe(self._out_tree, self._out_avals),
                )
            trees.append(res_tree)
            return [*outs, *residuals]

        debug = DebugInfo(f"{call.fwd_name}, forward rule of {call.name}", where_is(call.fwd))
        return stage(run, self._avals, debug), trees[0]

    def _trace_bwd(self, res_tree: PyTreeDef, res_avals: Sequence[ShapedArray]) -> Jaxpr:
        """(residuals, cotangents) -> cotangents of all arguments that have some."""
        call, n_res = self._call, len(res_avals)
        flags = [has_tangent(a) for a in self._out_avals]
        backward = self._backward(res_tree)

        def run(*args: Any) -> list[Any]:
            present_cts = iter(args[n_res:])
            cts = [next(present_cts) if here else None for here in flags]
            results = backward(args[:n_res], cts)
            return [
                concrete_zeros(a.tangent) if r is None else r
                for r, a in zip(results, self._avals, strict=True)
                if has_tangent(a)
            ]

        cotangents = [a.tangent for a, here in zip(self._out_avals, flags, strict=True) if here]
        debug = DebugInfo(f"{call.bwd_name}, backward rule of {call.name}", where_is(call.bwd))
        return stage(run, [*res_avals, *cotangents], debug)

    def _backward(self, res_tree: PyTreeDef) -> Callable[..., list[Any]]:
        call, out_avals, out_tree, avals = self._call, self._out_avals, self._out_tree, self._avals

        def backward(residuals: Sequence[object], cts: Sequence[Value | None]) -> list[Any]:
            tree = res_tree.unflatten([user_value(r) for r in residuals])
            return call.run_bwd(tree, cts, out_avals, out_tree, avals)

        return backward


@final
class BatchedVjpRule:
    """The rules of a batched equation: those of the equation, batched."""

    __slots__ = ("_axis", "_base", "_dims", "_n_consts", "_out_dims", "_size")

    def __init__(
        self,
        base: Any,
        n_consts: int,
        out_dims: tuple[int | None, ...],
        size: Any,
        axis: Any,
        dims: tuple[int | None, ...],
    ) -> None:
        self._base = base
        self._n_consts = n_consts
        self._out_dims = out_dims
        self._size = size
        self._axis = axis
        self._dims = dims

    @property
    def optimize_remat(self) -> bool:
        """As ``VjpRule.optimize_remat``."""
        return self._base.optimize_remat

    def forward(self, perturbed: Flags) -> Forward:
        """As ``VjpRule.forward``; residuals are batched where they must be."""
        base = self._base.forward(perturbed)
        n_out = len(self._out_dims)
        mapped = [d is not None for d in self._out_dims]
        wanted = (*mapped, *[False] * (len(base.jaxpr.outs) - n_out))
        jaxpr, out_dims = batch_jaxpr(base.jaxpr, self._size, self._axis, self._dims, wanted)
        if not any(mapped):
            check_unmapped(base.jaxpr.debug.name, out_dims[:n_out])
        res_dims = out_dims[n_out:]
        arg_dims = self._dims[self._n_consts :]

        def backward(residuals: Sequence[object], cts: Sequence[Value | None]) -> list[Any]:
            return self._go_back(base.backward, residuals, res_dims, cts, arg_dims)

        return Forward(jaxpr, backward)

    def _go_back(
        self,
        rule: Callable[..., list[Any]],
        residuals: Sequence[Any],
        res_dims: Sequence[int | None],
        cts: Sequence[Any],
        arg_dims: Sequence[int | None],
    ) -> list[Any]:
        present: list[bool] = []
        n_res = len(residuals)

        def run(*args: Any) -> list[Any]:
            remaining_cts = iter(args[n_res:])
            gradients = rule(
                args[:n_res], [None if ct is None else next(remaining_cts) for ct in cts]
            )
            present.extend([f is not None for f in gradients])
            return [f for f in gradients if f is not None]

        inputs = [*residuals, *[ct for ct in cts if ct is not None]]
        pairs_of_ct = zip(cts, self._out_dims, strict=True)
        dims = [*res_dims, *[d for ct, d in pairs_of_ct if ct is not None]]
        outs, out_dims = batch_flat(run, inputs, dims, self._size, self._axis)
        pairs = iter(zip(outs, out_dims, strict=True))
        results: list[Any] = []
        for here, wanted in zip(present, arg_dims, strict=True):
            results.append(self._fit(*next(pairs), wanted) if here else None)
        return results

    def _fit(self, ct: Value, dim: int | None, wanted: int | None) -> Any:
        """A cotangent with the batch axis that its argument has; summed if it has none."""
        if dim is None and wanted is None and not any([d is not None for d in self._out_dims]):
            return ct
        if dim is None:
            # Each of the examples contributes the same to an argument that they share.
            ct, dim = broadcast_batch(ct, self._size, 0), 0
        if wanted is None:
            return lax.reduce_sum(ct, (dim,))
        return move_batch_axis(ct, dim, wanted)
