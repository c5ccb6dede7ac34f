"""gather: windows of an array at computed positions; index_take."""

from __future__ import annotations

__all__ = ["gather", "gather_p", "index_take"]

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core import lax
from tracebridge.core._jaxlib import mlir
from tracebridge.core.dtypes.dtypes import is_bool, is_complex, is_float, is_unsigned
from tracebridge.core.dtypes.finfo import iinfo
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.ir.aval import ShapedArray, result_aval
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.splits import split_of
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.values import python_scalar
from tracebridge.core.lax.ad_util import zeros_of
from tracebridge.core.lax.batch_util import move_batch_axis
from tracebridge.core.lax.families import Structural
from tracebridge.core.lax.indexing.index_splits import gathered_entries
from tracebridge.core.lax.indexing.modes import (
    as_axes_tuple,
    check_index_numbers,
    check_window_axes,
    in_bounds,
    signed_indices,
)
from tracebridge.core.lax.indexing.picks import picked_axis, put_back
from tracebridge.core.lax.shape.axes import as_axes, as_dims, surely_less
from tracebridge.core.mlir.attrs import boolean, i64_array
from tracebridge.core.mlir.types import is_static
from tracebridge.core.symbolic.compare import at_least

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.dtypes.dtypes import DTypeLike
    from tracebridge.core.ir.application import Params
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Operand, Value


@final
class Gather(Structural):
    """Operands: an array and index vectors (their last axis). See ``gather`` for the params.

    ``mode`` is a GatherScatterMode; ``fill_value`` a Python scalar or None.
    """

    name = "gather"
    cost = Cost.OTHER
    exact_keys = True  # fill_value

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        x, indices = avals
        numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
        batching = (numbers.operand_batching_dims, numbers.start_indices_batching_dims)
        collapsed = numbers.collapsed_slice_dims
        check_index_numbers("gather", x, indices, collapsed, numbers.start_index_map, batching)
        if len(sizes) != x.ndim:
            msg = f"gather: slice_sizes {sizes} need one entry for each axis of {x.str_short()}"
            raise RankError(msg)
        nothing = 0 in indices.shape[:-1]
        for axis, (n, m) in enumerate(zip(x.shape, sizes, strict=True)):
            # Along an axis without elements nothing is gathered where there are no indices either.
            alike = nothing or (type(n) is not int and m == 1 and n in indices.shape[:-1])
            if (not alike and surely_less(n, m)) or surely_less(m, 0):
                msg = f"gather: slice size {m} of axis {axis} does not fit {x.str_short()}"
                raise ShapeMismatchError(msg)
            if (axis in collapsed or axis in batching[0]) and m != 1:
                kind = "collapsed" if axis in collapsed else "batching"
                msg = f"gather: slice size of the {kind} axis {axis} must be 1, got {m}"
                raise ShapeMismatchError(msg)
        shape = gathered_shape(x, indices, numbers, sizes)
        return result_aval(avals, shape, weak_type=x.weak_type)

    def split_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Any:
        (out,) = outs
        return [split_of("gather", avals, gathered_entries(avals, out, params))]

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        x, indices = operands
        aval, indices_aval = ctx.avals_in
        numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
        if 0 in indices_aval.shape[:-1]:
            # XLA would compare the window with the operand, though it is not read.
            return ctx.splat(0, ctx.aval_out)
        indices, indices_aval = signed_indices(ctx, indices, indices_aval)
        out = _emit_not_empty(ctx, x, indices, indices_aval, params)
        index_map = numbers.start_index_map
        # XLA clamps the positions, so the other modes need nothing more.
        if params["mode"] is not lax.GatherScatterMode.FILL_OR_DROP or not index_map:
            return out
        inside, inside_aval = in_bounds(ctx, indices, indices_aval, aval.shape, sizes, index_map)
        result = ctx.aval_out
        batch_axes = [i for i in range(result.ndim) if i not in numbers.offset_dims]
        mask_aval = result.update(dtype=bool)
        mask = ctx.broadcast_in_dim(inside, mask_aval, batch_axes) if result.ndim else inside
        del inside_aval
        fill = params["fill_value"]
        fill = default_fill(result.dtype) if fill is None else fill
        return ctx.select(mask, out, ctx.splat(fill, result.strong), result)

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Any], **params: Any) -> Any:
        _, indices = primals
        out = self.bind(*primals, **params)
        if params["mode"] is lax.GatherScatterMode.FILL_OR_DROP:
            params = {**params, "fill_value": python_scalar(0, out.aval.dtype)}
        return out, self.bind(tangents[0], indices, **params)

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        x, indices = args
        if 0 in indices.aval.shape[:-1]:
            return [zeros_of(x.aval), None]
        numbers = params["dimension_numbers"]
        axis = picked_axis(x.aval, indices.aval, **params)
        if axis is not None:
            return [put_back(ct, indices, x.aval, axis, params["mode"]), None]
        out = lax.scatter_add(
            zeros_of(x.aval),
            indices,
            ct,
            scatter_numbers(numbers),
            indices_are_sorted=params["indices_are_sorted"],
            unique_indices=params["unique_indices"],
            mode=params["mode"],
        )
        return [out, None]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        x, indices = args
        d, indices_d = dims
        old = params["dimension_numbers"]
        sizes = params["slice_sizes"]
        offset = _shifted(old.offset_dims)
        if d is not None:
            x = move_batch_axis(x, d, 0)
            old = old._replace(
                collapsed_slice_dims=_shifted(old.collapsed_slice_dims),
                start_index_map=_shifted(old.start_index_map),
                operand_batching_dims=_shifted(old.operand_batching_dims),
            )
        if indices_d is None:
            numbers = old._replace(offset_dims=(0, *offset))
            new = {"dimension_numbers": numbers, "slice_sizes": (ctx.size, *sizes)}
            return self.bind(x, indices, **{**params, **new}), 0
        indices = move_batch_axis(indices, indices_d, 0)
        numbers = old._replace(
            offset_dims=offset,
            start_indices_batching_dims=_shifted(old.start_indices_batching_dims),
        )
        new: dict[str, Any] = {"dimension_numbers": numbers, "slice_sizes": sizes}
        if d is None:
            # Two elements of the batch may look at the same window.
            new["indices_are_sorted"] = new["unique_indices"] = False
        else:
            numbers = numbers._replace(
                operand_batching_dims=(0, *numbers.operand_batching_dims),
                start_indices_batching_dims=(0, *numbers.start_indices_batching_dims),
            )
            new = {"dimension_numbers": numbers, "slice_sizes": (1, *sizes)}
            if type(ctx.size) is int and ctx.size == 0:
                shape = gathered_shape(x.aval, indices.aval, numbers, (1, *sizes))
                return zeros_of(x.aval.update(shape=shape)), 0
        return self.bind(x, indices, **{**params, **new}), 0


