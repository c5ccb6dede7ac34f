"""The largest elements along an axis: top_k, approx_max_k, approx_min_k."""

from __future__ import annotations

__all__ = ["approx_max_k", "approx_min_k", "approx_top_k_p", "top_k", "top_k_p"]

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tracebridge.core import lax
from tracebridge.core.dtypes.dtypes import is_complex, is_float, itemsize_bits
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import AxisError, ShapeMismatchError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.ad_util import full_of
from tracebridge.core.lax.batch_util import move_batch_axis
from tracebridge.core.lax.reduce.sort import ordered_bits, sort_key, sorting_order, take_along_axis
from tracebridge.core.lax.shape.axes import surely_less
from tracebridge.core.mlir.attrs import i64

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Operand, Value


_INT32 = np.dtype(np.int32)
_FLOAT32 = np.dtype(np.float32)
_INT64 = np.dtype(np.int64)
_MAX_INT32 = 2**31 - 1


# Few elements of long rows are found faster by searching the row for each than by sorting it.
_MOST_PASSES = 16
_LONG_ROW = 512


@final
class TopK(Primitive):
    """Parameters ``k`` and ``axis``. Results: the values, largest first, and their positions.

    The first of equal elements comes first; NaN counts as the largest.
    """

    name = "top_k"
    cost = Cost.OTHER
    makes_nan = False
    multiple_results = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> list[ShapedArray]:
        (x,) = avals
        k, axis = params["k"], params["axis"]
        if is_complex(x.dtype):
            msg = f"top_k works on real numbers, got {x.str_short()}"
            raise UnsupportedDtypeError(msg)
        size = x.shape[axis]
        if k < 0 or surely_less(size, k):
            msg = f"top_k: k={k}, expected from 0 to the {size} elements of axis {axis}"
            raise ShapeMismatchError(msg)
        if type(size) is int and size > _MAX_INT32:
            msg = f"top_k: the {size} positions along axis {axis} do not fit the int32 of indices"
            raise ShapeMismatchError(msg, hint="take the top_k of parts, then of their results")
        shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
        values = x.update(shape=shape)
        return [values, values.update(dtype=_INT32, weak_type=False)]

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        (x,) = ctx.avals_in
        k, axis = params["k"], params["axis"]
        static = all([type(d) is int for d in x.shape])
        # XLA has a call for rows of these; all else it would sort with a slow comparison.
        direct = x.dtype == _FLOAT32 if ctx.platform == "cpu" else x.dtype.itemsize <= 4
        if static and direct and axis == x.ndim - 1 and k:
            if is_float(x.dtype):  # the call puts NaN with a sign, as 0/0 on x86, behind all else
                operands = (ctx.lower_fun(_without_nan_signs, *operands)[0],)
            results = ctx.op("chlo.top_k", operands, ctx.avals_out, {"k": i64(k)}).results
            return list(results)
        run = _by_sorting
        if ctx.platform == "cpu" and axis == x.ndim - 1 and static:
            few = 1 <= k <= _MOST_PASSES and x.shape[axis] >= _LONG_ROW
            if not is_float(x.dtype):
                run = _by_keys if few and x.dtype.itemsize <= 4 else run
            elif x.dtype != _FLOAT32 and itemsize_bits(x.dtype) <= 16:
                run = _in_float32
            elif few:
                run = _by_passes
        return ctx.lower_fun(run, *operands, k=k, axis=axis)

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        values, positions = self.bind(*primals, **params)
        moved = take_along_axis(tangents[0], positions, params["axis"])
        return [values, positions], [moved, None]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        (x,), (d,) = args, dims
        assert d is not None  # the only operand is batched
        # In front, so that the last axis stays the last.
        x = move_batch_axis(x, d, 0)
        return self.bind(x, k=params["k"], axis=params["axis"] + 1), [0, 0]


top_k_p = TopK()


def _without_nan_signs(x: Value) -> Any:
    return lax.select_n(lax.ne(x, x), x, full_of(x.aval, float("nan")))


def _in_float32(x: Value, k: int, axis: int) -> list[Any]:
    """Narrow floats are float32 numbers too."""
    values, positions = top_k_p.bind(lax.convert_dtype(x, _FLOAT32), k=k, axis=axis)
    return [lax.convert_dtype(values, x.aval.dtype), positions]


