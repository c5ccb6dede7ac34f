"""What windows select: the derivatives of their maxima and minima.

The winner of a window is its first largest (smallest) element, or its first NaN. Padding never
wins, so that a window of nothing but minus infinity has a winner too.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, final

import tracebridge.core.lax as lax
from tracebridge.core.control.loops.map import map as map_rows
from tracebridge.core.errors.dtype_errors import DtypeMismatchError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.higher_order import HigherOrderPrimitive
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.splits import even_split
from tracebridge.core.lax.batch_util import to_front, to_one_axis
from tracebridge.core.lowering.context import register_platform_lowering
from tracebridge.core.windows import cpu_rules, winners
from tracebridge.core.windows.emit import emit_select_and_scatter
from tracebridge.core.windows.geometry import Windows, result_of, windows_of, with_axis

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Value


class _Selecting(Primitive):
    """Linear in the first operand; the second one says which element of each window wins."""

    cost = Cost.OTHER

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        t = tangents[0]
        return self.bind(*primals, **params), (
            None if t is None else self.bind(t, primals[1], **params)
        )

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        moved, dim = to_one_axis(args, dims, ctx.size)
        windows = with_axis(windows_of(params), dim)
        return self.bind(*moved, select_prim=params["select_prim"], **windows._asdict()), dim

    def split_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Any:
        """As the operand, along axes whose parts have as many windows each."""
        del params
        first, x = avals
        return [even_split(first if x.split is None else x, outs[0].shape)]


def _written_out(ctx: LoweringContext, windows: Windows) -> bool:
    """Whether the places of a window are taken one by one.

    TPUs have no operation for windows along both of the axes that lie innermost in memory: at least
    two axes have to be free of windows.
    """
    along = zip(windows.window_dimensions, windows.window_strides, strict=True)
    is_wide = sum([size == 1 == stride for size, stride in along]) < 2
    return ctx.platform == "tpu" and windows.size > 0 and is_wide


@final
class SelectAndGatherAdd(_Selecting):
    """``(tangents, operand)``: the tangent of the winner of each window."""

    name = "select_and_gather_add"

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        t, x = avals
        if t.shape != x.shape:
            msg = f"{self.name}: tangents {t.str_short()} for an operand {x.str_short()}"
            raise ShapeMismatchError(msg, expected="one shape")
        return result_of(t, windows_of(params))

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        t, x = operands
        t_aval, x_aval = ctx.avals_in
        windows, prim = windows_of(params), params["select_prim"]
        if _written_out(ctx, windows):
            fun = winners.gather_by_places
            return ctx.lower_fun(fun, t, x, select_prim=prim, windows=windows)[0]
        positions, aval = winners.emit_winners(ctx, x, x_aval, prim, windows)
        return ctx.lower_fun(winners.take, t, positions, avals_in=[t_aval, aval])[0]

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        return [select_and_scatter_add_p.bind(ct, args[1], **params), None]


@final
class SelectAndScatterAdd(_Selecting):
    """``(source, operand)``: each number of the source is added where its window has its winner."""

    name = "select_and_scatter_add"

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        source, x = avals
        expected = result_of(x, windows_of(params))
        if source.shape != expected.shape:
            msg = f"{self.name}: source {source.str_short()} for windows of {x.str_short()}"
            raise ShapeMismatchError(msg, expected=f"shape {expected.shape}")
        return source.update(shape=x.shape)

    def lower(self, ctx: LoweringContext, *operands: Any, **params: Any) -> Any:
        source, x = operands
        s_aval, x_aval = ctx.avals_in
        windows, prim = windows_of(params), params["select_prim"]
        if _written_out(ctx, windows):
            fun = winners.scatter_by_places
            return ctx.lower_fun(fun, source, x, select_prim=prim, windows=windows)[0]
        # XLA's expansion of the operation ends the process for operands without axes.
        no_axes = not x_aval.ndim or 0 in (*x_aval.shape, windows.size)
        negative = any([n < 0 for pair in windows.padding for n in pair])
        if windows.is_dilated or negative or no_axes or s_aval.dtype != x_aval.dtype:
            positions, aval = winners.emit_winners(ctx, x, x_aval, prim, windows)
            avals = [s_aval, aval]
            return ctx.lower_fun(
                winners.put, source, positions, avals_in=avals, shape=x_aval.shape
            )[0]
        return self._operation(ctx, x, source, prim, windows)

    def _operation(
        self, ctx: LoweringContext, x: Value, source: Any, prim: Primitive, windows: Windows
    ) -> Any:
        out = ctx.aval_out
        scalar = out.update(shape=())

        def stays(a: Any, b: Any) -> Any:
            return lax.bitwise_not(winners.is_better(b, a, prim))

        def select(pair: Sequence[Any]) -> Sequence[Any]:
            return ctx.lower_fun(stays, *pair, avals_in=[scalar, scalar])

        def scatter(pair: Sequence[Any]) -> Sequence[Any]:
            return [ctx.op1("stablehlo.add", pair, scalar)]

        zero = ctx.splat(0, scalar)
        return emit_select_and_scatter(ctx, [x, source, zero], out, windows, select, scatter)

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        return [select_and_gather_add_p.bind(ct, args[1], **params), None]


@final
class SelectAndScatter(HigherOrderPrimitive):
    """``(operand, source, initial value)``: numbers combined where ``select_jaxpr`` says.

    Windows have no gaps. It has no derivative: ``select_and_scatter_add`` is what derivatives of
    windows need.
    """

    name = "select_and_scatter"
    joins = True
    multiple_results = False

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        x, source, init = avals
        windows = _plain_windows(x.ndim, params)
        expected = result_of(x, windows)
        if source.shape != expected.shape:
            msg = f"{self.name}: source {source.str_short()} for windows of {x.str_short()}"
            raise ShapeMismatchError(msg, expected=f"shape {expected.shape}")
        if source.dtype != x.dtype or init.dtype != x.dtype:
            got = ", ".join([a.str_short() for a in avals])
            msg = f"{self.name}: operand, source and initial value need one dtype, got {got}"
            raise DtypeMismatchError(msg)
        return x.strong

    def split_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Any:
        """As the operand."""
        del params
        return [even_split(avals[0], out.shape) for out in outs]

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        def emit(name: str) -> Any:
            return lambda pair: ctx.inline_jaxpr(params[name], pair)

        windows = _plain_windows(ctx.avals_in[0].ndim, params)
        select, scatter = emit("select_jaxpr"), emit("scatter_jaxpr")
        return emit_select_and_scatter(ctx, operands, ctx.aval_out, windows, select, scatter)

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        if dims[2] is not None:

            def one(row: Sequence[Any]) -> Any:
                return self.bind(*row, **params)

            return map_rows(
                one, [to_front(a, d, ctx.size) for a, d in zip(args, dims, strict=True)]
            ), 0
        x, source, init = args
        moved, dim = to_one_axis((x, source), dims[:2], ctx.size)
        windows = with_axis(_plain_windows(moved[0].aval.ndim - 1, params), dim)
        names = ("window_dimensions", "window_strides", "padding")
        new = {**params, **{name: getattr(windows, name) for name in names}}
        return self.bind(*moved, init, **new), dim


def _plain_windows(ndim: int, params: Any) -> Windows:
    ones = (1,) * ndim
    size, strides = params["window_dimensions"], params["window_strides"]
    return Windows(size, strides, params["padding"], ones, ones)


select_and_gather_add_p = SelectAndGatherAdd()
select_and_scatter_add_p = SelectAndScatterAdd()
select_and_scatter_p = SelectAndScatter()
register_platform_lowering(
    select_and_gather_add_p,
    "cpu",
    partial(cpu_rules.lower_gather, select_and_gather_add_p),
    optional=True,
)
register_platform_lowering(
    select_and_scatter_add_p,
    "cpu",
    partial(cpu_rules.lower_scatter, select_and_scatter_add_p),
    optional=True,
)


def select_and_gather_add(t: Value, x: Value, select_prim: Primitive, windows: Windows) -> Any:
    """The tangent of the winner of each window."""
    return select_and_gather_add_p.bind(t, x, select_prim=select_prim, **windows._asdict())
