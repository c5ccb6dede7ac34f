"""reshape: the same elements in another shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import tracebridge.core.lax as lax
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.families import Structural


@final
class Reshape(Structural):
    name = "reshape"

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        (x,) = avals
        out = ShapedArray(params["new_sizes"], x.dtype, x.weak_type)
        if out.size != x.size:
            msg = f"reshape: shape {x.shape} has {x.size} elements, {out.shape} has {out.size}"
            raise ShapeMismatchError(msg)
        return out

    def recipe(self, *avals: ShapedArray, **params: Any) -> Any:
        """One operation without attributes."""
        del avals, params
        return "stablehlo.reshape", None

    def lower(self, ctx: Any, *operands: Any, **params: Any) -> Any:
        return ctx.reshape(operands[0], ctx.aval_out)

    def transpose(self, ct: Any, *args: Any, **params: Any) -> Sequence[Any]:
        return [lax.reshape(ct, args[0].aval.shape)]

    def batch(
        self, ctx: Any, args: Sequence[Any], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        (x,), (d,) = args, dims
        assert d is not None  # the only operand is batched
        x = lax.move_batch_axis(x, d, 0)
        return self.bind(x, new_sizes=(ctx.size, *params["new_sizes"])), 0


reshape_p = Reshape()


def reshape(operand: Any, new_sizes: Sequence[Any], dimensions: Sequence[int] | None = None) -> Any:
    """The elements of ``operand`` in row-major order, in a new shape of the same size.

    Args:
        operand: an array.
        new_sizes: the new shape; its product is the number of elements.
        dimensions: order in which to read the axes of ``operand`` (default: as they are).

    >>> import tracebridge as tb
    >>> tb.lax.reshape(tb.numpy.arange(4), (2, 2)).tolist()
    [[0, 1], [2, 3]]
    """
    x = as_value(operand)
    if dimensions is not None and tuple(dimensions) != tuple(range(x.aval.ndim)):
        x = lax.transpose(x, tuple(dimensions))
    shape = tuple(new_sizes)
    return x if shape == x.aval.shape else reshape_p.bind(x, new_sizes=shape)
