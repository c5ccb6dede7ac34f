"""Numbers of twice as many digits: a rounded number and what rounding has taken off it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.dtypes.finfo import finfo
from tracebridge.core.lax.roundings import lost_of_product
from tracebridge.core.runtime.arrays.array import Array

# Smaller products have no digits to spare below them, and their rest would be noise.
_LEAST_EXPONENT = {True: -900, False: -100}


@dataclasses.dataclass(frozen=True, slots=True)
class Pair:
    """``head + rest``, where ``rest`` is about as large as the last place of ``head``."""

    head: Any
    rest: Any

    def times(self, other: Pair) -> Pair:
        """The product; what rounding takes off a very small one is lost."""
        product = self.head * other.head
        rest = _where_large(product, lost_of_product(product, self.head, other.head))
        return Pair(product, rest + (self.head * other.rest + self.rest * other.head))

    def over(self, other: Pair) -> Pair:
        """The quotient; what rounding takes off that of a very small number is lost."""
        quotient = self.head / other.head
        product = quotient * other.head
        lost = (self.head - product) - lost_of_product(product, quotient, other.head)
        lost = _where_large(product, lost) + (self.rest - quotient * other.rest)
        # Chosen, or the quotient of the two would be one of products, which may overflow.
        return Pair(quotient, tnp.where(tnp.isnan(quotient), quotient, lost / other.head))

    def plus(self, more: Any) -> Pair:
        """The sum with a smaller number."""
        head = self.head + more
        # Chosen, so that the difference is not simplified.
        return Pair(head, tnp.where(tnp.isnan(head), head, self.head - head) + more + self.rest)

    def root(self) -> Pair:
        """The square root of a positive number that is not small."""
        root = lax.sqrt(self.head)
        square = root * root
        lost = (self.head - square) - lost_of_product(square, root, root) + self.rest
        return Pair(root, lost / (2.0 * root))

    def value(self) -> Any:
        """The number, rounded."""
        return self.head + self.rest


def where(condition: Any, this: Pair, other: Pair) -> Pair:
    """``this`` where the condition holds, ``other`` elsewhere."""
    head = tnp.where(condition, this.head, other.head)
    return Pair(head, tnp.where(condition, this.rest, other.rest))


def exactly(x: Array) -> Pair:
    """Of a number that has not been rounded."""
    return Pair(x, tnp.zeros_like(x))


def constant(like: Array, high: float, low: float) -> Pair:
    """``high + low`` in the dtype of ``like``."""
    first = np.asarray(high, like.aval.dtype)
    rest = (high - float(first)) + low
    return Pair(tnp.full_like(like, first), tnp.full_like(like, rest))


def _where_large(size: Array, rest: Array) -> Any:
    least = 2.0 ** _LEAST_EXPONENT[finfo(size.aval.dtype).bits == 64]
    return tnp.where(tnp.abs(size) > least, rest, 0.0)
