"""reduce: elements along axes combined by a computation of the user."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

import tracebridge.core.lax as lax
from tracebridge.core.control.calls.bodies import Body
from tracebridge.core.interpreters.batching import batch_flat
from tracebridge.core.interpreters.jvp import jvp_flat
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.higher_order import HigherOrderPrimitive
from tracebridge.core.lax.batch_util import to_one_axis
from tracebridge.core.lax.shape.axes import as_axes
from tracebridge.core.lax.sharding_constraint import constrained_result
from tracebridge.core.windows.computations import (
    Combine,
    checked_operands,
    closed_jaxpr,
    combine_by,
    fits_monoid,
    fold,
    is_identity,
    monoid_of,
    trace_computation,
)

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Value


@final
class Reduce(HigherOrderPrimitive):
    """n operands and n initial values; ``jaxpr``: (n accumulators, n elements) -> n results."""

    name = "reduce"
    joins = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> list[ShapedArray]:
        axes = params["dimensions"]
        shape = tuple([d for i, d in enumerate(avals[0].shape) if i not in axes])
        return [x.update(shape=shape) for x in avals[: len(avals) // 2]]

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        n = len(operands) // 2

        def body(a: Sequence[Any], b: Sequence[Any]) -> Sequence[Any]:
            return ctx.inline_jaxpr(params["jaxpr"], [*a, *b])

        axes = params["dimensions"]
        return ctx.reduce(operands[:n], operands[n:], ctx.avals_out, axes, body)

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        """The derivative of the combination by halves, which is the same for associative ones."""

        def run(*values: Any) -> list[Any]:
            return _by_halves(combine_by(params["jaxpr"]), values, params["dimensions"])

        return self.bind(*primals, **params), jvp_flat(run, primals, tangents)[1]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        n = len(args) // 2
        axes = params["dimensions"]
        if any([d is not None for d in dims[n:]]):

            def run(*values: Any) -> list[Any]:
                return _by_halves(combine_by(params["jaxpr"]), values, axes)

            return batch_flat(run, args, dims, ctx.size)
        moved, dim = to_one_axis(args[:n], dims[:n], ctx.size)
        shifted = tuple([a + (a >= dim) for a in axes])
        outs = self.bind(*moved, *args[n:], jaxpr=params["jaxpr"], dimensions=shifted)
        return outs, [dim - sum([a < dim for a in shifted])] * n


reduce_p = Reduce()


def _by_halves(combine: Combine, values: Sequence[Any], axes: Sequence[int]) -> list[Any]:
    """Operands, then initial values; the axes become one in front."""
    n = len(values) // 2
    shape = values[0].aval.shape
    kept = [i for i in range(len(shape)) if i not in axes]
    rows = (math.prod([shape[a] for a in axes]), *[shape[i] for i in kept])
    xs = [lax.reshape(lax.transpose(x, (*axes, *kept)), rows) for x in values[:n]]
    return fold(combine, xs, values[n:])


def reduce(
    operands: Any,
    init_values: Any,
    computation: Callable[[Any, Any], Any],
    dimensions: Sequence[int],
    out_sharding: object = None,
) -> Any:
    """Combine the elements along axes by a function.

    Sums, products, extremes and their bitwise kin become the operations of these names.

    Args:
        operands: array, or tree of arrays of one shape, which are reduced together.
        init_values: scalar, or tree of scalars; what the reduction starts from. How often it is
            combined is not defined, so that it should change nothing.
        computation: ``(a, b) -> c`` on scalars (trees of them like ``operands``); associative and
            commutative: the order is not defined.
        dimensions: distinct axes; the result lacks them.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    Returns:
        Array or tree of arrays; where there are no elements, the initial values.

    Raises:
        AxisError: an axis is out of range or named twice.
        TreeMismatchError: operands, initial values and results differ in structure.
        ShapeMismatchError: operands of different shapes, or a result that is no scalar.
        DtypeMismatchError: an initial value or a result has another dtype than its operand.

    >>> import tracebridge as tb
    >>> x = tb.numpy.array([3.0, 7.0, 5.0])
    >>> best = lambda a, b: tuple(tb.numpy.where(a[0] < b[0], q, p) for p, q in zip(a, b))
    >>> [float(v) for v in tb.lax.reduce((x, 2 * x), (-1.0, 0.0), best, (0,))]
    [7.0, 14.0]
    """
    xs, inits, tree = checked_operands("reduce", operands, init_values, computation)
    axes = tuple(sorted(as_axes("reduce", dimensions, xs[0].aval.ndim)))
    body = trace_computation("reduce", computation, xs, tree)
    outs = tree.unflatten(_reduced(body, xs, inits, axes))
    if out_sharding is None:
        return outs
    return constrained_result("reduce", outs, out_sharding)


def _reduced(body: Body, xs: Sequence[Any], inits: Sequence[Any], axes: tuple[int, ...]) -> Any:
    jaxpr = closed_jaxpr(body)
    if jaxpr is None:
        return _by_halves(combine_by(body.jaxpr, body.hoisted), [*xs, *inits], axes)
    monoid = monoid_of(jaxpr)
    if monoid and fits_monoid(monoid, xs[0].aval.dtype):
        primitive = getattr(lax, f"reduce_{monoid}_p")
        out = primitive.bind(xs[0], axes=axes) if axes else xs[0]
        if not is_identity(monoid, inits[0]):
            start = lax.broadcast_in_dim(inits[0], out.aval.shape, ())
            (out,) = combine_by(jaxpr)([start], [out])
        # As of any operation: weak only if all operands are.
        weak = xs[0].aval.weak_type and inits[0].aval.weak_type
        if weak != out.aval.weak_type:
            params = {"new_dtype": out.aval.dtype, "weak_type": weak}
            out = lax.convert_element_type_p.bind(out, **params)
        return [out]
    return reduce_p.bind(*xs, *inits, jaxpr=jaxpr, dimensions=axes)
