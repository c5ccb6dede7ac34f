"""Sorting along an axis: sort, sort_key_val.

The order is NumPy's: NaNs of either sign come last, -0.0 and 0.0 are equal, complex numbers are
ordered by real part, then by imaginary part.
"""

from __future__ import annotations

__all__ = ["sort", "sort_key_val", "sort_p"]

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tracebridge.core import lax
from tracebridge.core.dtypes.dtypes import is_bool, is_complex, is_float, is_unsigned, itemsize_bits
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.shape_errors import AxisError, ShapeMismatchError
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.splits import merged, split_of
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.accepted_dtypes import check_ordinary
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.lax.batch_util import to_one_axis
from tracebridge.core.mlir.attrs import boolean, i64

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.dtypes.dtypes import DTypeLike
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Value


_BOOL = np.dtype(np.bool_)
_INT32 = np.dtype(np.int32)
_INT64 = np.dtype(np.int64)
_SIGNED = {
    1: np.dtype(np.int8),
    2: np.dtype(np.int16),
    4: np.dtype(np.int32),
    8: np.dtype(np.int64),
}


@final
class Sort(Primitive):
    """Parameters ``dimension``, ``is_stable``, ``num_keys``: the first operands are compared."""

    name = "sort"
    cost = Cost.OTHER
    makes_nan = False
    multiple_results = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> list[ShapedArray]:
        first = avals[0]
        if any([a.shape != first.shape for a in avals]):
            got = ", ".join([a.str_short() for a in avals])
            msg = f"sort: operands need the same shape, got {got}"
            raise ShapeMismatchError(msg)
        check_ordinary("sort", *avals[: params["num_keys"]])
        return list(avals)

    def split_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Any:
        del params
        split = split_of("sort", avals, merged("sort", avals))
        return [split] * len(outs)

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        dimension, num_keys = params["dimension"], params["num_keys"]
        avals = ctx.avals_in
        if _is_empty(avals[0]):
            return operands
        if ctx.platform == "cpu" and num_keys == 1:
            if len(operands) == 1 and is_float(avals[0].dtype) and _has_bytes(avals[0].dtype):
                return ctx.lower_fun(_sort_floats, *operands, dimension=dimension)
            if len(operands) > 1 and _fits_64_bits(avals[0].dtype):
                return _lower_packed(ctx, operands, dimension)
        return _emit(ctx, operands, dimension, num_keys, params["is_stable"])

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        """Tangents go where their elements go: an iota is sorted along to say where that is."""
        dimension = params["dimension"]
        iota = lax.broadcasted_iota(_INT32, primals[0].aval.shape, dimension)
        *outs, order = self.bind(*primals, iota, **params)
        return outs, [None if t is None else take_along_axis(t, order, dimension) for t in tangents]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        moved, at = to_one_axis(args, dims, ctx.size)
        dimension = params["dimension"]
        outs = self.bind(*moved, **{**params, "dimension": dimension + (dimension >= at)})
        return outs, [at] * len(outs)


sort_p = Sort()


def _is_empty(aval: ShapedArray) -> bool:
    return type(aval.size) is int and aval.size == 0


def take_along_axis(x: Any, positions: Any, axis: int) -> Any:
    """``x`` with its elements along ``axis`` in the order of ``positions`` (of any size there)."""
    ndim = x.aval.ndim
    if _is_empty(x.aval):
        return zeros_of(x.aval.update(shape=positions.aval.shape))
    batch = tuple([i for i in range(ndim) if i != axis])
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(),
        collapsed_slice_dims=(axis,),
        start_index_map=(axis,),
        operand_batching_dims=batch,
        start_indices_batching_dims=batch,
    )
    indices = lax.reshape(positions, (*positions.aval.shape, 1))
    return lax.gather(x, indices, numbers, (1,) * ndim, mode="promise_in_bounds")


# keys --------------------------------------------------------------------------------------------


def _fits_32_bits(dtype: DTypeLike) -> bool:
    return is_bool(dtype) or (not is_complex(dtype) and 8 <= itemsize_bits(dtype) <= 32)


def _fits_64_bits(dtype: DTypeLike) -> bool:
    return _fits_32_bits(dtype) or (not is_complex(dtype) and itemsize_bits(dtype) == 64)


def _has_bytes(dtype: DTypeLike) -> bool:
    return itemsize_bits(dtype) >= 8


def ordered_bits(x: Value, *, equal_zeros: bool) -> Any:
    """Floats as signed integers of their size in the order of NumPy.

    With ``equal_zeros`` both zeros get one integer; without, the map can be undone but for the
    sign and the payload of NaNs.
    """
    dtype = x.aval.dtype
    x = lax.select_n(lax.ne(x, x), x, full_of(x.aval, float("nan")))
    if equal_zeros:
        zero = zeros_of(x.aval)
        x = lax.select_n(lax.eq(x, zero), x, zero)
    return _flip_negative(_bitcast(x, _SIGNED[dtype.itemsize]))


