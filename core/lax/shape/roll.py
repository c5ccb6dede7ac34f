"""roll: elements moved along an axis, around its end."""

from __future__ import annotations

__all__ = ["roll", "roll_p"]

import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex, final

import numpy as np

from tracebridge.core import lax
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.families import Structural
from tracebridge.core.lax.shape.axes import as_axis
from tracebridge.core.mlir.attrs import i64, i64_array
from tracebridge.core.symbolic.compare import at_least

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Operand, Value


_LARGE = 1 << 18  # elements, where rows are moved
_LEAST_SHARE = 4  # the shorter part is at least a fourth of the axis
_INDEX = ShapedArray((), np.dtype(np.int64))


@final
class Roll(Structural):
    """``shift`` places towards the end of axis ``dimension``, whose size n is an int.

    ``0 < shift < n``: others leave no equation behind.
    """

    name = "roll"

    def abstract_eval(self, *avals: ShapedArray, **params: object) -> ShapedArray:
        del params
        return avals[0]

    def split_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Any:
        del outs, params
        return [avals[0].split]

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        axis = params["dimension"]
        ends = [part for part, _ in _parts(ctx, operands[0], params["shift"], axis)]
        attributes = {"dimension": i64(axis)}
        return ctx.op1("stablehlo.concatenate", ends, ctx.aval_out, attributes)

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        axis = params["dimension"]
        size = args[0].aval.shape[axis]
        return [self.bind(ct, shift=size - params["shift"], dimension=axis)]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        del ctx
        (x,), (d,) = args, dims
        assert d is not None  # the only operand is batched
        axis = params["dimension"]
        return self.bind(x, shift=params["shift"], dimension=axis + (axis >= d)), d


roll_p = Roll()


def _parts(
    ctx: LoweringContext, x: IrValue, shift: int, axis: int
) -> list[tuple[IrValue, ShapedArray]]:
    """What comes first in the result and what follows, with their avals."""
    (aval,) = ctx.avals_in
    size = aval.shape[axis]
    found: list[tuple[IrValue, ShapedArray]] = []
    for start, limit in ((size - shift, size), (0, size - shift)):
        starts, limits = [0] * aval.ndim, list(aval.shape)
        starts[axis], limits[axis] = start, limit
        shape = (*aval.shape[:axis], limit - start, *aval.shape[axis + 1 :])
        part = aval.update(shape=shape)
        found.append((ctx.slice(x, part, starts, limits, (1,) * aval.ndim), part))
    return found


def is_joined(aval: ShapedArray, *, shift: int, dimension: int) -> bool:
    """Whether a concatenation of the parts is the better form: of a vector, or of large blocks.

    1024 x 1024 elements of float32 rolled by 512 along the first axis: 57 us, written 143; times
    another array 76 us either way. By 512 along the second axis 177 us and 164, times another array
    307 and 193. Vectors of 100000 elements by one place, two cores: 31 us and 40, minus another
    array 37 and 58, as rows of a matrix 33 and 82; of 20000 elements 10 to 15 us either way. Of a
    million by a tenth 431 us and 270, minus another array 437 and 652.
    """
    size = aval.shape[dimension]
    if aval.size == size <= _LARGE:
        return True
    is_first = math.prod(aval.shape[:dimension]) == 1
    return is_first and aval.size >= _LARGE and _LEAST_SHARE * min(shift, size - shift) >= size


def emit_written(ctx: LoweringContext, x: IrValue, *, shift: int, dimension: int) -> IrValue:
    """The shorter part written over the padding of the longer one.

    On the CPU both are copies, where a concatenation that is fused with what reads it decides for
    each element which part it comes from, and is not vectorised.
    """
    out = ctx.aval_out
    (first, _), (second, rest_aval) = _parts(ctx, x, shift, dimension)
    low, high, place = [0] * out.ndim, [0] * out.ndim, [0] * out.ndim
    if shift <= rest_aval.shape[dimension]:
        longer, shorter, low[dimension] = second, first, shift
    else:
        longer, shorter, high[dimension] = first, second, rest_aval.shape[dimension]
        place[dimension] = shift
    scalar = out.update(shape=())
    attributes = {
        "edge_padding_low": i64_array(low),
        "edge_padding_high": i64_array(high),
        "interior_padding": i64_array([0] * out.ndim),
    }
    zero = ctx.splat(False if out.dtype.kind == "b" else 0, scalar)
    padded = ctx.op1("stablehlo.pad", [longer, zero], out, attributes)
    starts = [ctx.splat(i, _INDEX) for i in place]
    return ctx.op1("stablehlo.dynamic_update_slice", [padded, shorter, *starts], out)


def roll(operand: Operand, shift: SupportsIndex, dimension: SupportsIndex) -> Any:
    """``operand`` with its elements moved along an axis; those that leave come in on the other end.

    Args:
        operand: an array of ``ndim`` axes, of any dtype.
        shift: how many places towards the end of the axis; negative ones towards its start.
        dimension: the axis, in ``[-ndim, ndim)``.

    Returns:
        An array of the shape and dtype of ``operand``.

    Raises:
        AxisError: the axis is out of range.

    >>> import tracebridge as tb
    >>> tb.lax.roll(tb.numpy.arange(4), 1, 0).tolist()
    [3, 0, 1, 2]
    """
    x = as_value(operand)
    axis = as_axis("roll", dimension, x.aval.ndim)
    size: Any = x.aval.shape[axis]
    places = operator.index(shift)
    if type(size) is int:
        places = places % size if size else 0
        return roll_p.bind(x, shift=places, dimension=axis) if places else x
    # Sizes that are known at run time only: how the axis is cut depends on them. An axis without
    # elements stays as it is, by any amount.
    cut = size - places % at_least(size, 1)
    whole = x.aval.shape
    to_cut = [cut if i == axis else d for i, d in enumerate(whole)]
    from_cut = [cut if i == axis else 0 for i in range(x.aval.ndim)]
    ends = [lax.slice(x, from_cut, whole), lax.slice(x, (0,) * x.aval.ndim, to_cut)]
    return lax.concatenate(ends, axis)
