"""Arrays along a new axis (stack), the slices along one (unstack), and copies (tile)."""

from __future__ import annotations

__all__ = ["stack", "stack_p", "tile", "tile_p", "unstack", "unstack_p"]

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core import lax
from tracebridge.core.errors.dtype_errors import DtypeMismatchError
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.ir.aval import ShapedArray, result_aval
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.linear_input import is_linear_input
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.splits import entries_of, merged, same_along_others, split_of, whole_along
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.ad_util import zeros_of
from tracebridge.core.lax.batch_util import to_one_axis
from tracebridge.core.lax.families import operands as as_values
from tracebridge.core.lax.shape.axes import as_axis, as_shape
from tracebridge.core.mlir.attrs import i64

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Operand, Value


@final
class Stack(Primitive):
    """Arrays of one shape along a new axis ``axis``."""

    name = "stack"
    cost = Cost.MOVES_DATA
    makes_nan = False
    moves_elements = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        axis = params["axis"]
        got = ", ".join([a.str_short() for a in avals]) or "none"
        if not avals or any([a.shape != avals[0].shape for a in avals]):
            msg = f"stack: expected at least one array, all of one shape, got {got}"
            raise ShapeMismatchError(msg)
        if any([a.dtype != avals[0].dtype for a in avals]):
            msg = f"stack: operands need the same dtype, got {got}"
            hint = "convert them, or use tracebridge.numpy.stack, which promotes"
            raise DtypeMismatchError(msg, hint=hint)
        shape = avals[0].shape
        return result_aval(avals, (*shape[:axis], len(avals), *shape[axis:]))

    def split_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Any:
        del outs
        axis, entries = params["axis"], merged("stack", avals)
        return [split_of("stack", avals, (*entries[:axis], None, *entries[axis:]))]

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        axis, out = params["axis"], ctx.aval_out
        one = out.update(shape=(*out.shape[:axis], 1, *out.shape[axis + 1 :]))
        dims = [i for i in range(out.ndim) if i != axis]
        rows = [ctx.broadcast_in_dim(x, one, dims) for x in operands]
        return ctx.op1("stablehlo.concatenate", rows, out, {"dimension": i64(axis)})

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        parts = [
            zeros_of(p.aval.tangent) if t is None else t
            for p, t in zip(primals, tangents, strict=True)
        ]
        return self.bind(*primals, **params), self.bind(*parts, **params)

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        rows = unstack_p.bind(ct, **params)
        return [r if is_linear_input(a) else None for r, a in zip(rows, args, strict=True)]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        moved, at = to_one_axis(args, dims, ctx.size)
        axis = params["axis"]
        if axis <= at:
            return self.bind(*moved, axis=axis), at + 1
        return self.bind(*moved, axis=axis + 1), at


@final
class Unstack(Primitive):
    """The slices along ``axis``, without it."""

    name = "unstack"
    cost = Cost.MOVES_DATA
    makes_nan = False
    moves_elements = True
    multiple_results = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> list[ShapedArray]:
        (x,) = avals
        axis = params["axis"]
        row = x.update(shape=(*x.shape[:axis], *x.shape[axis + 1 :]))
        return [row] * operator.index(x.shape[axis])

    def split_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Any:
        (x,), axis = avals, params["axis"]
        whole_along("unstack", x, (axis,))
        entries = entries_of(x)
        split = split_of("unstack", avals, (*entries[:axis], *entries[axis + 1 :]))
        return [split] * len(outs)

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        (x,) = operands
        (aval,) = ctx.avals_in
        axis = params["axis"]
        starts: list[Any] = [0] * aval.ndim
        limits = list(aval.shape)
        one = aval.update(shape=(*aval.shape[:axis], 1, *aval.shape[axis + 1 :]))
        rows: list[Any] = []
        for i, out in enumerate(ctx.avals_out):
            starts[axis], limits[axis] = i, i + 1
            rows.append(ctx.reshape(ctx.slice(x, one, starts, limits, [1] * aval.ndim), out))
        return rows

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Any], **params: Any) -> Any:
        return self.bind(*primals, **params), self.bind(*tangents, **params)

    def transpose(self, ct: Any, *args: Value, **params: Any) -> Sequence[Any]:
        (x,) = args
        axis = params["axis"]
        if all([c is None for c in ct]):
            return [None]
        row = x.aval.tangent.update(shape=(*x.aval.shape[:axis], *x.aval.shape[axis + 1 :]))
        return [stack_p.bind(*[zeros_of(row) if c is None else c for c in ct], axis=axis)]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        (x,), (d,) = args, dims
        assert d is not None  # the only operand is batched
        axis = params["axis"]
        outs = self.bind(x, axis=axis + (axis >= d))
        return outs, [d - (axis < d)] * len(outs)


