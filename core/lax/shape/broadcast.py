"""broadcast_in_dim, which places axes in a larger shape, and what is made of it."""

from __future__ import annotations

__all__ = [
    "broadcast", "broadcast_in_dim", "broadcast_in_dim_p", "broadcast_like", "broadcast_shapes",
    "broadcast_to_rank",
]  # fmt: skip

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core import lax
from tracebridge.core.errors.shape_errors import BroadcastError, RankError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.splits import entries_of, split_of
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.values import Literal
from tracebridge.core.lax.families import Structural
from tracebridge.core.lax.shape.axes import as_dims, as_shape
from tracebridge.core.lax.sharding_constraint import constrained_result
from tracebridge.core.mlir.attrs import i64_array

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Operand, Value


@final
class BroadcastInDim(Structural):
    """``shape``: of the result; ``broadcast_dimensions``: where the axes of the operand go."""

    name = "broadcast_in_dim"
    cost = Cost.FREE

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        (x,) = avals
        shape, dims = params["shape"], params["broadcast_dimensions"]
        if (
            len(dims) != x.ndim
            or list(dims) != sorted(set(dims))
            or any([not 0 <= d < len(shape) for d in dims])
        ):
            msg = (
                f"broadcast_in_dim: broadcast_dimensions {dims} must be {x.ndim} increasing axes "
                f"of the result shape {shape}, one for each axis of {x.str_short()}"
            )
            raise BroadcastError(msg)
        for i, d in enumerate(dims):
            size = x.shape[i]
            if not (type(size) is int and size == 1) and size != shape[d]:
                msg = f"broadcast_in_dim: cannot repeat shape {x.shape} to {shape} on axes {dims}"
                raise BroadcastError(msg, hint="only axes of size 1 are repeated")
        return x.update(shape=shape)

    def split_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Any:
        del outs
        (x,) = avals
        entries: list[Any] = [None] * len(params["shape"])
        for entry, axis in zip(entries_of(x), params["broadcast_dimensions"], strict=True):
            entries[axis] = entry
        return [split_of(self.name, avals, tuple(entries))]

    def recipe(self, *avals: ShapedArray, **params: Any) -> Any:
        """One operation; literals become splat constants of the result."""
        if avals[0].ndim == 0:
            return None
        return "stablehlo.broadcast_in_dim", {
            "broadcast_dimensions": i64_array(params["broadcast_dimensions"])
        }

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        return ctx.broadcast_in_dim(operands[0], ctx.aval_out, params["broadcast_dimensions"])

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        (x,) = args
        shape, dims = params["shape"], params["broadcast_dimensions"]
        kept = {d for d, n in zip(dims, x.aval.shape, strict=True) if n == shape[d]}
        # Summing over an axis of size 1 would be a reduction that reshape does for nothing.
        axes = tuple([i for i, n in enumerate(shape) if i not in kept and n != 1])
        ct = lax.reduce_sum(ct, axes) if axes else ct
        return [ct if ct.aval.shape == x.aval.shape else lax.reshape(ct, x.aval.shape)]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        (x,), (d,) = args, dims
        assert d is not None  # the only operand is batched
        shape, placed = params["shape"], params["broadcast_dimensions"]
        # Right after the axis that precedes the batch axis in the operand: nothing is transposed.
        at = placed[d - 1] + 1 if d else 0
        moved = [i + (i >= at) for i in placed]
        moved.insert(d, at)
        shape = (*shape[:at], ctx.size, *shape[at:])
        return self.bind(x, shape=shape, broadcast_dimensions=tuple(moved)), at


broadcast_in_dim_p: Primitive = BroadcastInDim()


def broadcast_in_dim(
    operand: Any, shape: object, broadcast_dimensions: Sequence[int], *, out_sharding: object = None
) -> Any:
    """Repeat ``operand`` to ``shape``.

    Args:
        operand: array with ``len(broadcast_dimensions)`` axes.
        shape: shape of the result.
        broadcast_dimensions: different axes of the result that the operand's axes become; sizes
            must agree or be 1 in the operand.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    Raises:
        BroadcastError: the sizes or axes do not fit.

    >>> import tracebridge as tb
    >>> tb.lax.broadcast_in_dim(tb.numpy.arange(2), (3, 2), (1,)).tolist()
    [[0, 1], [0, 1], [0, 1]]
    """
    x = as_value(operand)
    shape, dims = as_shape("broadcast_in_dim", shape), as_dims(broadcast_dimensions)
    if len(dims) == x.aval.ndim == len(set(dims)) and list(dims) != sorted(dims):
        order = tuple(sorted(range(len(dims)), key=dims.__getitem__))
        x, dims = lax.transpose(x, order), tuple(sorted(dims))
    same = x.aval.shape == shape and dims == tuple(range(len(shape)))
    if not same or type(x) is Literal:
        x = broadcast_in_dim_p.bind(x, shape=shape, broadcast_dimensions=dims)
    if out_sharding is not None:
        return constrained_result("broadcast_in_dim", x, out_sharding)
    return x


