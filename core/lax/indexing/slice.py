"""Static slices: slice, slice_in_dim, index_in_dim."""

from __future__ import annotations

__all__ = ["index_in_dim", "slice", "slice_in_dim", "slice_p"]

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core import lax
from tracebridge.core.errors.shape_errors import IndexingError, RankError, ShapeMismatchError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.splits import same_along_others
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.values import Literal
from tracebridge.core.lax.ad_util import full_of
from tracebridge.core.lax.families import Structural
from tracebridge.core.lax.shape.axes import as_axis, as_dims, surely_less
from tracebridge.core.mlir.attrs import i64_array
from tracebridge.core.symbolic.dims import max_dim

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Operand, Value


@final
class Slice(Structural):
    """``x[start_indices:limit_indices:strides]``, one entry per axis in each parameter."""

    name = "slice"

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        (x,) = avals
        starts, limits = params["start_indices"], params["limit_indices"]
        strides = _strides(params, x.ndim)
        if not len(starts) == len(limits) == len(strides) == x.ndim:
            msg = (
                f"slice: start_indices {starts}, limit_indices {limits} and strides {strides} "
                f"need one entry for each axis of {x.str_short()}"
            )
            raise RankError(msg)
        shape: list[Any] = []
        for axis, n in enumerate(x.shape):
            start, limit, stride = starts[axis], limits[axis], strides[axis]
            if surely_less(start, 0) or surely_less(limit, start) or surely_less(n, limit):
                msg = (
                    f"slice: {start}:{limit} for axis {axis} of {x.str_short()}, "
                    f"expected 0 <= start <= limit <= {n}"
                )
                hint = "slice_in_dim counts negative positions from the end"
                raise ShapeMismatchError(msg, hint=hint)
            if surely_less(stride, 1):
                msg = f"slice: stride {stride} for axis {axis}, expected at least 1"
                raise ShapeMismatchError(msg, hint="use rev for the reverse order")
            length = limit - start
            shape.append(length if stride == 1 else (length + stride - 1) // stride)
        return x.update(shape=shape)

    def split_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Any:
        del params
        return [same_along_others("slicing", avals[0], outs[0].shape)]

    def recipe(self, *avals: ShapedArray, **params: Any) -> Any:
        """One operation, where no bound is symbolic."""
        strides = _strides(params, avals[0].ndim)
        bounds = (params["start_indices"], params["limit_indices"], strides)
        if not avals[0].ndim or any([type(n) is not int for b in bounds for n in b]):
            return None
        starts, limits, strides = [i64_array(b) for b in bounds]
        attributes = {"start_indices": starts, "limit_indices": limits, "strides": strides}
        return "stablehlo.slice", attributes

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        starts, limits = params["start_indices"], params["limit_indices"]
        return ctx.slice(operands[0], ctx.aval_out, starts, limits, _strides(params, len(starts)))

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        (x,) = args
        strides = _strides(params, x.aval.ndim)
        config: list[tuple[Any, ...]] = []
        for axis, n in enumerate(x.aval.shape):
            start, stride = params["start_indices"][axis], strides[axis]
            count = ct.aval.shape[axis]
            if stride == 1:
                covered = count
            elif type(count) is int:
                covered = max((count - 1) * stride + 1, 0)
            else:
                # In the form that pad gives its size.
                covered = count + max_dim(count - 1, 0) * (stride - 1)
            config.append((start, n - start - covered, stride - 1))
        return [lax.pad(ct, full_of(ct.aval.update(shape=()), 0), config)]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        (x,), (d,) = args, dims
        assert d is not None  # the only operand is batched

        def with_batch(part: tuple[object, ...], entry: object) -> tuple[Any, ...]:
            return (*part[:d], entry, *part[d:])

        out = self.bind(
            x,
            start_indices=with_batch(params["start_indices"], 0),
            limit_indices=with_batch(params["limit_indices"], ctx.size),
            strides=with_batch(_strides(params, len(params["start_indices"])), 1),
        )
        return out, d


def _strides(params: dict[str, Any], ndim: int) -> tuple[Any, ...]:
    """The strides; interpreters of others bind the primitive with None for steps of 1."""
    strides = params["strides"]
    return (1,) * ndim if strides is None else strides


slice_p = Slice()


def slice(
    operand: Operand,
    start_indices: Sequence[Operand],
    limit_indices: Sequence[object],
    strides: Sequence[Any] | None = None,
) -> Any:
    """The elements at ``start, start + stride, ...`` below ``limit`` along each axis.

    Args:
        operand: an array of ``n`` axes.
        start_indices: ``n`` first positions, at least 0.
        limit_indices: ``n`` positions after the last, at most the sizes.
        strides: ``n`` steps of at least 1 (default: all 1).

    Raises:
        ShapeMismatchError: positions are out of range.

    >>> import tracebridge as tb
    >>> tb.lax.slice(tb.numpy.arange(6), (1,), (6,), (2,)).tolist()
    [1, 3, 5]
    """
    x = as_value(operand)
    starts, limits = as_dims(start_indices), as_dims(limit_indices)
    steps = (1,) * len(starts) if strides is None else as_dims(strides)
    ndim = x.aval.ndim
    whole = limits == x.aval.shape and starts == (0,) * ndim and steps == (1,) * ndim
    if whole and type(x) is not Literal:
        return x
    return slice_p.bind(x, start_indices=starts, limit_indices=limits, strides=steps)


def slice_in_dim(
    operand: Any, start_index: object, limit_index: object, stride: object = 1, axis: int = 0
) -> Any:
    """A slice along one axis, as ``x[start_index:limit_index:stride]``.

    Args:
        operand: an array.
        start_index: first position; ``None`` is 0, negative ones count from the end.
        limit_index: the position after the last; ``None`` is the size.
        stride: step of at least 1.
        axis: in ``[-ndim, ndim)``.

    Raises:
        ShapeMismatchError: positions are out of range.

    >>> import tracebridge as tb
    >>> tb.lax.slice_in_dim(tb.numpy.arange(5), -3, None).tolist()
    [2, 3, 4]
    """
    x = as_value(operand)
    which = as_axis("slice_in_dim", axis, x.aval.ndim)
    size = x.aval.shape[which]
    starts: list[Any] = [0] * x.aval.ndim
    limits = list(x.aval.shape)
    strides: list[Any] = [1] * x.aval.ndim
    starts[which] = _from_end(start_index, size, 0)
    limits[which] = _from_end(limit_index, size, size)
    strides[which] = stride
    return slice(x, starts, limits, strides)


def _from_end(index: object, size: object, default: object) -> Any:
    """``index`` counted from the front."""
    if index is None:
        return default
    position = as_dims((index,))[0]
    return position + size if surely_less(position, 0, decides=True) else position


def index_in_dim(operand: Any, index: int, axis: int = 0, keepdims: bool = True) -> Any:
    """One position of an axis.

    Args:
        operand: an array.
        index: in ``[-n, n)`` for an axis of size ``n``.
        axis: in ``[-ndim, ndim)``.
        keepdims: whether the axis stays, with size 1.

    Raises:
        IndexingError: the index is out of range.

    >>> import tracebridge as tb
    >>> tb.lax.index_in_dim(tb.numpy.arange(5), -1, keepdims=False).tolist()
    4
    """
    x = as_value(operand)
    which = as_axis("index_in_dim", axis, x.aval.ndim)
    size = x.aval.shape[which]
    position = as_dims((index,))[0]
    front = _from_end(position, size, 0)
    if surely_less(front, 0) or not surely_less(front, size, decides=True):
        msg = f"index_in_dim: index {position} is out of bounds for axis {which} of size {size}"
        raise IndexingError(msg)
    piece = slice_in_dim(x, front, front + 1, 1, which)
    return piece if keepdims else lax.squeeze(piece, (which,))