def _by_passes(x: Value, k: int, axis: int) -> list[Any]:
    """By taking the largest out, ``k`` times."""
    key = ordered_bits(x, equal_zeros=False)
    # No float has this key, so what is taken out never comes again.
    taken = full_of(key.aval, int(np.iinfo(key.aval.dtype).min))
    iota = lax.broadcasted_iota(_INT32, x.aval.shape, axis)
    found: list[Any] = []
    for _ in range(k):
        best = lax.argmax(key, axis, _INT32)
        dims = tuple([i for i in range(x.aval.ndim) if i != axis])
        key = lax.select_n(lax.eq(iota, lax.broadcast_in_dim(best, x.aval.shape, dims)), key, taken)
        shape = tuple([1 if i == axis else d for i, d in enumerate(x.aval.shape)])
        found.append(lax.reshape(best, shape))
    positions = lax.concatenate(found, axis) if k > 1 else found[0]
    return [take_along_axis(x, positions, axis), positions]


def _by_keys(x: Value, k: int, axis: int) -> list[Any]:
    """By the largest key below the one before: no two elements have one key."""
    size = x.aval.shape[axis]
    wide = lax.convert_dtype(x, _INT64)
    if x.aval.dtype.kind == "u":
        wide = lax.sub(wide, full_of(wide.aval, 2**31))
    wide = lax.shift_left(wide, full_of(wide.aval, 32))
    # Of equal elements the first has the largest key.
    place = lax.broadcasted_iota(_INT32, x.aval.shape, axis)
    place = lax.sub(full_of(place.aval, size - 1), place)
    key = lax.add(wide, lax.convert_dtype(place, _INT64))
    dims = tuple([i for i in range(x.aval.ndim) if i != axis])
    none = full_of(key.aval, int(np.iinfo(_INT64).min))
    shape = tuple([1 if i == axis else d for i, d in enumerate(x.aval.shape)])
    found: list[Any] = []
    below = key
    for _ in range(k):
        best = lax.reduce_max(below, (axis,))
        found.append(lax.reshape(best, shape))
        last = lax.broadcast_in_dim(best, x.aval.shape, dims)
        below = lax.select_n(lax.lt(key, last), none, key)
    keys = lax.concatenate(found, axis) if k > 1 else found[0]
    low = lax.bitwise_and(keys, full_of(keys.aval, 2**32 - 1))
    positions = lax.convert_dtype(lax.sub(full_of(low.aval, size - 1), low), _INT32)
    return [take_along_axis(x, positions, axis), positions]


def _by_sorting(x: Value, k: int, axis: int) -> list[Any]:
    """By a stable sort of keys in decreasing order."""
    dtype = x.aval.dtype
    if is_float(dtype):
        key = ordered_bits(x, equal_zeros=False)
    elif dtype.itemsize == 8:
        key = lax.bitcast_convert_type_p.bind(x, new_dtype=_INT64) if dtype.kind == "u" else x
        key = lax.bitwise_xor(key, full_of(key.aval, -(2**63))) if dtype.kind == "u" else key
    else:
        key = sort_key(x)
    size = key.aval.shape[axis]
    if key.aval.dtype != _INT64:
        key = lax.convert_dtype(key, _INT32)
    order = sorting_order(lax.bitwise_not(key), axis)
    first = order if k == size else lax.slice_in_dim(order, 0, k, axis=axis)
    return [take_along_axis(x, first, axis), first]


def top_k(operand: Operand, k: int, *, axis: int = -1) -> tuple[Any, Any]:
    """The ``k`` largest elements along an axis, largest first, and their positions.

    Args:
        operand: real array with at least one axis.
        k: how many, at most the size of the axis.
        axis: axis in ``[-ndim, ndim)``.

    Returns:
        Values and int32 positions. The first of equal elements comes first; NaN counts as the
        largest.

    Raises:
        AxisError: the axis is out of range.
        ShapeMismatchError: ``k`` is larger than the axis.

    >>> import tracebridge as tb
    >>> values, positions = tb.lax.top_k(tb.numpy.array([1.0, 9.0, 5.0]), 2)
    >>> values.tolist(), positions.tolist()
    ([9.0, 5.0], [1, 2])
    """
    x = as_value(operand)
    index = operator.index(axis)
    if not -x.aval.ndim <= index < x.aval.ndim:
        raise AxisError(index, x.aval.ndim, call="top_k")
    values, positions = top_k_p.bind(x, k=operator.index(k), axis=index % x.aval.ndim)
    return values, positions


