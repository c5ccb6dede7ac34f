"""linear_recurrence: what the derivatives of running reductions are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core import lax
from tracebridge.core.dtypes.dtypes import is_inexact
from tracebridge.core.errors.dtype_errors import DtypeMismatchError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.lax.ad_util import full_of
from tracebridge.core.lax.batch_util import to_front
from tracebridge.core.lax.reduce.prefixes import emit_recurrence
from tracebridge.core.lax.reduce.reductions import accumulator_dtype

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Value


@final
class LinearRecurrence(Primitive):
    """``y[i] = a[i] * y[i - 1] + b[i]`` along ``axis``, from the end if ``reverse``.

    The first ``a`` is not used. Linear in ``b``.
    """

    name = "linear_recurrence"
    cost = Cost.OTHER

    def abstract_eval(self, *avals: ShapedArray, **params: object) -> ShapedArray:
        a, b = avals
        if a.shape != b.shape:
            msg = f"linear_recurrence: got {a.str_short()} and {b.str_short()}, expected one shape"
            raise ShapeMismatchError(msg)
        if a.dtype != b.dtype or not is_inexact(a.dtype):
            msg = f"linear_recurrence: got {a.str_short()} and {b.str_short()}"
            raise DtypeMismatchError(msg, expected="one floating or complex dtype")
        return b

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        out = ctx.aval_out
        dtype = accumulator_dtype(out.dtype)
        aval = out.update(dtype=dtype)
        if dtype != out.dtype:
            operands = tuple([ctx.convert(v, aval) for v in operands])
        result = emit_recurrence(
            ctx, *operands, aval=aval, axis=params["axis"], reverse=params["reverse"]
        )
        return result if dtype == out.dtype else ctx.convert(result, out)

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Any], **params: Any) -> Any:
        (a, b), (s, t) = primals, tangents
        ans = self.bind(a, b, **params)
        if s is not None:
            s = lax.mul(shifted(ans, 0, **params), s)
            t = s if t is None else lax.add(s, t)
        return ans, self.bind(a, t, **params)

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        """The same from the other end, with the factor that the next element was multiplied by."""
        a, _ = args
        back = {"axis": params["axis"], "reverse": not params["reverse"]}
        return [None, self.bind(shifted(a, 0, **back), ct, **back)]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        moved = [to_front(x, d, ctx.size) for x, d in zip(args, dims, strict=True)]
        return self.bind(*moved, axis=params["axis"] + 1, reverse=params["reverse"]), 0


linear_recurrence_p = LinearRecurrence()


def shifted(x: Any, first: Any, axis: int, reverse: bool) -> Any:
    """The element before each one in a scan; ``first`` (a Python scalar) before the first one."""
    config = [(0, 0, 0)] * x.aval.ndim
    config[axis] = (-1, 1, 0) if reverse else (1, -1, 0)
    return lax.pad(x, full_of(x.aval.update(shape=()), first), config)
