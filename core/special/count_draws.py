"""Small numbers of events and successes, counted one by one, from one key and a counter each.

Knuth's products of uniform numbers, and geometric distances between successes.
"""

from __future__ import annotations

import abc
from typing import Any, final

import numpy as np

from tracebridge.core import lax
from tracebridge.core.control.loops.while_loop import while_loop
from tracebridge.core.lax.ad_util import full_of
from tracebridge.core.special.lanes import child, unit_of
from tracebridge.core.special.rejection import PENDING, Rejection, on_cpu, some

_INT32 = np.dtype(np.int32)
# Sweeps over the whole array go on until one element of so many is not settled.
_FEW = 16


class Counted(Rejection):
    """Operands: the key, counters, parameters. A uniform number makes one step of a count."""

    # Which of the two children of a key draws, and which one is the next key.
    drawing = 1

    @abc.abstractmethod
    def is_open(self, way: Any, *parameters: Any) -> Any:
        """Whether the count goes on."""

    @abc.abstractmethod
    def further(self, way: Any, u: Any, *parameters: Any) -> Any:
        """The way after one more step."""

    def _count(self, active: Any, few: int, xs: Any) -> Any:
        """Sweeps until at most ``few`` elements are open: counts, -1 where they are open."""
        k0, k1, high, low, *parameters = xs
        zero = full_of(parameters[0].aval.strong.update(shape=active.aval.shape), 0)

        def open_(way: Any) -> Any:
            return lax.bitwise_and(active, self.is_open(way, *parameters))

        def goes_on(carry: Any) -> Any:
            if not few:
                return some(open_(carry[1]))
            flags = lax.convert_dtype(open_(carry[1]), _INT32)
            return lax.gt(lax.reduce_sum(flags, tuple(range(flags.aval.ndim))), few)

        def step(carry: Any) -> Any:
            count, way, *key = carry
            own, following = (child((key[0], key[1]), i) for i in (self.drawing, 1 - self.drawing))
            u = unit_of(own, zero.aval.dtype, high, low)
            count = lax.add(count, lax.convert_dtype(open_(way), zero.aval.dtype))
            return count, self.further(way, u, *parameters), *following

        count, way, *_ = while_loop(goes_on, step, (zero, zero, k0, k1))
        return lax.select(open_(way), full_of(zero.aval, PENDING), count)

    def attempt(self, *xs: Any, **params: Any) -> Any:
        active = full_of(xs[-1].aval.strong.update(dtype=np.dtype(np.bool_)), True)
        return self._count(active, xs[-1].aval.size // _FEW, xs)

    def settle(self, active: Any, *xs: Any, **params: Any) -> Any:
        return self._count(active, 0, xs)


@final
class PoissonCount(Counted):
    """Parameter: the rate. How many numbers have a product of at least ``exp(-rate)``, plus 1."""

    name = "poisson_count"

    def is_open(self, way: Any, *parameters: Any) -> Any:
        return lax.gt(way, lax.neg(parameters[0]))

    def further(self, way: Any, u: Any, *parameters: Any) -> Any:
        return lax.add(way, lax.log(u))


@final
class BinomialCount(Counted):
    """Parameters: the number of trials, the probability. Successes within the trials, plus 1."""

    name = "binomial_count"
    drawing = 0

    def is_open(self, way: Any, *parameters: Any) -> Any:
        return lax.le(way, parameters[0])

    def further(self, way: Any, u: Any, *parameters: Any) -> Any:
        failure = lax.log1p(lax.neg(parameters[1]))
        return lax.add(way, lax.ceil(lax.div(lax.log(u), failure)))


poisson_count_p = PoissonCount()
binomial_count_p = BinomialCount()
for _primitive in (poisson_count_p, binomial_count_p):
    on_cpu(_primitive)
