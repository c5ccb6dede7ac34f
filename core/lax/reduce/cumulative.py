"""Running reductions along one axis: cumsum, cumprod, cummax, cummin, cumlogsumexp."""

from __future__ import annotations

__all__ = [
    "cumlogsumexp", "cumlogsumexp_p", "cummax", "cummax_p", "cummin", "cummin_p", "cumprod",
    "cumprod_p", "cumsum", "cumsum_p",
]  # fmt: skip

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core import lax
from tracebridge.core.dtypes.dtypes import is_complex, is_inexact
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.transform_errors import ShardingTypeError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.splits import entries_of
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.accepted_dtypes import is_numeric
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.lax.reduce.extremes import emit_extremum, largest, smallest
from tracebridge.core.lax.reduce.prefixes import emit_prefixes
from tracebridge.core.lax.reduce.recurrence import shifted
from tracebridge.core.lax.reduce.reductions import accumulator_dtype
from tracebridge.core.lax.shape.axes import as_axis

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.dtypes.dtypes import DTypeLike
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Operand, Value


class _Cumulative(Primitive):
    """Parameters ``axis`` and ``reverse``: result i combines elements 0..i (or i.. if reverse)."""

    cost = Cost.OTHER
    accepts_text = "numbers"

    def accepts(self, dtype: DTypeLike) -> bool:
        """Which dtypes the operand may have."""
        return is_numeric(dtype)

    def identity(self, dtype: DTypeLike) -> Any:
        """The Python scalar that changes nothing when combined."""
        raise TypeError(self.name)

    def combine(self, ctx: LoweringContext, a: IrValue, b: IrValue, aval: ShapedArray) -> Any:
        """Emit the combination of two arrays of ``aval``."""
        raise TypeError(self.name)

    def abstract_eval(self, *avals: ShapedArray, **params: object) -> ShapedArray:
        (x,) = avals
        if not self.accepts(x.dtype):
            name, takes = self.name, self.accepts_text
            msg = f"{name} does not accept dtype {x.dtype.name}, it works on {takes}"
            raise UnsupportedDtypeError(msg)
        return x

    def split_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Any:
        del outs
        (x,) = avals
        if entries_of(x)[params["axis"]] is not None:
            raise ShardingTypeError(
                f"{self.name}: axis {params['axis']} of {x.str_short()} is split, and each result "
                "needs those before it",
                hint="reshard it first: tracebridge.sharding.reshard",
            )
        return [x.split]

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        def combine(a: IrValue, b: IrValue, aval: ShapedArray) -> Any:
            return self.combine(ctx, a, b, aval)

        (x,) = operands
        out = ctx.aval_out
        # Narrow floats in a loop are converted as a whole in each step by XLA on CPU.
        dtype = accumulator_dtype(out.dtype)
        aval = out.update(dtype=dtype)
        result = emit_prefixes(
            ctx,
            x if dtype == out.dtype else ctx.convert(x, aval),
            aval,
            params["axis"],
            reverse=params["reverse"],
            combine=combine,
            identity=self.identity(dtype),
        )
        return result if dtype == out.dtype else ctx.convert(result, out)

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        del ctx
        (x,), (d,) = args, dims
        assert d is not None  # the only operand is batched
        axis = params["axis"]
        return self.bind(x, axis=axis + (axis >= d), reverse=params["reverse"]), d

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        """By a linear recurrence of the tangents."""
        (x,), (t,) = primals, tangents
        ans = self.bind(x, **params)
        return ans, self.tangent(x, t, ans, params["axis"], params["reverse"])

    def tangent(self, x: Value, t: Any, ans: Value, axis: int, reverse: bool) -> Any:
        """The tangent of the result."""
        del x, t, ans, axis, reverse
        raise TypeError(self.name)


