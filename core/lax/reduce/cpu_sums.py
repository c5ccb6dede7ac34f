"""How sums of float32 are lowered on the CPU, where XLA has two ways of its own and a third.

XLA hands sums of float32 with 4096 elements or more to a library (YNNPACK). It is 3 to 10 times
faster than generated code over long rows, and 2 to 30 times slower where the last axis is short:
it works row by row, and nothing that it does not know fuses into it, so operands are written to
memory first. A matrix product with ones is as fast or faster where the operand lies in memory, or
will be written there in any case.

Measured with jaxlib 0.10.2, two cores, in microseconds. One million elements, in memory, by rows:

| rows of | library | generated | product with ones |
|---|---|---|---|
| 4 | 590 | 37 | 170 |
| 8 | 530 | 98 | 91 |
| 16 | 170 | 110 | 35 |
| 32 | 92 | 150 | 40 |
| 128 | 63 | 220 | 60 |

Others, beside other work; ``chain`` is ``(x - r) * y / r * c``, ``r`` of rows, ``c`` of columns:

| summed | of | library | product with ones |
|---|---|---|---|
| rows of (4096, 256) | x; x - r; chain | 112; 202; 671 | 99; 238; 623 |
| rows of (256, 4096) | x; where(x > y, x, 0); chain | 108; 447; 711 | 92; 272; 405 |
| columns of (4096, 256) | x; x - r; chain | 177; 243; 773 | 149; 255; 411 |
| columns of (20000, 64) | x; x - r; chain | 121; 333; 849 | 176; 569; 600 |
| columns of (64, 16384) | x; x - r; chain | 202; 322; 649 | 95; 327; 535 |
| columns of (50, 20000) | x; x - r; chain | 5482; 9434; 8250 | 121; 380; 565 |
| rows of (8192, 2048) | x; (x - r) * y | 3567; 9884 | 3384; 56983 |

A chain of four million elements alone takes 1600 to 3300 in the library and 1800 to 3000 as a
product. But the library wants what is repeated along rows written too: with three such sums, as in
the backward pass of a layer norm of (4096, 1000), temporary arrays take 47 MB instead of 16, which
the allocator of the system maps anew each time. That pass takes 20000 instead of 7100.

Below 32K elements the library keeps one thread busy, and loses more often. ``chain`` is
``(x - 0.5) * x / 1.3 * (x + 1)``, whose numbers the library wants written to memory:

| summed | of | library | generated | product with ones |
|---|---|---|---|---|
| rows of (64, 64, 3) | x; x * x; chain | 26; 25; 355 | 1.7; 1.8; 3.3 | 5.0; 9.2; 5.9 |
| rows of (1024, 8) | x; x * x; chain | 5.0; 4.7; 18 | 1.5; 1.5; 2.8 | 1.4; 2.1; 2.1 |
| rows of (512, 16) | x; x * x; chain | 5.0; 4.8; 12 | 4.1; 4.8; 5.3 | 3.2; 3.9; 7.7 |
| rows of (256, 32) | x; x * x; chain | 4.0; 3.9; 7.4 | 4.6; 5.6; 5.2 | 3.1; 3.8; 3.7 |
| rows of (128, 100) | (x - r) ** 2; tanh | 3.2; 6.5 | 4.5; 13 | 2.5; 12 |
| rows of (128, 128) | x; x * x; chain | 1.8; 1.8; 7.6 | 4.4; 5.7; 5.6 | 1.5; 2.7; 2.6 |
| columns of (1024, 8) | x; x * x; chain | 4.1; 3.7; 17 | 1.1; 1.8; 1.7 | 2.2; 2.8; 2.7 |
| columns of (128, 64) | x; x * x; chain | 1.3; 1.3; 4.5 | 0.9; 1.5; 1.5 | 0.8; 1.5; 1.5 |
| (32, 16, 16), the middle | x; x * x; chain | 5.4; 5.4; 13 | 3.1; 3.2; 4.4 | |
| (8, 16, 16, 8), all but the last | x; x * x; chain | 7; 7; 34 | 14; 19; 18 | 4.1; 5.6; 5.2 |

The library is kept from a sum by its reducer: ``a - (-b)``, which is the same arithmetic.

Parts of other arrays the library wants written, each by itself. So what is computed from several of
them, as the energy of a stencil, is written before (``stored.py``):

| sum of | library | written before |
|---|---|---|
| (1000, 1000), five parts squared: all; rows; columns | 960; 1040; 950 | 430; 440; 450 |
| a million, ``(x[1:] - x[:-1] ** 2) ** 2`` | 440 | 220 |
| two sums of ``abs(x[1:] - x[:-1])``, (1000, 1000) | 520 | 330 |
| (4, 246, 256), a convolution with 11 taps | 340 | 83 |

Rows in memory of more elements than the caches near a core hold are better in the library, and
so are sums of products of two arrays. But what reads such a sum and the same arrays again, as in
the derivative of softmax, must not become a part of the library's kernel: it is kept apart by a
``reduce_precision`` to the precision that is there, which XLA leaves and the library does not know.
Not so for products larger than the shared cache: one kernel reads them once only (4096 x 1000 in a
training step: 2.6 ms, 2.9 apart).

| rows of | summed | library | product with ones |
|---|---|---|---|
| (4096, 1000); (4096, 512); (20000, 128) | x | 330; 116; 180 | 573; 209; 448 |
| (4096, 256); (1024, 1024); (20000, 64) | x | 42; 44; 75 | 42; 45; 85 |

| rows of | ``y * (x - sum(x * y))`` in one kernel | apart |
|---|---|---|
| (8, 512, 512); (20000, 64); (1024, 1024) | 718; 384; 236 | 598; 276; 191 |
| the same on one core | 1450; 733; 519 | 1140; 557; 396 |
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracebridge.core import lax
from tracebridge.core.dtypes.dtypes import float32
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.lax.shape.axes import joined_axes
from tracebridge.core.lax.stored import emit_stored
from tracebridge.core.mlir.attrs import i32
from tracebridge.core.mlir.types import is_static

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.ir.value import Operand

_FOR_LIBRARY = 1 << 12  # elements; XLA emits code for smaller sums in any case
_FOR_THREADS = 1 << 15  # elements; smaller sums are done by one thread
_NARROW = 12  # columns of so narrow matrices are no work for the library
_SHORT = 16  # nor are rows up to this length
_MOST_ROWS = 4096  # more are no faster to sum up as a product with ones
_LARGE, _LEAST_IN_LARGE = 1 << 20, 64  # longer rows of more elements are best in the library
_MOST_APART = 1 << 21  # elements of products that are read again from the shared cache
_ROW_BLOCK, COLUMN_BLOCK, _LEAST_BLOCK = 1024, 256, 31
_WIDE = 1 << 14  # XLA's loop over the rows of wider matrices is 10 to 40 times slower

# Chains that are written to memory before they are summed: their length with broadcasts in them,
# up to which size (larger temporary arrays are mapped anew each time), the size for any length.
_STEPS, _FEW = 3, 2
_MOST_WRITTEN = 1 << 22  # for sums of rows
_MOST_FOR_COLUMNS = 1 << 21  # the energy of 1000 bodies, twice as slow above this in its derivative
_SMALL = 1 << 17

# Operations that XLA fuses into what reads them, so that their results need not be in memory.
_FUSED = frozenset(
    f"stablehlo.{name}"
    for name in (
        "abs", "add", "and", "broadcast_in_dim", "cbrt", "ceil", "clamp", "compare", "constant",
        "convert", "cosine", "divide", "exponential", "exponential_minus_one", "floor", "iota",
        "is_finite", "log", "log_plus_one", "logistic", "maximum", "minimum", "multiply", "negate",
        "not", "or", "power", "reshape", "rsqrt", "select", "sign", "sine", "slice", "sqrt",
        "subtract", "tanh", "transpose", "xor",
    )
)  # fmt: skip

_MANY_PARTS = 2  # of other arrays, that are written together rather than one by one
_MOST_SEEN = 64  # operations that are looked at for them

_NO_WORK = frozenset(["stablehlo.reshape", "stablehlo.constant", "stablehlo.iota"])


def lower_sum(ctx: LoweringContext, x: IrValue, *, axes: tuple[int, ...], **params: object) -> Any:
    """Emit a sum over ``axes`` in the way that suits its shape and where its operand comes from."""
    (aval,) = ctx.avals_in
    if aval.dtype != float32 or not is_static(aval) or aval.size < _FOR_LIBRARY:
        return lax.reduce_sum_p.lower(ctx, x, axes=axes)
    if aval.size < _FOR_THREADS:
        return _lower_small(ctx, x, axes)
    shape, summed = joined_axes(aval.shape, axes)
    last, n = shape[-1], len(shape)
    if n > 1 and summed == (n - 1,):
        block = block_length(last, _ROW_BLOCK)
        # Short rows are not worth writing: a chain of 12 steps over rows of 16 takes 69, or 290.
        most = _MOST_WRITTEN if last > _SHORT else 0
        small = aval.size <= _LARGE or last < _LEAST_IN_LARGE
        always = small and block == last
        if last >= _SHORT and block and _is_best_in_memory(x, aval.size, always=always, most=most):
            return _of_rows(ctx, x, (aval.size // last, last // block, block))
        name = getattr(x.owner, "name", None)
        is_product = name == "stablehlo.multiply" and aval.size <= _MOST_APART
        if last > _SHORT and (is_product or name not in _FUSED):
            return _apart(ctx, x, axes)
        if last <= _SHORT:
            return _by_generated_code(ctx, x, aval.update(shape=shape), summed)
    # Several summed axes stay loops in generated code, which are slow.
    elif summed == (n - 2,) and last <= _NARROW and sum(aval.shape[i] > 1 for i in axes) == 1:
        return _by_generated_code(ctx, x, aval.update(shape=shape), summed)
    elif summed == (0,) and n > 1 and last >= _SHORT:
        block = block_length(shape[0], COLUMN_BLOCK)
        always, most = shape[0] <= _MOST_ROWS, _MOST_FOR_COLUMNS
        if block and (last > _WIDE or _is_best_in_memory(x, aval.size, always=always, most=most)):
            return _of_columns(ctx, x, (shape[0] // block, block, last))
    return _by_library(ctx, x, axes)


def _lower_small(ctx: LoweringContext, x: IrValue, axes: tuple[int, ...]) -> Any:
    """Emit a sum that one thread does."""
    (aval,) = ctx.avals_in
    shape, summed = joined_axes(aval.shape, axes)
    last, n = shape[-1], len(shape)
    if summed == (n - 1,):
        if last <= _SHORT:
            return _by_generated_code(ctx, x, aval.update(shape=shape), summed)
        steps, block = _steps(x, aval.size), block_length(last, _ROW_BLOCK)
        if block and (not steps or steps >= (_FEW if last >= _LEAST_IN_LARGE else _STEPS)):
            return _of_rows(ctx, x, (aval.size // last, last // block, block))
    elif len(summed) == 1 and summed[0] == n - 2:
        length = shape[n - 2]
        # One element after the other: longer sums would lose digits.
        if length <= _ROW_BLOCK and sum(aval.shape[i] > 1 for i in axes) == 1:
            return _by_generated_code(ctx, x, aval.update(shape=shape), summed)
        block = block_length(length, COLUMN_BLOCK)
        if n == 2 and block:
            return _of_columns(ctx, x, (shape[0] // block, block, last))
    return _by_library(ctx, x, axes)


def _steps(x: IrValue, size: int) -> int:
    """How many operations, up to a chain of them, are between ``x`` and what is in memory."""
    steps, waiting = 0, [x]
    while waiting and steps < _STEPS:
        owner = waiting.pop().owner
        name = getattr(owner, "name", None)
        if name in _FUSED and name != "stablehlo.broadcast_in_dim":
            steps += name not in _NO_WORK
            waiting.extend([o for o in owner.operands if math.prod(o.type.shape) == size])
    return steps


def parts_read_by(x: IrValue, most: int) -> int:
    """How many parts of other arrays ``x`` is computed from, within XLA's loops; up to ``most``.

    Those of a stencil, or of a convolution that is a sum of shifted arrays. The library writes each
    of them, and a loop that reads ``x`` several times computes all of it each time.
    """
    waiting, size, parts = [x], math.prod(x.type.shape), 0
    seen: set[IrValue] = set()
    while waiting and parts < most and len(seen) < _MOST_SEEN:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        name = getattr(value.owner, "name", None)
        if name == "stablehlo.slice":
            parts += 1
        elif name in _FUSED:
            waiting.extend([o for o in value.owner.operands if math.prod(o.type.shape) == size])
    return parts


def _is_best_in_memory(x: IrValue, size: int, *, always: bool, most: int) -> bool:
    """Whether a sum takes least time if ``x`` is in memory; ``always``: so if it is there already.

    The library writes what it cannot fuse: choices, and chains of operations with broadcasts.
    ``most``: the largest size for which something is written that would not be otherwise.
    """
    steps, spread = 0, False
    waiting = [x]
    while waiting:
        owner = waiting.pop().owner
        name = getattr(owner, "name", None)
        if name not in _FUSED:
            continue
        operands: list[IrValue] = list(owner.operands)
        if name == "stablehlo.broadcast_in_dim":
            spread = spread or bool(operands[0].type.shape)
            continue
        if name == "stablehlo.select":
            return size <= most
        steps += name not in _NO_WORK
        if spread and steps >= _STEPS:
            return size <= most
        waiting.extend([o for o in operands if math.prod(o.type.shape) == size])
    return always if not steps else spread and size <= min(_SMALL, most)


def block_length(length: int, most: int) -> int:
    """The length of parts that are summed on their own; 0 if there is no good one.

    A product adds up one element after the other, which loses digits: 4096 times 0.1 is wrong by
    4e-5, in parts of 256 by 2e-6.
    """
    if length <= most:
        return length
    return next((k for k in range(most, _LEAST_BLOCK, -1) if length % k == 0), 0)


def _of_rows(ctx: LoweringContext, x: IrValue, shape: tuple[int, int, int]) -> Any:
    """The sums of rows by a product with ones; ``shape``: rows, parts, elements of a part."""
    return ctx.lower_fun(_row_sums, x, split=shape, out_shape=ctx.aval_out.shape)[0]


def _row_sums(x: Operand, *, split: tuple[int, int, int], out_shape: tuple[int, ...]) -> Any:
    rows, parts, block = split
    matrix = lax.reshape(x, (rows * parts, block))
    sums = lax.dot_general(matrix, lax.full((block,), 1, float32), (((1,), (0,)), ((), ())))
    if parts > 1:
        sums = lax.reduce_sum(lax.reshape(sums, (rows, parts)), (1,))
    return lax.reshape(sums, out_shape)


def _of_columns(ctx: LoweringContext, x: IrValue, shape: tuple[int, int, int]) -> Any:
    """The sums of columns by products with ones; ``shape``: parts, rows of a part, columns."""
    return ctx.lower_fun(_column_sums, x, split=shape, out_shape=ctx.aval_out.shape)[0]


def _column_sums(x: Operand, *, split: tuple[int, int, int], out_shape: tuple[int, ...]) -> Any:
    parts, block, columns = split
    if parts == 1:
        ones, matrix = lax.full((block,), 1, float32), lax.reshape(x, (block, columns))
        sums = lax.dot_general(ones, matrix, (((0,), (0,)), ((), ())))
    else:
        ones = lax.full((parts, block), 1, float32)
        sums = lax.dot_general(ones, lax.reshape(x, split), (((1,), (1,)), ((0,), (0,))))
        sums = lax.reduce_sum(sums, (0,))
    return lax.reshape(sums, out_shape)


def _by_library(ctx: LoweringContext, x: IrValue, axes: tuple[int, ...]) -> Any:
    """A reduction by the library; of parts of other arrays, after what is computed from these."""
    if not ctx.is_split and parts_read_by(x, _MANY_PARTS) >= _MANY_PARTS:
        x = emit_stored(ctx, x, ctx.avals_in[0])
    return lax.reduce_sum_p.lower(ctx, x, axes=axes)


def _apart(ctx: LoweringContext, x: IrValue, axes: tuple[int, ...]) -> Any:
    """A reduction by the library, into which nothing fuses that reads it."""
    total = _by_library(ctx, x, axes)
    bits = {"exponent_bits": i32(8), "mantissa_bits": i32(23)}
    return ctx.op1("stablehlo.reduce_precision", [total], ctx.aval_out, bits)


def _by_generated_code(
    ctx: LoweringContext, x: IrValue, joined: ShapedArray, axes: tuple[int, ...]
) -> Any:
    """A reduction that XLA emits code for, into which its operand fuses."""
    scalar = joined.update(shape=())

    def body(a: Sequence[IrValue], b: Sequence[IrValue]) -> Sequence[IrValue]:
        negative = ctx.op1("stablehlo.negate", [b[0]], scalar)
        return [ctx.op1("stablehlo.subtract", [a[0], negative], scalar)]

    kept = tuple([d for i, d in enumerate(joined.shape) if i not in axes])
    out = joined.update(shape=kept)
    zero = ctx.splat(0, scalar)
    total = ctx.reduce([ctx.reshape(x, joined)], [zero], [out], axes, body)[0]
    return ctx.reshape(total, ctx.aval_out)
