"""Collecting over named axes: all_gather and its transpose, psum_scatter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from tracebridge.core import lax
from tracebridge.core.collectives.axes import Collective, map_leaves, single_name, size_of_axis
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.errors.transform_errors import AxisSpecError
from tracebridge.core.ir.aval import ShapedArray


def _after_batch(axis: int, d: int) -> int:
    """Where ``axis`` of an element is in an array with its batch axis at ``d``."""
    return axis + (axis >= d)


@final
class AllGather(Collective):
    """Parameters ``axes`` (one name), ``size``, ``axis`` and ``tiled``."""

    name = "all_gather"

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        (x,) = avals
        axis, size = params["axis"], params["size"]
        if params["tiled"]:
            shape = (*x.shape[:axis], x.shape[axis] * size, *x.shape[axis + 1 :])
        else:
            shape = (*x.shape[:axis], size, *x.shape[axis:])
        return ShapedArray(shape, x.dtype)

    def resolve(self, x: Any, d: int | None, ctx: Any, **params: Any) -> tuple[Any, Any]:
        axis = params["axis"]
        given = d is not None
        x = lax.move_batch_axis(x, d, axis) if given else lax.broadcast_batch(x, ctx.size, axis)
        if params["tiled"]:
            shape = x.aval.shape
            merged = (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])
            x = lax.reshape(x, merged)
        return x, None

    def along(self, x: Any, d: int | None, **params: Any) -> tuple[Any, Any]:
        if d is None:
            return self.bind(x, **params), None
        axis = params["axis"]
        if params["tiled"]:
            return self.bind(x, **{**params, "axis": _after_batch(axis, d)}), d
        # The new axis comes before or after the batch axis, as it does without it.
        moved = lax.move_batch_axis(x, d, 0)
        return self.bind(moved, **{**params, "axis": axis + 1}), 0

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        return self.bind(*primals, **params), self.bind(*tangents, **params)

    def transpose(self, ct: Any, *args: Any, **params: Any) -> Sequence[Any]:
        return [reduce_scatter_p.bind(ct, **params)]


@final
class ReduceScatter(Collective):
    """The sum over a named axis, of which each element keeps its part of axis ``axis``."""

    name = "reduce_scatter"

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        (x,) = avals
        axis, size = params["axis"], params["size"]
        whole = x.shape[axis]
        if (whole % size if params["tiled"] else whole - size) != 0:
            kind = "a multiple of" if params["tiled"] else "equal to"
            msg = (
                f"psum_scatter: axis {axis} of {x.str_short()} must be {kind} the size {size} of "
                f"the axis {params['axes'][0]!r}"
            )
            raise ShapeMismatchError(msg)
        part = (whole // size,) if params["tiled"] else ()
        return ShapedArray((*x.shape[:axis], *part, *x.shape[axis + 1 :]), x.dtype)

    def resolve(self, x: Any, d: int | None, ctx: Any, **params: Any) -> tuple[Any, Any]:
        x = lax.reduce_sum(lax.to_front(x, d, ctx.size), (0,))
        axis = params["axis"]
        if params["tiled"]:
            shape = x.aval.shape
            part = shape[axis] // ctx.size
            x = lax.reshape(x, (*shape[:axis], ctx.size, part, *shape[axis + 1 :]))
        return x, axis

    def along(self, x: Any, d: int | None, **params: Any) -> tuple[Any, Any]:
        if d is None:
            return self.bind(x, **params), None
        moved = lax.move_batch_axis(x, d, 0)
        return self.bind(moved, **{**params, "axis": params["axis"] + 1}), 0

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        return self.bind(*primals, **params), self.bind(*tangents, **params)

    def transpose(self, ct: Any, *args: Any, **params: Any) -> Sequence[Any]:
        return [all_gather_p.bind(ct, **params)]


all_gather_p = AllGather()
reduce_scatter_p = ReduceScatter()


def _no_groups(call: str, groups: Any) -> None:
    if groups is not None:
        msg = f"{call}: axis_index_groups must be None, got {groups!r}"
        raise AxisSpecError(msg, hint="nest two vmaps with an axis name each")


def all_gather(
    x: Any,
    axis_name: Any,
    *,
    axis_index_groups: Any = None,
    axis: int = 0,
    tiled: bool = False,
) -> Any:
    """The values of all elements of a named axis, along a new array axis.

    Args:
        x: pytree of arrays.
        axis_name: a bound axis name.
        axis_index_groups: only ``None``.
        axis: where the new axis goes.
        tiled: concatenate along the existing axis ``axis`` instead.

    Returns:
        Pytree like ``x``, equal for all elements.

    Raises:
        UnboundAxisNameError: no surrounding transformation binds the name.

    >>> import tracebridge as tb
    >>> tb.vmap(lambda x: tb.lax.all_gather(x, "i"), axis_name="i")(tb.numpy.arange(2)).tolist()
    [[0, 1], [0, 1]]
    """
    _no_groups("all_gather", axis_index_groups)
    name = single_name("all_gather", axis_name)
    size = size_of_axis("all_gather", name)

    def gather(value: Any) -> Any:
        at = lax.as_axis("all_gather", axis, value.aval.ndim + (not tiled))
        return all_gather_p.bind(value, axes=(name,), size=size, axis=at, tiled=bool(tiled))

    return map_leaves(gather, x)


def psum_scatter(
    x: Any,
    axis_name: Any,
    *,
    scatter_dimension: int = 0,
    axis_index_groups: Any = None,
    tiled: bool = False,
) -> Any:
    """Sum over a named axis, of which element i keeps part i of one array axis.

    Args:
        x: pytree of arrays.
        axis_name: a bound axis name.
        scatter_dimension: the array axis to split; its size is that of the named axis.
        axis_index_groups: only ``None``.
        tiled: keep the array axis; its size is then a multiple of that of the named axis.

    Raises:
        UnboundAxisNameError: no surrounding transformation binds the name.
        ShapeMismatchError: the array axis cannot be split that way.

    >>> import tracebridge as tb
    >>> x = tb.numpy.array([[0, 1], [2, 3]])
    >>> tb.vmap(lambda x: tb.lax.psum_scatter(x, "i"), axis_name="i")(x).tolist()
    [2, 4]
    """
    _no_groups("psum_scatter", axis_index_groups)
    name = single_name("psum_scatter", axis_name)
    size = size_of_axis("psum_scatter", name)

    def scatter(value: Any) -> Any:
        at = lax.as_axis("psum_scatter", scatter_dimension, value.aval.ndim)
        return reduce_scatter_p.bind(value, axes=(name,), size=size, axis=at, tiled=bool(tiled))

    return map_leaves(scatter, x)
