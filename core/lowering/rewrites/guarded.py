"""The results of a fast program where they can be trusted, else those of the plain one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.primitive import Primitive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.ir.rule_contexts import LoweringContext


@final
class Guarded(Primitive):
    """``fast``: operands -> whether it can be trusted, results; ``plain``: operands -> results.

    It is made while programs are lowered: nobody transforms it.
    """

    name = "guarded"
    cost = Cost.OTHER
    multiple_results = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> Sequence[ShapedArray]:
        plain: Jaxpr = params["plain"]
        return plain.out_avals

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        trusted, *results = ctx.inline_jaxpr(params["fast"], operands)
        choice = ctx.op("stablehlo.if", [trusted], ctx.avals_out, regions=2)
        with ctx.block(choice.regions[0], []):
            ctx.finish(results)
        with ctx.block(choice.regions[1], []):
            ctx.finish(ctx.inline_jaxpr(params["plain"], operands))
        return list(choice.results)


guarded_p = Guarded()
