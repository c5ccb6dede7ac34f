"""Sums of exponentials that are shifted so that none is infinite: what log_softmax is made of.

Which shift is taken is not said, so that a platform may choose. The largest element always does.
On the CPU (``core/lowering/platforms.py``) large arrays have their exponentials summed up as they
are. The logarithm of that sum, rounded to a whole number, is as good a shift, and needs neither the
maxima nor a subtraction for each element: rows of f32[4096,1000] take 0.8 ms instead of 1.25
(jaxlib 0.10.2, two cores). Where the sum of any row is not between 1e-25 and 1e25, in float64
1e-250 and 1e250, which includes infinities and NaN, all rows are shifted by their largest elements.
"""

from __future__ import annotations

__all__ = ["shifted_exp_sum", "shifted_exp_sum_p"]

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tracebridge.core import lax
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.lax.ad_util import full_of
from tracebridge.core.lax.batch_util import move_batch_axis

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Value

# Sums above these or below their reciprocals have lost digits, or may have: terms that were too
# small for the dtype have to be nothing beside them.
_MOST = {np.dtype(np.float32): 1e25, np.dtype(np.float64): 1e250}


@final
class ShiftedExpSum(Primitive):
    """Operand: floats; parameter ``axes``. Results: a shift, and ``sum(exp(x - shift), axes)``.

    Users of both must not depend on the shift, which has no derivative for that reason.
    """

    name = "shifted_exp_sum"
    cost = Cost.OTHER
    multiple_results = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> list[ShapedArray]:
        (x,) = avals
        kept = tuple([n for i, n in enumerate(x.shape) if i not in params["axes"]])
        return [x.update(shape=kept, weak_type=False)] * 2

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        return ctx.lower_fun(by_largest, *operands, **params)

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Any], **params: Any) -> Any:
        (x,), (t,), axes = primals, tangents, params["axes"]
        shift, total = self.bind(x, **params)
        terms = lax.exp(lax.sub(x, _spread(shift, x, axes)))
        return [shift, total], [None, lax.reduce_sum(lax.mul(terms, t), axes)]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        del ctx
        (x,), (d,) = args, dims
        assert d is not None  # the only operand is batched
        axes = tuple([a + 1 for a in params["axes"]])
        return self.bind(move_batch_axis(x, d, 0), axes=axes), [0, 0]


shifted_exp_sum_p = ShiftedExpSum()


def shifted_exp_sum(x: Value, axes: tuple[int, ...]) -> Any:
    """Numbers near the largest element over ``axes``, and the sum of ``exp(x - number)``."""
    return shifted_exp_sum_p.bind(x, axes=axes)


def _spread(rows: Value, x: Value, axes: tuple[int, ...]) -> Any:
    kept = tuple([i for i in range(x.aval.ndim) if i not in axes])
    return lax.broadcast_in_dim(rows, x.aval.shape, kept)


def by_largest(x: Value, axes: tuple[int, ...]) -> tuple[Any, Any]:
    """The largest element as the shift."""
    shift = lax.reduce_max(x, axes)
    return shift, lax.reduce_sum(lax.exp(lax.sub(x, _spread(shift, x, axes))), axes)


def by_sum(x: Value, axes: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """The logarithm of the plain sum, rounded; and first whether all rows allow that."""
    plain = lax.reduce_sum(lax.exp(x), axes)
    shift = lax.round(lax.log(plain), lax.RoundingMethod.TO_NEAREST_EVEN)
    return all_within(plain), shift, lax.mul(plain, lax.exp(lax.neg(shift)))


def all_within(*sums: Value) -> Any:
    """Whether no sum is too large or too small to have all its digits."""
    most = _MOST[sums[0].aval.dtype]
    flags = [
        lax.bitwise_and(lax.gt(s, full_of(s.aval, 1 / most)), lax.lt(s, full_of(s.aval, most)))
        for s in sums
    ]
    within = flags[0]
    for flag in flags[1:]:
        within = lax.bitwise_and(within, flag)
    return lax.reduce_and(within, tuple(range(within.aval.ndim)))
