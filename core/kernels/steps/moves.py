"""Equations that move elements: most are other views of the same memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tracebridge.core import lax
from tracebridge.core.kernels.steps.boxes import Number, joined, padded, part_of, rolled
from tracebridge.core.kernels.steps.values import Known, NotWritten, Open
from tracebridge.core.kernels.steps.views import View, without_ones

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application
    from tracebridge.core.kernels.steps.plan import Plan

_BOUNDS = ("start_indices", "limit_indices", "strides")
_LEAST_IN_PARTS = 1 << 11
"""Elements of an array that is read where its parts are: a smaller one is sooner copied."""


def _reshape(plan: Plan, app: Application, args: Sequence[int], *_: Any) -> Known:
    (a, *_rest), shape = args, app.out.shape
    value = plan.values[a]
    if isinstance(value, Number) or (
        isinstance(value, Open) and without_ones(value.shape) == without_ones(shape)
    ):
        return value._replace(shape=shape)
    view = plan.memory(a)
    found = view.reshaped(shape)
    if found is None:
        found = plan.copied(view, plan.where(plan.fixed[a])).reshaped(shape)
        assert found is not None  # its elements lie one after another
    return found


def _broadcast(plan: Plan, app: Application, args: Sequence[int], *_: Any) -> Known:
    value, shape = plan.values[args[0]], app.out.shape
    if isinstance(value, Number):
        return value._replace(shape=shape)
    if isinstance(value, Open) and without_ones(value.shape) == without_ones(shape):
        return value._replace(shape=shape)
    return plan.memory(args[0]).broadcast(shape, app.params["broadcast_dimensions"])


def split(plan: Plan, app: Application, args: Sequence[int]) -> list[Known]:
    """The parts of an array along an axis."""
    view, axis, at = plan.memory(args[0]), app.params["axis"], 0
    found: list[Known] = []
    for size in app.params["sizes"]:
        found.append(_along(view, axis, at, size))
        at += size
    return found


def _along(view: View, axis: int, start: int, size: int) -> View:
    """A part of an array along an axis."""
    starts, limits = [0] * len(view.shape), list(view.shape)
    starts[axis], limits[axis] = start, start + size
    return view.part(starts, limits, [1] * len(starts))


def _slice(plan: Plan, app: Application, args: Sequence[int], *_: Any) -> Known:
    params = app.params
    starts, limits, steps = [params[name] for name in _BOUNDS]
    if app.avals[0].size < _LEAST_IN_PARTS or (steps and any([step != 1 for step in steps])):
        view = plan.memory(args[0])
        return view.part(starts, limits, steps or [1] * len(view.shape))
    return plan.moved(args[0], app.out.shape, lambda x: part_of(x, starts, limits))


def _roll(plan: Plan, app: Application, args: Sequence[int], *_: Any) -> Known:
    shift, axis = app.params["shift"], app.params["dimension"]
    return plan.moved(args[0], app.out.shape, lambda x: rolled(x, shift, axis))


def _transpose(plan: Plan, app: Application, args: Sequence[int], *_: Any) -> Known:
    return plan.memory(args[0]).transposed(app.params["permutation"])


def _concatenate(
    plan: Plan, app: Application, args: Sequence[int], variable: int, fixed: bool
) -> Known:
    if _is_there(plan, app, args):
        return joined([plan.source(a) for a in args], app.params["dimension"])
    out, axis, at = plan.slot(variable, app.out.shape, app.out.dtype), app.params["dimension"], 0
    for a, aval in zip(args, app.avals, strict=True):
        size = aval.shape[axis]
        plan.write_part(a, _along(out, axis, at, size), fixed)
        at += size
    return out


def _pad(plan: Plan, app: Application, args: Sequence[int], variable: int, fixed: bool) -> Known:
    filler, config = plan.values[args[1]], app.params["padding_config"]
    if not isinstance(filler, Number) or not only_adds(app):
        raise NotWritten
    if _is_there(plan, app, args[:1]):
        return padded(plan.source(args[0]), filler.value, config)
    out, where = plan.slot(variable, app.out.shape, app.out.dtype), plan.where(fixed)
    if isinstance(plan.values[args[0]], Number):
        plan.write_copy(padded(plan.source(args[0]), filler.value, config), out, where)
        return out
    low, high = [lo for lo, _, _ in config], list(out.shape)
    starts, limits = [0] * len(low), list(out.shape)
    for axis, n in enumerate(app.avals[0].shape):
        for a, b in ((0, low[axis]), (low[axis] + n, high[axis])):
            if a < b:
                starts[axis], limits[axis] = a, b
                edge = out.part(starts, limits, [1] * len(starts))
                plan.write_copy(filler._replace(shape=edge.shape), edge, where)
        starts[axis], limits[axis] = low[axis], low[axis] + n
    plan.write_part(args[0], out.part(starts, limits, [1] * len(starts)), fixed)
    return out


def _is_there(plan: Plan, app: Application, args: Sequence[int]) -> bool:
    """Whether a large array is only taken together of what is in memory."""
    large = app.out.size >= _LEAST_IN_PARTS
    return large and not any([isinstance(plan.values[a], Open) for a in args])


def only_adds(app: Application) -> bool:
    """Whether padding takes nothing away and puts nothing between elements."""
    return all([lo >= 0 and hi >= 0 and not n for lo, hi, n in app.params["padding_config"]])


MOVES: Mapping[Any, Callable[..., Known]] = {
    lax.reshape_p: _reshape,
    lax.squeeze_p: _reshape,
    lax.broadcast_in_dim_p: _broadcast,
    lax.slice_p: _slice,
    lax.transpose_p: _transpose,
    lax.concatenate_p: _concatenate,
    lax.pad_p: _pad,
    lax.roll_p: _roll,
}
