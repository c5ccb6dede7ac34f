"""Positions of extreme elements: argmax, argmin."""

from __future__ import annotations

__all__ = ["argmax", "argmax_p", "argmin", "argmin_p"]

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tracebridge.core._jaxlib import mlir
from tracebridge.core.dtypes.canonicalize import canonicalize_explicit
from tracebridge.core.dtypes.dtypes import (
    int8,
    int32,
    int64,
    is_bool,
    is_complex,
    is_float,
    is_integer,
)
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.ir.aval import ShapedArray, element_aval
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.splits import entries_of, split_of
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.accepted_dtypes import is_ordinary
from tracebridge.core.lax.reduce.extremes import emit_extremes, largest, smallest
from tracebridge.core.lax.shape.axes import as_axis
from tracebridge.core.mlir.attrs import boolean, i64, i64_array
from tracebridge.core.mlir.types import is_static
from tracebridge.core.symbolic.compare import is_empty

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.dtypes.dtypes import DTypeLike
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Operand, Value


_BOOL = np.dtype(np.bool_)
_FLAG = ShapedArray((), _BOOL)

# Limits of the ways to lower on CPU, measured. From _TWO_PASSES elements on, two plain reductions
# beat one of (value, position) pairs: the former are vectorised, the latter is not. From _LARGE
# elements in all, the positions of large blocks are found first, which touches the operand once
# and needs no temporary of its size; across rows, and where the operand must be padded, that pays
# only from _HUGE on, where pages of temporaries cost more than arithmetic.
_TWO_PASSES = 16
# XLA cuts longer rows into parts: two passes are five kernels then, which compile in 55 to 95 ms
# where one pass takes 21. Up to so few elements in all they run as fast.
_UNCUT, _FEW = 32, 1 << 7
# Blocks shorter than the least are searched slowly; those with a remainder compile for longer.
_LARGE = 1 << 15
_HUGE = 1 << 22
_LEAST_BLOCK = 32


class _ArgExtremum(Primitive):
    """Parameters ``axes`` (one axis) and ``index_dtype``. Ties and NaNs: the first one wins."""

    cost = Cost.OTHER
    maximum: bool

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        (x,) = avals
        (axis,) = params["axes"]
        if is_complex(x.dtype) or not is_ordinary(x.dtype):
            msg = f"{self.name} works on real numbers and booleans, got {x.dtype.name}"
            raise UnsupportedDtypeError(msg)
        if is_empty(x.shape[axis]):
            msg = f"{self.name}: axis {axis} of {x.str_short()} has no elements, expected some"
            raise ShapeMismatchError(msg)
        return element_aval(x, axis).update(dtype=params["index_dtype"], weak_type=False)

    def split_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Any:
        del outs
        (x,), (axis,) = avals, params["axes"]
        entries = entries_of(x)
        return [split_of(self.name, avals, (*entries[:axis], *entries[axis + 1 :]))]

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        (x,) = operands
        (aval,) = ctx.avals_in
        (axis,) = params["axes"]
        if is_bool(aval.dtype):
            # i1 is neither ordered nor vectorised.
            aval = aval.update(dtype=int8)
            x = ctx.convert(x, aval)
        out = ctx.aval_out
        positions = int64 if _is_long(aval.shape[axis]) else int32
        search = _Search(ctx, aval.dtype, positions, maximum=self.maximum)
        index = search.along(x, aval, axis)
        return index if out.dtype == positions else ctx.convert(index, out)

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        return self.bind(*primals, **params), None

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        (x,), (d,) = args, dims
        assert d is not None  # the only operand is batched
        (axis,) = params["axes"]
        moved = axis + (axis >= d)
        return self.bind(x, axes=(moved,), index_dtype=params["index_dtype"]), d - (moved < d)


