"""Slices at positions that are values: dynamic_slice and dynamic_update_slice."""

from __future__ import annotations

__all__ = [
    "dynamic_index_in_dim", "dynamic_slice", "dynamic_slice_in_dim", "dynamic_slice_p",
    "dynamic_update_index_in_dim", "dynamic_update_slice", "dynamic_update_slice_in_dim",
    "dynamic_update_slice_p",
]  # fmt: skip

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tracebridge.core import lax
from tracebridge.core.dtypes.dtypes import is_integer
from tracebridge.core.errors.dtype_errors import DtypeMismatchError
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.errors.transform_errors import ShardingTypeError
from tracebridge.core.ir.aval import ShapedArray, result_aval
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.linear_input import is_linear_input
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.splits import entries_of, same_along_others
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.values import Literal, literal
from tracebridge.core.lax.ad_util import zeros_of
from tracebridge.core.lax.batch_util import broadcast_batch, move_batch_axis, to_front
from tracebridge.core.lax.families import Structural, operands
from tracebridge.core.lax.indexing.starts import start_values
from tracebridge.core.lax.shape.axes import as_axis, as_shape, surely_less
from tracebridge.core.mlir.attrs import i64, i64_array

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Operand, Value


_I32 = np.dtype(np.int32)
_I64 = np.dtype(np.int64)
_INDEX_DTYPES = (_I32, _I64)


