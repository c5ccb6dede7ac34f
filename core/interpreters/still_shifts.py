"""Largest elements that a program takes away so that nothing overflows, and that do not count.

``e = exp(x - max(x))`` divided by its sum is the same for any number in the place of the maximum:
no gradient goes through it, but for the rounding of a sum that is 0. To compute that takes a
comparison of all elements with the maximum, a count of those that equal it, and one more pass over
the rows.

A value that depends on such a number ``m`` is followed as ``v + a * m`` or ``v * exp(b * m)``,
with one ``m`` for each row. If no result has any of it left, the derivative leaves ``m`` out.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np

from tracebridge.core import lax
from tracebridge.core.interpreters.own_extrema import EXTREMA
from tracebridge.core.ir.traverse import primitives_of
from tracebridge.core.ir.values import Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.jaxpr import Jaxpr

_MOST = 8  # of them, each of which is followed through the program
_RESHAPES = frozenset({lax.reshape_p, lax.squeeze_p})


class _Shift(NamedTuple):
    """What a value has of the number: ``added`` times it, or a factor ``exp(scaled * m)``.

    ``axes``: those of the value that the rows lie along.
    """

    added: float
    scaled: float
    axes: tuple[int, ...]


class _Counts(Exception):
    """The number may make a difference."""


def still_extrema(jaxpr: Jaxpr) -> frozenset[int]:
    """The equations that are maxima or minima through which no derivative goes."""
    if EXTREMA.isdisjoint(primitives_of(jaxpr)):
        return frozenset()
    found = jaxpr.cache.get("still extrema")
    if found is None:
        equations = jaxpr.equations
        places = [k for k, (app, _) in enumerate(equations) if app.primitive in EXTREMA]
        found = frozenset([k for k in places[:_MOST] if _is_still(jaxpr, k)])
        jaxpr.cache["still extrema"] = found
    return found


def _is_still(jaxpr: Jaxpr, place: int) -> bool:
    aval = jaxpr.equations[place][0].out
    if aval.dtype.kind != "f" or not all([type(n) is int for n in aval.shape]):
        return False
    try:
        shifts = _Follower(jaxpr, place).shifts
    except _Counts:
        return False
    return shifts.keys().isdisjoint(jaxpr.outs)


@final
class _Follower:
    """Follows the result of one equation through a program; ``shifts`` of the values that have it.

    Raises ``_Counts`` where it does not know what a value has of it.
    """

    def __init__(self, jaxpr: Jaxpr, place: int) -> None:
        self.shifts: dict[int, _Shift] = {}
        self._numbers = {
            v: c.value
            for v, c in enumerate(jaxpr.consts, jaxpr.n_in)
            if isinstance(c, Literal) and not c.aval.ndim
        }
        v = jaxpr.n_in + len(jaxpr.consts)
        for k, (app, args) in enumerate(jaxpr.equations):
            if k == place:
                shape = app.out.shape
                axes = tuple([i for i, n in enumerate(shape) if n != 1])
                self.shifts[v] = _Shift(1.0, 0.0, axes)
            elif app.primitive is lax.broadcast_in_dim_p and args[0] in self._numbers:
                self._numbers[v] = self._numbers[args[0]]
            elif k > place and not self.shifts.keys().isdisjoint(args):
                shift = self._after(app, args)
                if shift is not None and (shift.added or shift.scaled):
                    self.shifts[v] = shift
            v += len(app.outs) if app.multiple else 1

    def _after(self, app: Application, args: Sequence[int]) -> _Shift | None:
        rule = _RULES.get(app.primitive)
        if rule is None or app.effects or app.out.dtype.kind != "f":
            raise _Counts
        return rule(self, app, [self.shifts.get(a) for a in args], args)

    def number(self, v: int) -> float:
        """The number that a variable is, or all of its elements."""
        value = self._numbers.get(v)
        if not isinstance(value, (int, float, np.number)):
            raise _Counts
        return float(value)


def _only(shifts: Sequence[_Shift | None]) -> _Shift:
    """The one that is there: who has a rule that uses it reads one value that has a shift."""
    (shift,) = [s for s in shifts if s is not None]
    return shift


def _axes_of(shifts: Sequence[_Shift | None]) -> tuple[int, ...]:
    axes = {s.axes for s in shifts if s is not None}
    if len(axes) != 1:
        raise _Counts
    return next(iter(axes))


def _sum(sign: float) -> Any:
    """Of a sum or a difference: numbers add up; what is scaled is so in both, in the same way."""

    def rule(_: _Follower, app: Application, shifts: Any, args: Any) -> _Shift:
        del app, args
        axes = _axes_of(shifts)
        first, second = [s or _Shift(0.0, 0.0, axes) for s in shifts]
        if first.scaled != second.scaled or (first.scaled and (first.added or second.added)):
            raise _Counts
        return _Shift(first.added + sign * second.added, first.scaled, axes)

    return rule


def _product(sign: float) -> Any:
    """Of a product or a quotient: factors come together; a number may scale what is added."""

    def rule(here: _Follower, app: Application, shifts: Any, args: Any) -> _Shift:
        del app
        axes = _axes_of(shifts)
        first, second = [s or _Shift(0.0, 0.0, axes) for s in shifts]
        if not (first.added or second.added):
            return _Shift(0.0, first.scaled + sign * second.scaled, axes)
        if shifts[1] is None:
            by = here.number(args[1])
            return first._replace(added=first.added * by if sign > 0 else first.added / by)
        if shifts[0] is None and sign > 0:
            return second._replace(added=second.added * here.number(args[0]))
        raise _Counts

    return rule


def _exp(_: _Follower, app: Application, shifts: Any, args: Any) -> _Shift:
    del app, args
    shift = _only(shifts)
    if shift.scaled:
        raise _Counts
    return _Shift(0.0, shift.added, shift.axes)


def _log(_: _Follower, app: Application, shifts: Any, args: Any) -> _Shift:
    del app, args
    shift = _only(shifts)
    if shift.added:
        raise _Counts
    return _Shift(shift.scaled, 0.0, shift.axes)


def _neg(_: _Follower, app: Application, shifts: Any, args: Any) -> _Shift:
    del app, args
    shift = _only(shifts)
    return shift._replace(added=-shift.added)


def _power(_: _Follower, app: Application, shifts: Any, args: Any) -> _Shift:
    del args
    shift = _only(shifts)
    if shift.added:
        raise _Counts
    return shift._replace(scaled=shift.scaled * app.params["y"])


def _reduced(_: _Follower, app: Application, shifts: Any, args: Any) -> _Shift:
    """A sum of what is scaled alike is scaled so; of numbers that are added there are several."""
    del args
    shift, axes = _only(shifts), app.params["axes"]
    if shift.added and app.primitive is lax.reduce_sum_p:
        raise _Counts
    if not set(axes).isdisjoint(shift.axes):
        raise _Counts
    left = [i for i in range(app.avals[0].ndim) if i not in axes]
    return shift._replace(axes=tuple([left.index(i) for i in shift.axes]))


def _broadcast(_: _Follower, app: Application, shifts: Any, args: Any) -> _Shift:
    del args
    shift, places = _only(shifts), app.params["broadcast_dimensions"]
    return shift._replace(axes=tuple([places[i] for i in shift.axes]))


def _reshaped(_: _Follower, app: Application, shifts: Any, args: Any) -> _Shift:
    """Only axes of one element come and go."""
    del args
    shift, before, after = _only(shifts), app.avals[0].shape, app.out.shape
    old = [i for i, n in enumerate(before) if n != 1]
    new = [i for i, n in enumerate(after) if n != 1]
    if [before[i] for i in old] != [after[i] for i in new]:
        raise _Counts
    return shift._replace(axes=tuple([new[old.index(i)] for i in shift.axes]))


def _transposed(_: _Follower, app: Application, shifts: Any, args: Any) -> _Shift:
    del args
    shift, order = _only(shifts), list(app.params["permutation"])
    return shift._replace(axes=tuple([order.index(i) for i in shift.axes]))


def _contracted(_: _Follower, app: Application, shifts: Any, args: Any) -> _Shift:
    """A product of matrices, one of which is scaled by its rows."""
    del args
    if None not in shifts:
        raise _Counts
    side, shift = (0 if shifts[1] is None else 1), _only(shifts)
    contracting, batch = app.params["dimension_numbers"]
    if shift.added or not set(contracting[side]).isdisjoint(shift.axes):
        raise _Counts
    free = [
        [i for i in range(a.ndim) if i not in contracting[n] and i not in batch[n]]
        for n, a in enumerate(app.avals)
    ]
    order = [*batch[side], *([-1] * len(free[0]) if side else []), *free[side]]
    return shift._replace(axes=tuple([order.index(i) for i in shift.axes]))


def _selected(here: _Follower, app: Application, shifts: Any, args: Any) -> _Shift:
    """By a mask without a shift, among values of one shift and numbers that it does not change."""
    del app
    axes = _axes_of(shifts)
    which, *cases = shifts
    found = {case for case in cases if case is not None}
    if which is not None or len(found) != 1:
        raise _Counts
    (shift,) = found
    for case, v in zip(cases, args[1:], strict=True):
        stays = math.isinf if shift.added else (0.0).__eq__
        if case is None and not stays(here.number(v)):
            raise _Counts
    return shift._replace(axes=axes)


def _kept(_: _Follower, app: Application, shifts: Any, args: Any) -> _Shift:
    del app, args
    return _only(shifts)


def _nothing(_: _Follower, app: Application, shifts: Any, args: Any) -> None:
    """No derivative goes through it."""
    del app, shifts, args


_RULES: dict[Any, Any] = {
    lax.add_p: _sum(1.0),
    lax.sub_p: _sum(-1.0),
    lax.mul_p: _product(1.0),
    lax.div_p: _product(-1.0),
    lax.neg_p: _neg,
    lax.exp_p: _exp,
    lax.log_p: _log,
    lax.integer_pow_p: _power,
    lax.reduce_sum_p: _reduced,
    lax.reduce_max_p: _reduced,
    lax.reduce_min_p: _reduced,
    lax.select_n_p: _selected,
    lax.broadcast_in_dim_p: _broadcast,
    lax.transpose_p: _transposed,
    lax.dot_general_p: _contracted,
    lax.convert_element_type_p: _kept,
    lax.stop_gradient_p: _nothing,
    **dict.fromkeys(_RESHAPES, _reshaped),
}
