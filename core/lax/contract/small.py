"""Products of many small rows or matrices on CPU, as a sum of elementwise products.

XLA hands products to a matrix library that spends most of its time around, not in, small ones:
3x3 matrices against 100 000 rows take 50 times as long as the multiplications, a batch of 1000
products of 4x4 matrices 60 times. Written as multiplications and additions they are one
vectorised loop. So are products of two long thin matrices, which add up few outer products. The
limits below were measured; outside of them the library is as good or better.

A single product of a few numbers is one loop too, a sum over an axis of all products, which is
fused with what stands round it. The library takes 1 us for it, also in each step of a loop.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

from tracebridge.core import lax
from tracebridge.core.dtypes.dtypes import (
    complex64,
    complex128,
    float32,
    float64,
    int32,
    int64,
    uint32,
    uint64,
)
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.mlir.types import is_static

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.ir.value import Operand


_FLOATS = frozenset({float32, float64})
_COMPLEX = frozenset({complex64, complex128})
_DTYPES = frozenset({float32, float64, complex64, complex128, int32, int64, uint32, uint64})
_LEAST_WORK = 1 << 12
_MANY_MATRICES = 64
_MANY_ROWS = 512
_MATRIX = 16
_ROW = 10
_VECTOR = 4
_OUTER = 64
_MOST_WORK = 1 << 11  # of a product that is a sum over an axis
_LONGEST = 64  # which is added up in order


def is_small_dot(x: ShapedArray, y: ShapedArray, out: object, numbers: Any) -> bool:
    """Whether ``emit_small_dot`` suits operands ``x`` and ``y`` and a result of dtype ``out``."""
    if x.dtype != y.dtype or x.dtype != out or out not in _DTYPES:
        return False
    if not (is_static(x) and is_static(y)):
        return False
    (xc, yc), (xb, _) = numbers
    batch = math.prod([x.shape[i] for i in xb])
    k = math.prod([x.shape[i] for i in xc])
    if not 2 <= k <= _MATRIX or batch == 0:
        return False
    m, n = x.size // (batch * k), y.size // (batch * k)
    if batch * m * n * k < _LEAST_WORK:
        return False
    is_complex = out in _COMPLEX
    if batch >= _MANY_MATRICES and m <= _MATRIX and n <= _MATRIX:
        if is_complex:
            return k <= _MATRIX // 2 or n % 8 == 0
        # XLA itself writes products with vectors out as sums.
        return out not in _FLOATS or min(m, n) > 1 or k <= _VECTOR
    if k > _ROW:
        return False
    if batch == 1 and min(m, n) >= _OUTER and y.ndim - 1 not in numbers[0][1]:
        return k <= (_MATRIX // 2 if is_complex else _VECTOR if out == float32 else 1)
    # One side is many short rows, the other a small matrix.
    rows, columns = (batch * m, n) if m >= n else (batch * n, m)
    aval, contracted = (x, xc) if m >= n else (y, yc)
    widest = _ROW if k % 4 == 0 else _MATRIX
    return rows >= _MANY_ROWS and 2 <= columns <= widest and aval.ndim - 1 in contracted


def is_tiny_dot(x: ShapedArray, y: ShapedArray, out: object, numbers: Any) -> bool:
    """Whether ``emit_tiny_dot`` suits operands ``x`` and ``y`` and a result of dtype ``out``."""
    if x.dtype != y.dtype or x.dtype != out or not (out in _FLOATS or out in _COMPLEX):
        return False
    if not (is_static(x) and is_static(y)):
        return False
    (xc, _), (xb, _) = numbers
    batch = math.prod([x.shape[i] for i in xb])
    k = math.prod([x.shape[i] for i in xc])
    if not 2 <= k <= _LONGEST or batch == 0:
        return False
    m, n = x.size // (batch * k), y.size // (batch * k)
    # XLA itself writes products with vectors out as sums.
    return min(m, n) > 1 and batch * m * n * k <= _MOST_WORK


def emit_tiny_dot(
    ctx: LoweringContext, x: IrValue, y: IrValue, avals: tuple[ShapedArray, ...], numbers: Any
) -> Any:
    """Emit the contraction as a sum over axes of all products.

    It is a function of the module: networks have many such products of the same sizes.
    """

    def product(x: Operand, y: Operand) -> Any:
        return _sum_of_products(x, y, avals, numbers)

    return ctx.call_fun((emit_tiny_dot, numbers), product, (x, y), avals, "product")[0]


def _sum_of_products(
    x: Operand, y: Operand, avals: tuple[ShapedArray, ...], numbers: Any
) -> Operand:
    """Columns stay innermost, so that rows of them are added up as vectors."""
    (xc, yc), (xb, yb) = numbers
    x_aval, y_aval = avals
    x_free = [i for i in range(x_aval.ndim) if i not in (*xc, *xb)]
    y_free = [i for i in range(y_aval.ndim) if i not in (*yc, *yb)]
    n_batch, n_lead = len(xb), len(xb) + len(x_free)
    summed = tuple(range(n_lead, n_lead + len(xc)))
    n_summed = n_lead + len(xc)
    y_places = (*range(n_batch), *summed, *range(n_summed, n_summed + len(y_free)))
    sizes = [x_aval.shape[i] for i in (*xb, *x_free, *xc)] + [y_aval.shape[i] for i in y_free]
    x = lax.transpose(x, (*xb, *x_free, *xc))
    y = lax.transpose(y, (*yb, *yc, *y_free))
    x = lax.broadcast_in_dim(x, tuple(sizes), tuple(range(n_summed)))
    y = lax.broadcast_in_dim(y, tuple(sizes), y_places)
    return lax.reduce_sum(lax.mul(x, y), summed)


def _reordered(ctx: LoweringContext, x: IrValue, aval: ShapedArray, axes: Sequence[int]) -> IrValue:
    """``x`` with its axes in the order ``axes``."""
    if list(axes) == list(range(aval.ndim)):
        return x
    return ctx.transpose(x, aval.update(shape=tuple([aval.shape[i] for i in axes])), axes)


def emit_small_dot(
    ctx: LoweringContext,
    x: Any,
    y: IrValue,
    avals: tuple[ShapedArray, ...],
    out: ShapedArray,
    numbers: Any,
) -> Any:
    """Emit the contraction, one product for each element of the contracting axes."""
    (xc, yc), (xb, yb) = numbers
    x_aval, y_aval = avals
    n_batch = len(xb)
    x_free = [i for i in range(x_aval.ndim) if i not in (*xc, *xb)]
    y_free = [i for i in range(y_aval.ndim) if i not in (*yc, *yb)]
    x_places = {a: i for i, a in enumerate((*xb, *x_free))}
    y_places = {a: i for i, a in enumerate(yb)}
    y_places |= {a: n_batch + len(x_free) + i for i, a in enumerate(y_free)}
    total = None
    for position in itertools.product(*[range(x_aval.shape[i]) for i in xc]):
        a = _part(ctx, x, x_aval, dict(zip(xc, position, strict=True)), x_places, out)
        b = _part(ctx, y, y_aval, dict(zip(yc, position, strict=True)), y_places, out)
        product = ctx.op1("stablehlo.multiply", [a, b], out)
        total = product if total is None else ctx.op1("stablehlo.add", [total, product], out)
    return total


def _part(
    ctx: LoweringContext,
    x: Any,
    aval: ShapedArray,
    at: dict[int, int],
    places: dict[int, int],
    out: ShapedArray,
) -> Any:
    """``x`` at positions of some axes, repeated to the shape of ``out``; where the others go."""
    starts = [at.get(i, 0) for i in range(aval.ndim)]
    stops = [at[i] + 1 if i in at else aval.shape[i] for i in range(aval.ndim)]
    sizes = tuple([b - a for a, b in zip(starts, stops, strict=True)])
    x = ctx.slice(x, aval.update(shape=sizes), starts, stops, [1] * aval.ndim)
    other_axes = [i for i in range(aval.ndim) if i not in at]
    kept = aval.update(shape=tuple([aval.shape[i] for i in other_axes]))
    x = ctx.reshape(x, kept)
    order = sorted(range(len(other_axes)), key=lambda i: places[other_axes[i]])
    x = _reordered(ctx, x, kept, order)
    return ctx.broadcast_in_dim(x, out, [places[other_axes[i]] for i in order])
