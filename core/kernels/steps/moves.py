"""Equations that move elements: most are other views of the same memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tracebridge.core import lax
from tracebridge.core.kernels.steps.values import Known, NotWritten, Number, Open
from tracebridge.core.kernels.steps.views import View, without_ones

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application
    from tracebridge.core.kernels.steps.plan import Plan


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
    params, view = app.params, plan.memory(args[0])
    steps = params["strides"] or [1] * len(view.shape)
    return view.part(params["start_indices"], params["limit_indices"], steps)


def _transpose(plan: Plan, app: Application, args: Sequence[int], *_: Any) -> Known:
    return plan.memory(args[0]).transposed(app.params["permutation"])


def _concatenate(
    plan: Plan, app: Application, args: Sequence[int], variable: int, fixed: bool
) -> Known:
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
    out, where = plan.slot(variable, app.out.shape, app.out.dtype), plan.where(fixed)
    if not isinstance(plan.values[args[0]], Number):
        plan.memory(args[0])
    plan.fill(filler, out, where)
    starts = [lo for lo, _, _ in config]
    limits = [lo + n for (lo, _, _), n in zip(config, app.avals[0].shape, strict=True)]
    plan.write(args[0], out.part(starts, limits, [1] * len(starts)), where)
    return out


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
}