@final
class ApproxTopK(Primitive):
    """The ``k`` largest elements, or smallest ones, along an axis; here they are exact."""

    name = "approx_top_k"
    cost = Cost.OTHER
    makes_nan = False
    multiple_results = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> list[ShapedArray]:
        return top_k_p.abstract_eval(*avals, k=params["k"], axis=params["reduction_dimension"])

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        axis, largest = params["reduction_dimension"], params["is_max_k"]
        return ctx.lower_fun(_exact, *operands, k=params["k"], axis=axis, largest=largest)

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        values, positions = self.bind(*primals, **params)
        moved = take_along_axis(tangents[0], positions, params["reduction_dimension"])
        return [values, positions], [moved, None]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        (x,), (d,) = args, dims
        assert d is not None  # the only operand is batched
        axis = params["reduction_dimension"] + 1
        x = move_batch_axis(x, d, 0)
        return self.bind(x, **{**params, "reduction_dimension": axis}), [0, 0]


approx_top_k_p = ApproxTopK()


def _exact(x: Value, k: int, axis: int, largest: bool) -> list[Any]:
    """The elements by ``top_k``, which also a TPU finds without a loss."""
    if largest:
        return top_k_p.bind(x, k=k, axis=axis)
    values, positions = top_k_p.bind(lax.neg(x), k=k, axis=axis)
    return [lax.neg(values), positions]


def approx_max_k(
    operand: Any,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> tuple[Any, Any]:
    """The ``k`` largest elements along an axis and their positions; here they are exact.

    Args:
        operand: floating array.
        k: how many.
        reduction_dimension: the axis.
        recall_target: how many of the true ones suffice, in (0, 1]; all are found.
        reduction_input_size_override: for operands that are parts of a larger one; no effect.
        aggregate_to_topk: only ``True``.

    Raises:
        ArgumentValueError: ``recall_target`` or ``aggregate_to_topk`` is none of the above.

    >>> import tracebridge as tb
    >>> tb.lax.approx_max_k(tb.numpy.array([1.0, 9.0, 5.0]), 1)[1].tolist()
    [1]
    """
    return _approximate(
        "approx_max_k",
        operand,
        k,
        reduction_dimension,
        recall_target=recall_target,
        reduction_input_size_override=reduction_input_size_override,
        aggregate_to_topk=aggregate_to_topk,
    )


def approx_min_k(
    operand: Operand,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> tuple[Any, Any]:
    """The ``k`` smallest elements along an axis and their positions; see ``approx_max_k``.

    Raises:
        ArgumentValueError: as ``approx_max_k``.

    >>> import tracebridge as tb
    >>> tb.lax.approx_min_k(tb.numpy.array([1.0, 9.0, 5.0]), 1)[1].tolist()
    [0]
    """
    return _approximate(
        "approx_min_k",
        operand,
        k,
        reduction_dimension,
        recall_target=recall_target,
        reduction_input_size_override=reduction_input_size_override,
        aggregate_to_topk=aggregate_to_topk,
    )


def _approximate(name: str, operand: Operand, k: int, axis: int, **options: Any) -> tuple[Any, Any]:
    recall, override = options["recall_target"], options["reduction_input_size_override"]
    if not 0 < recall <= 1:
        msg = f"{name}: recall_target={recall}, expected a number in (0, 1]"
        raise ArgumentValueError(msg)
    if override < -1:
        msg = f"{name}: reduction_input_size_override={override}, expected -1 or a size"
        raise ArgumentValueError(msg)
    if not options["aggregate_to_topk"]:
        msg = f"{name}: aggregate_to_topk=False, expected True: no partial results exist"
        raise ArgumentValueError(msg)
    x = as_value(operand, name)
    index = operator.index(axis)
    if not -x.aval.ndim <= index < x.aval.ndim:
        raise AxisError(index, x.aval.ndim, call=name)
    values, positions = approx_top_k_p.bind(
        x,
        k=operator.index(k),
        reduction_dimension=index % x.aval.ndim,
        is_max_k=name == "approx_max_k",
        **options,
    )
    return values, positions
