"""Least and greatest values of dimension expressions, by intervals and by known inequalities.

The bounds are correct for all values of the variables, but not always tight: integer polynomials
have no complete decision procedure. Four ways are tried and the best result kept: intervals of
each term; the same after writing each factor as its least value plus something that is not
negative; adding multiples of inequalities that are known, which cancel a term; and the cases of a
``max`` or ``min``, which is one of its operands everywhere in the expression.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, Protocol

from tracebridge.core.symbolic.dims import Bound, Dim, DimExpr, from_terms, terms_of
from tracebridge.core.symbolic.polynomial import (
    FLOORDIV,
    MAX,
    MIN,
    MOD,
    VAR,
    Factor,
    Terms,
    add_terms,
    multiply_terms,
)

Interval = tuple[Bound, Bound]

INFINITY: Final = math.inf
_DEPTH: Final = 3
_MAX_DEPTH: Final = 5
_MAX_TERMS: Final = 64


class Facts(Protocol):
    """What is known of the variables of a scope."""

    def stated_bounds(self, factor: Factor) -> Interval:
        """What constraints say of a factor; at least 1 for variables."""
        ...

    def inequalities(self) -> Iterable[Terms]:
        """Polynomials that are never negative."""
        ...

    def constrained_factors(self) -> Iterable[Factor]:
        """The factors that constraints speak of."""
        ...


def bounds_of(facts: Facts, dim: Dim) -> Interval:
    """The least and the greatest value of a dimension."""
    if not isinstance(dim, DimExpr):
        return dim, dim
    # A chain of inequalities is as long as all of them.
    chain = sum(1 for _ in facts.inequalities())
    return _Search(facts).bounds(dim, max(_DEPTH, min(chain, _MAX_DEPTH)))


class _Search:
    """One search for bounds; remembers what it has tried.

    The depth falls with each known inequality that is used, and with each step into the operands
    of a factor while inequalities are used: so the search ends.
    """

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.seen: dict[tuple[frozenset[tuple[object, int]], int], Bound] = {}

    def bounds(self, dim: Dim, depth: int) -> Interval:
        """Bounds of a dimension, using at most ``depth`` inequalities for each."""
        if not isinstance(dim, DimExpr):
            return dim, dim
        terms = dict(dim.terms)
        negated = {m: -c for m, c in terms.items()}
        return self.least(terms, depth), -self.least(negated, depth)

    def least(self, terms: Terms, depth: int) -> Bound:
        key = (frozenset(terms.items()), depth)
        if key not in self.seen:
            self.seen[key] = -INFINITY  # cuts cycles: a bound may not rest on itself
            self.seen[key] = self._least(terms, depth)
        return self.seen[key]

    def _least(self, terms: Terms, depth: int) -> Bound:
        best = max(self._by_intervals(terms, depth), self._by_shifts(terms, depth))
        if depth == 0 or not any(terms):
            return best
        factor = _extremum_in(terms)
        if factor is not None:
            cases = [_replaced(terms, factor, terms_of(x)) for x in factor.operands]
            best = max(best, min(self.least(case, depth - 1) for case in cases))
        expanded = _without_mods(terms)
        if expanded is not None:
            best = max(best, self.least(expanded, depth - 1))
        for known in self._known(terms, depth - 1):
            best = max(best, self._by_inequality(terms, known, depth))
        return best

    def _by_intervals(self, terms: Terms, depth: int) -> Bound:
        """The sum of the least values of all terms."""
        total: Bound = 0
        for monomial, coefficient in terms.items():
            interval: Interval = (coefficient, coefficient)
            for factor, power in monomial:
                interval = _multiply(interval, _power(self._interval(factor, depth), power))
            total += interval[0]
        return total

    def _interval(self, factor: Factor, depth: int) -> Interval:
        stated = self.facts.stated_bounds(factor)
        if factor.kind == VAR:
            return stated
        low, high = self._of_operands(factor, max(depth - 1, 0))
        return max(low, stated[0]), min(high, stated[1])

    def _by_shifts(self, terms: Terms, depth: int) -> Bound:
        """Write each factor as its least value plus a new one that is not negative."""
        shifted: Terms = {}
        for monomial, coefficient in terms.items():
            product: Terms = {(): coefficient}
            for factor, power in monomial:
                low = self._interval(factor, depth)[0]
                if low == -INFINITY:
                    return -INFINITY
                step: Terms = {((factor, 1),): 1}
                if low:
                    step[()] = int(low)
                for _ in range(power):
                    product = multiply_terms(product, step)
            shifted = add_terms(shifted, product, 1)
            if len(shifted) > _MAX_TERMS:
                return -INFINITY
        total: Bound = 0
        for monomial, coefficient in shifted.items():
            if not monomial:
                total += coefficient
            elif coefficient < 0:
                greatest: Bound = 1
                for factor, power in monomial:
                    low, high = self._interval(factor, depth)
                    greatest = _times(greatest, (high - low) ** power)
                total += _times(coefficient, greatest)
        return total

    def _known(self, terms: Terms, depth: int) -> Iterable[Terms]:
        yield from self.facts.inequalities()
        factors = {factor for monomial in terms for factor, _ in monomial}
        factors.update(self.facts.constrained_factors())
        for factor in sorted(factors, key=str):
            yield from self._facts_of_factor(factor, depth)

    def _by_inequality(self, terms: Terms, known: Terms, depth: int) -> Bound:
        """Bound ``n*terms`` from below by what is left without a positive multiple of known."""
        best: Bound = -INFINITY
        for monomial, known_coefficient in known.items():
            coefficient = terms.get(monomial, 0)
            if monomial and coefficient * known_coefficient > 0:
                n = abs(known_coefficient)
                scaled = {m: n * c for m, c in terms.items()}
                rest = add_terms(scaled, known, -abs(coefficient))
                low = self.least(rest, depth - 1)
                best = max(best, low if math.isinf(low) else -(-int(low) // n))
        return best

    def _facts_of_factor(self, factor: Factor, depth: int) -> Iterable[Terms]:
        """Polynomials over the factor and its operands that are never negative."""
        this: Terms = {((factor, 1),): 1}
        if factor.kind == FLOORDIV:
            x, n = terms_of(factor.operands[0]), terms_of(factor.operands[1])
            if self.bounds(factor.operands[1], depth)[0] >= 1:
                product = multiply_terms(this, n)
                yield add_terms(x, product, -1)
                yield add_terms(add_terms(add_terms(product, n, 1), {(): 1}, -1), x, -1)
        elif factor.kind == MAX:
            for operand in factor.operands:
                yield add_terms(this, terms_of(operand), -1)
        elif factor.kind == MIN:
            for operand in factor.operands:
                yield add_terms(terms_of(operand), this, -1)
        elif factor.kind == MOD and self.bounds(factor.operands[0], depth)[0] >= 0:
            yield add_terms(terms_of(factor.operands[0]), this, -1)

    def _of_operands(self, factor: Factor, depth: int) -> Interval:
        intervals = [self.bounds(operand, depth) for operand in factor.operands]
        if factor.kind == MAX:
            return max(low for low, _ in intervals), max(high for _, high in intervals)
        if factor.kind == MIN:
            return min(low for low, _ in intervals), min(high for _, high in intervals)
        (low, high), (least, greatest) = intervals
        if least < 1:
            return -INFINITY, INFINITY
        if factor.kind == MOD:
            top = greatest - 1
            return 0, min(top, high) if low >= 0 else top
        return min(_floor(low, least), _floor(low, greatest)), max(
            _floor(high, least), _floor(high, greatest)
        )


def _extremum_in(terms: Terms) -> Factor | None:
    """A max or min of the terms, or of what is inside of their factors; the first by its text."""
    found: list[Factor] = []
    for monomial in terms:
        for factor, _ in monomial:
            if factor.kind in {MAX, MIN}:
                found.append(factor)
            elif factor.kind != VAR:
                inner = [_extremum_in(terms_of(operand)) for operand in factor.operands]
                found += [factor for factor in inner if factor is not None]
    return min(found, key=str, default=None)


def _replaced(terms: Terms, factor: Factor, value: Terms) -> Terms:
    """The polynomial with a value in the place of a factor, also inside of other factors."""
    result: Terms = {}
    for monomial, coefficient in terms.items():
        product: Terms = {(): coefficient}
        for other, power in monomial:
            step = value if other == factor else {((_inside(other, factor, value), 1),): 1}
            for _ in range(power):
                product = multiply_terms(product, step)
        result = add_terms(result, product, 1)
    return result


def _inside(other: Factor, factor: Factor, value: Terms) -> Factor:
    if other.kind == VAR:
        return other
    operands = [
        from_terms(x.scope, _replaced(terms_of(x), factor, value)) if isinstance(x, DimExpr) else x
        for x in other.operands
    ]
    return Factor(other.kind, tuple(operands))


def _without_mods(terms: Terms) -> Terms | None:
    """The polynomial with ``mod(x, n)`` as ``x - n*floordiv(x, n)``; None if there is none."""
    changed = False
    result: Terms = {}
    for monomial, coefficient in terms.items():
        product: Terms = {(): coefficient}
        for factor, power in monomial:
            step: Terms = {((factor, 1),): 1}
            if factor.kind == MOD:
                changed = True
                x, n = factor.operands
                quotient: Terms = {((Factor(FLOORDIV, (x, n)), 1),): 1}
                step = add_terms(terms_of(x), multiply_terms(terms_of(n), quotient), -1)
            for _ in range(power):
                product = multiply_terms(product, step)
        result = add_terms(result, product, 1)
    return result if changed else None


def _floor(a: Bound, b: Bound) -> Bound:
    """``a // b`` for b >= 1, also at infinity."""
    if math.isinf(a):
        # An infinite divisor never makes an unbounded numerator finite.
        return a
    if math.isinf(b):
        return 0 if a >= 0 else -1
    return int(a) // int(b)


def _times(a: Bound, b: Bound) -> Bound:
    """The product, with 0 * infinity = 0: the bound of a factor that is always 0."""
    return 0 if a == 0 or b == 0 else a * b


def _multiply(a: Interval, b: Interval) -> Interval:
    corners = [_times(x, y) for x in a for y in b]
    return min(corners), max(corners)


def _power(a: Interval, power: int) -> Interval:
    result = a
    for _ in range(power - 1):
        result = _multiply(result, a)
    if power % 2 == 0 and a[0] < 0 < a[1]:
        return 0, max(a[0] ** power, a[1] ** power)
    return result
