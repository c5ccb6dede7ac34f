"""Expansions that the incomplete gamma and beta functions share.

Sources: NIST DLMF 5.11 and 8.12; Temme (1979), SIAM J. Math. Anal. 10(4).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any

from tracebridge.core import lax
from tracebridge.core.control.loops.fori import fori_loop
from tracebridge.core.lax.roundings import lost_of_product
from tracebridge.core.special.programs import Expression, divided, polynomial, where

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value

STIRLING_FROM = 10.0
"""From here on eight terms of Stirling's series are exact to the last digit."""
_BERNOULLI = (
    Fraction(1, 12),
    Fraction(-1, 360),
    Fraction(1, 1260),
    Fraction(-1, 1680),
    Fraction(1, 1188),
    Fraction(-691, 360360),
    Fraction(1, 156),
    Fraction(-3617, 122400),
)
# zeta(k) - 1 for k = 2, 3, ...: the Taylor coefficients of log(gamma) at 1, but for 1/k.
_ZETA_LESS_1 = 40
_EULER = 0.5772156649015329


def stirling_rest(a: Expression) -> Expression:
    """``log(gamma(a)) - ((a - 1/2) log(a) - a + log(2 pi) / 2)`` for ``a >= STIRLING_FROM``."""
    inverse = divided(1.0, a)
    return inverse * polynomial(inverse * inverse, needed(_BERNOULLI, 0.01, a))


def log_gamma_step(a: Expression, b: Expression) -> Expression:
    """``log(gamma(a + b) / gamma(a))`` of positive numbers, with the digits of small ``b``."""

    def grow(k: Value, grown: Value) -> Any:
        # A loop of the program: ten copies of a division take longer to compile.
        growth = b / (a + Expression(lax.convert_element_type(k, a.aval.dtype)))
        return (Expression(grown) * growth + growth + Expression(grown)).value

    grown = Expression(fori_loop(0, int(STIRLING_FROM), grow, a.filled(0.0).value))
    top = a + STIRLING_FROM
    ratio = (b / top).of(lax.log1p)
    step = (top - 0.5) * ratio - b + b * (top + b).of(lax.log)
    power = divided(1.0, top)
    square = power * power
    for k, c in enumerate(needed(_BERNOULLI, 0.01, a)):
        step = step + c * power * (ratio * -(2.0 * k + 1.0)).of(lax.expm1)
        power = power * square
    return step - grown.of(lax.log1p)


def digamma_gap(a: Expression, b: Expression) -> Expression:
    """``digamma(a + b) - digamma(a)`` of positive numbers, with the digits of small ``b``.

    The sum of ``b / ((a + k)(a + b + k))`` up to ``STIRLING_FROM``, and the difference of
    Stirling's series from there on.
    """
    whole = a + b
    small = a < STIRLING_FROM
    scaled = divided(1.0, b + 1.0)
    low = where(small, a, 1.0)
    # The sum as one quotient, of factors over 1 + b.
    above, below = a.filled(0.0), a.filled(1.0)
    for k in range(1, int(STIRLING_FROM)):
        factor = (low + float(k)) * ((low + float(k)) * scaled + b * scaled)
        above, below = above * factor + below, below * factor
    steps = (b / whole) / a + above / below * (b * scaled)
    top = where(small, a + STIRLING_FROM, a)
    first, second = divided(1.0, top), divided(1.0, top + b)
    gap = (b * second) * first
    # The divided difference of the series, by Horner's rule.
    terms = needed([(2 * k + 1) * c for k, c in enumerate(_BERNOULLI)], 0.01, a)
    value, change = a.filled(terms[-1]), a.filled(0.0)
    one, other = first * first, second * second
    for c in [*terms[-2::-1], 0.0]:
        change = change * one + value
        value = value * other + c
    far = (b * first).of(lax.log1p) + gap * ((first + second) * change + 0.5)
    return where(small, steps, 0.0) + far


def digamma_rest(a: Expression) -> Expression:
    """``digamma(a) - log(a)`` for ``a >= STIRLING_FROM``."""
    inverse = divided(1.0, a)
    square = inverse * inverse
    terms = [-(2 * k + 1) * b for k, b in enumerate(_BERNOULLI)]
    return inverse * -0.5 + square * polynomial(square, needed(terms, 0.01, a))


def log1p_less(u: Expression, above: Expression) -> Expression:
    """``log(1 + u) - u``, without cancellation near 0; ``above`` is ``1 + u`` to its last digit."""
    close = log1p_less_of_small(where(u.of(lax.abs) < 0.5, u, 0.0))
    return where(u.of(lax.abs) < 0.5, close, above.of(lax.log) - u)


def log1p_less_of_small(u: Expression) -> Expression:
    """The same up to a half.

    In ``r = u / (2 + u)`` the logarithm is ``2 atanh(r)``, and ``u = 2 r / (1 - r)``.
    """
    r = divided(u, u + 2.0)
    y = r * r
    terms = [Fraction(1, 2 * k + 3) for k in range(16)]
    return r * (2.0 * y * polynomial(y, needed(terms, 1 / 9, u)) - u)


