"""The normal distribution function, for the engine's own use."""

from __future__ import annotations

__all__ = ["ndtr", "ndtr_p"]

import math
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.families import FloatUnary, is_narrow
from tracebridge.core.lax.special.erf import bell

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.ir.value import Operand, Value


@final
class Ndtr(FloatUnary):
    """Half of ``erfc(-x / sqrt(2))``, which would count the rounding of the quotient x**2 times."""

    name = "ndtr"
    cost = Cost.EXPENSIVE

    def recipe(self, *avals: ShapedArray, **params: Any) -> None:
        return None

    def lower_full(self, ctx: LoweringContext, *xs: IrValue, **params: Any) -> Any:
        aval = ctx.aval_out
        wide = aval.update(dtype=np.dtype(np.float32)) if is_narrow(aval.dtype) else aval
        x = ctx.convert(xs[0], wide) if wide is not aval else xs[0]
        x = ctx.op1("stablehlo.multiply", [x, ctx.splat(-math.sqrt(0.5), wide)], wide)
        tail = ctx.op1("chlo.erfc", [x], wide)
        share = ctx.op1("stablehlo.multiply", [tail, ctx.splat(0.5, wide)], wide)
        return ctx.convert(share, aval) if wide is not aval else share

    def derivative(self, x: Value, ans: Value, **params: object) -> Any:
        return bell(x, 1.0 / math.sqrt(2.0 * math.pi), 0.5)


ndtr_p = Ndtr()


def ndtr(x: Operand) -> Any:
    """The normal distribution function, elementwise, of floats, accurate far below 0.

    >>> from tracebridge.core import lax
    >>> float(lax.ndtr(0.0))
    0.5
    """
    return ndtr_p.bind(as_value(x, "ndtr"))