@final
class DynamicSlice(Structural):
    """Operands: an array, then one start per axis. Starts are clamped so that the slice fits."""

    name = "dynamic_slice"
    cost = Cost.OTHER

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        x, *starts = avals
        sizes = params["slice_sizes"]
        check_starts(self.name, x, starts)
        if len(sizes) != x.ndim:
            msg = (
                f"dynamic_slice: slice_sizes {sizes} need one entry for each axis of "
                f"{x.str_short()}"
            )
            raise RankError(msg)
        if any([surely_less(n, m) for n, m in zip(x.shape, sizes, strict=True)]):
            msg = f"dynamic_slice: slice_sizes {sizes} are larger than {x.str_short()}"
            raise ShapeMismatchError(msg)
        return result_aval(avals, sizes, weak_type=x.weak_type)

    def split_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Any:
        del params
        return [same_along_others("dynamic_slice", avals[0], outs[0].shape)]

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        x, *starts = operands
        sizes = params["slice_sizes"]
        starts = wide_starts(ctx, starts)
        if all([type(n) is int for n in sizes]):
            attributes = {"slice_sizes": i64_array(sizes)}
            return ctx.op1("stablehlo.dynamic_slice", [x, *starts], ctx.aval_out, attributes)
        return _slice_of_symbolic_size(ctx, x, starts, sizes)

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        x, *starts = args
        zeros = zeros_of(x.aval)
        return [dynamic_update_slice_p.bind(zeros, ct, *starts), *[None] * len(starts)]

    def batch(
        self, ctx: BatchContext, args: Sequence[Any], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        x, *starts = args
        sizes = params["slice_sizes"]
        x_dim, *start_dims = dims
        if x_dim is not None and all([d is None for d in start_dims]):
            starts.insert(x_dim, _start_of_batch(starts))
            sizes = (*sizes[:x_dim], ctx.size, *sizes[x_dim:])
            return self.bind(x, *starts, slice_sizes=sizes), x_dim
        if type(ctx.size) is int and ctx.size == 0:
            # Windows of size 1 along the new axis would not fit.
            return zeros_of(x.aval.update(shape=(0, *sizes))), 0
        indices = _index_vectors(starts, start_dims, ctx.size)
        axes = tuple(range(len(sizes)))
        if x_dim is None:
            numbers = lax.GatherDimensionNumbers(tuple([a + 1 for a in axes]), (), axes)
        else:
            x = move_batch_axis(x, x_dim, 0)
            moved = tuple([a + 1 for a in axes])
            numbers = lax.GatherDimensionNumbers(moved, (), moved, (0,), (0,))
            sizes = (1, *sizes)
        return lax.gather(x, indices, numbers, sizes, mode="clip"), 0


@final
class DynamicUpdateSlice(Primitive):
    """Operands: an array, an update, then one start per axis, clamped so that the update fits."""

    name = "dynamic_update_slice"
    cost = Cost.OTHER
    makes_nan = False
    moves_elements = True

    def abstract_eval(self, *avals: ShapedArray, **params: object) -> ShapedArray:
        x, update, *starts = avals
        got = f"operand {x.str_short()}, update {update.str_short()}"
        if x.dtype != update.dtype:
            msg = f"dynamic_update_slice: operand and update need the same dtype, got {got}"
            raise DtypeMismatchError(msg, hint="convert one with convert_element_type")
        if x.ndim != update.ndim:
            msg = f"dynamic_update_slice: operand and update need the same rank, got {got}"
            raise RankError(msg)
        if any([surely_less(n, m) for n, m in zip(x.shape, update.shape, strict=True)]):
            msg = f"dynamic_update_slice: the update is larger than the operand, got {got}"
            raise ShapeMismatchError(msg)
        check_starts(self.name, x, starts)
        return result_aval(avals, x.shape, weak_type=False)

    def split_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Any:
        del outs, params
        x, update = avals[0], avals[1]
        if update.split is not None and entries_of(x) != entries_of(update):
            raise ShardingTypeError(
                f"dynamic_update_slice: {update.str_short()} is split in another way than "
                f"{x.str_short()}, into which it is written",
                hint="reshard one first: tracebridge.sharding.reshard",
            )
        return [x.split]

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: object) -> Any:
        x, update, *starts = operands
        starts = wide_starts(ctx, starts, 2)
        return ctx.op1("stablehlo.dynamic_update_slice", [x, update, *starts], ctx.aval_out)

    def jvp(
        self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: object
    ) -> Any:
        x, update, *starts = primals
        t_x, t_update, *_ = tangents
        t_x = zeros_of(x.aval.tangent) if t_x is None else t_x
        t_update = zeros_of(update.aval.tangent) if t_update is None else t_update
        return self.bind(*primals), self.bind(t_x, t_update, *starts)

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        x, update, *starts = args
        cts: list[Any] = [None] * len(args)
        if is_linear_input(x):
            cts[0] = self.bind(ct, zeros_of(update.aval), *starts)
        if is_linear_input(update):
            cts[1] = dynamic_slice_p.bind(ct, *starts, slice_sizes=update.aval.shape)
        return cts

    def batch(
        self, ctx: BatchContext, args: Sequence[Any], dims: Sequence[int | None], **params: object
    ) -> tuple[Any, Any]:
        x, update, *starts = args
        x_dim, update_dim, *start_dims = dims
        if all([d is None for d in start_dims]):
            at = update_dim if x_dim is None else x_dim
            assert at is not None  # something is batched
            x = _batched_at(x, x_dim, at, ctx.size)
            update = _batched_at(update, update_dim, at, ctx.size)
            starts.insert(at, _start_of_batch(starts))
            return self.bind(x, update, *starts), at
        x = to_front(x, x_dim, ctx.size)
        if type(ctx.size) is int and ctx.size == 0:
            return x, 0
        update = to_front(update, update_dim, ctx.size)
        indices = _index_vectors(starts, start_dims, ctx.size)
        axes = tuple(range(1, x.aval.ndim))
        numbers = lax.ScatterDimensionNumbers(axes, (), axes, (0,), (0,))
        out = lax.scatter(
            x,
            indices,
            update,
            numbers,
            indices_are_sorted=True,
            unique_indices=True,
            mode="clip",
        )
        return out, 0


dynamic_slice_p = DynamicSlice()
dynamic_update_slice_p = DynamicUpdateSlice()


def check_starts(call: str, x: ShapedArray, starts: Sequence[ShapedArray]) -> None:
    """Raise unless there is one integer scalar of a common dtype for each axis."""
    if len(starts) != x.ndim:
        msg = f"{call}: got {len(starts)} start indices, expected {x.ndim} for {x.str_short()}"
        raise RankError(msg)
    for s in starts:
        if s.ndim or not is_integer(s.dtype) or s.dtype != starts[0].dtype:
            got = ", ".join([a.str_short() for a in starts])
            msg = f"{call}: start indices must be integer scalars of one dtype, got {got}"
            raise DtypeMismatchError(msg, hint="convert them with convert_element_type")


def wide_starts(ctx: LoweringContext, starts: Sequence[Any], first: int = 1) -> list[Any]:
    """While lowering: starts of a dtype in which all positions can be written.

    XLA clamps in the dtype of the index, where the size of an axis may wrap to a negative number.
    """
    if not starts or ctx.avals_in[first].dtype in _INDEX_DTYPES:
        return list(starts)
    aval = ctx.avals_in[first]
    wide = aval.update(dtype=_I32 if aval.dtype.itemsize < 4 else _I64)
    if aval.dtype == np.uint64:
        limit = ctx.splat(2**63 - 1, aval)
        starts = [ctx.op1("stablehlo.minimum", [s, limit], aval) for s in starts]
    return [ctx.convert(s, wide) for s in starts]


