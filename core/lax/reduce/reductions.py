"""Reductions: reduce_sum, _prod, _max, _min, _and, _or, _xor."""

from __future__ import annotations

__all__ = [
    "reduce_and", "reduce_and_p", "reduce_max", "reduce_max_p", "reduce_min", "reduce_min_p",
    "reduce_or", "reduce_or_p", "reduce_prod", "reduce_prod_p", "reduce_sum", "reduce_sum_p",
    "reduce_xor", "reduce_xor_p",
]  # fmt: skip

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core import lax
from tracebridge.core.dtypes.dtypes import (
    float32,
    is_bool,
    is_float,
    is_integer,
    is_signed,
    itemsize_bits,
)
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.accepted_dtypes import is_numeric, is_ordinary
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.lax.reduce.extremes import emit_extremes, emit_extremum, largest, smallest
from tracebridge.core.lax.reduce.family import Reduction
from tracebridge.core.lax.shape.axes import as_axes
from tracebridge.core.lax.sharding_constraint import constrained_result
from tracebridge.core.lax.unsplit import unsplit

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.dtypes.dtypes import DTypeLike
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.ir.value import Operand, Value


def _is_logical(dtype: DTypeLike) -> bool:
    return is_bool(dtype) or is_integer(dtype)


class _Arithmetic(Reduction):
    """Sums and products. Narrow floats are combined in float32: closer, and faster on CPU."""

    accepts = staticmethod(is_numeric)
    accepts_text = "numbers"

    def accumulator(self, dtype: DTypeLike) -> Any:
        return accumulator_dtype(dtype)


@final
class ReduceSum(_Arithmetic):
    """Sum."""

    name = "reduce_sum"
    has_loops = staticmethod(lambda dtype: not is_float(dtype))

    def identity(self, dtype: DTypeLike) -> Any:
        return 0

    def combine(self, ctx: LoweringContext, a: IrValue, b: IrValue, aval: ShapedArray) -> Any:
        return ctx.op1("stablehlo.add", [a, b], aval)

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Any], **params: Any) -> Any:
        return self.bind(primals[0], **params), self.bind(tangents[0], **params)

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        shape = args[0].aval.shape
        kept = tuple([i for i in range(len(shape)) if i not in params["axes"]])
        return [lax.broadcast_in_dim(ct, shape, kept)]


@final
class ReduceProd(_Arithmetic):
    """Product."""

    name = "reduce_prod"

    def identity(self, dtype: DTypeLike) -> Any:
        return 1

    def combine(self, ctx: LoweringContext, a: IrValue, b: IrValue, aval: ShapedArray) -> Any:
        return ctx.op1("stablehlo.multiply", [a, b], aval)

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        (x,), (t,) = primals, tangents
        return self.bind(x, **params), _product_tangent(x, t, params["axes"])


def accumulator_dtype(dtype: DTypeLike) -> Any:
    """float32 for narrower floats, other dtypes as they are."""
    return float32 if is_float(dtype) and itemsize_bits(dtype) < 32 else dtype


def _product_tangent(x: Value, t: Any, axes: tuple[int, ...]) -> Any:
    """The sum over i of ``t[i]`` times the product of the other elements, by a tree of pairs.

    No division, so that zeros among the elements do no harm.
    """
    kept = tuple([i for i in range(x.aval.ndim) if i not in axes])
    shape = x.aval.shape
    kept_shape = tuple([shape[i] for i in kept])
    n: Any = 1
    for a in axes:
        n = n * shape[a]
    x, t = [lax.reshape(lax.transpose(v, (*axes, *kept)), (n, *kept_shape)) for v in (x, t)]
    if type(n) is not int:
        return _product_tangent_by_scans(x, t)
    if n == 0:
        return None

    def rows(v: Operand, start: int, stop: int) -> Any:
        return lax.slice(v, (start, *[0] * len(kept_shape)), (stop, *kept_shape))

    tail = None
    while n > 1:
        if n % 2:
            tail = _join(tail, (rows(x, n - 1, n), rows(t, n - 1, n)))
        half = n // 2
        left = rows(x, 0, half), rows(t, 0, half)
        x, t = _join(left, (rows(x, half, 2 * half), rows(t, half, 2 * half)))
        n = half
    _, t = _join(tail, (x, t))
    return lax.reshape(t, kept_shape)