def _bitcast(x: Value, dtype: Any) -> Any:
    """The bits as ``dtype``, 64-bit ones too whatever the options say."""
    return lax.bitcast_convert_type_p.bind(x, new_dtype=dtype)


def _flip_negative(bits: Any) -> Any:
    """The magnitude bits of negative numbers inverted: floats and their bits in one order."""
    limits = np.iinfo(bits.aval.dtype)
    mask = full_of(bits.aval, int(limits.max))
    return lax.select_n(lax.lt(bits, 0), bits, lax.bitwise_xor(bits, mask))


def _sort_floats(x: Value, dimension: int) -> Any:
    """A sort of integers: XLA's CPU back end has a fast path for those."""
    dtype = x.aval.dtype
    (keys,) = sort_p.bind(
        ordered_bits(x, equal_zeros=False), dimension=dimension, is_stable=True, num_keys=1
    )
    return _bitcast(_flip_negative(keys), dtype)


def sort_key(x: Value) -> Any:
    """Elements of at most 32 bits as int32 in the same order, those of 64 bits as int64."""
    dtype = x.aval.dtype
    if dtype.itemsize == 8:
        if is_float(dtype):
            return ordered_bits(x, equal_zeros=True)
        if is_unsigned(dtype):
            return _bitcast(lax.bitwise_xor(x, full_of(x.aval, 2**63)), _INT64)
        return x
    if is_float(dtype):
        wide = lax.convert_dtype(x, np.dtype(np.float32))
        return ordered_bits(wide, equal_zeros=True)
    if is_unsigned(dtype) and dtype.itemsize == 4:
        flipped = lax.bitwise_xor(x, full_of(x.aval, 2**31))
        return _bitcast(flipped, _INT32)
    return lax.convert_dtype(x, _INT32)


def sorting_order(key: Value, dimension: int) -> Any:
    """The stable order of integers, as int32 positions, by sorts of 64-bit integers.

    One of them for keys of int32. Those of int64 are ordered by their lower halves, then by their
    upper ones.
    """
    if key.aval.dtype == _INT64:
        # As signed integers halves without sign are in order with the highest bit inverted.
        low = lax.convert_dtype(key, _INT32)
        low = lax.bitwise_xor(low, full_of(low.aval, -(2**31)))
        high = lax.convert_dtype(lax.shift_right_arithmetic(key, full_of(key.aval, 32)), _INT32)
        first = sorting_order(low, dimension)
        second = sorting_order(take_along_axis(high, first, dimension), dimension)
        return take_along_axis(first, second, dimension)
    positions = lax.broadcasted_iota(_INT32, key.aval.shape, dimension)
    high = lax.shift_left(lax.convert_dtype(key, _INT64), 32)
    packed = lax.bitwise_or(high, lax.convert_dtype(positions, _INT64))
    (packed,) = sort_p.bind(packed, dimension=dimension, is_stable=True, num_keys=1)
    # The low half: narrowing an integer drops its high bits.
    return lax.convert_dtype(packed, _INT32)


def _lower_packed(ctx: LoweringContext, operands: Sequence[IrValue], dimension: int) -> list[Any]:
    """Sort keys and positions packed into integers, then fetch what goes along."""
    positions = [_is_iota(x, dimension) for x in operands]

    def run(*xs: Any) -> list[Any]:
        order = sorting_order(sort_key(xs[0]), dimension)
        return [
            lax.convert_dtype(order, x.aval.dtype)
            if is_position
            else take_along_axis(x, order, dimension)
            for x, is_position in zip(xs, positions, strict=True)
        ]

    return ctx.lower_fun(run, *operands)


def _is_iota(x: Any, dimension: int) -> bool:
    """Whether an operand holds its own positions, as that of argsort does."""
    owner = x.owner
    if getattr(owner, "name", "") not in ("stablehlo.iota", "stablehlo.dynamic_iota"):
        return False
    return owner.attributes["iota_dimension"].value == dimension


# the operation -----------------------------------------------------------------------------------


def _emit(
    ctx: LoweringContext,
    operands: Sequence[IrValue],
    dimension: int,
    num_keys: int,
    is_stable: bool,
) -> list[Any]:
    """``stablehlo.sort``."""
    avals = ctx.avals_in
    operation = ctx.op(
        "stablehlo.sort",
        operands,
        ctx.avals_out,
        {"dimension": i64(dimension), "is_stable": boolean(is_stable)},
        regions=1,
    )
    scalars = [a.update(shape=()) for a in avals for _ in range(2)]
    with ctx.block(operation.regions[0], scalars) as arguments:
        pairs: list[tuple[Any, Any, ShapedArray]] = []
        for i in range(num_keys):
            pairs += _parts(ctx, arguments[2 * i], arguments[2 * i + 1], scalars[2 * i])
        ctx.finish([_less(ctx, pairs)])
    return list(operation.results)


