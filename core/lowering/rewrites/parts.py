"""Parts of arrays that kernels over rows read where they are: XLA would copy them first.

The two halves of a gated linear unit, for example.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from tracebridge.core import lax
from tracebridge.core.kernels.rows.program import View
from tracebridge.core.lowering.rewrites.producers import GIVEN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core.ir.application import Application
    from tracebridge.core.kernels.rows.frame import Frame, Shape
    from tracebridge.core.lowering.rewrites.groups import Groups

PARTS = frozenset({lax.slice_p, lax.split_p})
SHORTEST_PART = 32  # elements of a part that lie one after another


def part_of(groups: Groups, frame: Frame, variable: int) -> tuple[int, View] | None:
    """The array that a variable is a part of, and which; None of other variables."""
    k = groups.made_by[variable]
    if k == GIVEN or groups.avals[variable].shape not in frame.shapes:
        return None
    app, args = groups.jaxpr.equations[k]
    start = _start(app, variable - groups.first[k])
    if start is None:
        return None
    shape, whole = groups.avals[variable].shape, app.avals[0].shape
    if not all([type(n) is int for n in whole]):
        return None
    strides = row_major(whole)
    steps = frame.strided(shape, strides)
    if frame.tail(steps) < SHORTEST_PART:
        return None
    before = sum([n * step for n, step in zip(start, strides, strict=True)])
    return args[0], View(steps, before)


def _start(app: Application, nth: int) -> Sequence[int] | None:
    """Where a result begins that is a part of the operand without gaps; None of others."""
    if app.primitive is lax.slice_p:
        strides = app.params["strides"]
        is_dense = strides is None or all([n == 1 for n in strides])
        return app.params["start_indices"] if is_dense else None
    if app.primitive is lax.split_p:
        axis, sizes = app.params["axis"], app.params["sizes"]
        start = [0] * app.avals[0].ndim
        start[axis] = sum(sizes[:nth])
        return start
    return None


def row_major(shape: Shape) -> list[int]:
    """The strides of an array by rows."""
    return [*itertools.accumulate(shape[:0:-1], lambda a, b: a * b, initial=1)][::-1]