def _slice_of_symbolic_size(
    ctx: LoweringContext, x: IrValue, starts: list[Any], sizes: Sequence[Any]
) -> Any:
    """``real_dynamic_slice``, which does not clamp, at clamped positions."""
    scalar = ShapedArray((), _I32)
    one = ShapedArray((1,), _I32)
    zero = ctx.splat(0, scalar)
    positions: list[Any] = []
    for start, size, n in zip(starts, sizes, ctx.avals_in[0].shape, strict=True):
        narrow = start if ctx.avals_in[1].dtype == _I32 else ctx.convert(start, scalar)
        clamped = ctx.op1("stablehlo.clamp", [zero, narrow, ctx.dim(n - size)], scalar)
        positions.append(ctx.reshape(clamped, one))
    vector = ShapedArray((len(sizes),), _I32)
    first = positions[0]
    if len(positions) > 1:
        attributes = {"dimension": i64(0)}
        first = ctx.op1("stablehlo.concatenate", positions, vector, attributes)
    limit = ctx.op1("stablehlo.add", [first, ctx.shape_tensor(sizes)], vector)
    strides = ctx.shape_tensor((1,) * len(sizes))
    return ctx.op1("stablehlo.real_dynamic_slice", [x, first, limit, strides], ctx.aval_out)


def _start_of_batch(starts: Sequence[Any]) -> Literal:
    return literal(0, starts[0].aval.dtype if starts else _I32)


def _batched_at(x: Value, dim: int | None, at: int, size: Any) -> Any:
    return broadcast_batch(x, size, at) if dim is None else move_batch_axis(x, dim, at)


def _index_vectors(starts: Sequence[Any], dims: Sequence[int | None], size: Any) -> Any:
    """Scalar starts, some batched, as an array of shape ``(batch, number of axes)``."""
    columns = [
        lax.broadcast_in_dim(s, (size, 1), () if d is None else (0,))
        for s, d in zip(starts, dims, strict=True)
    ]
    return lax.concatenate(columns, 1)


# public functions --------------------------------------------------------------------------------


