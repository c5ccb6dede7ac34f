"""Scatters: windows of an array set, or combined with updates, at computed positions."""

from __future__ import annotations

__all__ = [
    "scatter_add_p", "scatter_max_p", "scatter_min_p", "scatter_mul_p", "scatter_p",
    "scatter_sub_p",
]  # fmt: skip

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, final

from tracebridge.core import lax
from tracebridge.core._jaxlib import mlir
from tracebridge.core.dtypes.dtypes import is_bool, is_complex
from tracebridge.core.errors.dtype_errors import DtypeMismatchError, UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.ir.aval import ShapedArray, result_aval
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.linear_input import is_linear_input
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.splits import split_of
from tracebridge.core.lax.ad_util import zeros_of
from tracebridge.core.lax.batch_util import move_batch_axis, to_front
from tracebridge.core.lax.families import scalar_like
from tracebridge.core.lax.indexing.index_splits import scattered_entries
from tracebridge.core.lax.indexing.modes import (
    check_index_numbers,
    check_window_axes,
    clipped_indices,
    signed_indices,
)
from tracebridge.core.lax.shape.axes import surely_less
from tracebridge.core.mlir.attrs import boolean

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.application import Params
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Operand, Value


class Scatter(Primitive):
    """Operands: an array, index vectors (their last axis), updates. Params as in ``scatter``."""

    cost = Cost.OTHER
    # StableHLO operation that combines an element with an update.
    combiner: ClassVar[str]
    takes_bool: ClassVar[bool] = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        x, indices, updates = avals
        numbers = params["dimension_numbers"]
        if x.dtype != updates.dtype:
            msg = (
                f"{self.name}: operand and updates need the same dtype, got {x.str_short()} and "
                f"{updates.str_short()}"
            )
            raise DtypeMismatchError(msg, hint="convert one with convert_element_type")
        if is_bool(x.dtype) and not self.takes_bool:
            msg = f"{self.name} works on numbers, got bool"
            raise UnsupportedDtypeError(msg)
        batching = (numbers.operand_batching_dims, numbers.scatter_indices_batching_dims)
        index_map = numbers.scatter_dims_to_operand_dims
        inserted = numbers.inserted_window_dims
        check_index_numbers(self.name, x, indices, inserted, index_map, batching)
        window_ndim = x.ndim - len(inserted) - len(batching[0])
        window_axes = numbers.update_window_dims
        check_window_axes(self.name, window_axes, window_ndim, updates.ndim)
        batch_shape = [n for i, n in enumerate(updates.shape) if i not in window_axes]
        if tuple(batch_shape) != indices.shape[:-1]:
            msg = (
                f"{self.name}: the axes of updates {updates.str_short()} beside the window "
                f"{window_axes} have sizes {tuple(batch_shape)}, expected those of the indices, "
                f"{indices.shape[:-1]}"
            )
            raise ShapeMismatchError(msg)
        points = {*inserted, *batching[0]}
        for axis, n in enumerate(window_sizes(x, updates, numbers)):
            if axis in points and type(x.shape[axis]) is not int:
                continue  # single positions outside of the operand are dropped, also all of them
            if surely_less(x.shape[axis], n):
                msg = (
                    f"{self.name}: the window of updates {updates.str_short()} has size {n} along "
                    f"axis {axis} of the operand {x.str_short()}"
                )
                raise ShapeMismatchError(msg)
        return result_aval(avals, x.shape, weak_type=x.weak_type and updates.weak_type)

    def split_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Any:
        del outs
        return [split_of(self.name, avals, scattered_entries(avals, params))]

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        x, indices, updates = operands
        aval, indices_aval, updates_aval = ctx.avals_in
        numbers = params["dimension_numbers"]
        indices, indices_aval = signed_indices(ctx, indices, indices_aval)
        if params["mode"] is lax.GatherScatterMode.CLIP:
            window = window_sizes(aval, updates_aval, numbers)
            index_map = numbers.scatter_dims_to_operand_dims
            indices = clipped_indices(ctx, indices, indices_aval, aval.shape, window, index_map)
        if numbers.scatter_dims_to_operand_dims:
            return self._emit(ctx, [x, indices, updates], ctx.aval_out, indices_aval, params)
        # XLA's simplifier takes empty index vectors for a single update: point them into a new
        # axis of size 1.
        wide = aval.update(shape=(1, *aval.shape))
        indices_aval = indices_aval.update(shape=(*indices_aval.shape[:-1], 1))
        numbers = _behind_new_axis(numbers)._replace(
            scatter_dims_to_operand_dims=(0,),
            inserted_window_dims=(0, *_shifted(numbers.inserted_window_dims)),
        )
        parts = [ctx.reshape(x, wide), ctx.splat(0, indices_aval), updates]
        params = {**params, "dimension_numbers": numbers}
        return ctx.reshape(self._emit(ctx, parts, wide, indices_aval, params), ctx.aval_out)

    def _emit(
        self,
        ctx: LoweringContext,
        parts: Sequence[Any],
        aval: ShapedArray,
        indices_aval: ShapedArray,
        params: Params,
    ) -> Any:
        # XLA drops windows that leave the operand, so only clipping needs more.
        numbers = params["dimension_numbers"]
        attributes = {
            "scatter_dimension_numbers": mlir.stablehlo.ScatterDimensionNumbers.get(
                list(numbers.update_window_dims),
                list(numbers.inserted_window_dims),
                list(numbers.operand_batching_dims),
                list(numbers.scatter_indices_batching_dims),
                list(numbers.scatter_dims_to_operand_dims),
                indices_aval.ndim - 1,
            ),
            "indices_are_sorted": boolean(params["indices_are_sorted"]),
            "unique_indices": boolean(params["unique_indices"]),
        }
        operation = ctx.op("stablehlo.scatter", parts, [aval], attributes, regions=1)
        scalar = aval.update(shape=())
        with ctx.block(operation.regions[0], [scalar, scalar]) as (old, new):
            ctx.finish([self.combine(ctx, old, new, scalar)])
        return operation.results[0]

    def combine(self, ctx: LoweringContext, old: IrValue, new: IrValue, scalar: ShapedArray) -> Any:
        """Emit the new element from the old one and an update."""
        return ctx.op1(self.combiner, [old, new], scalar)

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        x, indices, updates = args
        x = to_front(x, dims[0], ctx.size)
        if type(ctx.size) is int and ctx.size == 0:
            # Nothing changes; windows of size 1 along the new axis would not fit.
            return x, 0
        updates = to_front(updates, dims[2], ctx.size)
        numbers = _behind_new_axis(params["dimension_numbers"])
        numbers = numbers._replace(update_window_dims=_shifted(numbers.update_window_dims))
        if dims[1] is None:
            # All elements of the batch at the same positions: the batch is part of the window.
            window = (0, *numbers.update_window_dims)
            numbers = numbers._replace(update_window_dims=window)
        else:
            indices = move_batch_axis(indices, dims[1], 0)
            of_indices = _shifted(numbers.scatter_indices_batching_dims)
            numbers = numbers._replace(
                operand_batching_dims=(0, *numbers.operand_batching_dims),
                scatter_indices_batching_dims=(0, *of_indices),
            )
        return self.bind(x, indices, updates, **{**params, "dimension_numbers": numbers}), 0