@final
class Cumsum(_Cumulative):
    """Running sum."""

    name = "cumsum"

    def identity(self, dtype: DTypeLike) -> Any:
        return 0

    def combine(self, ctx: LoweringContext, a: IrValue, b: IrValue, aval: ShapedArray) -> Any:
        return ctx.op1("stablehlo.add", [a, b], aval)

    def tangent(self, x: Value, t: Any, ans: Value, axis: int, reverse: bool) -> Any:
        return self.bind(t, axis=axis, reverse=reverse)

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        return [self.bind(ct, axis=params["axis"], reverse=not params["reverse"])]


@final
class Cumprod(_Cumulative):
    """Running product."""

    name = "cumprod"

    def identity(self, dtype: DTypeLike) -> Any:
        return 1

    def combine(self, ctx: LoweringContext, a: IrValue, b: IrValue, aval: ShapedArray) -> Any:
        return ctx.op1("stablehlo.multiply", [a, b], aval)

    def tangent(self, x: Value, t: Any, ans: Value, axis: int, reverse: bool) -> Any:
        before = shifted(ans, 1, axis, reverse)
        # The first factor is not used, but 0 times an infinity would be NaN.
        factors = shifted(shifted(x, 1, axis, not reverse), 1, axis, reverse)
        return lax.linear_recurrence_p.bind(factors, lax.mul(before, t), axis=axis, reverse=reverse)


class _CumExtremum(_Cumulative):
    """Running maximum or minimum; complex numbers are ordered by real part first."""

    makes_nan = False
    maximum: bool

    def combine(self, ctx: LoweringContext, a: IrValue, b: IrValue, aval: ShapedArray) -> Any:
        return emit_extremum(ctx, a, b, aval, maximum=self.maximum)

    def tangent(self, x: Value, t: Any, ans: Value, axis: int, reverse: bool) -> Any:
        """Elements that tie share the derivative evenly, as in reduce_max."""
        dtype = t.aval.dtype
        # Nothing comes before the first element, and NaN equals nothing.
        stays = lax.convert_dtype(lax.eq(ans, shifted(ans, math.nan, axis, reverse)), dtype)
        wins = lax.eq(x, ans)

        def of_winners(terms: Any) -> Any:
            return lax.linear_recurrence_p.bind(stays, terms, axis=axis, reverse=reverse)

        total = of_winners(lax.select(wins, t, zeros_of(t.aval)))
        return lax.div(total, of_winners(lax.convert_dtype(wins, dtype)))


@final
class Cummax(_CumExtremum):
    """Running maximum."""

    name = "cummax"
    maximum = True

    def identity(self, dtype: DTypeLike) -> Any:
        return smallest(dtype)


@final
class Cummin(_CumExtremum):
    """Running minimum."""

    name = "cummin"
    maximum = False

    def identity(self, dtype: DTypeLike) -> Any:
        return largest(dtype)


@final
class Cumlogsumexp(_Cumulative):
    """Running log of the sum of exponentials."""

    name = "cumlogsumexp"
    accepts_text = "floating and complex numbers"

    def accepts(self, dtype: DTypeLike) -> bool:
        return is_inexact(dtype)

    def identity(self, dtype: DTypeLike) -> Any:
        return -math.inf

    def combine(self, ctx: LoweringContext, a: IrValue, b: IrValue, aval: ShapedArray) -> Any:
        return ctx.lower_fun(_log_of_sum, a, b, avals_in=[aval, aval])[0]

    def tangent(self, x: Value, t: Any, ans: Value, axis: int, reverse: bool) -> Any:
        before = shifted(ans, -math.inf, axis, reverse)
        part = _share(x, ans)
        if not is_complex(x.aval.dtype):
            # An infinity leaves nothing for what follows, as one of two in logaddexp.
            over = lax.eq(before, full_of(before.aval, math.inf))
            part = lax.select(over, zeros_of(part.aval), part)
        share = lax.mul(part, t)
        return lax.linear_recurrence_p.bind(_share(before, ans), share, axis=axis, reverse=reverse)


