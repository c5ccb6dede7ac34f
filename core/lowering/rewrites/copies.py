"""Axes along which a value is one slice, copied: what broadcasts made, and what is made of these.

jaxlib 0.10.2 compiles sums of products wrongly on the CPU, in its fusions for YNNPACK, where an
axis that stays is a broadcast of all factors: the result is what is in memory. A sum of one slice,
broadcast after it, is right, and less work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from tracebridge.core import lax
from tracebridge.core.lax.families import Elementwise
from tracebridge.core.lowering.rewrites.factors import matching_groups

if TYPE_CHECKING:
    from tracebridge.core.lowering.rewrites.factors import Producers

_MOST_VISITS = 64  # equations that are looked at for one sum


@final
class Copies:
    """Looks for axes of copies, through broadcasts, transpositions and elementwise equations."""

    __slots__ = ("found", "made_by", "visits")

    def __init__(self, made_by: Producers) -> None:
        self.made_by = made_by
        self.found: dict[tuple[int, int], bool] = {}
        self.visits = 0

    def along(self, number: int, axis: int) -> bool:
        """Whether all slices of a value along an axis are the same."""
        key = number, axis
        if key not in self.found:
            self.visits += 1
            self.found[key] = self.visits <= _MOST_VISITS and self._along(number, axis)
        return self.found[key]

    def _along(self, number: int, axis: int) -> bool:
        made = self.made_by.get(number)
        if made is None:
            return False
        app, args = made
        if app.primitive is lax.broadcast_in_dim_p:
            dims = app.params["broadcast_dimensions"]
            if axis not in dims:
                return True
            i = dims.index(axis)
            is_repeated = app.avals[0].shape[i] != app.out.shape[axis]
            return is_repeated or self.along(args[0], i)
        if app.primitive is lax.transpose_p:
            return self.along(args[0], app.params["permutation"][axis])
        if app.primitive is lax.reshape_p:
            groups = matching_groups(app.avals[0].shape, app.out.shape) or []
            before = [group for group, after in groups if axis in after]
            return bool(before) and all([self.along(args[0], i) for i in before[0]])
        if isinstance(app.primitive, Elementwise) and not app.effects:
            pairs = zip(args, app.avals, strict=True)
            return all([a.ndim == 0 or self.along(n, axis) for n, a in pairs])
        return False