@final
class ScatterSet(Scatter):
    """Where windows overlap without the promise of unique indices, one of the updates stays."""

    name = "scatter"
    makes_nan = False
    moves_elements = True

    def combine(self, ctx: LoweringContext, old: IrValue, new: IrValue, scalar: ShapedArray) -> Any:
        return new

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Any], **params: Any) -> Any:
        x, indices, updates = primals
        t_x, _, t_updates = tangents
        if t_updates is None:
            # Whichever update stays, its tangent is zero.
            zeros = zeros_of(updates.aval.tangent)
            return self.bind(*primals, **params), self.bind(t_x, indices, zeros, **params)
        t_x = zeros_of(x.aval.tangent) if t_x is None else t_x
        if params["unique_indices"]:
            return self.bind(*primals, **params), self.bind(t_x, indices, t_updates, **params)
        # The order of the updates is not defined, so a second scatter might let another one win:
        # choose the winners once, and use them for the result and its tangent.
        untouched, wins = winners(x.aval, indices, updates.aval, params)
        out = _put(x, indices, updates, untouched, wins, params)
        return out, _put(t_x, indices, t_updates, untouched, wins, params)

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        x, indices, updates = args
        cts: list[Any] = [None, None, None]
        if is_linear_input(x):
            zeros = zeros_of(updates.aval.tangent)
            cts[0] = self.bind(ct, indices, zeros, **params)
        if is_linear_input(updates):
            found = window_of(ct, indices, updates.aval, params)
            if not params["unique_indices"]:
                _, wins = winners(x.aval, indices, updates.aval, params)
                found = lax.select_n(wins, scalar_like(found, 0), found)
            cts[2] = found
        return cts


