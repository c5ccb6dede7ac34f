"""Other shapes for the same elements: reshape, squeeze, expand_dims, collapse."""

from __future__ import annotations

__all__ = ["collapse", "expand_dims", "reshape", "reshape_p", "squeeze", "squeeze_p"]

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core import lax
from tracebridge.core.errors.shape_errors import AxisError, ShapeMismatchError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.splits import entries_of, split_of
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.values import Literal
from tracebridge.core.lax.batch_util import move_batch_axis
from tracebridge.core.lax.families import Structural
from tracebridge.core.lax.shape.axes import as_axes, as_shape
from tracebridge.core.lax.shape.reshape_splits import reshaped_entries
from tracebridge.core.lax.sharding_constraint import constrained_result
from tracebridge.core.lax.unsplit import unsplit

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Operand, Value


class SameOrder(Structural):
    """Another shape for the same elements in row-major order."""

    cost = Cost.FREE

    def recipe(self, *avals: ShapedArray, **params: object) -> Any:
        """One operation without attributes; a rank-0 operand would be repeated first."""
        del params
        return ("stablehlo.reshape", None) if avals[0].ndim else None

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: object) -> Any:
        return ctx.reshape(operands[0], ctx.aval_out)

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        return [lax.reshape(ct, args[0].aval.shape)]


@final
class Reshape(SameOrder):
    """``new_sizes``: the shape of the result."""

    name = "reshape"

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        (x,) = avals
        out = x.update(shape=params["new_sizes"])
        if out.size != x.size:
            msg = (
                f"cannot reshape array of shape {x.shape} (size {x.size}) into shape {out.shape} "
                f"(size {out.size})"
            )
            raise ShapeMismatchError(msg)
        return out

    def split_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Any:
        del outs
        return [split_of(self.name, avals, reshaped_entries(avals[0], params["new_sizes"]))]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        (x,), (d,) = args, dims
        assert d is not None  # the only operand is batched
        sizes = params["new_sizes"]
        if d and d == x.aval.ndim - 1:
            return self.bind(x, new_sizes=(*sizes, ctx.size)), len(sizes)
        x = move_batch_axis(x, d, 0)
        return self.bind(x, new_sizes=(ctx.size, *sizes)), 0


@final
class Squeeze(SameOrder):
    """``dimensions``: the axes of size 1 that go, each in ``[0, ndim)``."""

    name = "squeeze"

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        (x,) = avals
        dims = params["dimensions"]
        wrong = [d for d in dims if x.shape[d] != 1]
        if wrong:
            msg = (
                f"squeeze: axis {wrong[0]} of shape {x.shape} has size {x.shape[wrong[0]]}, "
                "expected 1"
            )
            raise ShapeMismatchError(msg)
        shape = tuple([n for i, n in enumerate(x.shape) if i not in dims])
        return x.update(shape=shape)

    def split_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Any:
        del outs
        dims = params["dimensions"]
        entries = [e for i, e in enumerate(entries_of(avals[0])) if i not in dims]
        return [split_of(self.name, avals, tuple(entries))]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        del ctx
        (x,), (d,) = args, dims
        assert d is not None  # the only operand is batched
        axes = tuple([i + (i >= d) for i in params["dimensions"]])
        return self.bind(x, dimensions=axes), d - sum([i < d for i in axes])


reshape_p = Reshape()
squeeze_p = Squeeze()


def reshape(
    operand: Any,
    new_sizes: object,
    dimensions: Sequence[int] | None = None,
    *,
    out_sharding: object = None,
) -> Any:
    """The elements of ``operand`` in row-major order, in a new shape of the same size.

    Args:
        operand: an array.
        new_sizes: the new shape; its product is the number of elements.
        dimensions: order in which to read the axes of ``operand`` (default: as they are).
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    Raises:
        ShapeMismatchError: the number of elements differs, or a size is negative.

    >>> import tracebridge as tb
    >>> tb.lax.reshape(tb.numpy.arange(4), (2, 2)).tolist()
    [[0, 1], [2, 3]]
    """
    x = as_value(operand)
    if out_sharding is not None:
        x = unsplit(x)
    if dimensions is not None and tuple(dimensions) != tuple(range(x.aval.ndim)):
        x = lax.transpose(x, tuple(dimensions))
    shape = as_shape("reshape", new_sizes)
    if shape != x.aval.shape or type(x) is Literal:
        x = reshape_p.bind(x, new_sizes=shape)
    return x if out_sharding is None else constrained_result("reshape", x, out_sharding)


def squeeze(array: Operand, dimensions: Sequence[int]) -> Any:
    """``array`` without some axes of size 1.

    Args:
        array: an array of ``ndim`` axes.
        dimensions: which axes to drop, each in ``[-ndim, ndim)``.

    Raises:
        AxisError: an axis is out of range or repeated.
        ShapeMismatchError: an axis has another size than 1.

    >>> import tracebridge as tb
    >>> tb.lax.squeeze(tb.numpy.zeros((1, 2, 1)), (0, -1)).shape
    (2,)
    """
    x = as_value(array)
    dims = tuple(sorted(as_axes("squeeze", dimensions, x.aval.ndim)))
    if not dims and type(x) is not Literal:
        return x
    return squeeze_p.bind(x, dimensions=dims)


def expand_dims(array: Operand, dimensions: Sequence[int]) -> Any:
    """``array`` with new axes of size 1.

    Args:
        array: an array of ``ndim`` axes.
        dimensions: where the new axes are in the result, each in ``[-n, n)`` with
            ``n = ndim + len(dimensions)``.

    Raises:
        AxisError: an axis is out of range or repeated.

    >>> import tracebridge as tb
    >>> tb.lax.expand_dims(tb.numpy.zeros(2), (0, -1)).shape
    (1, 2, 1)
    """
    x = as_value(array)
    new = as_axes("expand_dims", dimensions, x.aval.ndim + len(tuple(dimensions)))
    sizes = list(x.aval.shape)
    for d in sorted(new):
        sizes.insert(d, 1)
    kept = tuple([i for i in range(len(sizes)) if i not in new])
    return lax.broadcast_in_dim(x, tuple(sizes), kept)


def collapse(operand: Operand, start_dimension: int, stop_dimension: int | None = None) -> Any:
    """``operand`` with the axes ``start_dimension`` to ``stop_dimension`` (exclusive) as one.

    Args:
        operand: an array of ``ndim`` axes.
        start_dimension: first axis, in ``[-ndim, ndim)``.
        stop_dimension: the axis after the last one, in ``[-ndim, ndim]``; ``None`` is ``ndim``.

    Raises:
        AxisError: the range is empty or out of bounds.

    >>> import tracebridge as tb
    >>> tb.lax.collapse(tb.numpy.zeros((2, 3, 4)), 1).shape
    (2, 12)
    """
    x = as_value(operand)
    ndim = x.aval.ndim
    start = operator.index(start_dimension)
    stop = ndim if stop_dimension is None else operator.index(stop_dimension)
    low = start + ndim if start < 0 else start
    high = stop + ndim if stop < 0 else stop
    if not 0 <= low < high <= ndim:
        msg = (
            f"collapse: axes {start} to {stop_dimension} of an array of {ndim} axes are not a "
            "range with at least one axis"
        )
        raise AxisError(msg)
    size: Any = 1
    for n in x.aval.shape[low:high]:
        size = size * n
    return lax.reshape(x, (*x.aval.shape[:low], size, *x.aval.shape[high:]))