gather_p = Gather()


def _shifted(axes: tuple[int, ...]) -> tuple[int, ...]:
    """Axes behind a new leading axis."""
    return tuple([a + 1 for a in axes])


def gathered_shape(
    x: ShapedArray, indices: ShapedArray, numbers: Any, sizes: Sequence[object]
) -> tuple[Any, ...]:
    """The shape of the result of a gather."""
    dropped = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    window = [n for axis, n in enumerate(sizes) if axis not in dropped]
    ndim = len(window) + indices.ndim - 1
    check_window_axes("gather", numbers.offset_dims, len(window), ndim)
    of_window, of_indices = iter(window), iter(indices.shape)
    return tuple([next(of_window if i in numbers.offset_dims else of_indices) for i in range(ndim)])


def scatter_numbers(numbers: Any) -> Any:
    """The dimension numbers of the scatter that undoes a gather."""
    return lax.ScatterDimensionNumbers(
        update_window_dims=numbers.offset_dims,
        inserted_window_dims=numbers.collapsed_slice_dims,
        scatter_dims_to_operand_dims=numbers.start_index_map,
        operand_batching_dims=numbers.operand_batching_dims,
        scatter_indices_batching_dims=numbers.start_indices_batching_dims,
    )


def default_fill(dtype: DTypeLike) -> Any:
    """What fills windows out of bounds: NaN, or the least signed or greatest unsigned integer."""
    if is_complex(dtype):
        return complex(float("nan"), 0.0)
    if is_float(dtype):
        return float("nan")
    if is_bool(dtype):
        return True
    limits = iinfo(dtype)
    return int(limits.max if is_unsigned(dtype) else limits.min)


def _emit_not_empty(
    ctx: LoweringContext, x: IrValue, indices: IrValue, indices_aval: ShapedArray, params: Params
) -> Any:
    """The gather of an operand whose axes of symbolic size have a first position, to fit."""
    aval, out_aval = ctx.avals_in[0], ctx.aval_out
    numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
    are_sorted = params["indices_are_sorted"]
    if is_static(aval):
        return _emit(ctx, x, indices, numbers, sizes, are_sorted, out_aval)
    batching = dict(
        zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)
    )
    for axis, n in enumerate(aval.shape):
        if type(n) is int or sizes[axis] != 1:
            continue
        x, aval = ctx.resized(x, aval, axis, at_least(n, 1))
        if axis in batching:
            at = batching[axis]
            indices, indices_aval = ctx.resized(indices, indices_aval, at, at_least(n, 1))
    shape = gathered_shape(aval, indices_aval, numbers, sizes)
    wide = out_aval.update(shape=shape)
    out = _emit(ctx, x, indices, numbers, sizes, are_sorted, wide)
    for axis, n in enumerate(out_aval.shape):
        out, wide = ctx.resized(out, wide, axis, n)
    return out


