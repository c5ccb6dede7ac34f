"""rev: elements in reverse order."""

from __future__ import annotations

__all__ = ["rev", "rev_p"]

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.families import Structural
from tracebridge.core.lax.shape.axes import as_axes
from tracebridge.core.mlir.attrs import i64_array

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Operand, Value


@final
class Rev(Structural):
    """``dimensions``: the axes that are reversed, each in ``[0, ndim)``."""

    name = "rev"

    def abstract_eval(self, *avals: ShapedArray, **params: object) -> ShapedArray:
        del params
        return avals[0]

    def split_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Any:
        del outs, params
        return [avals[0].split]

    def recipe(self, *avals: ShapedArray, **params: Any) -> Any:
        """One operation."""
        del avals
        return "stablehlo.reverse", {"dimensions": i64_array(params["dimensions"])}

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        attributes = {"dimensions": i64_array(params["dimensions"])}
        return ctx.op1("stablehlo.reverse", operands, ctx.aval_out, attributes)

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        return [self.bind(ct, **params)]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        del ctx
        (x,), (d,) = args, dims
        assert d is not None  # the only operand is batched
        axes = tuple([i + (i >= d) for i in params["dimensions"]])
        return self.bind(x, dimensions=axes), d


rev_p = Rev()


def rev(operand: Operand, dimensions: Sequence[int]) -> Any:
    """``operand`` with the order of elements reversed along some axes.

    Args:
        operand: an array of ``ndim`` axes.
        dimensions: distinct axes, each in ``[-ndim, ndim)``.

    Raises:
        AxisError: an axis is out of range or repeated.

    >>> import tracebridge as tb
    >>> tb.lax.rev(tb.numpy.arange(3), (0,)).tolist()
    [2, 1, 0]
    """
    x = as_value(operand)
    axes = tuple(sorted(as_axes("rev", dimensions, x.aval.ndim)))
    return rev_p.bind(x, dimensions=axes)
