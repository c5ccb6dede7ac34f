"""StableHLO for reductions over windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracebridge.core._jaxlib import mlir
from tracebridge.core.mlir.attrs import i64_array
from tracebridge.core.mlir.types import is_static
from tracebridge.core.windows.geometry import dilated

if TYPE_CHECKING:
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.windows.geometry import Windows


def emit_reduce_window(
    ctx: LoweringContext,
    operands: Sequence[Any],
    inits: Sequence[Any],
    avals_out: Sequence[ShapedArray],
    windows: Windows,
    body: Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]],
) -> list[Any]:
    """``stablehlo.reduce_window``; ``body(accumulators, elements)`` emits the combined scalars."""
    cuts = any([n < 0 for pair in windows.padding for n in pair])
    if cuts and windows.size == 1 and all([is_static(a) for a in avals_out]):
        operands, windows = _cut(ctx, operands, inits, avals_out, windows)
    operation = ctx.op(
        "stablehlo.reduce_window",
        [*operands, *inits],
        avals_out,
        {
            "window_dimensions": i64_array(windows.window_dimensions),
            "window_strides": i64_array(windows.window_strides),
            "base_dilations": i64_array(windows.base_dilation),
            "window_dilations": i64_array(windows.window_dilation),
            "padding": _padding(ctx, windows),
        },
        regions=1,
    )
    scalars = [a.update(shape=()) for a in avals_out]
    with ctx.block(operation.regions[0], [*scalars, *scalars]) as arguments:
        n = len(scalars)
        ctx.finish(body(arguments[:n], arguments[n:]))
    return list(operation.results)


def _cut(
    ctx: LoweringContext,
    operands: Sequence[Any],
    inits: Sequence[Any],
    avals_out: Sequence[ShapedArray],
    windows: Windows,
) -> tuple[list[Any], Windows]:
    """Padded operands, and their windows without padding.

    XLA takes the padding of windows of one element for none where it only cuts, and ends the
    process over the shapes.
    """
    low, high = zip(*windows.padding, strict=True)
    attributes = {
        "edge_padding_low": i64_array(low),
        "edge_padding_high": i64_array(high),
        "interior_padding": i64_array([n - 1 for n in windows.base_dilation]),
    }
    shapes = [mlir.ir.ShapedType(x.type).shape for x in operands]
    sizes = [
        dilated(n, base) + sum(pads)
        for n, base, pads in zip(shapes[0], windows.base_dilation, windows.padding, strict=True)
    ]
    wide = [
        ctx.op1("stablehlo.pad", [x, init], aval.update(shape=tuple(sizes)), attributes)
        for x, init, aval in zip(operands, inits, avals_out, strict=True)
    ]
    none = (1,) * len(sizes)
    return wide, windows._replace(padding=((0, 0),) * len(sizes), base_dilation=none)


def emit_select_and_scatter(
    ctx: LoweringContext,
    operands: Sequence[Any],
    aval: ShapedArray,
    windows: Windows,
    select: Callable[[Sequence[Any]], Sequence[Any]],
    scatter: Callable[[Sequence[Any]], Sequence[Any]],
) -> Any:
    """``stablehlo.select_and_scatter`` of operand, source and initial value.

    ``select(pair)`` says whether the first of two elements stays, ``scatter(pair)`` adds up.
    """
    operation = ctx.op(
        "stablehlo.select_and_scatter",
        operands,
        [aval],
        {
            "window_dimensions": i64_array(windows.window_dimensions),
            "window_strides": i64_array(windows.window_strides),
            "padding": _padding(ctx, windows),
        },
        regions=2,
    )
    pair = [aval.update(shape=())] * 2
    for region, emit in zip(operation.regions, (select, scatter), strict=True):
        with ctx.block(region, pair) as arguments:
            ctx.finish(emit(arguments))
    return operation.results[0]


def _padding(ctx: LoweringContext, windows: Windows) -> Any:
    pads: Any = np.asarray(windows.padding, np.int64).reshape(-1, 2)
    return ctx.dense_i64(pads)