def broadcast(operand: Operand, sizes: object, *, out_sharding: object = None) -> Any:
    """``operand`` repeated along new leading axes of ``sizes``.

    Args:
        operand: an array.
        sizes: sizes of the new axes.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    >>> import tracebridge as tb
    >>> tb.lax.broadcast(tb.numpy.arange(2), (3,)).tolist()
    [[0, 1], [0, 1], [0, 1]]
    """
    x = as_value(operand)
    new = as_shape("broadcast", sizes)
    dims = tuple(range(len(new), len(new) + x.aval.ndim))
    out = broadcast_in_dim(x, (*new, *x.aval.shape), dims)
    return out if out_sharding is None else constrained_result("broadcast", out, out_sharding)


def broadcast_to_rank(x: Operand, rank: int) -> Any:
    """``x`` with as many leading axes of size 1 as it takes to have ``rank`` axes.

    Raises:
        RankError: the array has more axes than that.

    >>> import tracebridge as tb
    >>> tb.lax.broadcast_to_rank(tb.numpy.arange(2), 3).shape
    (1, 1, 2)
    """
    value = as_value(x)
    missing = rank - value.aval.ndim
    if missing < 0:
        msg = f"broadcast_to_rank: {value.aval.str_short()} has more than {rank} axes"
        raise RankError(msg)
    return broadcast(value, (1,) * missing) if missing else value


def broadcast_like(arr: Operand, like_arr: object) -> Any:
    """``arr`` repeated to the shape of ``like_arr`` by NumPy's rules; the dtype stays.

    Raises:
        BroadcastError: sizes differ and that of ``arr`` is not 1, or it has more axes.

    >>> import tracebridge as tb
    >>> tb.lax.broadcast_like(tb.numpy.arange(2), tb.numpy.zeros((3, 2))).tolist()
    [[0, 1], [0, 1], [0, 1]]
    """
    x, shape = as_value(arr), as_value(like_arr).aval.shape
    missing = len(shape) - x.aval.ndim
    if missing < 0:
        msg = f"broadcast_like: {x.aval.str_short()} has more axes than the shape {shape}"
        raise BroadcastError(msg)
    return broadcast_in_dim(x, shape, tuple(range(missing, len(shape))))


def broadcast_shapes(*shapes: object) -> tuple[Any, ...]:
    """The shape that arrays of ``shapes`` have after NumPy's broadcasting.

    Args:
        shapes: sequences of sizes. Axes are aligned at the end; sizes must agree or be 1.

    Raises:
        BroadcastError: two sizes differ and neither is 1.

    >>> import tracebridge as tb
    >>> tb.lax.broadcast_shapes((2, 1), (3,), ())
    (2, 3)
    """
    tuples = [as_shape("broadcast_shapes", s) for s in shapes]
    if not tuples:
        return ()
    first = tuples[0]
    if all([s == first for s in tuples]):
        return first
    rank = max([len(s) for s in tuples])
    padded = [(1,) * (rank - len(s)) + s for s in tuples]
    return tuple([_common_size(sizes, tuples) for sizes in zip(*padded, strict=True)])


def _common_size(sizes: Sequence[object], shapes: Sequence[object]) -> Any:
    """The size that is not 1."""
    found: Any = 1
    for n in sizes:
        if type(n) is int and n == 1:
            continue
        if type(found) is int and found == 1:
            found = n
        elif n != found:
            got = ", ".join(map(str, shapes))
            msg = (
                f"broadcast_shapes: Incompatible shapes for broadcasting: {got}: "
                f"sizes {found} and {n} differ"
            )
            raise BroadcastError(msg, hint="aligned at the end, sizes must agree or be 1")
    return found