@final
class Tile(Primitive):
    """``reps[i]`` copies along axis ``i``."""

    name = "tile"
    cost = Cost.MOVES_DATA
    makes_nan = False
    moves_elements = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        (x,) = avals
        reps = params["reps"]
        if len(reps) != x.ndim:
            msg = f"tile: reps {reps} need one count for each axis of {x.str_short()}"
            raise RankError(msg)
        return x.update(shape=tuple([r * n for r, n in zip(reps, x.shape, strict=True)]))

    def split_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Any:
        del params
        return [same_along_others("tile", avals[0], outs[0].shape)]

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        (x,) = operands
        (aval,) = ctx.avals_in
        copies = aval.update(shape=_copies(params["reps"], aval.shape))
        x = ctx.broadcast_in_dim(x, copies, list(range(1, 2 * aval.ndim, 2)))
        return ctx.reshape(x, ctx.aval_out)

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Any], **params: Any) -> Any:
        return self.bind(*primals, **params), self.bind(*tangents, **params)

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        (x,) = args
        copies = lax.reshape(ct, _copies(params["reps"], x.aval.shape))
        return [lax.reduce_sum(copies, tuple(range(0, 2 * x.aval.ndim, 2)))]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        (x,), (d,) = args, dims
        assert d is not None  # the only operand is batched
        reps = params["reps"]
        return self.bind(x, reps=(*reps[:d], 1, *reps[d:])), d


stack_p = Stack()
unstack_p = Unstack()
tile_p = Tile()


def _copies(reps: Sequence[Any], shape: Sequence[Any]) -> tuple[Any, ...]:
    """The shape with an axis of copies before each axis."""
    return tuple([n for pair in zip(reps, shape, strict=True) for n in pair])


def stack(operands: Sequence[Value], axis: int = 0) -> Any:
    """Arrays joined along a new axis.

    Args:
        operands: arrays of one dtype and shape, of ``ndim`` axes.
        axis: where the new axis is, in ``[-ndim - 1, ndim]``.

    Raises:
        ShapeMismatchError: there are no arrays, or their shapes differ.
        DtypeMismatchError: their dtypes differ.

    >>> import tracebridge as tb
    >>> x = tb.numpy.arange(2)
    >>> tb.lax.stack([x, x], 1).tolist()
    [[0, 0], [1, 1]]
    """
    values = as_values("stack", *operands)
    ndim = values[0].aval.ndim if values else 0
    return stack_p.bind(*values, axis=as_axis("stack", axis, ndim + 1))


def unstack(x: Operand, axis: int = 0) -> tuple[Any, ...]:
    """The slices of ``x`` along an axis, without that axis.

    Args:
        x: an array of ``ndim`` axes.
        axis: in ``[-ndim, ndim)``; its size is not symbolic.

    >>> import tracebridge as tb
    >>> [row.tolist() for row in tb.lax.unstack(tb.numpy.eye(2))]
    [[1.0, 0.0], [0.0, 1.0]]
    """
    value = as_value(x)
    return tuple(unstack_p.bind(value, axis=as_axis("unstack", axis, value.aval.ndim)))


def tile(operand: Operand, reps: Sequence[int]) -> Any:
    """``operand`` repeated ``reps[i]`` times along axis ``i``.

    Args:
        operand: an array of ``n`` axes.
        reps: ``n`` counts of at least 0.

    Raises:
        RankError: there is not one count for each axis.

    >>> import tracebridge as tb
    >>> tb.lax.tile(tb.numpy.arange(2), (2,)).tolist()
    [0, 1, 0, 1]
    """
    return tile_p.bind(as_value(operand), reps=as_shape("tile", tuple(reps)))
