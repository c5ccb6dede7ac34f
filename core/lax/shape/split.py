"""An array cut into pieces along an axis: split."""

from __future__ import annotations

__all__ = ["split", "split_p"]

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core import lax
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.splits import same_along_others
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.ad_util import zeros_of
from tracebridge.core.lax.shape.axes import as_axis, as_shape

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Operand, Value


@final
class Split(Primitive):
    """Pieces of ``sizes`` along ``axis``: one equation instead of a slice for each."""

    name = "split"
    cost = Cost.MOVES_DATA
    makes_nan = False
    moves_elements = True
    multiple_results = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> list[ShapedArray]:
        (x,) = avals
        sizes, axis = params["sizes"], params["axis"]
        total: Any = 0
        for n in sizes:
            total = total + n
        if total != x.shape[axis]:
            msg = (
                f"split: sizes {sizes} add up to {total}, expected {x.shape[axis]}, "
                f"the size of axis {axis} of {x.str_short()}"
            )
            raise ShapeMismatchError(msg)
        before, after = x.shape[:axis], x.shape[axis + 1 :]
        return [x.update(shape=(*before, n, *after)) for n in sizes]

    def split_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Any:
        del params
        return [same_along_others("split", avals[0], out.shape) for out in outs]

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        (x,) = operands
        (aval,) = ctx.avals_in
        axis = params["axis"]
        starts: list[Any] = [0] * aval.ndim
        limits = list(aval.shape)
        pieces: list[Any] = []
        position: Any = 0
        for out in ctx.avals_out:
            starts[axis] = position
            position = limits[axis] = position + out.shape[axis]
            pieces.append(ctx.slice(x, out, starts, limits, [1] * aval.ndim))
        return pieces

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Any], **params: Any) -> Any:
        return self.bind(*primals, **params), self.bind(*tangents, **params)

    def transpose(self, ct: Any, *args: Value, **params: Any) -> Sequence[Any]:
        (x,) = args
        sizes, axis = params["sizes"], params["axis"]
        before, after = x.aval.shape[:axis], x.aval.shape[axis + 1 :]
        parts = [
            zeros_of(x.aval.tangent.update(shape=(*before, n, *after))) if c is None else c
            for c, n in zip(ct, sizes, strict=True)
        ]
        return [lax.concatenate(parts, axis)]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        del ctx
        (x,), (d,) = args, dims
        assert d is not None  # the only operand is batched
        axis = params["axis"]
        outs = self.bind(x, sizes=params["sizes"], axis=axis + (axis >= d))
        return outs, [d] * len(outs)


split_p = Split()


def split(operand: Operand, sizes: Sequence[object], axis: int = 0) -> list[Any]:
    """Pieces of ``operand``, one after the other along an axis.

    Args:
        operand: an array of ``ndim`` axes.
        sizes: sizes of the pieces; they add up to the size of the axis.
        axis: in ``[-ndim, ndim)``.

    Raises:
        ShapeMismatchError: the sizes do not add up.

    >>> import tracebridge as tb
    >>> [piece.tolist() for piece in tb.lax.split(tb.numpy.arange(5), (2, 3))]
    [[0, 1], [2, 3, 4]]
    """
    x = as_value(operand)
    which = as_axis("split", axis, x.aval.ndim)
    return split_p.bind(x, sizes=as_shape("split", tuple(sizes)), axis=which)
