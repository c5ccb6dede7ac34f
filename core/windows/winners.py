"""Which element of each window wins: the first largest (smallest) one, or the first NaN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.lax.reduce.extremes import largest, smallest
from tracebridge.core.windows import patches
from tracebridge.core.windows.emit import emit_reduce_window
from tracebridge.core.windows.geometry import Windows, result_of

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.ir.value import Value

_INT32 = np.dtype(np.int32)
BEYOND = int(np.iinfo(np.int32).max)
"""The position of padding."""


def is_better(a: Any, b: Any, select_prim: Primitive) -> Any:
    """Whether ``a`` beats ``b``: it is larger (smaller), or a NaN beside a number."""
    better = lax.gt(a, b) if select_prim is lax.ge_p else lax.lt(a, b)
    return lax.bitwise_or(better, lax.bitwise_and(lax.ne(a, a), lax.eq(b, b)))


def worst_of(aval: ShapedArray, select_prim: Primitive) -> Any:
    """The number that loses against all others."""
    dtype = aval.dtype
    return smallest(dtype) if select_prim is lax.ge_p else largest(dtype)


def _first_winner(select_prim: Primitive) -> Any:
    """The better of two elements, of equal ones the first: ``(x, i, y, j) -> (z, k)``."""

    def first(x: Any, i: Any, y: Any, j: Any) -> tuple[Any, Any]:
        behind = lax.bitwise_and(lax.bitwise_not(is_better(x, y, select_prim)), lax.lt(j, i))
        takes = lax.bitwise_or(is_better(y, x, select_prim), behind)
        return lax.select(takes, y, x), lax.select(takes, j, i)

    return first


def emit_winners(
    ctx: LoweringContext, x: IrValue, aval: ShapedArray, select_prim: Primitive, windows: Windows
) -> tuple[Any, ShapedArray]:
    """Emit the position of each window's winner in the flat operand; and the aval of that."""
    scalar, number = aval.update(shape=()), ShapedArray((), _INT32)
    numbers = aval.update(dtype=_INT32)
    flat = ShapedArray((aval.size,), _INT32)
    positions = ctx.reshape(ctx.iota(flat, 0), numbers)
    first = _first_winner(select_prim)
    avals = [scalar, number, scalar, number]

    def body(a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
        return ctx.lower_fun(first, *a, *b, avals_in=avals)

    inits = [ctx.splat(worst_of(aval, select_prim), scalar), ctx.splat(BEYOND, number)]
    outs = [result_of(aval, windows), result_of(numbers, windows)]
    winners = emit_reduce_window(ctx, [x, positions], inits, outs, windows, body)
    return winners[1], outs[1]


def winning_places(x: Value, select_prim: Primitive, windows: Windows) -> Any:
    """The number of each winner's place in its window, as int32."""
    worst = full_of(x.aval.update(shape=()), worst_of(x.aval, select_prim))
    values = patches.elements(x, worst, windows)
    inside = patches.inside(x.aval.shape, windows)
    best = values[0]
    place = full_of(best.aval.update(dtype=_INT32, weak_type=False), 0)
    is_inside: Any = None if inside is None else inside[0]
    for k in range(1, len(values)):
        takes = is_better(values[k], best, select_prim)
        if inside is not None:
            missed = lax.bitwise_and(inside[k], lax.bitwise_not(is_inside))
            takes = lax.bitwise_or(takes, missed)
            is_inside = lax.bitwise_or(is_inside, inside[k])
        best = lax.select(takes, values[k], best)
        place = lax.select(takes, full_of(place.aval, k), place)
    return place


def gather_by_places(t: Value, x: Value, *, select_prim: Primitive, windows: Windows) -> Any:
    """The tangents of winners, place by place."""
    zero = full_of(t.aval.update(shape=()), 0)
    place = winning_places(x, select_prim, windows)
    total = zeros_of(t.aval.update(shape=place.aval.shape))
    for k, part in enumerate(patches.elements(t, zero, windows)):
        total = lax.select(lax.eq(place, k), part, total)
    return total


def scatter_by_places(source: Value, x: Value, *, select_prim: Primitive, windows: Windows) -> Any:
    """The elements of ``source`` at their winners, place by place."""
    place = winning_places(x, select_prim, windows)
    zeros = zeros_of(source.aval)
    parts = [lax.select(lax.eq(place, k), source, zeros) for k in range(windows.size)]
    return patches.spread(parts, x.aval.shape, windows)


def take(t: Value, positions: Value) -> Any:
    """Elements of the flat array at positions, 0 beyond its end."""
    index = lax.reshape(positions, (*positions.aval.shape, 1))
    numbers = lax.GatherDimensionNumbers((), (0,), (0,))
    flat = lax.reshape(t, (t.aval.size,))
    return lax.gather(flat, index, numbers, (1,), mode="fill", fill_value=0)


def put(source: Value, positions: Value, *, shape: tuple[int, ...]) -> Any:
    """Zeros to which the elements of ``source`` are added at positions of the flat array."""
    index = lax.reshape(positions, (*positions.aval.shape, 1))
    numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    size = int(np.prod(shape, dtype=np.int64))
    flat = zeros_of(source.aval.update(shape=(size,)))
    return lax.reshape(lax.scatter_add(flat, index, source, numbers, mode="drop"), shape)