def _log_of_sum(a: Value, b: Operand) -> Any:
    """``log(exp(a) + exp(b))`` without overflow."""
    if is_complex(a.aval.dtype):
        top = _finite(lax.max(lax.real(a), lax.real(b)))
        shift = lax.complex(top, zeros_of(top.aval))
        total = lax.add(lax.exp(lax.sub(a, shift)), lax.exp(lax.sub(b, shift)))
        return lax.add(shift, lax.log(total))
    top = lax.max(a, b)
    gap = lax.abs(lax.sub(a, b))
    # Equal infinities have a gap of NaN; both of -inf, or one of inf, are their own result.
    same = lax.eq(a, b)
    gap = lax.select(same, zeros_of(gap.aval), gap)
    bent = lax.add(top, lax.log1p(lax.exp(lax.neg(gap))))
    return lax.select(lax.is_finite(top), bent, top)


def _finite(x: Value) -> Any:
    return lax.select(lax.is_finite(x), x, zeros_of(x.aval))


def _share(part: Any, total: Any) -> Any:
    """``exp(part - total)``: what a part contributes; nothing where it is the log of zero."""
    real = lax.real(part) if is_complex(part.aval.dtype) else part
    empty = lax.eq(real, full_of(real.aval, -math.inf))
    gap = lax.sub(part, total)
    gap = lax.select(lax.eq(part, total), zeros_of(gap.aval), gap)
    share = lax.exp(gap)
    return lax.select(empty, zeros_of(share.aval), share)


cumsum_p = Cumsum()
cumprod_p = Cumprod()
cummax_p = Cummax()
cummin_p = Cummin()
cumlogsumexp_p = Cumlogsumexp()


def _cumulative(primitive: _Cumulative, operand: Operand, axis: int, reverse: bool) -> Any:
    x = as_value(operand)
    axis = as_axis(primitive.name, axis, x.aval.ndim)
    return primitive.bind(x, axis=axis, reverse=bool(reverse))


def cumsum(operand: Any, axis: int = 0, reverse: bool = False) -> Any:
    """Running sum along ``axis``, from the end if ``reverse``.

    Args:
        operand: array of numbers.
        axis: the axis along which to add.
        reverse: whether element i sums i and what follows, instead of what precedes.

    Raises:
        AxisError: no such axis.

    >>> import tracebridge as tb
    >>> tb.lax.cumsum(tb.numpy.array([1, 2, 3])).tolist()
    [1, 3, 6]
    """
    return _cumulative(cumsum_p, operand, axis, reverse)


def cumprod(operand: Any, axis: int = 0, reverse: bool = False) -> Any:
    """Running product along ``axis``, from the end if ``reverse``.

    >>> import tracebridge as tb
    >>> tb.lax.cumprod(tb.numpy.array([1, 2, 3])).tolist()
    [1, 2, 6]
    """
    return _cumulative(cumprod_p, operand, axis, reverse)


def cummax(operand: Any, axis: int = 0, reverse: bool = False) -> Any:
    """Running maximum along ``axis``, from the end if ``reverse``; NaNs persist.

    >>> import tracebridge as tb
    >>> tb.lax.cummax(tb.numpy.array([1, 3, 2])).tolist()
    [1, 3, 3]
    """
    return _cumulative(cummax_p, operand, axis, reverse)


def cummin(operand: Any, axis: int = 0, reverse: bool = False) -> Any:
    """Running minimum along ``axis``, from the end if ``reverse``; NaNs persist.

    >>> import tracebridge as tb
    >>> tb.lax.cummin(tb.numpy.array([3, 1, 2]), reverse=True).tolist()
    [1, 1, 2]
    """
    return _cumulative(cummin_p, operand, axis, reverse)


def cumlogsumexp(operand: Any, axis: int = 0, reverse: bool = False) -> Any:
    """Running log of the sum of exponentials along ``axis``, from the end if ``reverse``.

    >>> import tracebridge as tb
    >>> tb.lax.cumlogsumexp(tb.numpy.array([0.0, 0.0])).tolist()
    [0.0, 0.6931471824645996]
    """
    return _cumulative(cumlogsumexp_p, operand, axis, reverse)