def _join(a: tuple[Any, Any] | None, b: tuple[Any, Any]) -> tuple[Any, Any]:
    """Product and tangent of the product of two pairs (value, tangent)."""
    if a is None:
        return b
    (x, s), (y, t) = a, b
    return lax.mul(x, y), lax.add(lax.mul(s, y), lax.mul(x, t))


def _product_tangent_by_scans(x: Value, t: Any) -> Any:
    """The same along axis 0 of symbolic size: the products before and after each element."""
    one = full_of(x.aval.update(shape=()), 1)
    rest = [(0, 0, 0)] * (x.aval.ndim - 1)
    # One element is cut off at one end and a one takes its place at the other.
    before = lax.cumprod(lax.pad(x, one, [(1, -1, 0), *rest]))
    after = lax.cumprod(lax.pad(x, one, [(-1, 1, 0), *rest]), reverse=True)
    return lax.reduce_sum(lax.mul(lax.mul(t, before), after), (0,))


class _Extremum(Reduction):
    """The largest or smallest element. NaNs win; complex numbers are ordered by real part first."""

    accepts = staticmethod(is_ordinary)
    accepts_text = "numbers and booleans"
    makes_nan = False
    maximum: bool

    def identity(self, dtype: DTypeLike) -> Any:
        return smallest(dtype) if self.maximum else largest(dtype)

    def combine(self, ctx: LoweringContext, a: IrValue, b: IrValue, aval: ShapedArray) -> Any:
        return emit_extremum(ctx, a, b, aval, maximum=self.maximum)

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        (x,), (aval,) = operands, ctx.avals_in
        return emit_extremes(ctx, x, aval, params["axes"], maximum=self.maximum)

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Any], **params: Any) -> Any:
        """Elements that tie share the derivative evenly; beside a NaN all are NaN."""
        (x,), (t,) = primals, tangents
        axes = params["axes"]
        ans = self.bind(x, **params)
        shape = x.aval.shape
        kept = tuple([i for i in range(len(shape)) if i not in axes])
        best = lax.broadcast_in_dim(ans, shape, kept)
        winners = lax.eq(x, best)
        counts = lax.reduce_sum(lax.convert_dtype(winners, t.aval.dtype), axes)
        # A NaN equals nothing: all get a share of it, which is NaN.
        shared = lax.bitwise_or(winners, lax.ne(best, best))
        nan = full_of(counts.aval, float("nan"))
        counts = lax.select_n(lax.ne(ans, ans), counts, nan)
        total = lax.reduce_sum(lax.select(shared, t, zeros_of(t.aval)), axes)
        return ans, lax.div(total, counts)


@final
class ReduceMax(_Extremum):
    """Maximum; NaN if there is one."""

    name = "reduce_max"
    maximum = True


@final
class ReduceMin(_Extremum):
    """Minimum; NaN if there is one."""

    name = "reduce_min"
    maximum = False


class _Logical(Reduction):
    accepts = staticmethod(_is_logical)
    accepts_text = "booleans and integers"
    hlo: str

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        """Bits are those of a dtype: the result decides about dtypes."""
        return super().abstract_eval(*avals, **params).strong

    def combine(self, ctx: LoweringContext, a: IrValue, b: IrValue, aval: ShapedArray) -> Any:
        return ctx.op1(self.hlo, [a, b], aval)


@final
class ReduceAnd(_Logical):
    """Bitwise "and"."""

    name = "reduce_and"
    hlo = "stablehlo.and"

    def identity(self, dtype: DTypeLike) -> Any:
        """All bits set."""
        return -1 if is_signed(dtype) else largest(dtype)


@final
class ReduceOr(_Logical):
    """Bitwise "or"."""

    name = "reduce_or"
    hlo = "stablehlo.or"

    def identity(self, dtype: DTypeLike) -> Any:
        return 0


