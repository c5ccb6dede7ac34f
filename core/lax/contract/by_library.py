"""Large products of two matrices of float32 by oneDNN.

Sums over the leading axes of both, the gradients of weights: XLA has Eigen do them, which arranges
copies of both operands first: 5.6 MB for 2048x512 and 2048x2048, of which the library needs a
fifth, and takes 0.4 to 0.95 of the time. The others XLA hands to YNNPACK, which takes 1.03 to 1.7
of the library's time on processors of Intel with AVX-512; on others it is left to it.

A call looks its kernel up by shapes, so small products stay. Executables with a call cannot be
written to files, so whoever keeps what is compiled gets none.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tracebridge.core.config.values import option
from tracebridge.core.dtypes.dtypes import float32
from tracebridge.core.mlir.onednn import (
    IS_BUILT_IN,
    MATMUL,
    emit_call,
    instructions,
    matmul_config,
)
from tracebridge.core.mlir.types import is_static

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.rule_contexts import LoweringContext

_LEAST_WORK = 1 << 23  # multiplications: 0.3 ms
_LEAST_SIDE = 16  # thinner matrices are read once, whoever does it


def suits_library(x: ShapedArray, y: ShapedArray, out: object, numbers: Any) -> bool:
    """Whether ``emit_by_library`` suits operands ``x`` and ``y`` and a result of dtype ``out``."""
    if not IS_BUILT_IN or not x.dtype == y.dtype == out == float32:
        return False
    turned = _summed_in_front(x, y, numbers)
    if turned is None or not (turned == (True, True) or _wins_from_ynnpack()):
        return False
    if not (is_static(x) and is_static(y)):
        return False
    k, m, n = _sizes(x, y, numbers)
    return min(k, m, n) >= _LEAST_SIDE and k * m * n >= _LEAST_WORK


def _summed_in_front(x: ShapedArray, y: ShapedArray, numbers: Any) -> tuple[bool, bool] | None:
    """Whether the axes that are summed up are the first ones of each operand; else the last ones.

    None where an operand is no matrix of axes that are summed up and others.
    """
    summed, (batch, _) = numbers
    if batch or not summed[0]:
        return None
    in_front: list[bool] = []
    for aval, axes in zip((x, y), summed, strict=True):
        first = tuple(axes) == tuple(range(len(axes)))
        if not first and tuple(axes) != tuple(range(aval.ndim - len(axes), aval.ndim)):
            return None
        in_front.append(first)
    return in_front[0], in_front[1]


def _wins_from_ynnpack() -> bool:
    """Whether this is a processor on which the library was measured to be faster."""
    return instructions() >= {"GenuineIntel", "avx512f"}


def may_call_library(ctx: LoweringContext, x: IrValue, y: IrValue) -> bool:
    """Whether programs with calls are kept nowhere, and nothing would have to be copied for one."""
    if ctx.is_split or option("compilation_cache_dir"):
        return False
    return not (_is_turned(x) or _is_turned(y))


def _is_turned(x: IrValue) -> bool:
    """Whether a value is a transpose, which products read through and calls do not."""
    owner = x.owner
    while getattr(owner, "name", "") == "stablehlo.reshape":
        owner = owner.operands[0].owner
    return getattr(owner, "name", "") == "stablehlo.transpose"


def emit_by_library(
    ctx: LoweringContext, x: IrValue, y: IrValue, out: ShapedArray, numbers: Any
) -> IrValue:
    """Emit the contraction as a call, of matrices."""
    x_aval, y_aval = ctx.avals_in
    in_front = _summed_in_front(x_aval, y_aval, numbers)
    assert in_front is not None, "the library does not have such a product"
    k, m, n = _sizes(x_aval, y_aval, numbers)
    x_matrix = x_aval.update(shape=(k, m) if in_front[0] else (m, k))
    y_matrix = y_aval.update(shape=(k, n) if in_front[1] else (n, k))
    made = emit_call(
        ctx,
        MATMUL,
        matmul_config(transpose_a=in_front[0], transpose_b=not in_front[1]),
        [ctx.reshape(x, x_matrix), ctx.reshape(y, y_matrix)],
        (x_matrix, y_matrix),
        out.update(shape=(m, n)),
    )
    return ctx.reshape(made, out)


def _sizes(x: ShapedArray, y: ShapedArray, numbers: Any) -> tuple[int, int, int]:
    """Sizes of the sums, and of the rows and columns of the result."""
    k = math.prod([x.shape[axis] for axis in numbers[0][0]])
    return k, x.size // k if k else 0, y.size // k if k else 0
