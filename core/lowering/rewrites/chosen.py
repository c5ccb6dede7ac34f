"""What regions of elementwise operations become: two forms of a program and tests between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import numpy as np

from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.lowering.compositions import composed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.ir.rule_contexts import LoweringContext

_FLAG = ShapedArray((), np.dtype(np.bool_))
_INDEX = ShapedArray((), np.dtype(np.int32))


@final
class Composed(Primitive):
    """An elementwise function by the composition ``compose``, once per module and kind of operand.

    It is made while programs are lowered, as the next one: nobody transforms it.
    """

    name = "composed"
    cost = Cost.OTHER

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        return avals[0]

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        return composed(ctx, params["compose"], operands)


@final
class Chosen(Primitive):
    """``near`` or ``far``, both operands -> results, as two tests of the operands tell.

    ``is_surely_near`` is quick and may say no too often; ``is_near`` is asked after that.
    """

    name = "chosen"
    cost = Cost.OTHER
    multiple_results = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> Sequence[ShapedArray]:
        far: Jaxpr = params["far"]
        return far.out_avals

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        (sure,) = ctx.inline_jaxpr(params["is_surely_near"], operands)
        # Cases: XLA computes both branches of an "if" of elementwise operations and selects.
        near = ctx.op("stablehlo.case", [_index(ctx, sure)], [_FLAG], regions=2)
        with ctx.block(near.regions[0], []):
            ctx.finish(ctx.inline_jaxpr(params["is_near"], operands))
        with ctx.block(near.regions[1], []):
            ctx.finish([ctx.constant(True, _FLAG)])
        index = _index(ctx, near.results[0])
        choice = ctx.op("stablehlo.case", [index], ctx.avals_out, regions=2)
        for region, form in zip(choice.regions, ("far", "near"), strict=True):
            with ctx.block(region, []):
                ctx.finish(ctx.inline_jaxpr(params[form], operands))
        return list(choice.results)


def _index(ctx: LoweringContext, flag: IrValue) -> IrValue:
    return ctx.op1("stablehlo.convert", [flag], _INDEX)


composed_p = Composed()
chosen_p = Chosen()
