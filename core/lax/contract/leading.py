"""Contractions of the leading axes of both operands on CPU: gradients of weights.

``x^T y`` is multiplied by turning ``x`` round, either by a copy or as it is read. XLA takes what
stands on the left, also where it is the larger one, and it exchanges the operands itself when the
result is transposed. On the left ``f32[2048,512]`` beside ``f32[2048,10]`` takes twelve times as
long as the other way round, ``f32[8,512,512]`` beside ``f32[8,512,64]`` (keys and values of
attention) three times. So the smaller one is put there, and a barrier keeps it there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracebridge.core._jaxlib import mlir
from tracebridge.core.dtypes.dtypes import float32, float64
from tracebridge.core.lax.contract.precision import precision_attributes
from tracebridge.core.mlir.types import is_static

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.rule_contexts import LoweringContext

_LEAST_ELEMENTS = 1 << 17  # of the larger operand; smaller ones are turned round in no time
_MUCH = 1.5


def contracts_leading_axes(x: ShapedArray, y: ShapedArray, out: object, numbers: Any) -> bool:
    """Whether ``emit_smaller_first`` suits operands ``x`` and ``y``, a result of dtype ``out``."""
    if x.dtype != y.dtype or x.dtype != out or out not in (float32, float64):
        return False
    (xc, yc), (xb, yb) = numbers
    n_batch, n_lead = len(xb), len(xb) + len(xc)
    leading = tuple(range(n_lead))
    if (*xb, *xc) != leading or (*yb, *yc) != leading or n_lead == n_batch:
        return False
    if not (is_static(x) and is_static(y)) or max(x.size, y.size) < _LEAST_ELEMENTS:
        return False
    return min(x.size, y.size) > 0 and max(x.size, y.size) >= _MUCH * min(x.size, y.size)


def emit_smaller_first(
    ctx: LoweringContext, x: IrValue, y: IrValue, out: ShapedArray, precision: Any, n_batch: int
) -> Any:
    """Emit the contraction with the smaller operand on the left."""
    x_aval, y_aval = ctx.avals_in
    # Sizes of the result: batch axes, free axes of x, free axes of y.
    n_lead = n_batch + (x_aval.ndim + y_aval.ndim - out.ndim - n_batch) // 2
    start = n_batch + x_aval.ndim - n_lead
    swap = x_aval.size > y_aval.size
    shape = (*out.shape[:n_batch], *out.shape[start:], *out.shape[n_batch:start])
    made = out.update(shape=shape) if swap else out
    axes = list(range(n_lead))
    if swap and precision is not None:
        precision = precision[::-1]
    attributes = precision_attributes(precision, x_aval.dtype, y_aval.dtype, out.dtype)
    attributes["dot_dimension_numbers"] = mlir.stablehlo.DotDimensionNumbers.get(
        lhs_batching_dimensions=axes[:n_batch],
        rhs_batching_dimensions=axes[:n_batch],
        lhs_contracting_dimensions=axes[n_batch:],
        rhs_contracting_dimensions=axes[n_batch:],
    )
    product = ctx.op1("stablehlo.dot_general", [y, x] if swap else [x, y], made, attributes)
    product = ctx.op1("stablehlo.optimization_barrier", [product], made)
    if not swap:
        return product
    middle = n_batch + out.ndim - start
    order = [*range(n_batch), *range(middle, out.ndim), *range(n_batch, middle)]
    return ctx.transpose(product, out, order)
