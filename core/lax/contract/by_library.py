"""Gradients of weights by oneDNN: sums over the leading axes of two large arrays of float32.

XLA has Eigen do them, which arranges copies of both operands first: 5.6 MB for 2048x512 and
2048x2048, of which the library needs a fifth, and takes 0.4 to 0.95 of the time. A call looks its
kernel up by shapes, so small products stay. Executables with a call cannot be written to files, so
whoever keeps what is compiled gets none.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tracebridge.core.config.values import option
from tracebridge.core.dtypes.dtypes import float32
from tracebridge.core.mlir.onednn import IS_BUILT_IN, MATMUL, emit_call
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
    (xc, yc), (xb, _) = numbers
    leading = tuple(range(len(xc)))
    if xb or not xc or tuple(xc) != leading or tuple(yc) != leading:
        return False
    if not (is_static(x) and is_static(y)):
        return False
    k, m, n = _sizes(x, y, len(xc))
    return min(k, m, n) >= _LEAST_SIDE and k * m * n >= _LEAST_WORK


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
    ctx: LoweringContext, x: IrValue, y: IrValue, out: ShapedArray, n_contracted: int
) -> IrValue:
    """Emit the contraction as a call, of matrices."""
    x_aval, y_aval = ctx.avals_in
    k, m, n = _sizes(x_aval, y_aval, n_contracted)
    x_matrix, y_matrix = [a.update(shape=(k, s)) for a, s in ((x_aval, m), (y_aval, n))]
    made = emit_call(
        ctx,
        MATMUL,
        {"onednn_matmul_config": {"transpose_a": True}},
        [ctx.reshape(x, x_matrix), ctx.reshape(y, y_matrix)],
        (x_matrix, y_matrix),
        out.update(shape=(m, n)),
    )
    return ctx.reshape(made, out)


def _sizes(x: ShapedArray, y: ShapedArray, n: int) -> tuple[int, int, int]:
    """Sizes of the sums, and of the rows and columns of the result."""
    return math.prod(x.shape[:n]), math.prod(x.shape[n:]), math.prod(y.shape[n:])
