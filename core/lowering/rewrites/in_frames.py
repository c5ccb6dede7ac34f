"""Which equations can be in a group over rows, by the shapes that they have and the frame."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tracebridge.core import lax
from tracebridge.core.kernels.equations import REDUCTIONS, is_handled
from tracebridge.core.kernels.functions import handles
from tracebridge.core.kernels.rows.program import RESHAPES, kind_of_sum
from tracebridge.core.lowering.rewrites.frames import SHORTEST
from tracebridge.core.util.caching import BoundedCache

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application
    from tracebridge.core.kernels.rows.frame import Frame

BY_ROW = RESHAPES | {lax.broadcast_in_dim_p}
"""Equations that compute arrays of the frame or numbers of rows: what they read tells."""

_REMEMBERED = frozenset({*REDUCTIONS, *BY_ROW, lax.iota_p})

Answers = dict[tuple["Application", bool], tuple[bool, bool]]
"""What ``joins_by_shapes`` says of equations in one frame, with and without ``by_row``."""

_KNOWN: BoundedCache[Answers] = BoundedCache("equations in frames of rows", 64)
_MOST_KNOWN = 512  # of one frame


def may_join(app: Application) -> bool:
    """Whether an equation may be in a group of some frame."""
    return app.primitive in _REMEMBERED or is_handled(app) or app.primitive is lax.pow_p


def known_answers(frame: Frame) -> Answers:
    """What ``joins_by_shapes`` has said of a frame."""
    found = _KNOWN.get(frame)
    if found is None or len(found) > _MOST_KNOWN:
        found = {}
        _KNOWN.set(frame, found)
    return found


def joins_by_shapes(app: Application, frame: Frame, by_row: bool) -> tuple[bool, bool]:
    """Whether an equation can be in a group, and whether it sums up others there.

    ``by_row``: whether it reads members of the group that are no arrays of the frame.
    """
    known = known_answers(frame)
    found = known.get((app, by_row))
    if found is None:
        found = known[app, by_row] = _joins(app, frame, by_row)
    return found


def _joins(app: Application, frame: Frame, by_row: bool) -> tuple[bool, bool]:
    primitive, out = app.primitive, app.out
    if primitive in REDUCTIONS:
        if app.avals[0].shape not in frame.shapes or not _can_reduce(app, frame):
            return False, False
        return True, kind_of_sum(app, frame) != "rows"
    if primitive is lax.broadcast_in_dim_p:
        can_join = _can_broadcast(app, frame, by_row)
    elif primitive in RESHAPES:
        if by_row:
            can_join = frame.is_by_row(out.shape)
        else:
            can_join = app.avals[0].shape in frame.shapes and out.shape in frame.shapes
    elif primitive is lax.iota_p:
        is_there = out.shape in frame.shapes and out.dtype == np.int32
        can_join = is_there and _can_count(app, frame)
    else:
        can_join = is_handled(app, frame.doubles) and _fits(app, frame, by_row)
    return can_join, False


def can_be_power(app: Application, frame: Frame, by_row: bool) -> bool:
    """Whether a power with an exponent that is known can be in a group."""
    return app.out.dtype == frame.dtype and _fits(app, frame, by_row)


def _can_reduce(app: Application, frame: Frame) -> bool:
    if app.out.dtype != frame.dtype or len(app.params) > 1:
        return False
    kind = kind_of_sum(app, frame)
    if kind != "parts":
        return kind is not None
    end = frame.end(frame.summed(app.avals[0].shape, app.params["axes"]))
    return math.prod([frame.sizes[i] for i in end]) >= SHORTEST


def _can_broadcast(app: Application, frame: Frame, is_rows: bool) -> bool:
    axes, (aval,), shape = app.params["broadcast_dimensions"], app.avals, app.out.shape
    dtypes = [np.dtype(bool), aval.dtype, aval.dtype]
    if not handles("select_n", {}, dtypes, aval.dtype, frame.doubles):
        return False
    if list(axes) != sorted(axes):
        return False
    if shape not in frame.shapes:
        return is_rows and frame.is_by_row(shape)
    steps = frame.steps(aval.shape, axes, shape)
    return steps == frame.by_row if is_rows else frame.tail(steps) >= SHORTEST


def _can_count(app: Application, frame: Frame) -> bool:
    axis, shape = app.params["dimension"], app.out.shape
    return frame.tail(frame.steps((shape[axis],), (axis,), shape)) >= SHORTEST


def _fits(app: Application, frame: Frame, by_row: bool) -> bool:
    """Whether an elementwise equation computes an array of the frame, or numbers of rows."""
    shape = app.out.shape
    if any([a.ndim and a.shape != shape for a in app.avals]):
        return False
    return shape in frame.shapes or (by_row and frame.is_by_row(shape))
