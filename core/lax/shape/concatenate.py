"""Arrays one after the other along an axis: concatenate."""

from __future__ import annotations

__all__ = ["concatenate", "concatenate_p"]

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core import lax
from tracebridge.core.errors.dtype_errors import DtypeMismatchError
from tracebridge.core.errors.shape_errors import AxisError, RankError, ShapeMismatchError
from tracebridge.core.errors.transform_errors import ShardingTypeError
from tracebridge.core.ir.aval import ShapedArray, result_aval
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.linear_input import is_linear_input
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.splits import same_along_others
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.ad_util import zeros_of
from tracebridge.core.lax.batch_util import to_one_axis
from tracebridge.core.lax.families import operands as as_values
from tracebridge.core.mlir.attrs import i64

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Operand, Value


@final
class Concatenate(Primitive):
    """``dimension``: the axis along which sizes add up; the others agree."""

    name = "concatenate"
    cost = Cost.MOVES_DATA
    makes_nan = False
    moves_elements = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        axis = params["dimension"]
        if not avals:
            msg = "concatenate: got no arrays, expected at least one"
            raise ShapeMismatchError(msg)
        first = avals[0]
        got = ", ".join([a.str_short() for a in avals])
        if any([a.ndim != first.ndim for a in avals]):
            msg = f"concatenate: operands need the same number of axes, got {got}"
            raise RankError(msg)
        if not 0 <= axis < first.ndim:
            msg = (
                f"concatenate: dimension {axis} is out of bounds for {got}, "
                f"expected 0 <= dimension < {first.ndim}"
            )
            raise AxisError(msg)
        if any([a.dtype != first.dtype for a in avals]):
            msg = f"concatenate: operands need the same dtype, got {got}"
            hint = "convert them, or use tracebridge.numpy.concatenate, which promotes"
            raise DtypeMismatchError(msg, hint=hint)
        other_sizes = (*first.shape[:axis], *first.shape[axis + 1 :])
        if any([(*a.shape[:axis], *a.shape[axis + 1 :]) != other_sizes for a in avals]):
            msg = f"concatenate: sizes may differ along axis {axis} alone, got {got}"
            raise ShapeMismatchError(msg)
        size: Any = 0
        for a in avals:
            size = size + a.shape[axis]
        shape = (*first.shape[:axis], size, *first.shape[axis + 1 :])
        return result_aval(avals, shape)

    def split_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Any:
        del params
        split = [a for a in avals if a.split is not None]
        if any([a.split is not split[0].split for a in split]):
            got = ", ".join([a.str_short() for a in avals])
            raise ShardingTypeError(
                f"concatenate: All operands should have the same sharding: {got}",
                hint="reshard them first: tracebridge.sharding.reshard",
            )
        return [same_along_others("concatenate", split[0], outs[0].shape)]

    def recipe(self, *avals: ShapedArray, **params: Any) -> Any:
        """One operation."""
        del avals
        return "stablehlo.concatenate", {"dimension": i64(params["dimension"])}

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        attributes = {"dimension": i64(params["dimension"])}
        return ctx.op1("stablehlo.concatenate", operands, ctx.aval_out, attributes)

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        parts = [
            zeros_of(p.aval.tangent) if t is None else t
            for p, t in zip(primals, tangents, strict=True)
        ]
        return self.bind(*primals, **params), self.bind(*parts, **params)

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        axis = params["dimension"]
        cts: list[Any] = []
        start: Any = 0
        for a in args:
            limit = start + a.aval.shape[axis]
            linear = is_linear_input(a)
            cts.append(lax.slice_in_dim(ct, start, limit, axis=axis) if linear else None)
            start = limit
        return cts

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        moved, at = to_one_axis(args, dims, ctx.size)
        axis = params["dimension"]
        return self.bind(*moved, dimension=axis + (axis >= at)), at


concatenate_p = Concatenate()


def concatenate(operands: Any, dimension: int) -> Any:
    """Arrays joined along an axis.

    Args:
        operands: sequence of arrays, or one array whose slices along axis 0 are joined. They have
            one dtype and, but for axis ``dimension``, one shape.
        dimension: the axis; a negative one counts from the end.

    Raises:
        DtypeMismatchError: dtypes differ.
        ShapeMismatchError: there are no arrays, or their shapes do not fit.

    >>> import tracebridge as tb
    >>> x = tb.numpy.arange(2)
    >>> tb.lax.concatenate([x, x], 0).tolist()
    [0, 1, 0, 1]
    """
    axis = operator.index(dimension)
    if not isinstance(operands, list | tuple):
        operands = rows(operands) if hasattr(operands, "shape") else list(operands)
    values = as_values("concatenate", *operands)
    if axis < 0 and values and axis + values[0].aval.ndim >= 0:
        axis += values[0].aval.ndim
    return concatenate_p.bind(*values, dimension=axis)


def rows(array: Operand) -> list[Any]:
    """The slices of an array along axis 0."""
    x = as_value(array)
    if not x.aval.ndim:
        msg = f"concatenate: expected a sequence of arrays, got {x.aval.str_short()}"
        raise RankError(msg)
    return [lax.index_in_dim(x, i, 0, keepdims=False) for i in range(x.aval.shape[0])]