def dynamic_slice(
    operand: Operand,
    start_indices: object,
    slice_sizes: Sequence[Any],
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Any:
    """A slice of fixed size at a position that may be computed.

    Args:
        operand: an array of ``n`` axes.
        start_indices: ``n`` integer scalars, or an integer array of shape ``(n,)``. A position
            from which the slice would leave the array is moved inwards until it fits.
        slice_sizes: ``n`` sizes, at most those of the operand.
        allow_negative_indices: whether negative positions count from the end; for all axes, or
            one bool for each. Without it, they are moved to 0.

    Raises:
        RankError: there is not one entry for each axis.
        ShapeMismatchError: the slice is larger than the operand.
        DtypeMismatchError: the positions are no integers of one dtype.

    >>> import tracebridge as tb
    >>> tb.lax.dynamic_slice(tb.numpy.arange(5), (4,), (2,)).tolist()
    [3, 4]
    """
    x = as_value(operand)
    starts = start_values("dynamic_slice", x, start_indices, allow_negative_indices)
    sizes = as_shape("dynamic_slice", tuple(slice_sizes))
    return dynamic_slice_p.bind(x, *starts, slice_sizes=sizes)


def dynamic_slice_in_dim(
    operand: Operand,
    start_index: object,
    slice_size: object,
    axis: int = 0,
    *,
    allow_negative_indices: bool = True,
) -> Any:
    """``dynamic_slice`` along one axis.

    Args:
        operand: an array.
        start_index: integer scalar.
        slice_size: how many elements.
        axis: in ``[-ndim, ndim)``.
        allow_negative_indices: whether a negative position counts from the end.

    >>> import tracebridge as tb
    >>> tb.lax.dynamic_slice_in_dim(tb.numpy.arange(5), 1, 3).tolist()
    [1, 2, 3]
    """
    x = as_value(operand)
    which = as_axis("dynamic_slice_in_dim", axis, x.aval.ndim)
    starts: list[Any] = [0] * x.aval.ndim
    sizes = list(x.aval.shape)
    starts[which] = start_index
    sizes[which] = slice_size
    return dynamic_slice(x, starts, sizes, allow_negative_indices=allow_negative_indices)


def dynamic_index_in_dim(
    operand: Any,
    index: object,
    axis: int = 0,
    keepdims: bool = True,
    *,
    allow_negative_indices: bool = True,
) -> Any:
    """One position of an axis, which may be computed; out of range it is clamped.

    Args:
        operand: an array.
        index: integer scalar.
        axis: in ``[-ndim, ndim)``.
        keepdims: whether the axis stays, with size 1.
        allow_negative_indices: whether a negative position counts from the end.

    >>> import tracebridge as tb
    >>> tb.lax.dynamic_index_in_dim(tb.numpy.arange(5), 2, keepdims=False).tolist()
    2
    """
    x = as_value(operand)
    which = as_axis("dynamic_index_in_dim", axis, x.aval.ndim)
    piece = dynamic_slice_in_dim(x, index, 1, which, allow_negative_indices=allow_negative_indices)
    return piece if keepdims else lax.squeeze(piece, (which,))


def dynamic_update_slice(
    operand: Operand,
    update: Operand,
    start_indices: object,
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Any:
    """``operand`` with a slice replaced by ``update``, at a position that may be computed.

    Args:
        operand: an array of ``n`` axes.
        update: array of the same dtype and rank, not larger along any axis.
        start_indices: ``n`` integer scalars, or an integer array of shape ``(n,)``. A position
            from which the update would leave the array is moved inwards until it fits.
        allow_negative_indices: whether negative positions count from the end; for all axes, or
            one bool for each.

    Raises:
        DtypeMismatchError: dtypes differ, or the positions are no integers of one dtype.
        ShapeMismatchError: the update is larger than the operand, or of another rank.

    >>> import tracebridge as tb
    >>> x = tb.numpy.zeros(4)
    >>> tb.lax.dynamic_update_slice(x, tb.numpy.ones(2), (1,)).tolist()
    [0.0, 1.0, 1.0, 0.0]
    """
    x, new = operands("dynamic_update_slice", operand, update)
    starts = start_values("dynamic_update_slice", x, start_indices, allow_negative_indices)
    return dynamic_update_slice_p.bind(x, new, *starts)


def dynamic_update_slice_in_dim(
    operand: Operand,
    update: Any,
    start_index: object,
    axis: int,
    *,
    allow_negative_indices: bool = True,
) -> Any:
    """``dynamic_update_slice`` along one axis.

    Args:
        operand: an array.
        update: array of the same dtype and rank.
        start_index: integer scalar.
        axis: in ``[-ndim, ndim)``.
        allow_negative_indices: whether a negative position counts from the end.

    >>> import tracebridge as tb
    >>> x = tb.numpy.zeros(4)
    >>> tb.lax.dynamic_update_slice_in_dim(x, tb.numpy.ones(2), 2, 0).tolist()
    [0.0, 0.0, 1.0, 1.0]
    """
    x = as_value(operand)
    starts: list[Any] = [0] * x.aval.ndim
    starts[as_axis("dynamic_update_slice_in_dim", axis, x.aval.ndim)] = start_index
    return dynamic_update_slice(x, update, starts, allow_negative_indices=allow_negative_indices)


def dynamic_update_index_in_dim(
    operand: Operand,
    update: Operand,
    index: object,
    axis: int,
    *,
    allow_negative_indices: bool = True,
) -> Any:
    """``operand`` with one position of an axis replaced.

    Args:
        operand: an array.
        update: array of the same dtype; without the axis, or with size 1 there.
        index: integer scalar.
        axis: in ``[-ndim, ndim)``.
        allow_negative_indices: whether a negative position counts from the end.

    >>> import tracebridge as tb
    >>> x = tb.numpy.zeros(3)
    >>> tb.lax.dynamic_update_index_in_dim(x, 7.0, 1, 0).tolist()
    [0.0, 7.0, 0.0]
    """
    x, new = operands("dynamic_update_index_in_dim", operand, update)
    which = as_axis("dynamic_update_index_in_dim", axis, x.aval.ndim)
    if new.aval.ndim == x.aval.ndim - 1:
        new = lax.expand_dims(new, (which,))
    return dynamic_update_slice_in_dim(
        x, new, index, which, allow_negative_indices=allow_negative_indices
    )
