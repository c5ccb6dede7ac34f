"""Collecting over named axes: all_gather and its transpose, psum_scatter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core import lax
from tracebridge.core.collectives.axes import (
    Collective,
    axis_names,
    bound_names,
    by_group,
    checked_groups,
    from_groups,
    map_leaves,
    size_of_axis,
)
from tracebridge.core.collectives.casts import known_same, pcast
from tracebridge.core.collectives.replicas import all_gather as all_gather_op
from tracebridge.core.collectives.replicas import reduce_scatter as scatter_op
from tracebridge.core.dtypes.dtypes import is_bool
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.errors.transform_errors import AxisSpecError
from tracebridge.core.ir.aval import ShapedArray, batched_aval
from tracebridge.core.lax.batch_util import broadcast_batch, move_batch_axis, to_front
from tracebridge.core.lax.shape.axes import as_axis

if TYPE_CHECKING:
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Value


def _after_batch(axis: int, d: int) -> int:
    """Where ``axis`` of an element is in an array with its batch axis at ``d``."""
    return axis + (axis >= d)


@final
class AllGather(Collective):
    """Parameters ``axes`` (one name), ``size``, ``axis``, ``tiled`` and ``axis_index_groups``.

    ``size`` is the number of elements of the axis, or of each group.
    """

    name = "all_gather"
    makes_nan = False
    unites = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        (x,) = avals
        axis, size = params["axis"], params["size"]
        if params["tiled"]:
            shape = (*x.shape[:axis], x.shape[axis] * size, *x.shape[axis + 1 :])
        else:
            shape = (*x.shape[:axis], size, *x.shape[axis:])
        return x.update(shape=shape, weak_type=False)

    def entries(self, given: list[Any], **params: Any) -> list[Any]:
        axis = params["axis"]
        return given if params["tiled"] else [*given[:axis], None, *given[axis:]]

    def resolve(self, x: Any, d: int | None, ctx: BatchContext, **params: Any) -> tuple[Any, Any]:
        axis, groups = params["axis"], params["axis_index_groups"]
        if groups is not None:
            parts = move_batch_axis(by_group(x, d, ctx.size, groups), 1, axis + 1)
            gathered = _merged(parts, axis + 1) if params["tiled"] else parts
            return from_groups(broadcast_batch(gathered, len(groups[0]), 1), groups), 0
        given = d is not None
        x = move_batch_axis(x, d, axis) if given else broadcast_batch(x, ctx.size, axis)
        return (_merged(x, axis) if params["tiled"] else x), None

    def communicate(self, ctx: LoweringContext, x: Any, groups: Any, **params: Any) -> Any:
        axis = params["axis"]
        if not params["tiled"]:
            x = ctx.reshape(x, batched_aval(ctx.avals_in[0], 1, axis))
        return all_gather_op(ctx, x, ctx.aval_out, groups, axis)

    def along(self, x: Any, d: int | None, **params: Any) -> tuple[Any, Any]:
        if d is None:
            return self.bind(x, **params), None
        axis = params["axis"]
        if params["tiled"]:
            return self.bind(x, **{**params, "axis": _after_batch(axis, d)}), d
        # The new axis comes before or after the batch axis, as it does without it.
        moved = move_batch_axis(x, d, 0)
        return self.bind(moved, **{**params, "axis": axis + 1}), 0

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Any], **params: Any) -> Any:
        return self.bind(*primals, **params), self.bind(*tangents, **params)

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        return [reduce_scatter_p.bind(ct, **params)]


@final
class ReduceScatter(Collective):
    """The sum over a named axis, of which each element keeps its part of axis ``axis``."""

    name = "reduce_scatter"

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        (x,) = avals
        axis, size = params["axis"], params["size"]
        if is_bool(x.dtype):
            raise UnsupportedDtypeError("psum_scatter works on numbers, got bool")
        whole = x.shape[axis]
        if (whole % size if params["tiled"] else whole - size) != 0:
            kind = "a multiple of" if params["tiled"] else "equal to"
            msg = (
                f"psum_scatter: axis {axis} of {x.str_short()} must be {kind} the size {size} of "
                f"the axis {params['axes'][0]!r}"
            )
            raise ShapeMismatchError(msg)
        part = (whole // size,) if params["tiled"] else ()
        return x.update(shape=(*x.shape[:axis], *part, *x.shape[axis + 1 :]), weak_type=False)

    def entries(self, given: list[Any], **params: Any) -> list[Any]:
        axis = params["axis"]
        return given if params["tiled"] else [*given[:axis], *given[axis + 1 :]]

    def resolve(self, x: Any, d: int | None, ctx: BatchContext, **params: Any) -> tuple[Any, Any]:
        axis, groups = params["axis"], params["axis_index_groups"]
        if groups is not None:
            x = lax.reduce_sum(by_group(x, d, ctx.size, groups), (1,))
            x = _split(x, axis + 1, params["size"]) if params["tiled"] else x
            return from_groups(move_batch_axis(x, axis + 1, 1), groups), 0
        x = lax.reduce_sum(to_front(x, d, ctx.size), (0,))
        return (_split(x, axis, ctx.size) if params["tiled"] else x), axis

    def communicate(self, ctx: LoweringContext, x: Any, groups: Any, **params: Any) -> Any:
        axis, out = params["axis"], ctx.aval_out
        if params["tiled"]:
            return scatter_op(ctx, x, out, groups, axis)
        part = batched_aval(out, 1, axis)
        return ctx.reshape(scatter_op(ctx, x, part, groups, axis), out)

    def along(self, x: Any, d: int | None, **params: Any) -> tuple[Any, Any]:
        if d is None:
            return self.bind(x, **params), None
        moved = move_batch_axis(x, d, 0)
        return self.bind(moved, **{**params, "axis": params["axis"] + 1}), 0

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Any], **params: Any) -> Any:
        return self.bind(*primals, **params), self.bind(*tangents, **params)

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        return [all_gather_p.bind(ct, **params)]


all_gather_p = AllGather()
reduce_scatter_p = ReduceScatter()


def _merged(x: Value, axis: int) -> Any:
    """``x`` with ``axis`` and the next as one."""
    shape = x.aval.shape
    return lax.reshape(x, (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]))


def _split(x: Value, axis: int, size: object) -> Any:
    """``x`` with ``axis`` as two, of which the first has ``size``."""
    shape = x.aval.shape
    return lax.reshape(x, (*shape[:axis], size, shape[axis] // size, *shape[axis + 1 :]))


def _sizes(
    call: str, axis_name: object, groups: object
) -> tuple[list[tuple[Any, ...]], list[Any], Any]:
    """Axes of each step, their sizes (those of groups, if there are some), the checked groups."""
    names = bound_names(call, axis_name)
    if not names:
        raise AxisSpecError(f"{call}: got no axis name", expected="a name, or a tuple of names")
    found = checked_groups(call, names, groups)
    if found is not None:
        # Groups are of positions along all axes together.
        return [names], [len(found[0])], found
    return [(name,) for name in names], [size_of_axis(call, name) for name in names], found


def all_gather(
    x: object,
    axis_name: object,
    *,
    axis_index_groups: object = None,
    axis: int = 0,
    tiled: bool = False,
    to: str = "varying",
) -> Any:
    """The values of all elements of a named axis, along a new array axis.

    Args:
        x: pytree of arrays.
        axis_name: a bound axis name, or a tuple of them, of which the last runs fastest.
        axis_index_groups: groups of positions along the axes, of one length; each group
            is on its own.
        axis: where the new axis goes.
        tiled: concatenate along the existing axis ``axis`` instead.
        to: ``"varying"`` or ``"invarying"``, what types inside of ``shard_map`` say of the result;
            ``"reduced"``: all devices have it, and each one its part of its cotangent.

    Returns:
        Pytree like ``x``, equal for all elements.

    Raises:
        UnboundAxisNameError: no surrounding transformation binds the name.
        ArgumentValueError: another *to*.

    >>> import tracebridge as tb
    >>> tb.vmap(lambda x: tb.lax.all_gather(x, "i"), axis_name="i")(tb.numpy.arange(2)).tolist()
    [[0, 1], [0, 1]]
    """
    if to not in ("varying", "invarying", "reduced"):
        msg = f"all_gather: to is {to!r}"
        raise ArgumentValueError(msg, expected="'varying', 'invarying' or 'reduced'")
    names, sizes, groups = _sizes("all_gather", axis_name, axis_index_groups)

    def gather(value: Value) -> Any:
        at = as_axis("all_gather", axis, value.aval.ndim + (not tiled))
        # The last name runs fastest; after it the new axis is there to be concatenated.
        joined = bool(tiled)
        for name, size in zip(names[::-1], sizes[::-1], strict=True):
            value = all_gather_p.bind(
                value, axes=name, size=size, axis=at, tiled=joined, axis_index_groups=groups
            )
            joined = True
        if to == "reduced":
            return pcast(value, tuple(axis_names(axis_name)), to=to)
        return known_same(value, axis_names(axis_name)) if to == "invarying" else value

    return map_leaves(gather, x)


def psum_scatter(
    x: object,
    axis_name: object,
    *,
    scatter_dimension: int = 0,
    axis_index_groups: object = None,
    tiled: bool = False,
) -> Any:
    """Sum over a named axis, of which element i keeps part i of one array axis.

    Args:
        x: pytree of arrays.
        axis_name: a bound axis name, or a tuple of them, of which the last runs fastest.
        scatter_dimension: the array axis to split; its size is that of the named axis.
        axis_index_groups: groups of positions along the axes, of one length; each group
            is on its own.
        tiled: keep the array axis; its size is then a multiple of that of the named axis.

    Raises:
        UnboundAxisNameError: no surrounding transformation binds the name.
        ShapeMismatchError: the array axis cannot be split that way.

    >>> import tracebridge as tb
    >>> x = tb.numpy.array([[0, 1], [2, 3]])
    >>> tb.vmap(lambda x: tb.lax.psum_scatter(x, "i"), axis_name="i")(x).tolist()
    [2, 4]
    """
    names, sizes, groups = _sizes("psum_scatter", axis_name, axis_index_groups)

    def scatter(value: Value) -> Any:
        at = as_axis("psum_scatter", scatter_dimension, value.aval.ndim)
        last = len(names) - 1
        for i, (name, size) in enumerate(zip(names, sizes, strict=True)):
            # The array axis goes when the last name has taken its part.
            value = reduce_scatter_p.bind(
                value,
                axes=name,
                size=size,
                axis=at,
                tiled=bool(tiled) or i < last,
                axis_index_groups=groups,
            )
        return value

    return map_leaves(scatter, x)
