"""All prefixes of an array joined by an associative operation: as operations, and as StableHLO.

``prefix_scan`` is a composition that has derivatives of every order. ``emit_prefixes`` is what
running reductions are lowered to. On CPU that is a loop over rows, which is vectorised across the
row, an order of magnitude faster than the ``reduce_window`` that other platforms prefer; long
axes are cut into blocks that are scanned side by side, which also keeps rounding errors small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracebridge.core import lax
from tracebridge.core.dtypes.dtypes import int32
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.lax.ad_util import zeros_of
from tracebridge.core.mlir.attrs import dense_i64, i64, i64_array
from tracebridge.core.mlir.types import is_static
from tracebridge.core.symbolic.compare import at_least

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.ir.value import Value


_BOOL = np.dtype(np.bool_)
_I32 = ShapedArray((), int32)
_FLAG = ShapedArray((), _BOOL)

# Measured on CPU: from this length on blocks beat one loop, unless the rows are wide anyway.
_LONG = 4096
_WIDE = 256
# Below this many contiguous elements per step the axis is better moved to the front first, if
# the array is large enough to pay for two transpositions.
_NARROW = 16
_LARGE = 1 << 15

# combine(a, b, aval) emits the combination of two arrays of aval
Combine = Callable[[Any, Any, ShapedArray], Any]


def prefix_scan(
    join: Callable[[Sequence[Any], Sequence[Any]], list[Any]],
    elements: Sequence[Any],
    axis: int,
    reverse: bool,
) -> list[Any]:
    """All prefixes of ``elements`` joined by an associative function, by recursion on pairs.

    Linear work and logarithmic depth.
    """
    if reverse:
        flipped = [lax.rev(x, (axis,)) for x in elements]
        return [lax.rev(x, (axis,)) for x in prefix_scan(join, flipped, axis, reverse=False)]
    n = elements[0].aval.shape[axis]
    if n < 2:
        return list(elements)

    def part(xs: Sequence[Any], start: int, stop: int, step: int) -> list[Any]:
        return [lax.slice_in_dim(x, start, stop, step, axis) for x in xs]

    even, odd = part(elements, 0, n - 1, 2), part(elements, 1, n, 2)
    odds = prefix_scan(join, join(even, odd), axis, reverse=False)
    evens = part(elements, 0, 1, 1)
    if n > 2:
        joined = join(part(odds, 0, (n - 1) // 2, 1), part(elements, 2, n, 2))
        evens = [lax.concatenate([e, j], axis) for e, j in zip(evens, joined, strict=True)]
    return [_interleave(e, o, axis, n) for e, o in zip(evens, odds, strict=True)]


def _interleave(even: Any, odd: Any, axis: int, n: int) -> Any:
    """The elements at even and at odd positions in one array of ``n``."""
    zero = zeros_of(even.aval.update(shape=()))
    pads = [[(0, 0, 0)] * even.aval.ndim for _ in range(2)]
    pads[0][axis] = (0, (n + 1) % 2, 1)
    pads[1][axis] = (1, n % 2, 1)
    return lax.add(lax.pad(even, zero, pads[0]), lax.pad(odd, zero, pads[1]))


def emit_prefixes(
    ctx: LoweringContext,
    x: IrValue,
    aval: ShapedArray,
    axis: int,
    *,
    reverse: bool,
    combine: Combine,
    identity: object,
) -> Any:
    """The prefixes of ``x`` along ``axis`` (suffixes if ``reverse``)."""
    n = aval.shape[axis]
    if type(n) is int and n < 2:
        return x
    scan = _Scan(ctx, reverse, combine, identity)
    if not is_static(aval):
        return scan.by_rows([x], aval, axis)
    if ctx.platform != "cpu":
        return scan.by_window(x, aval, axis)
    if aval.size == 0:
        return x
    width = aval.size // n
    if n >= _LONG and width <= _WIDE:
        return scan.by_blocks(x, aval, axis)
    return scan.by_moved_rows([x], aval, axis)


def emit_recurrence(
    ctx: LoweringContext, a: IrValue, b: IrValue, aval: ShapedArray, axis: int, *, reverse: bool
) -> Any:
    """``y[i] = a[i] * y[i - 1] + b[i]`` along ``axis``."""
    if is_static(aval) and aval.size == 0:
        return b
    if ctx.platform != "cpu" and is_static(aval):
        return ctx.lower_fun(_recurrence, a, b, avals_in=[aval, aval], axis=axis, reverse=reverse)[
            0
        ]

    def step(y: Any, factor: Any, term: Any, row: ShapedArray) -> Any:
        scaled = ctx.op1("stablehlo.multiply", [factor, y], row)
        return ctx.op1("stablehlo.add", [scaled, term], row)

    scan = _Scan(ctx, reverse, step, 0)
    return scan.by_moved_rows([a, b], aval, axis)


def _recurrence(a: Value, b: Value, axis: int, reverse: bool) -> Any:
    """The same by joining affine functions, which needs no order."""

    def join(first: Sequence[IrValue], second: Sequence[IrValue]) -> list[Any]:
        (a, b), (c, d) = first, second
        return [lax.mul(a, c), lax.add(lax.mul(b, c), d)]

    return prefix_scan(join, [a, b], axis, reverse)[1]


def _front(aval: ShapedArray, axis: int) -> list[int]:
    """The order of axes with ``axis`` first."""
    return [axis, *[i for i in range(aval.ndim) if i != axis]]


def _transposed(
    ctx: LoweringContext, x: IrValue, aval: ShapedArray, order: list[int]
) -> tuple[Any, ShapedArray]:
    moved = aval.update(shape=tuple([aval.shape[i] for i in order]))
    return ctx.transpose(x, moved, order), moved


class _Scan:
    """One scan while it is being emitted.

    ``combine(total, *elements, aval)`` emits the next total; ``identity`` is the first one.
    """

    __slots__ = ("combine", "ctx", "identity", "reverse")

    def __init__(
        self, ctx: LoweringContext, reverse: bool, combine: Callable[..., Any], identity: Any
    ) -> None:
        self.ctx = ctx
        self.reverse = reverse
        self.combine = combine
        self.identity = identity

    def by_window(self, x: IrValue, aval: ShapedArray, axis: int) -> Any:
        """One ``reduce_window`` whose window reaches to the first element."""
        ctx = self.ctx
        size = aval.shape[axis]
        scalar = aval.update(shape=())
        window = [size if i == axis else 1 for i in range(aval.ndim)]
        padding = np.zeros((aval.ndim, 2), np.int64)
        padding[axis, int(self.reverse)] = size - 1
        operation = ctx.op(
            "stablehlo.reduce_window",
            [x, ctx.splat(self.identity, scalar)],
            [aval],
            {"window_dimensions": i64_array(window), "padding": dense_i64(padding)},
            regions=1,
        )
        with ctx.block(operation.regions[0], [scalar, scalar]) as (a, b):
            ctx.finish([self.combine(a, b, scalar)])
        return operation.results[0]

    def by_moved_rows(self, sources: Sequence[Any], aval: ShapedArray, axis: int) -> Any:
        """``by_rows``, with the axis moved to the front where steps would be scattered."""
        if not is_static(aval):
            return self.by_rows(sources, aval, axis)
        contiguous = math.prod(aval.shape[axis + 1 :])
        width = aval.size // aval.shape[axis] if aval.size else 0
        if not contiguous < _NARROW <= width or aval.size < _LARGE:
            return self.by_rows(sources, aval, axis)
        front = _front(aval, axis)
        moved = [_transposed(self.ctx, x, aval, front) for x in sources]
        result = self.by_rows([x for x, _ in moved], moved[0][1], 0)
        return self.ctx.transpose(result, aval, [front.index(i) for i in range(aval.ndim)])

    def by_rows(self, sources: Sequence[IrValue], aval: ShapedArray, axis: int) -> Any:
        """A loop that combines one row of the other axes at a time."""
        ctx, size = self.ctx, aval.shape[axis]
        # The loop of an array without rows is not run, but has to fit.
        filled = [ctx.resized(x, aval, axis, at_least(size, 1)) for x in sources]
        sources, aval = [x for x, _ in filled], filled[0][1]
        row = aval.update(shape=tuple([1 if i == axis else d for i, d in enumerate(aval.shape)]))
        n, last = [ctx.dim(d) for d in (size, size - 1)]

        def condition(values: Sequence[IrValue]) -> Any:
            return ctx.compare(values[0], n, _FLAG, "LT")

        def body(values: Sequence[IrValue]) -> list[Any]:
            step, total, result, *sources = values
            zero = ctx.splat(0, _I32)
            at = step
            if self.reverse:
                at = ctx.op1("stablehlo.subtract", [last, step], _I32)
            starts = [at if i == axis else zero for i in range(aval.ndim)]
            elements = [self._row(x, row, starts) for x in sources]
            total = self.combine(total, *elements, row)
            result = ctx.op1("stablehlo.dynamic_update_slice", [result, total, *starts], aval)
            step = ctx.op1("stablehlo.add", [step, ctx.splat(1, _I32)], _I32)
            return [step, total, result, *sources]

        start = [ctx.splat(0, _I32), ctx.splat(self.identity, row), ctx.splat(0, aval), *sources]
        avals = [_I32, row, aval, *[aval] * len(sources)]
        result = ctx.while_loop(start, avals, condition, body)[2]
        return ctx.resized(result, aval, axis, size)[0]

    def _row(self, x: IrValue, row: ShapedArray, starts: Sequence[IrValue]) -> Any:
        """The part of ``x`` of the shape of ``row`` at ``starts``."""
        ctx = self.ctx
        if is_static(row):
            sizes = {"slice_sizes": i64_array(row.shape)}
            return ctx.op1("stablehlo.dynamic_slice", [x, *starts], row, sizes)
        one, rank = ShapedArray((1,), int32), ShapedArray((row.ndim,), int32)
        first = ctx.op1(
            "stablehlo.concatenate",
            [ctx.reshape(s, one) for s in starts],
            rank,
            {"dimension": i64(0)},
        )
        limit = ctx.op1("stablehlo.add", [first, ctx.shape_tensor(row.shape)], rank)
        strides = ctx.shape_tensor((1,) * row.ndim)
        return ctx.op1("stablehlo.real_dynamic_slice", [x, first, limit, strides], row)

    def by_blocks(self, x: IrValue, aval: ShapedArray, axis: int) -> Any:
        """Blocks side by side, then the totals of the blocks before are added."""
        n = aval.shape[axis]
        length = math.isqrt(n)
        count = -(-n // length)
        surplus = count * length - n
        filled = self._resized(x, aval, axis, after=surplus)
        shape = (*aval.shape[:axis], count, length, *aval.shape[axis + 1 :])
        blocks = aval.update(shape=shape)
        order = _front(blocks, axis + 1)
        ctx = self.ctx
        x, steps = _transposed(ctx, ctx.reshape(filled, blocks), blocks, order)
        x = self.by_rows([x], steps, 0)
        # The last step of each block holds its total; shifted by one block and scanned, these
        # are what comes before each block.
        at = 0 if self.reverse else length - 1
        totals = steps.update(shape=steps.shape[1:])
        last = ctx.slice(
            x,
            steps.update(shape=(1, *totals.shape)),
            [at, *[0] * totals.ndim],
            [at + 1, *totals.shape],
            [1] * steps.ndim,
        )
        shifted = self._resized(ctx.reshape(last, totals), totals, axis, before=1, after=-1)
        before = self.by_rows([shifted], totals, axis)
        before = ctx.broadcast_in_dim(before, steps, range(1, steps.ndim))
        x = self.combine(before, x, steps)
        x = ctx.transpose(x, blocks, [order.index(i) for i in range(blocks.ndim)])
        whole = aval.update(shape=(*aval.shape[:axis], n + surplus, *aval.shape[axis + 1 :]))
        return self._resized(ctx.reshape(x, whole), whole, axis, after=-surplus)

    def _resized(
        self, x: IrValue, aval: ShapedArray, axis: int, before: int = 0, after: int = 0
    ) -> Any:
        """``x`` with identities added (or elements cut off) at the start and end of the scan."""
        if before == after == 0:
            return x
        low, high = [0] * aval.ndim, [0] * aval.ndim
        low[axis], high[axis] = (after, before) if self.reverse else (before, after)
        shape = tuple([d + a + b for d, a, b in zip(aval.shape, low, high, strict=True)])
        scalar = self.ctx.splat(self.identity, aval.update(shape=()))
        attributes = {
            "edge_padding_low": i64_array(low),
            "edge_padding_high": i64_array(high),
            "interior_padding": i64_array([0] * aval.ndim),
        }
        return self.ctx.op1("stablehlo.pad", [x, scalar], aval.update(shape=shape), attributes)
