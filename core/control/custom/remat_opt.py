"""remat_opt: a forward rule that gives way to the function itself where nothing is kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.control.calls.closed_call import CallPrimitive, closed_call_p
from tracebridge.core.interpreters.batching import batch_jaxpr
from tracebridge.core.interpreters.dce import dce_jaxpr
from tracebridge.core.lax.batch_util import mapped_to_front

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Value


Flags = tuple[bool, ...]


@final
class RematOpt(CallPrimitive):
    """The forward rule of a custom_vjp function with ``optimize_remat``.

    ``jaxpr``: arguments -> (results, residuals). ``fun``: arguments -> results, which is called
    instead when no residual is used, as in the forward pass of a checkpointed function.
    """

    name = "remat_opt"
    inlinable = False
    wants_dce = True

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        return ctx.inline_jaxpr(params["jaxpr"], operands)

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        return closed_call_p.jvp(primals, tangents, jaxpr=params["jaxpr"])

    def linearize(
        self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any
    ) -> Any:
        return closed_call_p.linearize(primals, tangents, jaxpr=params["jaxpr"])

    def transpose(self, ct: Sequence[Value | None], *args: Value, **params: Any) -> Sequence[Any]:
        return closed_call_p.transpose(ct, *args, jaxpr=params["jaxpr"])

    def split_by_known(self, unknown: Flags, args: Sequence[Value], **params: Any) -> list[Any]:
        return closed_call_p.split_by_known(unknown, args, jaxpr=params["jaxpr"])

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        moved, in_dims = mapped_to_front(args, dims)
        n_out = len(params["fun"].outs)
        n_res = len(params["jaxpr"].outs) - n_out
        wanted = (*[True] * n_out, *[False] * n_res)
        size, axis = ctx.size, ctx.axis
        jaxpr, out_dims = batch_jaxpr(params["jaxpr"], size, axis, in_dims, wanted)
        fun, _ = batch_jaxpr(params["fun"], size, axis, in_dims, True)
        return self.bind(*moved, jaxpr=jaxpr, fun=fun), list(out_dims)

    def dce(self, used_outs: Flags, app: Application) -> tuple[Any, list[bool], list[bool]]:
        """Results alone: the function. Otherwise the rule, without what is not used."""
        n_out = len(app.params["fun"].outs)
        if any(used_outs[:n_out]) and any(used_outs[n_out:]):
            return app, [True] * len(app.avals), [True] * len(app.outs)
        if any(used_outs[n_out:]):
            jaxpr, used_in = dce_jaxpr(app.params["jaxpr"], used_outs)
        else:
            jaxpr, used_in = dce_jaxpr(app.params["fun"], used_outs[:n_out])
        avals = tuple([a for a, u in zip(app.avals, used_in, strict=True) if u])
        smaller = closed_call_p.application(avals, {"jaxpr": jaxpr})
        return smaller, list(used_in), list(used_outs)


remat_opt_p = RematOpt()
