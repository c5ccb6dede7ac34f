"""Reductions: reduce_sum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import tracebridge.core.lax as lax
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.dtypes.dtypes import is_bool
from tracebridge.core.lax.families import Reduction


def _is_numeric(dtype: Any) -> bool:
    return not is_bool(dtype)


@final
class ReduceSum(Reduction):
    name = "reduce_sum"
    accepts = staticmethod(_is_numeric)
    accepts_text = "numbers"

    def identity(self, dtype: Any) -> Any:
        return 0

    def combine(self, ctx: Any, a: Any, b: Any, aval: Any) -> Any:
        return ctx.op1("stablehlo.add", [a, b], aval)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        return self.bind(primals[0], **params), self.bind(tangents[0], **params)

    def transpose(self, ct: Any, *args: Any, **params: Any) -> Sequence[Any]:
        shape = args[0].aval.shape
        kept = tuple([i for i in range(len(shape)) if i not in params["axes"]])
        return [lax.broadcast_in_dim(ct, shape, kept)]


reduce_sum_p = ReduceSum()


def reduce_sum(operand: Any, axes: Sequence[int]) -> Any:
    """Sum over ``axes``.

    >>> import tracebridge as tb
    >>> tb.lax.reduce_sum(tb.numpy.ones((2, 3)), (1,)).tolist()
    [3.0, 3.0]
    """
    axes = tuple(axes)
    return reduce_sum_p.bind(as_value(operand), axes=axes) if axes else as_value(operand)
