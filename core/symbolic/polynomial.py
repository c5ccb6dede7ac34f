"""Integer polynomials over factors, as dicts from monomials to coefficients.

Pure functions: what a factor means, and which factors are equal by constraints, is not known
here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, final

VAR: Final = "var"
FLOORDIV: Final = "floordiv"
MOD: Final = "mod"
MAX: Final = "max"
MIN: Final = "min"


@final
class Factor:
    """A variable or an operation that a polynomial cannot express. Compared by its text."""

    __slots__ = ("_hash", "kind", "operands", "order", "text")

    def __init__(self, kind: str, operands: tuple[Any, ...]) -> None:
        self.kind = kind
        self.operands = operands
        self.text: str = operands[0] if kind == VAR else f"{kind}({', '.join(map(str, operands))})"
        self._hash = hash(self.text)
        # Where the factor stands in texts: the larger ones, by their number of parts, come first.
        self.order: tuple[Any, ...] = (1, self.text, ())
        if kind != VAR:
            orders = tuple(map(_operand_order, operands))
            self.order = (1 + sum(order[0] for order in orders), kind, orders)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Factor) and self.text == other.text

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return self.text

    def __reduce__(self) -> tuple[Any, ...]:
        return Factor, (self.kind, self.operands)


Monomial = tuple[tuple[Factor, int], ...]
"""Factors with their powers, in the order of their texts; empty for the constant term."""

Terms = dict[Monomial, int]


def term_order(term: tuple[Monomial, int]) -> tuple[Any, ...]:
    """Sort key: higher degree first, then by names."""
    monomial = term[0]
    return -sum(power for _, power in monomial), [(f.text, -power) for f, power in monomial]


def written_order(term: tuple[Monomial, int]) -> tuple[Any, ...]:
    """Sort key of terms in texts, where the greatest comes first: by size, then by last names."""
    factors = sorted(((f.order, power) for f, power in term[0]), reverse=True)
    return sum(1 + power * order[0] for order, power in factors), tuple(factors)


def _operand_order(operand: Any) -> tuple[Any, ...]:
    terms = getattr(operand, "terms", (((), operand),))
    orders = sorted(((written_order(term), term[1]) for term in terms), reverse=True)
    return sum(1 + abs(c) * order[0] for order, c in orders), tuple(orders)


def term_text(monomial: Monomial, coefficient: int) -> str:
    """The text of one term without its sign."""
    ordered = sorted(monomial, key=lambda pair: pair[0].order)
    parts = [f.text if power == 1 else f"{f.text}^{power}" for f, power in ordered]
    if coefficient != 1 or not parts:
        parts.insert(0, str(coefficient))
    return "*".join(parts)


def monomial_of(powers: Mapping[Factor, int]) -> Monomial:
    """The monomial of a dict from factors to powers."""
    kept = [(f, power) for f, power in powers.items() if power]
    return tuple(sorted(kept, key=lambda pair: pair[0].text))


def multiply_monomials(a: Monomial, b: Monomial) -> Monomial:
    """The product of two monomials."""
    powers = dict(a)
    for factor, power in b:
        powers[factor] = powers.get(factor, 0) + power
    return monomial_of(powers)


def add_terms(a: Terms, b: Terms, scale: int) -> Terms:
    """``a + scale * b`` as a new dict."""
    result = dict(a)
    for monomial, coefficient in b.items():
        result[monomial] = result.get(monomial, 0) + scale * coefficient
    return {m: c for m, c in result.items() if c}


def multiply_terms(a: Terms, b: Terms) -> Terms:
    """``a * b`` as a new dict."""
    result: Terms = {}
    for m, c in a.items():
        for n, d in b.items():
            product = multiply_monomials(m, n)
            result[product] = result.get(product, 0) + c * d
    return {m: c for m, c in result.items() if c}


def _divide_monomials(a: Monomial, b: Monomial) -> Monomial | None:
    powers = dict(a)
    for factor, power in b:
        powers[factor] = powers.get(factor, 0) - power
    return None if any(power < 0 for power in powers.values()) else monomial_of(powers)


_MAX_DIVISION_STEPS: Final = 64


def divide_terms(a: Terms, b: Terms) -> tuple[Terms, Terms]:
    """Some ``(q, r)`` with ``a == q*b + r``; ``r`` is as simple as long division makes it."""
    if list(b) == [()]:
        n = b[()]
        quotient = {m: c // n for m, c in a.items()}
        remainder = {m: c % n for m, c in a.items()}
        return quotient, {m: c for m, c in remainder.items() if c}
    lead, lead_coefficient = min(b.items(), key=term_order)
    quotient, dividend = {}, a
    for _ in range(_MAX_DIVISION_STEPS):
        for monomial, coefficient in sorted(dividend.items(), key=term_order):
            ratio = _divide_monomials(monomial, lead)
            if ratio is not None and coefficient % lead_coefficient == 0:
                step = {ratio: coefficient // lead_coefficient}
                quotient = add_terms(quotient, step, 1)
                dividend = add_terms(dividend, multiply_terms(step, b), -1)
                break
        else:
            return quotient, dividend
    return {}, a