class _Additive(Scatter):
    """Linear in the operand and in the updates together."""

    takes_bool = False

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        x, indices, _ = primals
        t_x, _, t_updates = tangents
        out = self.bind(*primals, **params)
        if t_updates is None:
            return out, t_x
        t_x = zeros_of(x.aval.tangent) if t_x is None else t_x
        return out, self.bind(t_x, indices, t_updates, **params)

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        x, indices, updates = args
        ct_updates = None
        if is_linear_input(updates):
            ct_updates = self.update_cotangent(window_of(ct, indices, updates.aval, params))
        return [ct if is_linear_input(x) else None, None, ct_updates]

    def update_cotangent(self, window: object) -> Any:
        """The cotangent of the updates from that of the windows they went to."""
        return window


@final
class ScatterAdd(_Additive):
    """Updates are added."""

    name = "scatter_add"
    combiner = "stablehlo.add"


@final
class ScatterSub(_Additive):
    """Updates are subtracted."""

    name = "scatter_sub"
    combiner = "stablehlo.subtract"

    def update_cotangent(self, window: Any) -> Any:
        return lax.neg(window)


@final
class ScatterMul(Scatter):
    """Elements are multiplied by updates."""

    name = "scatter_mul"
    combiner = "stablehlo.multiply"
    takes_bool = False

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        x, indices, updates = primals
        t_x, _, t_updates = tangents
        out = self.bind(*primals, **params)
        total = None if t_x is None else self.bind(t_x, indices, updates, **params)
        if t_updates is None:
            return out, total
        if params["unique_indices"]:
            zeros = zeros_of(x.aval.tangent)
            part = lax.mul(scatter_add_p.bind(zeros, indices, t_updates, **params), x)
        else:
            part = _product_tangent(x, indices, updates, t_updates, params)
        return out, part if total is None else lax.add(total, part)

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        _, indices, updates = args
        return [self.bind(ct, indices, updates, **params), None, None]


class _Extreme(Scatter):
    """The derivative at an element is shared by all that equal it: the operand and updates."""

    makes_nan = False

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        x, indices, updates = primals
        t_x, _, t_updates = tangents
        out = self.bind(*primals, **params)
        one, zero = scalar_like(x, 1), scalar_like(x, 0)
        zeros = zeros_of(x.aval.strong)
        won = lax.eq(updates, window_of(out, indices, updates.aval, params))
        count = scatter_add_p.bind(zeros, indices, lax.select_n(won, zero, one), **params)
        kept = lax.select_n(lax.eq(x, out), zero, one)
        # At least 1, so that NaN (which equals nothing) does not divide by zero.
        share = lax.div(one, lax.max(lax.add(count, kept), one))
        total = None if t_x is None else lax.mul(t_x, lax.mul(kept, share))
        if t_updates is None:
            return out, total
        shares = lax.select_n(won, zero, window_of(share, indices, updates.aval, params))
        start = zeros_of(x.aval.tangent) if total is None else total
        return out, scatter_add_p.bind(start, indices, lax.mul(t_updates, shares), **params)

    def combine(self, ctx: LoweringContext, old: IrValue, new: IrValue, scalar: ShapedArray) -> Any:
        if not is_complex(scalar.dtype):
            return ctx.op1(self.combiner, [old, new], scalar)
        binary = lax.min if self.combiner == "stablehlo.minimum" else lax.max
        return ctx.lower_fun(binary, old, new, avals_in=(scalar, scalar))[0]


@final
class ScatterMin(_Extreme):
    """The least of the element and its updates stays."""

    name = "scatter_min"
    combiner = "stablehlo.minimum"


@final
class ScatterMax(_Extreme):
    """The greatest of the element and its updates stays."""

    name = "scatter_max"
    combiner = "stablehlo.maximum"


scatter_p = ScatterSet()
scatter_add_p = ScatterAdd()
scatter_sub_p = ScatterSub()
scatter_mul_p = ScatterMul()
scatter_min_p = ScatterMin()
scatter_max_p = ScatterMax()


# parts of the rules ------------------------------------------------------------------------------


