"""broadcast_in_dim: place axes in a larger shape and repeat along the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import tracebridge.core.lax as lax
from tracebridge.core.errors.shape_errors import BroadcastError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.families import Structural
from tracebridge.core.mlir.attrs import i64_array


@final
class BroadcastInDim(Structural):
    """``shape``: of the result; ``broadcast_dimensions``: where the axes of the operand go."""

    name = "broadcast_in_dim"

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        (x,) = avals
        shape, dims = params["shape"], params["broadcast_dimensions"]
        if len(dims) != x.ndim or list(dims) != sorted(set(dims)) or any(
            [not 0 <= d < len(shape) for d in dims]
        ):
            msg = (
                f"broadcast_in_dim: broadcast_dimensions {dims} must be {x.ndim} increasing axes "
                f"of the result shape {shape}"
            )
            raise BroadcastError(msg)
        for i, d in enumerate(dims):
            size = x.shape[i]
            if not (type(size) is int and size == 1) and size != shape[d]:
                msg = f"broadcast_in_dim: cannot repeat shape {x.shape} to {shape} along axes {dims}"
                raise BroadcastError(msg)
        return ShapedArray(shape, x.dtype, x.weak_type)

    def recipe(self, *avals: ShapedArray, **params: Any) -> Any:
        """One operation; literals become splat constants of the result."""
        if avals[0].ndim == 0:
            return None
        return "stablehlo.broadcast_in_dim", {
            "broadcast_dimensions": i64_array(params["broadcast_dimensions"])
        }

    def lower(self, ctx: Any, *operands: Any, **params: Any) -> Any:
        return ctx.broadcast_in_dim(operands[0], ctx.aval_out, params["broadcast_dimensions"])

    def transpose(self, ct: Any, *args: Any, **params: Any) -> Sequence[Any]:
        (x,) = args
        dims = params["broadcast_dimensions"]
        repeated = tuple([i for i in range(len(params["shape"])) if i not in dims])
        ones = tuple(
            [
                d
                for d, n in zip(dims, x.aval.shape, strict=True)
                if type(n) is int and n == 1 and params["shape"][d] != 1
            ]
        )
        axes = tuple(sorted(repeated + ones))
        ct = lax.reduce_sum(ct, axes) if axes else ct
        return [ct if ct.aval.shape == x.aval.shape else lax.reshape(ct, x.aval.shape)]

    def batch(
        self, ctx: Any, args: Sequence[Any], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        (x,), (d,) = args, dims
        assert d is not None  # the only operand is batched
        x = lax.move_batch_axis(x, d, 0)
        shape = (ctx.size, *params["shape"])
        placed = (0, *[i + 1 for i in params["broadcast_dimensions"]])
        return self.bind(x, shape=shape, broadcast_dimensions=placed), 0


broadcast_in_dim_p: Primitive = BroadcastInDim()


def broadcast_in_dim(operand: Any, shape: Sequence[Any], broadcast_dimensions: Any) -> Any:
    """Repeat ``operand`` to ``shape``.

    Args:
        operand: array with ``len(broadcast_dimensions)`` axes.
        shape: shape of the result.
        broadcast_dimensions: increasing axes of the result that the operand's axes become; sizes
            must agree or be 1 in the operand.

    Raises:
        BroadcastError: the sizes or axes do not fit.

    >>> import tracebridge as tb
    >>> tb.lax.broadcast_in_dim(tb.numpy.arange(2), (3, 2), (1,)).tolist()
    [[0, 1], [0, 1], [0, 1]]
    """
    x = as_value(operand)
    shape, dims = tuple(shape), tuple(broadcast_dimensions)
    if x.aval.shape == shape and dims == tuple(range(len(shape))):
        return x
    return broadcast_in_dim_p.bind(x, shape=shape, broadcast_dimensions=dims)
