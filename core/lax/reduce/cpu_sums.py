"""How sums of float32 are lowered on the CPU, where XLA has two ways of its own and a third.

XLA hands sums of float32 with 32K elements or more to a library (YNNPACK). It is 3 to 10 times
faster than generated code over long rows, and 2 to 30 times slower where the last axis is short:
it works row by row, and nothing that it does not know fuses into it, so operands are written to
memory first. A matrix product with ones beats both for somewhat longer rows that lie in memory.

Measured with jaxlib 0.10.2 on one million elements, two cores, in microseconds:

| rows of | library | generated | product with ones |
|---|---|---|---|
| 4 | 590 | 37 | 170 |
| 8 | 530 | 98 | 91 |
| 16 | 170 | 110 | 35 |
| 32 | 92 | 150 | 40 |
| 128 | 63 | 220 | 60 |

The library is kept from a sum by its reducer: ``a - (-b)``, which is the same arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracebridge.core import lax
from tracebridge.core.dtypes.dtypes import float32
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.mlir.types import is_static

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.ir.value import Operand

_FOR_LIBRARY = 1 << 15  # elements; XLA emits code for smaller sums in any case
_NARROW = 12  # columns of so narrow matrices are no work for the library
_SHORT = 16  # nor are rows up to this length
_MEDIUM = 64  # rows below this length are faster as a product with ones

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


def lower_sum(ctx: LoweringContext, x: IrValue, *, axes: tuple[int, ...]) -> Any:
    """Emit a sum over ``axes`` in the way that suits its shape and where its operand comes from."""
    (aval,) = ctx.avals_in
    if aval.dtype != float32 or not is_static(aval) or aval.size < _FOR_LIBRARY:
        return lax.reduce_sum_p.lower(ctx, x, axes=axes)
    shape, summed = _joined(aval.shape, axes)
    last, n = shape[-1], len(shape)
    if n > 1 and summed == (n - 1,):
        if _SHORT <= last < _MEDIUM and not _is_fused(x):
            return _by_product(ctx, x, aval.size, last)
        if last <= _SHORT:
            return _by_generated_code(ctx, x, aval.update(shape=shape), summed)
    # Several summed axes stay loops in generated code, which are slow.
    elif summed == (n - 2,) and last <= _NARROW and sum(aval.shape[i] > 1 for i in axes) == 1:
        return _by_generated_code(ctx, x, aval.update(shape=shape), summed)
    return lax.reduce_sum_p.lower(ctx, x, axes=axes)


def _joined(shape: Sequence[int], axes: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and summed axes after neighbours that are both summed or both kept have become one."""
    sizes: list[int] = []
    kinds: list[bool] = []
    for i, size in enumerate(shape):
        if size == 1:
            continue
        if kinds and kinds[-1] == (i in axes):
            sizes[-1] *= size
        else:
            sizes.append(size)
            kinds.append(i in axes)
    return tuple(sizes), tuple([i for i, summed in enumerate(kinds) if summed])


def _is_fused(x: IrValue) -> bool:
    """Whether XLA computes ``x`` inside of what reads it."""
    owner = x.owner
    return getattr(owner, "name", None) in _FUSED


def _by_product(ctx: LoweringContext, x: IrValue, size: int, last: int) -> Any:
    """A product with ones over the last ``last`` elements of rows."""
    shape = ctx.aval_out.shape

    def product(x: Operand) -> Any:
        ones = lax.full((last,), 1, float32)
        rows = lax.reshape(x, (size // last, last))
        return lax.reshape(lax.dot_general(rows, ones, (((1,), (0,)), ((), ()))), shape)

    return ctx.lower_fun(product, x)[0]


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
