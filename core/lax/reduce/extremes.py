"""How maxima and minima are lowered, so that a NaN wins on every platform.

On CPU, XLA hands large reductions of floats by ``maximum`` or ``minimum`` to a library that loses
NaNs. Here the combination is written as a clamp to infinity, which that library does not know, and
long rows are reduced in lanes first, which lets the compiler emit vector code for them. Floats of
16 bits are compared as integers. Where XLA splits a program over CPUs, it can put the parts of
``maximum`` and ``minimum`` together, but of no other combination: there NaNs are looked for apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracebridge.core.dtypes.dtypes import (
    bfloat16,
    float16,
    float32,
    int16,
    is_bool,
    is_complex,
    is_float,
    is_integer,
    itemsize_bits,
    real_of,
)
from tracebridge.core.dtypes.finfo import finfo, iinfo
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.lax.columns import are_columns, by_columns, without_axes
from tracebridge.core.mlir.types import is_static

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.dtypes.dtypes import DTypeLike
    from tracebridge.core.ir.rule_contexts import LoweringContext


_BOOL = np.dtype(np.bool_)
_FLAG = ShapedArray((), _BOOL)

_LANES = 16  # one or two vector registers
_FEW_LANES = 8
_SHORT = 32  # rows below this length have no use for lanes
_FOR_THREADS = 1 << 17  # elements of a row that several threads reduce in less time than one
_LONGEST_PART = 1 << 13
# XLA cuts longer ones into windows itself: 100000 elements of float64 take 40 us, in parts 13.
_FOR_PARTS = 1 << 14
_SHORTEST_PART = 1 << 9  # of rows that are no work for threads
_SMALL = 1 << 10  # arrays below this size are reduced in one operation
# The bits of the largest finite numbers of the 16-bit floats; those of infinity are one more.
_LARGEST_FINITE = {bfloat16: 0x7F7F, float16: 0x7BFF}


def smallest(dtype: DTypeLike) -> Any:
    """The Python scalar that is below all others of ``dtype``: minus infinity where it exists."""
    if is_bool(dtype):
        return False
    if is_integer(dtype):
        return int(iinfo(dtype).min)
    if is_complex(dtype):
        return complex(-math.inf, -math.inf)
    return -math.inf if _has_infinity(dtype) else float(finfo(dtype).min)


def largest(dtype: DTypeLike) -> Any:
    """The Python scalar that is above all others of ``dtype``: infinity where it exists."""
    if is_bool(dtype):
        return True
    if is_integer(dtype):
        return int(iinfo(dtype).max)
    if is_complex(dtype):
        return complex(math.inf, math.inf)
    return math.inf if _has_infinity(dtype) else float(finfo(dtype).max)


def _has_infinity(dtype: Any) -> bool:
    # The narrow dtypes without infinities turn them into NaN or their largest number.
    return is_float(dtype) and bool(np.isinf(np.asarray(math.inf).astype(dtype).astype(np.float32)))


def emit_extremum(
    ctx: LoweringContext, a: IrValue, b: IrValue, aval: ShapedArray, *, maximum: bool
) -> Any:
    """Emit the larger or smaller of two arrays elementwise; NaNs win.

    Complex numbers are ordered by their real part, then by the imaginary part.
    """
    if not is_complex(aval.dtype):
        return ctx.op1("stablehlo.maximum" if maximum else "stablehlo.minimum", [a, b], aval)
    direction = "GT" if maximum else "LT"
    real = aval.update(dtype=real_of(aval.dtype))
    flags = aval.update(dtype=_BOOL)
    (ar, ai), (br, bi) = [
        [ctx.op1(part, [v], real) for part in ("stablehlo.real", "stablehlo.imag")] for v in (a, b)
    ]
    tie = ctx.compare(ar, br, flags, "EQ")
    by_imaginary = ctx.op1("stablehlo.and", [tie, ctx.compare(ai, bi, flags, direction)], flags)
    first = ctx.op1("stablehlo.or", [ctx.compare(ar, br, flags, direction), by_imaginary], flags)
    # A NaN in one part: the other part may still compare as larger.
    first = ctx.op1("stablehlo.and", [first, ctx.compare(b, b, flags, "EQ")], flags)
    nan = ctx.compare(a, a, flags, "NE")
    return ctx.select(ctx.op1("stablehlo.or", [first, nan], flags), a, b, aval)


def emit_extremes(
    ctx: LoweringContext, x: IrValue, aval: ShapedArray, axes: Sequence[int], *, maximum: bool
) -> Any:
    """Emit the extreme elements of ``x`` over ``axes``."""
    dtype = aval.dtype
    if ctx.platform == "cpu" and ctx.is_split:
        return _of_parts(ctx, x, aval, tuple(axes), maximum=maximum)
    narrow = is_float(dtype) and itemsize_bits(dtype) < 32
    if ctx.platform != "cpu" or not is_static(aval) or not narrow or aval.size == 0:
        return _Extremes(ctx, dtype, maximum=maximum).over(x, aval, tuple(axes))
    if dtype not in _LARGEST_FINITE:
        wide = aval.update(dtype=float32)
        best = _Extremes(ctx, wide.dtype, maximum=maximum).over(
            ctx.convert(x, wide), wide, tuple(axes)
        )
        return ctx.convert(best, without_axes(aval, tuple(axes)))
    keys, key_aval = _keys(ctx, x, aval, maximum=maximum)
    best = _Extremes(ctx, key_aval.dtype, maximum=maximum).over(keys, key_aval, tuple(axes))
    out = without_axes(aval, tuple(axes))
    flipped = _flip_negative(ctx, best, out.update(dtype=int16))
    return ctx.op1("stablehlo.bitcast_convert", [flipped], out)


def _of_parts(
    ctx: LoweringContext, x: Any, aval: ShapedArray, axes: tuple[int, ...], *, maximum: bool
) -> Any:
    """In a form whose parts, on several devices, XLA can put together."""
    if is_complex(aval.dtype):
        return _of_complex_parts(ctx, x, aval, axes, maximum=maximum)
    extremes = _Extremes(ctx, aval.dtype, maximum=maximum)
    best = extremes.reduce(x, aval, axes, extremes.plainly)
    if not is_float(aval.dtype):
        return best
    out = without_axes(aval, axes)
    return ctx.select(_any_nan(ctx, x, aval, axes), ctx.splat(math.nan, out), best, out)


def _any_nan(ctx: LoweringContext, x: Any, aval: ShapedArray, axes: tuple[int, ...]) -> Any:
    flags = aval.update(dtype=_BOOL)
    any_of = _Extremes(ctx, _BOOL, maximum=True)
    return any_of.reduce(ctx.compare(x, x, flags, "NE"), flags, axes, any_of.plainly)


def _of_complex_parts(
    ctx: LoweringContext, x: Any, aval: ShapedArray, axes: tuple[int, ...], *, maximum: bool
) -> Any:
    """The extreme real part, and the extreme imaginary part of those that have it.

    Where there is a NaN both parts are NaN.
    """
    real_aval, flags = [aval.update(dtype=t) for t in (real_of(aval.dtype), _BOOL)]
    out, out_real = [without_axes(a, axes) for a in (aval, real_aval)]
    real, imag = [ctx.op1(f"stablehlo.{part}", [x], real_aval) for part in ("real", "imag")]
    best = _of_parts(ctx, real, real_aval, axes, maximum=maximum)
    kept = [i for i in range(aval.ndim) if i not in axes]
    tie = ctx.compare(real, ctx.broadcast_in_dim(best, real_aval, kept), flags, "EQ")
    none = ctx.splat((smallest if maximum else largest)(real_aval.dtype), real_aval)
    of_best = ctx.select(tie, imag, none, real_aval)
    second = _of_parts(ctx, of_best, real_aval, axes, maximum=maximum)
    result = ctx.op1("stablehlo.complex", [best, second], out)
    nan = ctx.splat(math.nan, out_real)
    both = ctx.op1("stablehlo.complex", [nan, nan], out)
    return ctx.select(_any_nan(ctx, x, aval, axes), both, result, out)


def _keys(
    ctx: LoweringContext, x: IrValue, aval: ShapedArray, *, maximum: bool
) -> tuple[Any, ShapedArray]:
    """Integers in the order of the 16-bit floats ``x``, with NaNs where they win."""
    keys = aval.update(dtype=int16)
    bits = ctx.op1("stablehlo.bitcast_convert", [x], keys)
    magnitude = ctx.op1("stablehlo.and", [bits, ctx.splat(0x7FFF, keys)], keys)
    limit = ctx.splat(_LARGEST_FINITE[aval.dtype] + 1, keys)
    nan = ctx.compare(magnitude, limit, keys.update(dtype=_BOOL), "GT")
    winner = ctx.splat(0x7FFF if maximum else -0x8000, keys)
    return ctx.select(nan, winner, _flip_negative(ctx, bits, keys), keys), keys


def _flip_negative(ctx: LoweringContext, bits: Any, aval: ShapedArray) -> Any:
    """All bits but the sign flipped where the sign is set; its own inverse."""
    sign = ctx.op1("stablehlo.shift_right_arithmetic", [bits, ctx.splat(15, aval)], aval)
    mask = ctx.op1("stablehlo.and", [sign, ctx.splat(0x7FFF, aval)], aval)
    return ctx.op1("stablehlo.xor", [bits, mask], aval)


def _part_length(length: int) -> int:
    """The length of parts of a long row that threads can share; 0 if there is none."""
    if length < _FOR_PARTS:
        return 0
    least = _SHORTEST_PART if length < _FOR_THREADS else _FOR_THREADS // _LONGEST_PART
    parts = range(_LONGEST_PART, least, -_LANES)
    return next((k for k in parts if length % k == 0), 0)


class _Extremes:
    """One reduction while it is being emitted."""

    __slots__ = ("ctx", "init", "maximum", "scalar")

    def __init__(self, ctx: LoweringContext, dtype: DTypeLike, *, maximum: bool) -> None:
        self.ctx = ctx
        self.maximum = maximum
        self.scalar = ShapedArray((), dtype)
        self.init = ctx.splat(smallest(dtype) if maximum else largest(dtype), self.scalar)

    def over(self, x: Any, aval: ShapedArray, axes: tuple[int, ...]) -> Any:
        """By the way that suits platform, dtype and shape."""
        dtype = aval.dtype
        special = is_complex(dtype) or not is_static(aval) or aval.size == 0
        if self.ctx.platform != "cpu" or special:
            return self.reduce(x, aval, axes, self.plainly)
        if aval.ndim and aval.shape[-1] == 1 and aval.ndim - 1 not in axes:
            # A last axis of one element would hide that the elements lie side by side.
            out = without_axes(aval, axes)
            squeezed = aval.update(shape=aval.shape[:-1])
            return self.ctx.reshape(self.over(self.ctx.reshape(x, squeezed), squeezed, axes), out)
        # One contiguous axis at the end for those that are reduced there.
        first = aval.ndim
        while first > 0 and first - 1 in axes:
            first -= 1
        length = math.prod(aval.shape[first:])
        combine = self.by_clamp if is_float(dtype) else self.plainly
        narrow = not is_float(dtype) and itemsize_bits(dtype) < 16
        if are_columns(self.ctx, aval, axes):
            return by_columns(
                self.ctx, x, aval, axes, lambda x, aval, axes: self.reduce(x, aval, axes, combine)
            )
        if first == aval.ndim or aval.size < _SMALL or narrow:
            return self.reduce(x, aval, axes, combine)
        if length < _SHORT:
            return self.reduce(x, aval, axes, self.by_select)
        rows = aval.update(shape=(*aval.shape[:first], length))
        outer = tuple([a for a in axes if a < first])
        part = _part_length(length) if rows.size == length else 0
        if part:
            # Threads share rows, and one row would be done by one thread.
            rows, outer = rows.update(shape=(length // part, part)), (0,)
        return self.in_lanes(self.ctx.reshape(x, rows), rows, outer, combine)

    def plainly(self, a: Any, b: Any) -> Any:
        """The operation that means it."""
        return emit_extremum(self.ctx, a, b, self.scalar, maximum=self.maximum)

    def by_clamp(self, a: Any, b: Any) -> Any:
        """The same, for floats: NaNs pass through a clamp."""
        ctx = self.ctx
        limit = ctx.splat(math.inf if self.maximum else -math.inf, self.scalar)
        low, high = (b, limit) if self.maximum else (limit, b)
        return ctx.op1("stablehlo.clamp", [low, a, high], self.scalar)

    def by_select(self, a: Any, b: Any) -> Any:
        """The same, in the form that is fastest for short rows."""
        ctx = self.ctx
        wins = ctx.compare(a, b, _FLAG, "GT" if self.maximum else "LT")
        if is_float(self.scalar.dtype):
            wins = ctx.op1("stablehlo.or", [wins, ctx.compare(a, a, _FLAG, "NE")], _FLAG)
        return ctx.select(wins, a, b, self.scalar)

    def reduce(self, x: Any, aval: ShapedArray, axes: Sequence[int], combine: Any) -> Any:
        """One reduction."""

        def body(a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
            return [combine(a[0], b[0])]

        return self.ctx.reduce([x], [self.init], [without_axes(aval, axes)], axes, body)[0]

    def in_lanes(self, x: Any, aval: ShapedArray, outer: tuple[int, ...], combine: Any) -> Any:
        """Over the last axis and ``outer``: each of the lanes first, then what is left of them."""
        ctx = self.ctx
        last = aval.ndim - 1
        n = aval.shape[last]
        is_half = itemsize_bits(aval.dtype) == 16
        n_lanes = _FEW_LANES if is_half or (n % _LANES and not n % _FEW_LANES) else _LANES
        count, remainder = divmod(n, n_lanes)
        whole = x
        if remainder:
            x = self.part(whole, aval, 0, n - remainder)
        lanes = aval.update(shape=(*aval.shape[:last], count, n_lanes))
        x = self.reduce(ctx.reshape(x, lanes), lanes, (last,), combine)
        lanes = without_axes(lanes, (last,))
        # The barrier keeps XLA from making one reduction of the two.
        x = ctx.op1("stablehlo.optimization_barrier", [x], lanes)
        x = self.reduce(x, lanes, (*outer, last), combine)
        if not remainder:
            return x
        tail = aval.update(shape=(*aval.shape[:last], remainder))
        y = self.reduce(self.part(whole, aval, n - remainder, n), tail, (*outer, last), combine)
        return emit_extremum(ctx, x, y, without_axes(tail, (*outer, last)), maximum=self.maximum)

    def part(self, x: Any, aval: ShapedArray, start: int, stop: int) -> Any:
        """Elements ``start:stop`` of the last axis."""
        lead = aval.shape[:-1]
        out = aval.update(shape=(*lead, stop - start))
        return self.ctx.slice(x, out, [*[0] * len(lead), start], [*lead, stop], [1] * aval.ndim)
