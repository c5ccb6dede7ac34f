"""Sums of ``exp(x - m)``, ``m`` the maxima of the rows, without the subtraction.

``sum(exp(x - m))`` is ``exp(-m) sum(exp(x))``, where neither is too large or too small. So a sum of
4096 x 1000 exponentials, as in ``logsumexp``, takes 0.75 ms instead of 0.95 (jaxlib 0.10.2, two
cores), and does not wait for the maxima. Rows whose sum of ``exp(x)`` is not between 1e-25 and
1e25, or whose result is not, which includes everything that is infinite or not a number, need the
form as it was written; if there is one such row, all get it. No sum is less than the 1 of its
largest element, whatever rounding does: users take logarithms of it.

Not where others read the exponentials too, as in softmax: these are written to memory anyway.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core import lax
from tracebridge.core.ir.values import Literal
from tracebridge.core.lax.reduce.exp_sums import all_within
from tracebridge.core.lowering.rewrites.own_copies import may_have_no_shift

if TYPE_CHECKING:
    from tracebridge.core.interpreters.graph import Graph
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.primitive import Primitive
    from tracebridge.core.ir.value import Value
    from tracebridge.core.lowering.rewrites.factors import Producers

_KEEP = frozenset(
    {lax.reshape_p, lax.broadcast_in_dim_p, lax.stop_gradient_p, lax.reduce_precision_p}
)


@final
class ExpSum:
    """The sum of an equation, planned again.

    ``leaves``: the array and the numbers of its rows, or nothing where the sum is another one.
    """

    __slots__ = ("_app", "_graph", "_made_by", "_rows", "leaves")

    def __init__(
        self,
        app: Application,
        number: int,
        graph: Graph,
        made_by: Producers,
        readers: Callable[[int], int],
    ) -> None:
        self._app, self._graph, self._made_by = app, graph, made_by
        self.leaves: tuple[int, ...] = ()
        exp, (argument, *_) = made_by[number]
        if exp.primitive is not lax.exp_p or exp.params:
            return
        if not may_have_no_shift(app.avals[0], app.params["axes"], has_maxima=True):
            return
        difference = self._of(argument, lax.sub_p)
        if difference is None or readers(number) > 1:
            return
        _, (x, spread) = difference
        broadcast = self._of(spread, lax.broadcast_in_dim_p)
        if broadcast is None:
            return
        of_rows, (rows, *_) = broadcast
        shape, places = of_rows.avals[0].shape, of_rows.params["broadcast_dimensions"]
        summed = app.params["axes"]
        if any([n != 1 and p in summed for n, p in zip(shape, places, strict=True)]):
            return
        if self._are_largest(rows, x):
            self._rows = shape, places
            self.leaves = x, rows

    def _of(self, number: int, primitive: Primitive) -> tuple[Application, Sequence[int]] | None:
        """What makes a value, if it is of that kind."""
        made = self._made_by.get(number)
        return made if made is not None and made[0].primitive is primitive else None

    def _are_largest(self, number: int, x: int) -> bool:
        """Whether a value holds the largest elements of ``x``, if these are finite."""
        made = self._made_by.get(number)
        if made is None:
            return False
        (app, args), primitive = made, made[0].primitive
        if primitive is lax.reduce_max_p:
            return args[0] == x and set(app.params["axes"]) == set(self._app.params["axes"])
        if primitive is lax.max_p:
            bound = self._graph.consts.get(args[1])
            if type(bound) is not Literal or bound.value != -math.inf:
                return False
        elif primitive is lax.select_n_p:
            is_test = self._of(args[0], lax.is_finite_p) is not None
            return is_test and self._are_largest(args[2], x)
        elif primitive not in _KEEP:
            return False
        return self._are_largest(args[0], x)

    def run(self, x: Value, m: Value) -> Any:
        """Whether the result is to be trusted, and the result."""
        axes = self._app.params["axes"]
        plain = lax.reduce_sum(lax.exp(x), axes)
        result = lax.mul(plain, lax.exp(lax.neg(self._of_rows(m))))
        return all_within(plain, result), lax.max(result, 1.0)

    def _of_rows(self, m: Value) -> Any:
        """The numbers of the rows in the shape of the result."""
        shape, places = self._rows
        axes, out = self._app.params["axes"], self._app.out.shape
        kept = [i for i in range(self._app.avals[0].ndim) if i not in axes]
        stays = [p not in axes for p in places]
        m = lax.reshape(m, tuple([n for n, s in zip(shape, stays, strict=True) if s]))
        where = tuple([kept.index(p) for p, s in zip(places, stays, strict=True) if s])
        return lax.broadcast_in_dim(m, out, where)