def _parts(
    ctx: LoweringContext, a: IrValue, b: IrValue, aval: ShapedArray
) -> list[tuple[Any, Any, ShapedArray]]:
    """What is compared of two elements, most important first."""
    if not is_complex(aval.dtype):
        return [(a, b, aval)]
    part = aval.update(dtype=np.float32 if aval.dtype.itemsize == 8 else np.float64)
    return [
        (ctx.op1(name, [a], part), ctx.op1(name, [b], part), part)
        for name in ("stablehlo.real", "stablehlo.imag")
    ]


def _less(ctx: LoweringContext, pairs: Sequence[tuple[Any, Any, ShapedArray]]) -> Any:
    """Whether the first of each pair comes before the second, lexicographically."""
    flag = ShapedArray((), _BOOL)
    result = None
    for left, right, aval in reversed(pairs):
        a, b, kind = left, right, None
        if is_float(aval.dtype):
            a, b = _canonical(ctx, a, aval), _canonical(ctx, b, aval)
            kind = "TOTALORDER"
        less = ctx.compare(a, b, flag, "LT", kind)
        if result is not None:
            equal = ctx.compare(a, b, flag, "EQ", kind)
            if_equal = ctx.op1("stablehlo.and", [equal, result], flag)
            less = ctx.op1("stablehlo.or", [less, if_equal], flag)
        result = less
    return result


def _canonical(ctx: LoweringContext, x: IrValue, aval: ShapedArray) -> Any:
    """A float in which zeros, and NaNs, have one bit pattern."""
    flag = ShapedArray((), _BOOL)
    zero, nan = ctx.splat(0.0, aval), ctx.splat(float("nan"), aval)
    x = ctx.select(ctx.compare(x, zero, flag, "EQ"), zero, x, aval)
    return ctx.select(ctx.compare(x, x, flag, "NE"), nan, x, aval)


def _axis(call: str, axis: Any, ndim: int) -> int:
    index = operator.index(axis)
    if not -ndim <= index < ndim:
        raise AxisError(index, ndim, call=call)
    return index + ndim if index < 0 else index


def sort(operand: object, dimension: int = -1, is_stable: bool = True, num_keys: int = 1) -> Any:
    """Sort along an axis, in increasing order.

    Args:
        operand: an array, or a sequence of arrays of one shape, which are moved together.
        dimension: axis in ``[-ndim, ndim)``.
        is_stable: whether equal elements keep their order.
        num_keys: how many of the operands are compared; later ones decide ties.

    Returns:
        An array, or a tuple of arrays.

    Raises:
        AxisError: the axis is out of range.
        ShapeMismatchError: the operands have different shapes.
        ArgumentSpecError: there is no operand.
        ArgumentValueError: ``num_keys`` is not between 1 and the number of operands.

    >>> import tracebridge as tb
    >>> tb.lax.sort(tb.numpy.array([3, 1, 2])).tolist()
    [1, 2, 3]
    """
    several = isinstance(operand, list | tuple)
    values = [as_value(x) for x in (operand if several else [operand])]
    if not values:
        raise ArgumentSpecError("sort: no operand is given", expected="at least one array")
    if not 1 <= num_keys <= len(values):
        msg = f"sort: num_keys={num_keys}, expected a number from 1 to {len(values)} operands"
        raise ArgumentValueError(msg)
    axis = _axis("sort", dimension, values[0].aval.ndim)
    outs = sort_p.bind(*values, dimension=axis, is_stable=bool(is_stable), num_keys=num_keys)
    return tuple(outs) if several else outs[0]


def sort_key_val(
    keys: object, values: object, dimension: int = -1, is_stable: bool = True
) -> tuple[Any, Any]:
    """Sort ``keys`` along an axis and move ``values`` along with them.

    Args:
        keys: array.
        values: array of the shape of ``keys``.
        dimension: the axis, in ``[-ndim, ndim)``.
        is_stable: equal keys keep their order.

    >>> import tracebridge as tb
    >>> k, v = tb.lax.sort_key_val(tb.numpy.array([3, 1]), tb.numpy.array([30, 10]))
    >>> k.tolist(), v.tolist()
    ([1, 3], [10, 30])
    """
    sorted_keys, moved = sort((keys, values), dimension, is_stable, 1)
    return sorted_keys, moved