def _emit(
    ctx: LoweringContext,
    x: IrValue,
    indices: IrValue,
    numbers: Any,
    sizes: Sequence[Any],
    indices_are_sorted: bool,
    aval_out: ShapedArray,
) -> Any:
    attributes = {
        "dimension_numbers": mlir.stablehlo.GatherDimensionNumbers.get(
            list(numbers.offset_dims),
            list(numbers.collapsed_slice_dims),
            list(numbers.operand_batching_dims),
            list(numbers.start_indices_batching_dims),
            list(numbers.start_index_map),
            ctx.avals_in[1].ndim - 1,
        ),
        "indices_are_sorted": boolean(indices_are_sorted),
    }
    if all([type(n) is int for n in sizes]):
        attributes["slice_sizes"] = i64_array(sizes)
        return ctx.op1("stablehlo.gather", [x, indices], aval_out, attributes)
    operands = [x, indices, ctx.shape_tensor(sizes)]
    return ctx.op1("stablehlo.dynamic_gather", operands, aval_out, attributes)


def gather(
    operand: Operand,
    start_indices: Operand,
    dimension_numbers: Any,
    slice_sizes: Sequence[object],
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: object = None,
    fill_value: Any = None,
) -> Any:
    """Windows of ``operand`` at the positions that ``start_indices`` holds.

    The result has the axes of ``start_indices`` but the last, and among them, at ``offset_dims``,
    the axes of the window. ``result[batch, offset]`` is
    ``operand[start_indices[batch] + offset]``, entries placed by ``start_index_map``.

    Args:
        operand: an array.
        start_indices: integers; the last axis holds the index vectors.
        dimension_numbers: a GatherDimensionNumbers.
        slice_sizes: the size of the window along each axis of the operand.
        unique_indices: a promise that no two windows overlap.
        indices_are_sorted: a promise that index vectors come in increasing order.
        mode: a GatherScatterMode or its name, for windows that leave the operand; ``None`` is
            ``"promise_in_bounds"``.
        fill_value: what mode ``"fill"`` fills such windows with (default: NaN for floats, the
            least signed and the greatest unsigned integer, True).

    Raises:
        ShapeMismatchError: dimension numbers, sizes and shapes do not fit together.
        DtypeMismatchError: the indices are no integers.

    >>> import tracebridge as tb
    >>> rows = tb.lax.GatherDimensionNumbers((1,), (0,), (0,))
    >>> x = tb.numpy.arange(6).reshape(3, 2)
    >>> tb.lax.gather(x, tb.numpy.array([[2], [0]]), rows, (1, 2)).tolist()
    [[4, 5], [0, 1]]
    """
    x, indices = as_value(operand), as_value(start_indices)
    modes = lax.GatherScatterMode
    parsed = modes.PROMISE_IN_BOUNDS if mode is None else modes.from_any(mode)
    if parsed is modes.ONE_HOT:
        parsed = modes.FILL_OR_DROP
    if parsed is not modes.FILL_OR_DROP or fill_value is None:
        fill_value = None
    else:
        fill_value = python_scalar(fill_value, x.aval.dtype)
    return gather_p.bind(
        x,
        indices,
        dimension_numbers=lax.GatherDimensionNumbers(
            *[as_axes_tuple(axes) for axes in dimension_numbers]
        ),
        slice_sizes=as_dims(slice_sizes),
        unique_indices=bool(unique_indices),
        indices_are_sorted=bool(indices_are_sorted),
        mode=parsed,
        fill_value=fill_value,
    )


def index_take(src: object, idxs: Sequence[object], axes: Sequence[int]) -> Any:
    """Elements of ``src`` at integer positions along some axes, which come first in the result.

    Args:
        src: an array.
        idxs: one integer array of shape ``(n,)`` for each of ``axes``; negative positions count
            from the end.
        axes: distinct axes, in ``[-ndim, ndim)``.

    Returns:
        Array of shape ``(n, ...)`` with the other axes of ``src``.

    >>> import tracebridge as tb
    >>> x = tb.numpy.arange(6).reshape(3, 2)
    >>> tb.lax.index_take(x, (tb.numpy.array([2, 0]), tb.numpy.array([1, -1])), (0, 1)).tolist()
    [5, 1]
    """
    x = as_value(src)
    which = as_axes("index_take", axes, x.aval.ndim)
    columns: list[Any] = []
    for position, axis in zip(idxs, which, strict=True):
        index = as_value(position)
        length = lax.dimension_size(x.aval.shape[axis], index.aval.dtype)
        front = lax.select_n(lax.lt(index, 0), index, lax.add(index, length))
        columns.append(lax.expand_dims(front, (1,)))
    sizes = [1 if axis in which else n for axis, n in enumerate(x.aval.shape)]
    numbers = lax.GatherDimensionNumbers(
        offset_dims=tuple(range(1, x.aval.ndim - len(which) + 1)),
        collapsed_slice_dims=tuple(sorted(which)),
        start_index_map=which,
    )
    return gather(x, lax.concatenate(columns, 1), numbers, sizes)
