"""The largest elements along an axis: top_k, approx_max_k, approx_min_k."""

from __future__ import annotations

__all__ = ["approx_max_k", "approx_min_k", "approx_top_k_p", "top_k", "top_k_p"]

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tracebridge.core import lax
from tracebridge.core._jaxlib.xla import approximate_top_k_size
from tracebridge.core.config.values import option
from tracebridge.core.dtypes.dtypes import is_complex, is_float
from tracebridge.core.errors.argument_errors import ArgumentValueError, size_of
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import AxisError, ShapeMismatchError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.splits import same_along_others
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.batch_util import move_batch_axis
from tracebridge.core.lax.reduce.largest import (
    block_size,
    by_blocks,
    by_sorting,
    way_on_cpu,
    without_nan_signs,
)
from tracebridge.core.lax.reduce.sort import take_along_axis
from tracebridge.core.lax.shape.axes import surely_less
from tracebridge.core.mlir.attrs import i64

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Operand, Value


_INT32 = np.dtype(np.int32)
_FLOAT32 = np.dtype(np.float32)
_MAX_INT32 = 2**31 - 1


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
        if surely_less(k, 0) or surely_less(size, k):
            msg = f"top_k: k={k}, expected from 0 to the {size} elements of axis {axis}"
            raise ShapeMismatchError(msg)
        if type(size) is int and size > _MAX_INT32:
            msg = f"top_k: the {size} positions along axis {axis} do not fit the int32 of indices"
            raise ShapeMismatchError(msg, hint="take the top_k of parts, then of their results")
        shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
        values = x.update(shape=shape)
        return [values, values.update(dtype=_INT32, weak_type=False)]

    def split_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Any:
        del params
        return [same_along_others("top_k", avals[0], out.shape) for out in outs]

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        (x,) = ctx.avals_in
        k, axis = params["k"], params["axis"]
        last = axis == x.ndim - 1 and all([type(d) is int for d in (*x.shape, k)])
        if ctx.platform == "cpu" and last and option("platform_rules"):
            size = block_size(k, x)
            if size:
                return ctx.lower_fun(by_blocks, *operands, k=k, size=size)
        # XLA has a call for rows of these; all else it would sort with a slow comparison.
        direct = x.dtype == _FLOAT32 if ctx.platform == "cpu" else x.dtype.itemsize <= 4
        if last and direct and k:
            if is_float(x.dtype):  # the call puts NaN with a sign, as 0/0 on x86, behind all else
                operands = (ctx.lower_fun(without_nan_signs, *operands)[0],)
            results = ctx.op("chlo.top_k", operands, ctx.avals_out, {"k": i64(k)}).results
            # XLA looks for a sort and a slice: it would not find the call behind another slice.
            return list(ctx.op("stablehlo.optimization_barrier", results, ctx.avals_out).results)
        run = way_on_cpu(k, x) if ctx.platform == "cpu" and last else by_sorting
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


def top_k(operand: Operand, k: int, *, axis: int = -1) -> list[Any]:
    """The ``k`` largest elements along an axis, largest first, and their positions.

    Args:
        operand: real array with at least one axis.
        k: how many, at most the size of the axis.
        axis: axis in ``[-ndim, ndim)``.

    Returns:
        A list: the values, and int32 positions. The first of equal elements comes first; NaN
        counts as the largest.

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
    values, positions = top_k_p.bind(x, k=size_of(k, "top_k", "k"), axis=index % x.aval.ndim)
    return [values, positions]


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
) -> list[Any]:
    """The ``k`` largest elements along an axis and their positions; here they are exact.

    Args:
        operand: floating array.
        k: how many.
        reduction_dimension: the axis.
        recall_target: how many of the true ones suffice, in (0, 1]; all are found.
        reduction_input_size_override: for operands that are parts of a larger one; no effect.
        aggregate_to_topk: whether there are ``k`` results. Else there are as many as a TPU's search
            of this recall would leave, which parts of a larger operand may be reduced from.

    Raises:
        ArgumentValueError: ``recall_target`` is none of the above, or the number of results that
            are not aggregated depends on a symbolic size.
        ShapeMismatchError: ``k`` is larger than the axis.

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
) -> list[Any]:
    """The ``k`` smallest elements along an axis and their positions; see ``approx_max_k``.

    Raises:
        ArgumentValueError: as ``approx_max_k``.
        ShapeMismatchError: likewise.

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


def _approximate(name: str, operand: Operand, k: int, axis: int, **options: Any) -> list[Any]:
    recall, override = options["recall_target"], options["reduction_input_size_override"]
    if not 0 < recall <= 1:
        msg = f"{name}: recall_target={recall}, expected a number in (0, 1]"
        raise ArgumentValueError(msg)
    if override < -1:
        msg = f"{name}: reduction_input_size_override={override}, expected -1 or a size"
        raise ArgumentValueError(msg)
    x = as_value(operand, name)
    index = operator.index(axis)
    if not -x.aval.ndim <= index < x.aval.ndim:
        raise AxisError(index, x.aval.ndim, call=name)
    axis, count = index % x.aval.ndim, size_of(k, name, "k")
    if not options["aggregate_to_topk"]:
        count = _candidates(name, x.aval, axis, count, recall, override)
    values, positions = approx_top_k_p.bind(
        x,
        k=count,
        reduction_dimension=axis,
        is_max_k=name == "approx_max_k",
        **options,
    )
    return [values, positions]


def _candidates(name: str, x: ShapedArray, axis: int, k: Any, recall: float, override: int) -> int:
    """How many elements an approximate search of that recall leaves, of which ``k`` are wanted."""
    size = x.shape[axis]
    if type(size) is not int or type(k) is not int:
        msg = f"{name}: aggregate_to_topk=False with k={k} of the {size} elements of axis {axis}"
        raise ArgumentValueError(
            msg, expected="sizes that are numbers", hint="aggregate_to_topk=True"
        )
    if not 0 < k <= size:
        msg = f"{name}: k={k}, expected from 1 to the {size} elements of axis {axis}"
        raise ShapeMismatchError(msg)
    if -1 < override < size:
        msg = f"{name}: reduction_input_size_override={override}, expected -1 or at least {size}"
        raise ArgumentValueError(msg)
    return min(size, approximate_top_k_size(size, x.ndim, k, recall, override))
