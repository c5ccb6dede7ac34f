"""Sums of arrays that are one thing at one position of each row, and another everywhere else.

The cotangent of ``take_along_axis`` is such an array (core/lax/indexing/picks.py), and so is what
elementwise functions make of it and of numbers for each row: labels that are smoothed or weighted.
XLA would write it for its sum. Element by element it is ``f(at)`` at the position, ``f(off)``
elsewhere, so its sum is ``f(at) + (n - 1) f(off)``, with every NaN and infinity in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tracebridge.core import lax

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.value import Value
    from tracebridge.core.lowering.rewrites.factors import Producers

_MOST_VISITS = 32  # equations that are looked at for one sum

Make = Callable[[Sequence["Value"]], Any]
Pair = tuple[Make, Make]
"""Of a value: at the position of each row, and off it; the same object where it is one thing."""


def is_comparison(app: Application) -> bool:
    """Whether an equation may compare positions with an index."""
    return app.primitive is lax.eq_p and app.out.ndim > 0 and app.avals[0].dtype.kind in "iu"


@final
class SpikeSum:
    """A sum over one axis, and perhaps others, of an array of that kind, planned.

    ``make``: how it is made of the values ``leaves``, or ``None``.
    """

    __slots__ = (
        "_axis", "_comparison", "_index", "_known", "_made_by", "_rows", "_shape", "_visits",
        "leaves", "made",
    )  # fmt: skip

    def __init__(self, number: int, shape: tuple[int, ...], axis: int, made_by: Producers) -> None:
        self._made_by, self._shape, self._axis = made_by, shape, axis
        self._rows = (*shape[:axis], *shape[axis + 1 :])
        self._known: dict[int, Pair | None] = {}
        self._comparison: int | None = None
        self._index: Make | None = None
        self._visits = 0
        self.leaves: list[int] = []
        self.made = self._of(number) if shape[axis] > 1 else None
        if self._index is None:
            self.made = None

    def run(self, axes: tuple[int, ...], *values: Value) -> Any:
        """The sum over ``axes``."""
        assert self.made is not None  # nothing is won: nobody asks
        assert self._index is not None
        at, off = [make(values) for make in self.made]
        index, n = self._index(values), self._shape[self._axis]
        inside = lax.bitwise_and(
            lax.ge(index, lax.full_like(index, 0)), lax.le(index, lax.full_like(index, n - 1))
        )
        most = lax.mul(off, lax.full_like(off, n - 1))
        total = lax.add(most, lax.select(inside, at, off))
        others = tuple([a - (a > self._axis) for a in axes if a != self._axis])
        return lax.reduce_sum(total, others) if others else total

    def _leaf(self, number: int) -> Make:
        if number not in self.leaves:
            self.leaves.append(number)
        place = self.leaves.index(number)
        return lambda values: values[place]

    def _of(self, number: int) -> Pair | None:
        if number not in self._known:
            self._visits += 1
            made = self._made_by.get(number) if self._visits <= _MOST_VISITS else None
            self._known[number] = None if made is None else self._of_equation(number, *made)
        return self._known[number]

    def _of_equation(self, number: int, app: Application, args: Sequence[int]) -> Pair | None:
        primitive = app.primitive
        if primitive is lax.broadcast_in_dim_p:
            return self._broadcast(app, args[0])
        if not primitive.is_elementwise or app.effects or app.out.shape != self._shape:
            return None
        if is_comparison(app):
            found = self._compared(number, app, args)
            if found is not None:
                return found
        parts: list[Pair] = []
        for arg, aval in zip(args, app.avals, strict=True):
            same = self._leaf(arg) if not aval.ndim else None
            part = self._of(arg) if same is None else (same, same)
            if part is None:
                return None
            parts.append(part)

        def applied(side: int) -> Make:
            makes = [pair[side] for pair in parts]
            return lambda values: primitive.bind(*[m(values) for m in makes], **app.params)

        at = applied(0)
        return at, at if all([a is b for a, b in parts]) else applied(1)

    def _broadcast(self, app: Application, operand: int) -> Pair | None:
        """What is the same along the axis, without it."""
        dims, axis, rows = app.params["broadcast_dimensions"], self._axis, self._rows
        shape = app.avals[0].shape
        if axis in dims and shape[dims.index(axis)] != 1:
            return None
        kept = tuple([i for i, d in enumerate(dims) if d != axis])
        places = tuple([dims[i] - (dims[i] > axis) for i in kept])
        leaf = self._leaf(operand)

        def make(values: Sequence[Value]) -> Any:
            x = leaf(values)
            if len(kept) < len(shape):
                x = lax.reshape(x, tuple([shape[i] for i in kept]))
            return lax.broadcast_in_dim(x, rows, places)

        return make, make

    def _compared(self, number: int, app: Application, args: Sequence[int]) -> Pair | None:
        """Positions along the axis, compared with an index for each row."""
        if self._shape[self._axis] - 1 > np.iinfo(app.avals[0].dtype).max:
            return None
        rows = self._rows
        for positions, index in (args, args[::-1]):
            if not self._counts(positions, self._axis):
                continue
            found = self._of(index)
            if found is None or found[0] is not found[1] or self._comparison is not None:
                return None
            self._comparison, self._index = number, found[0]
            return (lambda _: lax.full(rows, True, bool)), (lambda _: lax.full(rows, False, bool))
        return None

    def _counts(self, number: int, axis: int) -> bool:
        """Whether a value is the position along one of its axes."""
        made = self._made_by.get(number)
        if made is None:
            return False
        app, args = made
        primitive, params = app.primitive, app.params
        if primitive is lax.iota_p:
            return params["dimension"] == axis
        if primitive is lax.broadcast_in_dim_p and axis in params["broadcast_dimensions"]:
            inner = params["broadcast_dimensions"].index(axis)
            same = app.avals[0].shape[inner] == app.out.shape[axis]
            return same and self._counts(args[0], inner)
        if primitive is lax.reshape_p and app.avals[0].ndim == 1:
            return app.avals[0].shape[0] == app.out.shape[axis] and self._counts(args[0], 0)
        return False
