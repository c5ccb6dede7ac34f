"""What gather and scatter share: modes, dimension numbers, checks, index arithmetic."""

from __future__ import annotations

__all__ = ["GatherDimensionNumbers", "GatherScatterMode", "ScatterDimensionNumbers"]

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracebridge.core.dtypes.dtypes import is_integer
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.dtype_errors import DtypeMismatchError
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.lax.shape.axes import as_dims
from tracebridge.core.util.public_path import public_path

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import LoweringContext


_I32 = np.dtype(np.int32)
_I64 = np.dtype(np.int64)
_BOOL = np.dtype(np.bool_)

Axes = tuple[int, ...]


@public_path("tracebridge.lax")
class GatherScatterMode(enum.Enum):
    """What happens with windows that leave the operand.

    ``CLIP`` moves them inwards. ``FILL_OR_DROP`` fills gathered windows with a value and drops
    updates. ``PROMISE_IN_BOUNDS`` says that there are none; where the promise is broken, any
    element may be read, and updates may be lost. ``ONE_HOT`` is ``FILL_OR_DROP``; functions that
    can, such as ``take_along_axis``, compute it by a contraction.

    >>> import tracebridge as tb
    >>> tb.lax.GatherScatterMode.from_any("clip")
    <GatherScatterMode.CLIP: 1>
    """

    CLIP = enum.auto()
    FILL_OR_DROP = enum.auto()
    PROMISE_IN_BOUNDS = enum.auto()
    ONE_HOT = enum.auto()

    @staticmethod
    def from_any(s: Any) -> GatherScatterMode:
        """The mode of a name; ``None`` is ``FILL_OR_DROP``."""
        if isinstance(s, GatherScatterMode):
            return s
        found = _MODES.get(s.lower() if isinstance(s, str) else s)
        if found is None:
            names = ", ".join([repr(n) for n in _MODES if n])
            msg = f"gather/scatter: mode {s!r} is unknown, expected one of {names}"
            raise ArgumentValueError(msg)
        return found


_MODES: dict[str | None, GatherScatterMode] = {
    None: GatherScatterMode.FILL_OR_DROP,
    "clip": GatherScatterMode.CLIP,
    "fill": GatherScatterMode.FILL_OR_DROP,
    "drop": GatherScatterMode.FILL_OR_DROP,
    "promise_in_bounds": GatherScatterMode.PROMISE_IN_BOUNDS,
    "one_hot": GatherScatterMode.ONE_HOT,
}


@public_path("tracebridge.lax")
class GatherDimensionNumbers(NamedTuple):
    """Which axes of a gather mean what; the index vector is the last axis of the indices.

    Attributes:
        offset_dims: axes of the result that come from the window, increasing.
        collapsed_slice_dims: axes of the operand with window size 1 that the result lacks.
        start_index_map: the operand's axis for each entry of an index vector.
        operand_batching_dims: axes of the operand that are walked together with the indices.
        start_indices_batching_dims: the axes of the indices that go with them.

    >>> import tracebridge as tb
    >>> tb.lax.GatherDimensionNumbers((), (0,), (0,)).start_index_map
    (0,)
    """

    offset_dims: Axes
    collapsed_slice_dims: Axes
    start_index_map: Axes
    operand_batching_dims: Axes = ()
    start_indices_batching_dims: Axes = ()


@public_path("tracebridge.lax")
class ScatterDimensionNumbers(NamedTuple):
    """Which axes of a scatter mean what; the index vector is the last axis of the indices.

    Attributes:
        update_window_dims: axes of the updates that are the window, increasing.
        inserted_window_dims: axes of the operand with window size 1 that the updates lack.
        scatter_dims_to_operand_dims: the operand's axis for each entry of an index vector.
        operand_batching_dims: axes of the operand that are walked together with the indices.
        scatter_indices_batching_dims: the axes of the indices that go with them.

    >>> import tracebridge as tb
    >>> tb.lax.ScatterDimensionNumbers((), (0,), (0,)).inserted_window_dims
    (0,)
    """

    update_window_dims: Axes
    inserted_window_dims: Axes
    scatter_dims_to_operand_dims: Axes
    operand_batching_dims: Axes = ()
    scatter_indices_batching_dims: Axes = ()


# checks ------------------------------------------------------------------------------------------


