"""An array that stands in memory before what uses it is computed, on the CPU.

XLA fuses what makes an array into each operation that uses it. Where such an operation reads an
element several times (a gather) or cannot be vectorised (a reduction over short rows), all that
work is repeated, or done one element at a time. A barrier does not help: XLA drops barriers before
it fuses. The result of a conditional it does not fuse.
"""

from __future__ import annotations

__all__ = ["stored", "stored_p"]

from typing import TYPE_CHECKING, Any, final

import numpy as np

from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.cost import Cost
from tracebridge.core.lax.families import Constraint

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.ir.value import Value

_FLAG = ShapedArray((), np.dtype(np.bool_))


@final
class Stored(Constraint):
    """The identity. ``core/lowering/platforms.py`` lowers it for the CPU.

    Small arrays too, if there is a parameter ``small``.
    """

    name = "stored"
    cost = Cost.MOVES_DATA
    makes_nan = False

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: object) -> Any:
        return operands[0]


stored_p = Stored()


def stored(x: Value) -> Any:
    """``x``, made once and kept in memory where the program runs on a CPU."""
    return stored_p.bind(x)


def emit_stored(ctx: LoweringContext, x: IrValue, aval: ShapedArray) -> Any:
    """``x`` as the result of a conditional whose other branch is never taken."""
    never = ctx.op1("stablehlo.optimization_barrier", [ctx.constant(False, _FLAG)], _FLAG)
    choice = ctx.op("stablehlo.if", [never], [aval], regions=2)
    with ctx.block(choice.regions[0], []):
        ctx.finish([ctx.splat(0, aval)])
    with ctx.block(choice.regions[1], []):
        ctx.finish([x])
    return choice.results[0]
