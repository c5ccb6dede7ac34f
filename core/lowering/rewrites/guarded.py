"""The result of a fast program where it can be trusted, else that of the plain one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.primitive import Primitive

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.ir.rule_contexts import LoweringContext


@final
class Guarded(Primitive):
    """``fast``: operands -> (whether it can be trusted, result); ``plain``: operands -> result.

    It is made while programs are lowered: nobody transforms it.
    """

    name = "guarded"
    cost = Cost.OTHER

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        plain: Jaxpr = params["plain"]
        return plain.out_avals[0]

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        out = ctx.aval_out
        trusted, result = ctx.inline_jaxpr(params["fast"], operands)
        choice = ctx.op("stablehlo.if", [trusted], [out], regions=2)
        with ctx.block(choice.regions[0], []):
            ctx.finish([result])
        with ctx.block(choice.regions[1], []):
            ctx.finish(ctx.inline_jaxpr(params["plain"], operands))
        return choice.results[0]


guarded_p = Guarded()
