"""Which reductions over windows are written as other loops on the CPU; limits were measured."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.control.loops.while_loop import while_loop
from tracebridge.core.dtypes.dtypes import is_bool, is_complex, is_float
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.lax.reduce.reductions import accumulator_dtype
from tracebridge.core.windows import computations, cpu_forms, winners
from tracebridge.core.windows.geometry import Windows, windows_of

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.ir.value import Value

_FEW_VISITS = 1 << 13  # elements of windows that are visited in microseconds in any form
_FEW_PLACES = 8
_MANY_PLACES = 64  # more are not written out one by one
_MAX_STRIDE = 4  # windows further apart would make most of a sliding form useless


def form_of(
    monoid: str, x: ShapedArray, out: ShapedArray, windows: Windows
) -> Callable[..., Any] | None:
    """The form ``(x, identity) -> result`` that is faster than the operation, if there is one."""
    if windows.size < 2 or math.prod(out.shape) * windows.size < _FEW_VISITS:
        return None
    direction = cpu_forms.running_direction(x.shape, windows)
    if direction is not None:
        return lambda x, _: cpu_forms.running(x, monoid, direction)
    if windows.size <= cpu_forms.FEW_PLACES:
        return lambda x, identity: cpu_forms.by_place(x, monoid, windows, identity)
    along = zip(windows.window_dimensions, windows.window_strides, strict=True)
    if all([w == s == 1 or w >= 2 * s for w, s in along]):
        return lambda x, identity: cpu_forms.by_axis(x, monoid, windows, identity)
    return None


def lower_reduction(
    prim: Primitive, monoid: str, ctx: LoweringContext, x: IrValue, **params: Any
) -> Any:
    """The operation, or its form for the CPU."""
    aval, out = ctx.avals_in[0], ctx.aval_out
    form = None
    if _is_plain(aval, out) and monoid in cpu_forms.MONOIDS:
        form = form_of(monoid, aval, out, windows_of(params))
    if form is None:
        return prim.lower(ctx, x, **params)
    # Narrow floats are converted in each step otherwise, and sums lose less.
    dtype = accumulator_dtype(out.dtype)

    def compose(x: Value) -> Any:
        x = x if aval.dtype == dtype else lax.convert_dtype(x, dtype)
        scalar = ShapedArray((), dtype)
        reduced = form(x, full_of(scalar, computations.identity_of(monoid, dtype)))
        return reduced if dtype == out.dtype else lax.convert_dtype(reduced, out.dtype)

    return ctx.lower_fun(compose, x)[0]


def _is_plain(aval: ShapedArray, out: ShapedArray) -> bool:
    sizes = (*aval.shape, *out.shape)
    if 0 in sizes or not aval.shape or any([type(n) is not int for n in sizes]):
        return False
    if is_bool(aval.dtype) or is_complex(aval.dtype):
        return False
    # Narrower floats may have no infinity.
    return not is_float(aval.dtype) or aval.dtype.itemsize >= 2


def _is_written_out(aval: ShapedArray, windows: Windows) -> bool:
    return 0 < windows.size <= _MANY_PLACES


def _is_sliding(aval: ShapedArray, out: ShapedArray, windows: Windows) -> bool:
    near = math.prod(windows.window_strides) <= _MAX_STRIDE
    no_gaps = all([base == 1 for base in windows.base_dilation])
    return _is_plain(aval, out) and windows.size > 0 and near and no_gaps


def lower_gather(
    prim: Primitive, ctx: LoweringContext, t: IrValue, x: IrValue, **params: Any
) -> Any:
    """The tangents of winners."""
    windows, select = windows_of(params), params["select_prim"]
    aval = ctx.avals_in[1]
    if _is_written_out(aval, windows):
        fun = winners.gather_by_places
        return ctx.lower_fun(fun, t, x, select_prim=select, windows=windows)[0]
    if not _is_sliding(aval, ctx.aval_out, windows):
        return prim.lower(ctx, t, x, **params)
    return ctx.lower_fun(lambda t, x: winners.take(t, _positions(x, select, windows)), t, x)[0]


def lower_scatter(
    prim: Primitive, ctx: LoweringContext, source: IrValue, x: IrValue, **params: Any
) -> Any:
    """The elements of ``source`` at their winners."""
    windows, select = windows_of(params), params["select_prim"]
    source_aval, aval = ctx.avals_in

    def by_position(source: Value, x: Value) -> Any:
        return winners.put(source, _positions(x, select, windows), shape=aval.shape)

    if _is_written_out(aval, windows):
        if _is_plain(aval, source_aval) and not windows.is_dilated:
            return _emit_by_blocks(ctx, source, x, select, windows)
        fun = winners.scatter_by_places
        return ctx.lower_fun(fun, source, x, select_prim=select, windows=windows)[0]
    if _is_sliding(aval, source_aval, windows):
        return ctx.lower_fun(by_position, source, x)[0]
    return prim.lower(ctx, source, x, **params)


def _is_better(select: Primitive) -> Callable[[Any, Any], Any]:
    """Whether one key beats another."""
    compare = lax.gt if select is lax.ge_p else lax.lt
    return lambda a, b: compare(a, b)


def _beats(select: Primitive) -> Callable[[Any, Any], Any]:
    """Whether one element beats another."""
    return lambda a, b: winners.is_better(a, b, select)


def _keys(x: Value, select: Primitive) -> tuple[Any, Any]:
    """Keys of elements, and the key of padding."""
    keys = cpu_forms.order_keys(x, select is lax.ge_p)
    return keys, full_of(keys.aval.update(shape=()), winners.worst_of(keys.aval, select))


def _positions(x: Value, select: Primitive, windows: Windows) -> Any:
    is_better = _is_better(select)
    return cpu_forms.winning_positions(*_keys(x, select), winners.BEYOND, windows, is_better)


def _in_memory(fun: Callable[[Any], Any], x: Value, number: Value) -> Any:
    """``fun(x)`` by a loop of one step, without XLA's knowing: so that it is computed once.

    What a loop over elements reads is else computed again for each one, and a barrier goes away
    before that is decided. The count of steps seems to depend on ``number``, an array of floats.
    """
    ndim = number.aval.ndim
    first = lax.reshape(lax.slice(number, [0] * ndim, [1] * ndim), ())
    steps = lax.add(lax.convert_dtype(lax.ne(first, first), np.dtype(np.int32)), 1)
    out = fun(x).aval  # a value that nothing uses
    start = [full_of(ShapedArray((), np.dtype(np.int32)), 0), zeros_of(out)]
    return while_loop(
        lambda carry: lax.lt(carry[0], lax.min(steps, 1)),
        lambda carry: [lax.add(carry[0], 1), fun(x)],
        start,
    )[1]


def _emit_by_blocks(
    ctx: LoweringContext, source: IrValue, x: IrValue, select: Primitive, windows: Windows
) -> Any:
    source_aval, aval = ctx.avals_in

    # Keys cost a pass over the operand, which few places do not repay.
    with_keys = windows.size > _FEW_PLACES or any(map(any, windows.padding))
    is_better = _is_better(select) if with_keys else _beats(select)

    def padded(x: Value) -> Any:
        keys, worst = _keys(x, select)
        return lax.pad(keys, worst, [(low, high, 0) for low, high in windows.padding])

    def places(x: Value) -> Any:
        return cpu_forms.winning_places(x, windows, source_aval.shape, is_better)

    def both(source: Value, x: Value) -> Any:
        wide = _in_memory(padded, x, source) if with_keys else x
        place = _in_memory(places, wide, source)
        return cpu_forms.spread_by_blocks(source, place, aval.shape, windows)

    return ctx.lower_fun(both, source, x)[0]