class _Search:
    """Emits positions, in 32 bits or more: index_dtype may be narrower than those on the way."""

    __slots__ = ("ctx", "maximum", "never", "positions", "scalar", "worst")

    def __init__(
        self, ctx: LoweringContext, dtype: DTypeLike, positions: DTypeLike, *, maximum: bool
    ) -> None:
        self.ctx = ctx
        self.positions = ShapedArray((), positions)
        self.never = np.iinfo(self.positions.dtype).max
        self.maximum = maximum
        self.scalar = ShapedArray((), dtype)
        self.worst = ctx.splat(smallest(dtype) if maximum else largest(dtype), self.scalar)

    def along(self, x: object, aval: ShapedArray, axis: int) -> Any:
        """By the fastest way for the platform and the shape."""
        n = aval.shape[axis]
        if self.ctx.platform != "cpu":
            return self.in_one_pass(x, aval, axis)
        if not is_static(aval):
            return self.in_two_passes(x, aval, axis)
        if n < _TWO_PASSES or (n > _UNCUT and aval.size <= _FEW):
            return self.in_one_pass(x, aval, axis)
        length = _block_length(n)
        contiguous = math.prod(aval.shape[axis + 1 :]) == 1
        least = _HUGE
        if contiguous and n % length == 0 and length >= _LEAST_BLOCK:
            least = _LARGE if length % 8 == 0 else 4 * _LARGE
        if aval.size >= least:
            return self.by_blocks(x, aval, axis, length)
        return self.in_two_passes(x, aval, axis)

    def extremum(self, x: Any, aval: ShapedArray, axis: int) -> tuple[Any, ShapedArray]:
        """The extreme values along an axis, and their aval."""
        best = emit_extremes(self.ctx, x, aval, (axis,), maximum=self.maximum)
        return best, _without(aval, axis)

    def in_two_passes(self, x: Any, aval: ShapedArray, axis: int) -> Any:
        """The extreme value, then the smallest position that holds it (or a NaN)."""
        ctx = self.ctx
        best, out = self.extremum(x, aval, axis)
        dims = [i for i in range(aval.ndim) if i != axis]
        flags = aval.update(dtype=_BOOL)
        is_best = ctx.compare(x, ctx.broadcast_in_dim(best, aval, dims), flags, "EQ")
        if is_float(aval.dtype):
            is_best = ctx.op1("stablehlo.or", [is_best, ctx.compare(x, x, flags, "NE")], flags)
        positions = aval.update(dtype=self.positions.dtype)
        never = ctx.splat(self.never, positions)
        candidates = ctx.select(is_best, ctx.iota(positions, axis), never, positions)

        def first(a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
            return [ctx.op1("stablehlo.minimum", [a[0], b[0]], self.positions)]

        index = out.update(dtype=self.positions.dtype)
        return ctx.reduce(
            [candidates], [ctx.splat(self.never, self.positions)], [index], (axis,), first
        )[0]

    def in_one_pass(self, x: Any, aval: ShapedArray, axis: int) -> Any:
        """One reduction of pairs (value, position)."""
        ctx = self.ctx
        direction = "GT" if self.maximum else "LT"

        def wins(x: Any, y: Any) -> Any:
            larger = ctx.compare(x, y, _FLAG, direction)
            if not is_float(aval.dtype):
                return larger
            return ctx.op1("stablehlo.or", [larger, ctx.compare(x, x, _FLAG, "NE")], _FLAG)

        def body(a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
            (x, i), (y, j) = a, b
            better = wins(x, y)
            # Neither wins, or both: equal numbers, or two NaNs.
            tie = ctx.compare(better, wins(y, x), _FLAG, "EQ")
            first = ctx.select(tie, ctx.compare(i, j, _FLAG, "LT"), better, _FLAG)
            return [ctx.select(first, x, y, self.scalar), ctx.select(first, i, j, self.positions)]

        iota = ctx.iota(aval.update(dtype=self.positions.dtype), axis)
        out = _without(aval, axis)
        inits = [self.worst, ctx.splat(0, self.positions)]
        return ctx.reduce(
            [x, iota], inits, [out, out.update(dtype=self.positions.dtype)], (axis,), body
        )[1]

    def by_blocks(self, x: Any, aval: ShapedArray, axis: int, length: int) -> Any:
        """The block with the extreme element, then the position in that block."""
        ctx = self.ctx
        shape = aval.shape
        count = -(-shape[axis] // length)
        outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
        lines = aval.update(shape=(outer, shape[axis], inner))
        x = ctx.reshape(x, lines)
        surplus = count * length - shape[axis]
        if surplus:
            lines = lines.update(shape=(outer, count * length, inner))
            attributes = {
                "edge_padding_low": i64_array([0, 0, 0]),
                "edge_padding_high": i64_array([0, surplus, 0]),
                "interior_padding": i64_array([0, 0, 0]),
            }
            x = ctx.op1("stablehlo.pad", [x, self.worst], lines, attributes)
        blocks = aval.update(shape=(outer, count, length, inner))
        x = ctx.reshape(x, blocks)
        best, per_block = self.extremum(x, blocks, 2)
        # Without the barrier XLA computes the extreme values again in each loop that uses them.
        best = ctx.op1("stablehlo.optimization_barrier", [best], per_block)
        which = self._small(best, per_block, 1)
        within = self._small(*self._block_at(x, blocks, which), 1)
        index = aval.update(shape=(outer, inner), dtype=self.positions.dtype)
        start = ctx.op1("stablehlo.multiply", [which, ctx.splat(length, index)], index)
        position = ctx.op1("stablehlo.add", [start, within], index)
        return ctx.reshape(position, _without(aval, axis).update(dtype=self.positions.dtype))

    def _small(self, x: object, aval: ShapedArray, axis: int) -> Any:
        emit = self.in_two_passes if aval.shape[axis] >= _TWO_PASSES else self.in_one_pass
        return emit(x, aval, axis)

    def _block_at(self, x: Any, aval: ShapedArray, which: Any) -> tuple[Any, ShapedArray]:
        """``x[o, which[o, i], :, i]``."""
        ctx = self.ctx
        outer, _, length, inner = aval.shape
        column = aval.update(shape=(outer, inner, 1), dtype=self.positions.dtype)
        starts = ctx.op1(
            "stablehlo.concatenate",
            [ctx.iota(column, 0), ctx.reshape(which, column), ctx.iota(column, 1)],
            column.update(shape=(outer, inner, 3)),
            {"dimension": i64(2)},
        )
        numbers = mlir.stablehlo.GatherDimensionNumbers.get(
            offset_dims=[1],
            collapsed_slice_dims=[0, 1, 3],
            operand_batching_dims=[],
            start_indices_batching_dims=[],
            start_index_map=[0, 1, 3],
            index_vector_dim=2,
        )
        attributes = {
            "dimension_numbers": numbers,
            "slice_sizes": i64_array([1, 1, length, 1]),
            "indices_are_sorted": boolean(False),
        }
        out = aval.update(shape=(outer, length, inner))
        return ctx.op1("stablehlo.gather", [x, starts], out, attributes), out


def _is_long(size: Any) -> bool:
    """Whether positions along an axis need more than 32 bits."""
    return type(size) is int and size > np.iinfo(int32).max


def _without(aval: ShapedArray, axis: int) -> ShapedArray:
    return aval.update(shape=(*aval.shape[:axis], *aval.shape[axis + 1 :]))


def _block_length(n: int) -> int:
    """A length of blocks near twice the root of ``n``, which divides ``n`` if one does."""
    target = 2 * math.isqrt(n)
    for step in range(target):
        for length in (target + step, target - step // 2):
            if length > target // 4 and n % length == 0:
                return length
    return target


@final
class Argmax(_ArgExtremum):
    name = "argmax"
    maximum = True


@final
class Argmin(_ArgExtremum):
    name = "argmin"
    maximum = False


argmax_p = Argmax()
argmin_p = Argmin()


def _arg_extremum(primitive: _ArgExtremum, operand: Operand, axis: int, index_dtype: Any) -> Any:
    x = as_value(operand)
    axis = as_axis(primitive.name, axis, x.aval.ndim)
    dtype = canonicalize_explicit(index_dtype, primitive.name)
    if not is_integer(dtype):
        msg = f"{primitive.name}: index_dtype must be an integer type, got {dtype.name}"
        raise UnsupportedDtypeError(msg)
    return primitive.bind(x, axes=(axis,), index_dtype=dtype)


def argmax(operand: Any, axis: int, index_dtype: Any) -> Any:
    """Position of the first largest element along ``axis``; a NaN counts as the largest.

    Args:
        operand: real or boolean array.
        axis: the axis to search; the result lacks it.
        index_dtype: integer dtype of the result.

    Raises:
        ShapeMismatchError: the axis has no elements.

    >>> import tracebridge as tb
    >>> int(tb.lax.argmax(tb.numpy.array([1.0, 5.0, 5.0]), 0, "int32"))
    1
    """
    return _arg_extremum(argmax_p, operand, axis, index_dtype)


def argmin(operand: Any, axis: int, index_dtype: Any) -> Any:
    """Position of the first smallest element along ``axis``; a NaN counts as the smallest.

    Args:
        operand: real or boolean array.
        axis: the axis to search; the result lacks it.
        index_dtype: integer dtype of the result.

    Raises:
        ShapeMismatchError: the axis has no elements.

    >>> import tracebridge as tb
    >>> int(tb.lax.argmin(tb.numpy.array([4.0, 1.0, 1.0]), 0, "int32"))
    1
    """
    return _arg_extremum(argmin_p, operand, axis, index_dtype)