@final
class ReduceXor(_Logical):
    """Bitwise "exclusive or"."""

    name = "reduce_xor"
    hlo = "stablehlo.xor"

    def identity(self, dtype: DTypeLike) -> Any:
        return 0


reduce_sum_p = ReduceSum()
reduce_prod_p = ReduceProd()
reduce_max_p = ReduceMax()
reduce_min_p = ReduceMin()
reduce_and_p = ReduceAnd()
reduce_or_p = ReduceOr()
reduce_xor_p = ReduceXor()


def _reduce(primitive: Reduction, operand: Operand, axes: Sequence[int]) -> Any:
    x = as_value(operand)
    axes = tuple(sorted(as_axes(primitive.name, axes, x.aval.ndim)))
    return primitive.bind(x, axes=axes) if axes else x


def reduce_sum(operand: Any, axes: Sequence[int], *, out_sharding: object = None) -> Any:
    """Sum over ``axes``.

    Args:
        operand: array of numbers. float16 and bfloat16 are accumulated in float32 on CPU.
        axes: distinct axes of ``operand``; the result lacks them.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    Raises:
        AxisError: an axis is out of range or named twice.
        UnsupportedDtypeError: booleans.

    >>> import tracebridge as tb
    >>> tb.lax.reduce_sum(tb.numpy.ones((2, 3)), (1,)).tolist()
    [3.0, 3.0]
    """
    if out_sharding is not None:
        operand = unsplit(as_value(operand))
    out = _reduce(reduce_sum_p, operand, axes)
    return out if out_sharding is None else constrained_result("reduce_sum", out, out_sharding)


def reduce_prod(operand: Any, axes: Sequence[int]) -> Any:
    """Product over ``axes``; the derivative is right also where elements are zero.

    >>> import tracebridge as tb
    >>> tb.lax.reduce_prod(tb.numpy.array([[1.0, 2.0], [3.0, 4.0]]), (0,)).tolist()
    [3.0, 8.0]
    """
    return _reduce(reduce_prod_p, operand, axes)


def reduce_max(operand: Any, axes: Sequence[int]) -> Any:
    """Largest element over ``axes``: NaN if there is one, minus infinity if there are none.

    Integers have no infinity: without elements the result is their smallest value. Elements that
    tie share the derivative evenly.

    >>> import tracebridge as tb
    >>> tb.lax.reduce_max(tb.numpy.array([[1, 5], [3, 4]]), (1,)).tolist()
    [5, 4]
    """
    return _reduce(reduce_max_p, operand, axes)


def reduce_min(operand: Any, axes: Sequence[int]) -> Any:
    """Smallest element over ``axes``: NaN if there is one, infinity if there are none.

    Integers have no infinity: without elements the result is their largest value. Elements that
    tie share the derivative evenly.

    >>> import tracebridge as tb
    >>> tb.lax.reduce_min(tb.numpy.array([[1, 5], [3, 4]]), (1,)).tolist()
    [1, 3]
    """
    return _reduce(reduce_min_p, operand, axes)


def reduce_and(operand: Any, axes: Sequence[int]) -> Any:
    """Bitwise "and" over ``axes`` of booleans or integers.

    >>> import tracebridge as tb
    >>> bool(tb.lax.reduce_and(tb.numpy.array([True, False]), (0,)))
    False
    """
    return _reduce(reduce_and_p, operand, axes)


def reduce_or(operand: Any, axes: Sequence[int]) -> Any:
    """Bitwise "or" over ``axes`` of booleans or integers.

    >>> import tracebridge as tb
    >>> int(tb.lax.reduce_or(tb.numpy.array([1, 2, 4]), (0,)))
    7
    """
    return _reduce(reduce_or_p, operand, axes)


def reduce_xor(operand: Any, axes: Sequence[int]) -> Any:
    """Bitwise "exclusive or" over ``axes`` of booleans or integers.

    >>> import tracebridge as tb
    >>> int(tb.lax.reduce_xor(tb.numpy.array([1, 3, 4]), (0,)))
    6
    """
    return _reduce(reduce_xor_p, operand, axes)
