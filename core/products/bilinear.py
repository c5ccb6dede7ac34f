"""Products that are linear in each of two operands, whatever the others say of them."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import tracebridge.core.lax as lax
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.primitive import Primitive

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.ir.value import Value


class Bilinear(Primitive):
    """Linear in the operands at the places ``factors``; the others are integers."""

    cost = Cost.CONTRACTION
    factors: ClassVar[tuple[int, int]]

    @abc.abstractmethod
    def compose(self, *operands: Value, **params: Any) -> Any:
        """The result, by operations of ``lax``."""

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        return ctx.lower_fun(self.compose, *operands, **params)[0]

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        total: Any = None
        for place in self.factors:
            tangent = tangents[place]
            if tangent is not None:
                operands = [*primals[:place], tangent, *primals[place + 1 :]]
                part = self.bind(*operands, **params)
                total = part if total is None else lax.add(total, part)
        return self.bind(*primals, **params), total
