"""Operands of kernels that are slices of larger arrays: read where they lie, not copied before."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tracebridge.core import lax
from tracebridge.core.kernels.steps.arrays import Place
from tracebridge.core.kernels.steps.views import View, whole, without_ones
from tracebridge.core.lowering.rewrites.producers import GIVEN

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application
    from tracebridge.core.lowering.rewrites.groups import Groups


class Part(NamedTuple):
    """A variable, and where in it the operand is; None: it is the operand itself."""

    array: int
    place: Place | None


def is_slice(app: Application) -> bool:
    """Whether an equation takes elements that lie beside each other."""
    if app.primitive is not lax.slice_p:
        return False
    strides = app.params["strides"]
    return strides is None or all([n == 1 for n in strides])


def is_move(app: Application) -> bool:
    """Whether an equation changes the order of axes, or makes or takes away axes of one element."""
    if app.primitive is lax.reshape_p or app.primitive is lax.squeeze_p:
        return without_ones(app.avals[0].shape) == without_ones(app.out.shape)
    return app.primitive is lax.transpose_p


def part_of_array(groups: Groups, variable: int) -> Part:
    """The array that a variable is a slice of, if it is one, however it is moved before."""
    chain: list[Application] = []
    found, n_moves = variable, 0
    v = variable
    while (k := groups.made_by[v]) != GIVEN and k not in groups.group_of:
        app, args = groups.jaxpr.equations[k]
        if not (is_slice(app) or is_move(app)):
            break
        chain.append(app)
        v = args[0]
        if is_slice(app) or n_moves:
            found, n_moves = v, len(chain)
    if not n_moves or 0 in groups.avals[variable].shape:
        return Part(variable, None)
    aval = groups.avals[found]
    view = whole("", aval.shape, aval.dtype)
    for app in reversed(chain[:n_moves]):
        view = _moved(view, app)
    return Part(found, Place(view.offset, view.strides))


def _moved(view: View, app: Application) -> View:
    if app.primitive is lax.transpose_p:
        return view.transposed(app.params["permutation"])
    if app.primitive is lax.slice_p:
        starts, limits = app.params["start_indices"], app.params["limit_indices"]
        return view.part(starts, limits, [1] * len(starts))
    found = view.reshaped(app.out.shape)
    assert found is not None  # axes of one element come and go
    return found