def _shifted(axes: tuple[int, ...]) -> tuple[int, ...]:
    """Axes behind a new leading axis."""
    return tuple([a + 1 for a in axes])


def _behind_new_axis(numbers: Any) -> Any:
    """The numbers for an operand with a new leading axis."""
    return numbers._replace(
        inserted_window_dims=_shifted(numbers.inserted_window_dims),
        scatter_dims_to_operand_dims=_shifted(numbers.scatter_dims_to_operand_dims),
        operand_batching_dims=_shifted(numbers.operand_batching_dims),
    )


def window_sizes(x: ShapedArray, updates: ShapedArray, numbers: Any) -> tuple[Any, ...]:
    """The size of the window along each axis of the operand."""
    dropped = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    sizes = iter([updates.shape[a] for a in numbers.update_window_dims])
    return tuple([1 if axis in dropped else next(sizes) for axis in range(x.ndim)])


def window_of(x: Value, indices: Operand, updates: ShapedArray, params: Params) -> Any:
    """What stands in ``x`` where the updates go; zero for those that are dropped."""
    numbers = params["dimension_numbers"]
    return lax.gather(
        x,
        indices,
        lax.GatherDimensionNumbers(
            offset_dims=numbers.update_window_dims,
            collapsed_slice_dims=numbers.inserted_window_dims,
            start_index_map=numbers.scatter_dims_to_operand_dims,
            operand_batching_dims=numbers.operand_batching_dims,
            start_indices_batching_dims=numbers.scatter_indices_batching_dims,
        ),
        window_sizes(x.aval, updates, numbers),
        unique_indices=params["unique_indices"],
        indices_are_sorted=params["indices_are_sorted"],
        mode=params["mode"],
        fill_value=0,
    )


def winners(x: ShapedArray, indices: Any, updates: ShapedArray, params: Params) -> tuple[Any, Any]:
    """Masks: which elements no update reaches, and which elements of the updates stay."""
    numbers = params["dimension_numbers"]
    axes = tuple([i for i in range(updates.ndim) if i not in numbers.update_window_dims])
    sizes = tuple([updates.shape[i] for i in axes])
    count: Any = 1
    for n in sizes:
        count = count * n
    # Numbers from 1; windows of one update share a number, since they reach an element once.
    order = lax.reshape(lax.add(lax.iota("uint32", count), lax.full((), 1, "uint32")), sizes)
    order = lax.broadcast_in_dim(order, updates.shape, axes)
    marks = scatter_p.bind(lax.full(x.shape, 0, "uint32"), indices, order, **params)
    untouched = lax.eq(marks, scalar_like(marks, 0))
    return untouched, lax.eq(order, window_of(marks, indices, updates, params))


def _put(
    x: Value, indices: Value, updates: Value, untouched: object, wins: Any, params: Params
) -> Any:
    """The scatter in which the winning updates stay."""
    zero = scalar_like(x, 0)
    kept = lax.select_n(untouched, zero, x)
    return scatter_add_p.bind(kept, indices, lax.select_n(wins, zero, updates), **params)


def _product_tangent(
    x: Value, indices: Value, updates: Value, t_updates: Any, params: Params
) -> Any:
    """The tangent of products of several updates, also where some of them are zero.

    With the nonzero factors' product P and the sum S of their ``t / u``, one zero factor z with
    tangent t gives ``P * (t + z * S)``: z is 0, but its own derivative counts in second order.
    """
    zero, one = scalar_like(updates, 0), scalar_like(updates, 1)
    zeros = zeros_of(x.aval.tangent)

    def added(terms: Any) -> Any:
        return scatter_add_p.bind(zeros, indices, terms, **params)

    vanishes = lax.eq(updates, zero)
    factors = lax.select_n(vanishes, updates, one)
    product = scatter_mul_p.bind(x, indices, factors, **params)
    count = added(lax.select_n(vanishes, zero, one))
    quotients = added(lax.select_n(vanishes, lax.div(t_updates, factors), zero))
    of_zeros = added(lax.select_n(vanishes, zero, t_updates))
    values = added(lax.select_n(vanishes, zero, updates))
    x_zero, x_one = scalar_like(count, 0), scalar_like(count, 1)
    single = lax.add(of_zeros, lax.mul(values, quotients))
    inner = lax.select_n(lax.eq(count, x_one), x_zero, single)
    return lax.mul(product, lax.select_n(lax.eq(count, x_zero), inner, quotients))
