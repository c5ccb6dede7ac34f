"""Sums of rows of short chains that others read a part of, as in the derivative of log_softmax.

``sum(exp(x - m))`` is one kernel of the library for sums, if nobody else reads ``x - m``. If others
do, XLA writes it, or makes them all a part of that kernel. Doing it again costs less than either:
the sum gets a copy of its own, which XLA must not join with the other again. So the copy reads what
is repeated along the rows, and others read the sum, through a rounding to the precision that is
there already.

Milliseconds with jaxlib 0.10.2, two cores, of ``exp(x - m - log(sum(exp(x - m)))) - labels`` and of
``(x - m) / sqrt(sum((x - m) ** 2))``:

| | as it is | the sum apart | a copy, and apart |
|---|---|---|---|
| rows of (4096, 1000) | 4.05; 2.80 | 3.28; 2.76 | 2.64; 2.04 |
| rows of (4096, 256) | 0.75; 0.16 | 0.67; 0.17 | 0.60; 0.17 |
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tracebridge.core import lax
from tracebridge.core.ir.cost import Cost

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.value import Value
    from tracebridge.core.lowering.rewrites.factors import Producers

_MOST_STEPS = 2  # longer chains with broadcasts are written for their sum (lax/reduce/cpu_sums.py)
_LEAST = 1 << 17
_LEAST_DOUBLES = 1 << 15
_LEAST_ROW = 17

Make = Callable[[Sequence["Value"]], Any]


def may_have_copy(app: Application) -> bool:
    """Whether an equation sums rows up that the library for sums gets."""
    return are_long_rows(app.avals[0], app.params["axes"])


def are_long_rows(x: ShapedArray, axes: Sequence[int]) -> bool:
    """Whether sums over ``axes`` are such sums."""
    return x.dtype == np.float32 and x.ndim > len(axes) and _has_rows(x, axes, _LEAST)


def may_have_no_shift(x: ShapedArray, axes: Sequence[int], *, has_maxima: bool) -> bool:
    """Whether sums of exponentials over ``axes`` are worth a look for whether they need a shift.

    Of float64 also single rows, and smaller arrays unless the maxima are found in any case: only as
    ``sum(exp(x))`` are they the library's, whose vectors are twice as wide as those of loops.
    """
    least = _LEAST if has_maxima else _LEAST_DOUBLES
    return are_long_rows(x, axes) or (x.dtype == np.float64 and _has_rows(x, axes, least))


def _has_rows(x: ShapedArray, axes: Sequence[int], least: int) -> bool:
    """Whether an array has so many elements, and ``axes`` are its last ones, of long rows."""
    first = x.ndim - len(axes)
    if x.size < least or not axes or sorted(axes) != list(range(first, x.ndim)):
        return False
    return math.prod(x.shape[first:]) >= _LEAST_ROW


@final
class OwnCopy:
    """The operand of a sum, planned again. ``leaves``: what it is made of."""

    __slots__ = ("_made_by", "_readers", "_reads", "_spread", "_steps", "leaves", "made")

    def __init__(self, number: int, made_by: Producers, readers: Callable[[int], int]) -> None:
        self._made_by, self._readers = made_by, readers
        self._reads: Counter[int] = Counter()
        self._steps, self._spread = 0, False
        self.leaves: list[int] = []
        made = self._of(number)
        wanted = self._spread and 0 < self._steps <= _MOST_STEPS
        shared = wanted and any([readers(n) > k for n, k in self._reads.items()])
        self.made = made if shared else None

    def run(self, axes: tuple[int, ...], *values: Value) -> Any:
        """The sum over ``axes``."""
        assert self.made is not None  # nothing is won: nobody asks
        return _apart(lax.reduce_sum(self.made(values), axes))

    def _leaf(self, number: int) -> Make:
        if number not in self.leaves:
            self.leaves.append(number)
        place = self.leaves.index(number)
        return lambda values: values[place]

    def _of(self, number: int) -> Make:
        made = self._made_by.get(number)
        if made is None or self._steps > _MOST_STEPS:
            return self._leaf(number)
        app, args = made
        primitive, params = app.primitive, app.params
        if primitive is lax.broadcast_in_dim_p:
            return self._repeated(app, args[0])
        is_cheap = primitive.cost in (Cost.FREE, Cost.CHEAP) or not self._reads
        if not primitive.is_elementwise or app.effects or not is_cheap:
            return self._leaf(number)
        self._steps += 1
        # Choices are written for the sum, whatever they are made of.
        self._steps += _MOST_STEPS * (primitive is lax.select_n_p)
        full = [a for a, aval in zip(args, app.avals, strict=True) if aval.ndim]
        self._reads.update([a for a in full if self._is_chain(a)])
        known = {a: self._of(a) for a in dict.fromkeys(full)}
        makes = [known[a] if a in known else self._leaf(a) for a in args]
        return lambda values: primitive.bind(*[m(values) for m in makes], **params)

    def _is_chain(self, number: int) -> bool:
        made = self._made_by.get(number)
        return made is not None and made[0].primitive.is_elementwise

    def _repeated(self, app: Application, operand: int) -> Make:
        """A broadcast that XLA does not join with others of the same operand."""
        (aval,), params = app.avals, app.params
        leaf = self._leaf(operand)
        if not aval.ndim or aval.dtype != np.float32 or aval.size == app.out.size:
            return lambda values: lax.broadcast_in_dim_p.bind(leaf(values), **params)
        self._spread = True
        return lambda values: lax.broadcast_in_dim_p.bind(_apart(leaf(values)), **params)


def _apart(x: Value) -> Any:
    """The same number, for all that XLA knows another one."""
    return lax.reduce_precision_p.bind(x, exponent_bits=8, mantissa_bits=23)
