"""Order without data: optimization_barrier."""

from __future__ import annotations

__all__ = ["optimization_barrier", "optimization_barrier_p"]

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.float0 import has_float0, hold_float0
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.tree import tree

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Value


class OperandsThemselves(Primitive):
    """The identity on several operands, of which something is said together."""

    cost = Cost.OTHER
    makes_nan = False
    may_merge = False
    multiple_results = True
    joins = False

    def abstract_eval(self, *avals: ShapedArray, **params: object) -> list[ShapedArray]:
        return list(avals)

    def vary_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: object
    ) -> Sequence[frozenset[Any]]:
        return [a.vma for a in avals]


@final
class OptimizationBarrier(OperandsThemselves):
    """The identity on any number of operands; all are computed before any result is used."""

    name = "optimization_barrier"

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: object) -> Any:
        if not operands:
            return []
        return list(ctx.op("stablehlo.optimization_barrier", operands, ctx.avals_out).results)

    def jvp(
        self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: object
    ) -> Any:
        """Tangents get a barrier of their own, so that primals do not wait for them."""
        return self.bind(*primals), self._barrier_of_given(tangents)

    def transpose(self, ct: Any, *args: Value, **params: Any) -> Sequence[Any]:
        return self._barrier_of_given(ct)

    def _barrier_of_given(self, values: Sequence[Any]) -> list[Any]:
        given = iter(self.bind(*[v for v in values if v is not None]))
        return [None if v is None else next(given) for v in values]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: object
    ) -> tuple[Any, Any]:
        return self.bind(*args), list(dims)


optimization_barrier_p = OptimizationBarrier()


def optimization_barrier(operand: object, /) -> Any:
    """``operand`` as it is; the compiler moves no computation across.

    Args:
        operand: pytree of arrays and numbers. All of it is computed before a part of the result
            is used.

    >>> import tracebridge as tb
    >>> x, y = tb.lax.optimization_barrier((1.0, 2.0))
    >>> float(x + y)
    3.0
    """
    leaves, treedef = tree.checked_flatten(operand)
    if has_float0(leaves):
        leaves, treedef = hold_float0(leaves, treedef)
    return tree.unflatten(treedef, optimization_barrier_p.bind(*[as_value(x) for x in leaves]))
