"""reduce_window: the elements of each window combined, by a computation of the user or a known one.

``reduce_window_sum``, ``_max``, ``_min``, ``_and`` and ``_or`` have padding that changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, final

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import is_complex, is_inexact
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.interpreters.batching import batch_flat
from tracebridge.core.interpreters.jvp import jvp_flat
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.higher_order import HigherOrderPrimitive
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.splits import even_split
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.lax.batch_util import to_one_axis
from tracebridge.core.lax.reduce.extremes import emit_extremum
from tracebridge.core.lax.reduce.reductions import accumulator_dtype
from tracebridge.core.lowering.context import register_platform_lowering
from tracebridge.core.windows import computations, cpu_rules, patches
from tracebridge.core.windows.emit import emit_reduce_window
from tracebridge.core.windows.geometry import (
    Windows,
    checked_windows,
    dilated,
    result_of,
    windows_of,
    with_axis,
)
from tracebridge.core.windows.select import select_and_gather_add

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.control.calls.bodies import Body
    from tracebridge.core.dtypes.dtypes import DTypeLike
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Value
    from tracebridge.core.windows.computations import Combine


@final
class ReduceWindow(HigherOrderPrimitive):
    """n operands and n initial values; ``jaxpr``: (n accumulators, n elements) -> n results."""

    name = "reduce_window"
    joins = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> list[ShapedArray]:
        windows = windows_of(params)
        return [result_of(x, windows) for x in avals[: len(avals) // 2]]

    def split_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Any:
        """As each operand, along axes whose parts have as many windows each."""
        del params
        return [even_split(x, out.shape) for x, out in zip(avals, outs, strict=False)]

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        n = len(operands) // 2

        def body(a: Sequence[Any], b: Sequence[Any]) -> Sequence[Any]:
            return ctx.inline_jaxpr(params["jaxpr"], [*a, *b])

        windows = windows_of(params)
        return emit_reduce_window(ctx, operands[:n], operands[n:], ctx.avals_out, windows, body)

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        """The derivative of the combination by halves, which is the same for associative ones."""
        run = _run(params)
        return self.bind(*primals, **params), jvp_flat(run, primals, tangents)[1]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        n = len(args) // 2
        if any([d is not None for d in dims[n:]]):
            return batch_flat(_run(params), args, dims, ctx.size)
        moved, dim = to_one_axis(args[:n], dims[:n], ctx.size)
        windows = with_axis(windows_of(params), dim)
        outs = self.bind(*moved, *args[n:], jaxpr=params["jaxpr"], **windows._asdict())
        return outs, [dim] * n


def _run(params: Any) -> Callable[..., list[Any]]:
    def run(*values: Any) -> list[Any]:
        return _by_halves(computations.combine_by(params["jaxpr"]), values, windows_of(params))

    return run


def _by_halves(combine: Combine, values: Sequence[Any], windows: Windows) -> list[Any]:
    """Operands, then initial values; the places in a window become an axis in front."""
    n = len(values) // 2
    shape = values[0].aval.shape
    rows = [
        lax.stack(patches.elements(x, init, windows))
        for x, init in zip(values[:n], values[n:], strict=True)
    ]
    inside = patches.inside(shape, windows)
    if inside is None:
        return computations.fold(combine, rows, values[n:])
    start = full_of(inside[0].aval.update(shape=()), True)
    known = _known_only(combine)
    return computations.fold(known, [*rows, lax.stack(inside)], [*values[n:], start])[:n]


def _known_only(combine: Combine) -> Combine:
    """A combination that leaves padding out; the last arrays say what is none.

    An element stands in for the padding beside it, so that derivatives stay finite.
    """

    def known(a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
        *xs, p = a
        *ys, q = b
        left = [lax.select(p, x, y) for x, y in zip(xs, ys, strict=True)]
        right = [lax.select(q, y, x) for x, y in zip(xs, ys, strict=True)]
        both = lax.bitwise_and(p, q)
        outs = combine(left, right)
        # Where one is padding, both are what stands in for it.
        chosen = [lax.select(both, o, x) for o, x in zip(outs, left, strict=True)]
        return [*chosen, lax.bitwise_or(p, q)]

    return known


class _Monoid(Primitive):
    """One operand; the padding is what changes nothing."""

    cost = Cost.OTHER
    monoid: ClassVar[str]
    accepts_text: ClassVar[str] = "numbers"

    def accepts(self, dtype: DTypeLike) -> bool:
        """Which dtypes the operand may have."""
        return computations.fits_monoid(self.monoid, dtype)

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        (x,) = avals
        if not self.accepts(x.dtype):
            name, takes = self.name, self.accepts_text
            msg = f"{name} does not accept dtype {x.dtype.name}, it works on {takes}"
            raise UnsupportedDtypeError(msg)
        return result_of(x, windows_of(params))

    def split_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Any:
        """As the operand along axes whose parts have as many windows each."""
        del params
        return [even_split(avals[0], outs[0].shape)]

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        out = ctx.aval_out
        # Narrow floats lose less if they are added up in float32.
        dtype = accumulator_dtype(out.dtype) if self.monoid == "sum" else out.dtype
        (x,), wide = operands, out.update(dtype=dtype)
        if dtype != out.dtype:
            x = ctx.convert(x, ctx.avals_in[0].update(dtype=dtype))
        scalar = wide.update(shape=())
        init = ctx.splat(computations.identity_of(self.monoid, dtype), scalar)

        def body(a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
            return [self.combine(ctx, a[0], b[0], scalar)]

        (found,) = emit_reduce_window(ctx, [x], [init], [wide], windows_of(params), body)
        return found if dtype == out.dtype else ctx.convert(found, out)

    def combine(self, ctx: LoweringContext, a: IrValue, b: IrValue, aval: ShapedArray) -> Any:
        """Emit the combination of two scalars."""
        hlo = {"sum": "add", "and": "and", "or": "or"}[self.monoid]
        return ctx.op1(f"stablehlo.{hlo}", [a, b], aval)

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        del ctx
        (x,), (d,) = args, dims
        assert d is not None  # the only operand is batched
        return self.bind(x, **with_axis(windows_of(params), d)._asdict()), d


@final
class ReduceWindowSum(_Monoid):
    """The sum of each window."""

    name = "reduce_window_sum"
    monoid = "sum"

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Any], **params: Any) -> Any:
        return self.bind(primals[0], **params), self.bind(tangents[0], **params)

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        """Sums over windows of the cotangents, which lie apart by what the strides were."""
        aval = args[0].aval
        windows = windows_of(params)
        counts = ct.aval.shape
        if 0 in counts or 0 in aval.shape or 0 in windows.window_dimensions:
            return [zeros_of(aval)]
        if windows.window_dimensions == windows.window_strides and not windows.is_dilated:
            return [_repeated(ct, aval.shape, windows)]
        config: list[tuple[Any, Any, int]] = []
        for n, count, w, stride, (low, _), base, gap in zip(
            aval.shape, counts, *windows, strict=True
        ):
            before = dilated(w, gap) - 1 - low
            whole = dilated(n, base) + dilated(w, gap) - 1
            config.append((before, whole - before - dilated(count, stride), stride - 1))
        wide = lax.pad(ct, full_of(ct.aval.update(shape=()), 0), config)
        back = Windows(
            windows.window_dimensions,
            windows.base_dilation,
            ((0, 0),) * aval.ndim,
            (1,) * aval.ndim,
            windows.window_dilation,
        )
        return [self.bind(wide, **back._asdict())]


def _repeated(ct: Value, shape: Sequence[Any], windows: Windows) -> Any:
    """Each cotangent in all places of its window; windows lie side by side."""
    sizes = windows.window_dimensions
    split = [n for pair in zip(ct.aval.shape, sizes, strict=True) for n in pair]
    wide = lax.broadcast_in_dim(ct, tuple(split), tuple(range(0, 2 * len(sizes), 2)))
    whole = [n * w for n, w in zip(ct.aval.shape, sizes, strict=True)]
    config = [
        (-low, n + low - count, 0)
        for n, (low, _), count in zip(shape, windows.padding, whole, strict=True)
    ]
    wide = lax.reshape(wide, tuple(whole))
    if all([entry == (0, 0, 0) for entry in config]):
        return wide
    return lax.pad(wide, full_of(ct.aval.update(shape=()), 0), config)


class _Extremum(_Monoid):
    """The largest or smallest element of each window. NaNs win."""

    makes_nan = False
    accepts_text = "real numbers and booleans"

    def accepts(self, dtype: DTypeLike) -> bool:
        return not is_complex(dtype)

    def combine(self, ctx: LoweringContext, a: IrValue, b: IrValue, aval: ShapedArray) -> Any:
        return emit_extremum(ctx, a, b, aval, maximum=self.monoid == "max")

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Any], **params: Any) -> Any:
        """The tangent of the first of the elements that are as good as the result."""
        (x,), (t,) = primals, tangents
        select = lax.ge_p if self.monoid == "max" else lax.le_p
        ans = self.bind(x, **params)
        return ans, select_and_gather_add(t, x, select, windows_of(params))


@final
class ReduceWindowMax(_Extremum):
    """The largest element of each window."""

    name = "reduce_window_max"
    monoid = "max"


@final
class ReduceWindowMin(_Extremum):
    """The smallest element of each window."""

    name = "reduce_window_min"
    monoid = "min"


class _Logical(_Monoid):
    accepts_text = "booleans and integers"

    def accepts(self, dtype: DTypeLike) -> bool:
        return not is_inexact(dtype)


@final
class ReduceWindowAnd(_Logical):
    """Bitwise "and" of each window."""

    name = "reduce_window_and"
    monoid = "and"


@final
class ReduceWindowOr(_Logical):
    """Bitwise "or" of each window."""

    name = "reduce_window_or"
    monoid = "or"


reduce_window_p = ReduceWindow()
reduce_window_sum_p = ReduceWindowSum()
reduce_window_max_p = ReduceWindowMax()
reduce_window_min_p = ReduceWindowMin()
reduce_window_and_p = ReduceWindowAnd()
reduce_window_or_p = ReduceWindowOr()
for _prim in (reduce_window_sum_p, reduce_window_max_p, reduce_window_min_p):
    _rule = partial(cpu_rules.lower_reduction, _prim, _prim.monoid)
    register_platform_lowering(_prim, "cpu", _rule, optional=True)
_OF_MONOID = {
    p.monoid: p
    for p in (
        reduce_window_sum_p,
        reduce_window_max_p,
        reduce_window_min_p,
        reduce_window_and_p,
        reduce_window_or_p,
    )
}


def reduce_window(
    operand: Any,
    init_value: Any,
    computation: Callable[[Any, Any], Any],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None = None,
    padding: str | Sequence[tuple[int, int]] = "VALID",
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> Any:
    """Combine the elements of each window that moves over an array.

    Args:
        operand: array, or tree of arrays of one shape, whose windows are combined together.
        init_value: scalar, or tree of scalars: what each window starts from. It should change
            nothing; padding and gaps take no part.
        computation: ``(a, b) -> c`` on scalars (trees of them like ``operand``); associative and
            commutative. For addition, maximum, minimum, "and" and "or" the result has fast forms.
        window_dimensions: sizes of the window, one for each axis.
        window_strides: how far the window moves at a time (default: 1).
        padding: ``"VALID"``, ``"SAME"``, ``"SAME_LOWER"`` (see ``padtype_to_pads``), or a pair
            (before, after) for each axis.
        base_dilation: distance of neighbours of the operand (default: 1, no gaps).
        window_dilation: distance of neighbours in a window (default: 1, no gaps).

    Returns:
        Array or tree of arrays with one element for each place of the window. The gradient of a
        maximum or minimum goes to the first of several equal elements, and to a NaN if there is
        one.

    Raises:
        RankError: an argument has not one entry for each axis.
        ShapeMismatchError: a size, stride or dilation is too small; operands differ in shape.
        ArgumentValueError: no such padding.
        DtypeMismatchError: an initial value has another dtype than its operand.

    >>> import tracebridge as tb
    >>> x = tb.numpy.array([1.0, 5.0, 2.0, 4.0])
    >>> tb.lax.reduce_window(x, -tb.numpy.inf, tb.lax.max, (2,), (2,)).tolist()
    [5.0, 4.0]
    """
    call = "reduce_window"
    xs, inits, tree = computations.checked_operands(call, operand, init_value, computation)
    windows = checked_windows(
        call,
        xs[0].aval.shape,
        window_dimensions,
        window_strides,
        padding,
        base_dilation,
        window_dilation,
    )
    body = computations.trace_computation(call, computation, xs, tree)
    return tree.unflatten(_reduced(body, xs, inits, windows))


def _reduced(body: Body, xs: Sequence[Any], inits: Sequence[Any], windows: Windows) -> list[Any]:
    jaxpr = computations.closed_jaxpr(body)
    if jaxpr is None:
        combine = computations.combine_by(body.jaxpr, body.hoisted)
        return _by_halves(combine, [*xs, *inits], windows)
    monoid = computations.monoid_of(jaxpr)
    primitive = _OF_MONOID.get(monoid)
    if primitive is None or not primitive.accepts(xs[0].aval.dtype):
        return reduce_window_p.bind(*xs, *inits, jaxpr=jaxpr, **windows._asdict())
    if computations.is_identity(monoid, inits[0]):
        return [primitive.bind(xs[0], **windows._asdict())]
    out = primitive.bind(xs[0], **windows._asdict())
    start = lax.broadcast_in_dim(inits[0], out.aval.shape, ())
    return computations.combine_by(jaxpr)([start], [out])