def check_index_numbers(
    call: str,
    operand: ShapedArray,
    indices: ShapedArray,
    collapsed: Axes,
    index_map: Axes,
    batching: tuple[Axes, Axes],
) -> None:
    """Raise unless the axes that gather and scatter share make sense."""
    if not is_integer(indices.dtype):
        msg = f"{call}: indices must be integers, got {indices.str_short()}"
        raise DtypeMismatchError(msg, hint="convert them with convert_element_type")
    if not indices.ndim:
        msg = f"{call}: indices need at least one axis (the index vector), got a scalar"
        raise RankError(msg)
    of_operand, of_indices = batching
    depth = indices.shape[-1]
    if len(index_map) != depth:
        msg = (
            f"{call}: index vectors have {depth} entries (last axis of {indices.str_short()}), "
            f"but {index_map} names {len(index_map)} axes of the operand"
        )
        raise ShapeMismatchError(msg)
    fields = GatherDimensionNumbers if call == "gather" else ScatterDimensionNumbers
    all_axes = (collapsed, index_map, of_operand, of_indices)
    named = dict(zip(fields._fields[1:], all_axes, strict=True))
    op = "gather" if call == "gather" else "scatter"
    for position, (field, axes) in enumerate(named.items()):
        ndim = operand.ndim if position < 3 else indices.ndim - 1
        _check_axes_of(call, f"{field} in {op} op", axes, ndim, position in (0, 2))
    for field, axes in list(named.items())[:2]:
        if set(of_operand) & set(axes):
            msg = (
                f"{call}: {field} and operand_batching_dims in {op} op must be disjoint, got "
                f"{axes} and {of_operand}"
            )
            raise ShapeMismatchError(msg)
    sizes = [operand.shape[a] for a in of_operand], [indices.shape[a] for a in of_indices]
    if sizes[0] != sizes[1]:
        msg = (
            f"{call}: batching axes have sizes {sizes[0]} in the operand and {sizes[1]} in the "
            "indices"
        )
        raise ShapeMismatchError(msg)


def _check_axes_of(call: str, what: str, axes: Axes, ndim: int, increasing: bool) -> None:
    if increasing and list(axes) != sorted(axes):
        msg = f"{call}: {what} must be sorted, got {axes}"
        raise ShapeMismatchError(msg)
    if len(set(axes)) != len(axes):
        msg = f"{call}: {what} must not repeat, got {axes}"
        raise ShapeMismatchError(msg)
    if any([not 0 <= a < ndim for a in axes]):
        msg = f"{call}: {what} must be in [0, {ndim}), got {axes}"
        raise ShapeMismatchError(msg)


def check_window_axes(call: str, axes: Axes, expected: int, ndim: int) -> None:
    """Raise unless the axes of the window in the result or updates make sense."""
    good = list(axes) == sorted(set(axes)) and all([0 <= a < ndim for a in axes])
    if not good or len(axes) != expected:
        msg = (
            f"{call}: the window has {expected} axes, expected as many increasing numbers in "
            f"[0, {ndim}), got {axes}"
        )
        raise ShapeMismatchError(msg)


# lowering ----------------------------------------------------------------------------------------


def signed_indices(
    ctx: LoweringContext, indices: IrValue, aval: ShapedArray
) -> tuple[Any, ShapedArray]:
    """While lowering: the indices as int32 or int64, in which all positions can be written.

    XLA computes bounds in the dtype of the indices, where they may wrap to negative numbers.
    """
    dtype = aval.dtype
    if dtype in (_I32, _I64):
        return indices, aval
    wide = aval.update(dtype=_I32 if dtype.itemsize < 4 else _I64)
    if dtype == np.uint64:
        limit = ctx.splat(2**63 - 1, aval)
        indices = ctx.op1("stablehlo.minimum", [indices, limit], aval)
    return ctx.convert(indices, wide), wide


def index_limits(
    ctx: LoweringContext, aval: ShapedArray, shape: Any, window: Any, index_map: Axes
) -> Any:
    """While lowering: the largest in-bounds index vector, repeated to the shape of ``aval``."""
    limits = [shape[a] - window[a] for a in index_map]
    vector = aval.update(shape=(len(limits),))
    if all([type(n) is int for n in limits]):
        greatest = np.iinfo(aval.dtype).max
        values = ctx.dense(np.asarray([min(n, greatest) for n in limits], aval.dtype))
    else:
        values = ctx.shape_tensor(limits)
        if aval.dtype != _I32:
            values = ctx.convert(values, vector)
    return ctx.broadcast_in_dim(values, aval, (aval.ndim - 1,))


def clipped_indices(
    ctx: LoweringContext,
    indices: IrValue,
    aval: ShapedArray,
    shape: object,
    window: object,
    index_map: Axes,
) -> Any:
    """While lowering: indices moved inwards until the window fits."""
    if not index_map:
        return indices
    limits = index_limits(ctx, aval, shape, window, index_map)
    zeros = ctx.splat(0, aval)
    return ctx.op1("stablehlo.clamp", [zeros, indices, limits], aval)


def in_bounds(
    ctx: LoweringContext,
    indices: IrValue,
    aval: ShapedArray,
    shape: object,
    window: object,
    index_map: Axes,
) -> tuple[Any, ShapedArray]:
    """While lowering: for each index vector, whether its window lies in the operand."""
    flags = aval.update(dtype=_BOOL)
    limits = index_limits(ctx, aval, shape, window, index_map)
    above = ctx.compare(indices, ctx.splat(0, aval), flags, "GE", "SIGNED")
    below = ctx.compare(indices, limits, flags, "LE", "SIGNED")
    both = ctx.op1("stablehlo.and", [above, below], flags)
    result = flags.update(shape=aval.shape[:-1])
    scalar = flags.update(shape=())

    def conjunction(a: Sequence[Any], b: Sequence[Any]) -> Sequence[Any]:
        return [ctx.op1("stablehlo.and", [a[0], b[0]], scalar)]

    init = ctx.splat(True, scalar)
    reduced = ctx.reduce([both], [init], [result], [aval.ndim - 1], conjunction)[0]
    return reduced, result


def as_axes_tuple(axes: Sequence[object]) -> Axes:
    """Axes as a tuple of ints."""
    return tuple(as_dims(axes))