def log_gamma_1p(a: Expression) -> Expression:
    """``log(gamma(1 + a))`` for ``a`` in ``[0, 1.5]``, with its zeros at 0 and 1."""
    high = a > 0.5
    b = where(high, a - 1.0, a)
    coefficients = [(-1) ** k * zeta_less_1(k) / k for k in range(2, _ZETA_LESS_1)]
    near = (
        b * b * polynomial(b, needed(coefficients, 0.5, a)) + b * (1.0 - _EULER) - b.of(lax.log1p)
    )
    return where(high, near + where(high, a, 1.0).of(lax.log), near)


def inverse_gamma_1p(a: Expression) -> Expression:
    """``1 / gamma(1 + a)`` for ``a`` in ``[0, STIRLING_FROM]``, not by a large logarithm.

    A power series around the nearest whole number ``n``, over the ``n`` numbers down from ``a``.
    """
    steps = (a + 0.5).of(lax.floor)
    rest = a - steps
    below = a.filled(1.0)
    for k in range(1, int(STIRLING_FROM) + 1):
        below = below * where(steps >= float(k), rest + float(k), 1.0)
    return polynomial(rest, needed(_inverse_gamma_terms(), 0.5, a)) / below


@cache
def _inverse_gamma_terms() -> list[float]:
    """Taylor coefficients of ``1 / gamma(1 + x)`` at 0, from its logarithm's (DLMF 5.7.3)."""
    terms = [1.0]
    for n in range(1, 27):
        sums = [(-1) ** (k + 1) * (1.0 + zeta_less_1(k)) * terms[n - k] for k in range(2, n + 1)]
        terms.append(math.fsum([_EULER * terms[-1], *sums]) / n)
    return terms


def remainder(x: Expression, quotient: Expression, divisor: Expression) -> Expression:
    """``x - quotient * divisor`` where the quotient is the rounded one: the exact difference."""
    return -x.of(lost_of_product, quotient, divisor)


def needed(terms: Sequence[float | Fraction], radius: float, x: Expression) -> list[float]:
    """The coefficients that matter in the dtype of ``x`` up to ``radius``."""
    kept = [float(c) for c in terms]
    least = abs(kept[0]) * x.eps() / 32.0
    while abs(kept[-1]) * radius ** (len(kept) - 1) < least:
        kept.pop()
    return kept


@cache
def powers_of_chebyshev(coefficients: tuple[float, ...]) -> tuple[float, ...]:
    """The coefficients of the powers, constant first, of a sum of Chebyshev polynomials.

    Horner's rule takes half of the operations of Clenshaw's, and is as exact where coefficients
    fall as those of analytic functions do.
    """
    powers = [Fraction(0)] * len(coefficients)
    last, this = [Fraction(0)], [Fraction(1)]
    for n, c in enumerate(coefficients):
        for i, factor in enumerate(this):
            powers[i] += factor * Fraction(c)
        # T(n + 1) = 2 x T(n) - T(n - 1), but T(1) is x.
        following = [Fraction(0), *[(2 if n else 1) * factor for factor in this]]
        last, this = this, [v - w for v, w in zip(following, [*last, 0, 0, 0], strict=False)]
    return tuple([float(p) for p in powers])


@cache
def zeta_less_1(k: int) -> float:
    """``zeta(k) - 1``, by Euler and Maclaurin's formula."""
    n = 40
    total = math.fsum(m**-k for m in range(2, n))
    tail = n ** (1 - k) / (k - 1) + n**-k / 2 + k * n ** (-k - 1) / 12
    tail -= k * (k + 1) * (k + 2) * n ** (-k - 3) / 720
    tail += k * (k + 1) * (k + 2) * (k + 3) * (k + 4) * n ** (-k - 5) / 30240
    tail -= math.prod(range(k, k + 7)) * n ** (-k - 7) / 1209600
    return total + tail


@cache
def uniform_coefficients(eps: float) -> list[list[float]]:
    """Rows ``k`` of coefficients of ``eta**n`` in Temme's expansion in ``a**-k`` (DLMF 8.12.11).

    Terms that are far below ``eps`` for ``a >= 200`` and ``abs(eta) <= 0.36`` are left out.
    """
    orders, degree = 8, 40
    alpha = [Fraction(0), Fraction(1), Fraction(1, 3)]
    for n in range(3, degree + 3):
        inner = sum((j * alpha[j] * alpha[n + 1 - j] for j in range(2, n)), Fraction(0))
        alpha.append((alpha[n - 1] - inner) / (n + 1))
    first = [Fraction(-1, 3), *[(n + 2) * alpha[n + 2] for n in range(1, degree)]]
    # The coefficients of gamma's own expansion, exp(sum of Stirling's series).
    logs = [Fraction(0)] * orders
    for i, b in enumerate(_BERNOULLI):
        if 2 * i + 1 < orders:
            logs[2 * i + 1] = b
    g = [Fraction(1)]
    for n in range(1, orders):
        g.append(sum((j * logs[j] * g[n - j] for j in range(1, n + 1)), Fraction(0)) / n)
    rows, row = [], first
    for k in range(orders):
        if k:
            width = len(row) - 2
            row = [(-1) ** k * g[k] * first[n] + (n + 2) * row[n + 2] for n in range(width)]
        kept = [float(c) for c in row]
        while kept and abs(kept[-1]) * 0.36 ** (len(kept) - 1) * 200.0**-k < eps / 2000.0:
            kept.pop()
        if kept:
            rows.append(kept)
    return rows
