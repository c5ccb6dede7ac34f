"""transpose: permuted axes."""

from __future__ import annotations

__all__ = ["transpose", "transpose_p"]

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core import lax
from tracebridge.core.errors.shape_errors import RankError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.splits import entries_of, split_of
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.values import Literal
from tracebridge.core.lax.families import Structural
from tracebridge.core.lax.shape.axes import as_dims
from tracebridge.core.mlir.attrs import i64_array

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Operand, Value


@final
class Transpose(Structural):
    """``permutation``: which axis of the operand each axis of the result is."""

    name = "transpose"

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        (x,) = avals
        order = params["permutation"]
        if sorted(order) != list(range(x.ndim)):
            msg = f"transpose: {order} is not a permutation of the {x.ndim} axes of {x.str_short()}"
            raise RankError(msg)
        return x.update(shape=tuple([x.shape[i] for i in order]))

    def split_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Any:
        del outs
        entries = entries_of(avals[0])
        return [split_of(self.name, avals, tuple([entries[i] for i in params["permutation"]]))]

    def recipe(self, *avals: ShapedArray, **params: Any) -> Any:
        """One operation."""
        if not avals[0].ndim:
            return None
        return "stablehlo.transpose", {"permutation": i64_array(params["permutation"])}

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        return ctx.transpose(operands[0], ctx.aval_out, params["permutation"])

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        order = params["permutation"]
        return [lax.transpose(ct, tuple([order.index(i) for i in range(len(order))]))]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        del ctx
        (x,), (d,) = args, dims
        assert d is not None  # the only operand is batched
        order = (d, *[i + (i >= d) for i in params["permutation"]])
        return self.bind(x, permutation=order), 0


transpose_p = Transpose()


def transpose(operand: Operand, permutation: Sequence[int]) -> Any:
    """``operand`` with axis ``permutation[i]`` as axis ``i``.

    Args:
        operand: an array of ``n`` axes.
        permutation: the numbers ``0`` to ``n - 1`` in any order.

    Raises:
        RankError: no permutation of the axes.

    >>> import tracebridge as tb
    >>> tb.lax.transpose(tb.numpy.zeros((2, 3)), (1, 0)).shape
    (3, 2)
    """
    x = as_value(operand)
    order = as_dims(permutation)
    if order == tuple(range(x.aval.ndim)) and type(x) is not Literal:
        return x
    return transpose_p.bind(x, permutation=order)
