"""The rules that reductions over axes have in common."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any, ClassVar

from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.splits import entries_of, split_of
from tracebridge.core.lax.accepted_dtypes import any_dtype
from tracebridge.core.lax.columns import are_columns, by_columns, without_axes
from tracebridge.core.lax.families import Accepts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.dtypes.dtypes import DTypeLike
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.values import Value


class Reduction(Primitive):
    """One operand, reduced over parameter ``axes``."""

    cost = Cost.REDUCTION
    accepts: ClassVar[Accepts] = staticmethod(any_dtype)
    accepts_text: ClassVar[str] = "any dtype"
    has_loops: ClassVar[Accepts] = staticmethod(any_dtype)
    """The dtypes for which XLA has loops only on the CPU, and no library."""

    def result_dtype(self, x: ShapedArray) -> Any:
        """The dtype of the result."""
        return x.dtype

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        (x,) = avals
        if not type(self).accepts(x.dtype):
            name, takes = self.name, self.accepts_text
            msg = f"{name} does not accept dtype {x.dtype.name}, it works on {takes}"
            raise UnsupportedDtypeError(msg)
        return without_axes(x, params["axes"]).update(dtype=self.result_dtype(x))

    def split_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Any:
        del outs
        entries = [e for i, e in enumerate(entries_of(avals[0])) if i not in params["axes"]]
        return [split_of(self.name, avals, tuple(entries))]

    def lower(self, ctx: LoweringContext, *operands: Any, **params: Any) -> Any:
        (x,) = operands
        out = ctx.aval_out
        dtype = self.accumulator(out.dtype)
        aval = out.update(dtype=dtype)
        if dtype != out.dtype:
            x = ctx.convert(x, ctx.avals_in[0].update(dtype=dtype))
        scalar = aval.update(shape=())
        init = ctx.splat(self.identity(dtype), scalar)

        def body(a: Sequence[IrValue], b: Sequence[IrValue]) -> Sequence[Any]:
            return [self.combine(ctx, a[0], b[0], scalar)]

        def reduce(x: Any, aval: ShapedArray, axes: Sequence[int]) -> Any:
            return ctx.reduce([x], [init], [without_axes(aval, axes)], axes, body)[0]

        full, axes = ctx.avals_in[0].update(dtype=dtype), params["axes"]
        apart = type(self).has_loops(dtype) and are_columns(ctx, full, axes)
        total = by_columns(ctx, x, full, axes, reduce) if apart else reduce(x, full, axes)
        return total if dtype == out.dtype else ctx.convert(total, out)

    def accumulator(self, dtype: DTypeLike) -> Any:
        """The dtype in which elements of ``dtype`` are combined."""
        return dtype

    @abc.abstractmethod
    def identity(self, dtype: DTypeLike) -> Any:
        """The Python scalar that an empty reduction gives."""

    @abc.abstractmethod
    def combine(self, ctx: LoweringContext, a: IrValue, b: IrValue, aval: ShapedArray) -> Any:
        """Emit the combination of two scalars."""

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        del ctx
        (x,), (d,) = args, dims
        assert d is not None  # the only operand is batched
        axes = tuple([a + (a >= d) for a in params["axes"]])
        out_dim = d - sum([a < d for a in axes])
        return self.bind(x, **{**params, "axes": axes}), out_dim
