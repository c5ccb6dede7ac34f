"""The incomplete beta function over its factor: by a fraction, of large parameters by a quadrature.

Source: Didonato, Morris (1992), ACM Trans. Math. Softw. 18(3), for the fraction.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from functools import cache
from typing import Any

import numpy as np

from tracebridge.core import lax
from tracebridge.core.control.loops.while_loop import while_loop
from tracebridge.core.lax.ad_util import full_of
from tracebridge.core.special.beta_factors import distance_from_mean
from tracebridge.core.special.expansions import log1p_less_of_small
from tracebridge.core.special.programs import Expression, divided, some, where, with_derivative

TERMS = 20000
# The fraction has about as many terms as the root of the parameters; of these ones more than the
# quadrature has nodes.
_LARGE = 1000.0
# Nodes, and where the integrand ends: at exp(-this).
_NODES = {np.dtype(np.float32): (12, 20.0), np.dtype(np.float64): (28, 41.0)}


def over_factor(a: Expression, b: Expression, x: Expression, y: Expression) -> Expression:
    """``a`` times the incomplete beta function over ``x**a y**b / beta(a, b)``, up to the mean.

    Here ``y = 1 - x``.
    """
    large, modest, ample = _split(a, b, x, y)
    return where(large, _quadrature(large, None, *ample)[0], _fraction(*modest))


def over_factor_with_slope(
    own: Expression, a: Expression, b: Expression, x: Expression, y: Expression
) -> tuple[Expression, Expression]:
    """`over_factor`, and its slope in ``a`` where ``own``, else in ``b``."""
    large, modest, ample = _split(a, b, x, y)
    value, slope = with_derivative(_fraction, modest, [own, ~own, None, None])
    other_value, other_slope = _quadrature(large, own, *ample)
    return where(large, other_value, value), where(large, other_slope, slope)


def _split(*xs: Expression) -> tuple[Expression, list[Expression], list[Expression]]:
    """Where parameters are large, operands for the others, and for these."""
    large = (xs[0] > _LARGE) & (xs[1] > _LARGE)
    modest = [where(large, v, x) for v, x in zip((1.0, 1.0, 0.25, 0.75), xs, strict=True)]
    ample = [where(large, x, v) for v, x in zip((2e3, 2e3, 0.5, 0.5), xs, strict=True)]
    return large, modest, ample


def _quadrature(
    needed: Expression,
    own: Expression | None,
    a: Expression,
    b: Expression,
    x: Expression,
    y: Expression,
) -> list[Expression]:
    """The integral of ``a (1 - u)**(a - 1) (1 + u x / y)**(b - 1) / y`` from 0 to 1, and a slope.

    By Gauss' rule, to where nothing is left: the logarithm is a parabola with small changes. It
    goes down from 0 on, or is level there, as ``x`` is not above the mean.
    """
    kind = x.aval.dtype
    count, end = _NODES[kind]
    odds = x / y
    low, high = a - 1.0, b - 1.0
    fall = (distance_from_mean(a, b, x, y) + (x * 2.0 - 1.0)) / y
    down = fall.of(lax.max, 0.0)
    bend = low + high * odds * odds
    width = (2.0 * end) / (down + (down * down + bend * (2.0 * end)).of(lax.sqrt))
    scalar = x.aval.update(shape=())
    nodes, weights = _rule(kind, count)
    last = where(Expression(some(needed)), Expression(full_of(scalar, float(count))), 0.0)

    def body(carry: Any) -> Any:
        n, *rest = carry
        width, low, high, odds, fall, *totals = map(Expression, rest)
        at = lax.convert_dtype(n, np.dtype(np.int32))
        node, weight = [
            Expression(lax.dynamic_index_in_dim(v, at, keepdims=False)) for v in (nodes, weights)
        ]
        u = width * node
        v = u * odds
        logs = [log1p_less_of_small(-u), log1p_less_of_small(v)]
        part = weight * (low * logs[0] + high * logs[1] - fall * u).of(lax.exp)
        totals[0] = totals[0] + part
        if own is not None:
            totals[1] = totals[1] + part * where(own, logs[0] - u, logs[1] + v)
        return [lax.add(n, full_of(scalar, 1.0)), *rest[:5], *[v.value for v in totals]]

    given = [v.value for v in (width, low, high, odds, fall)]
    sums = [x.filled(0.0).value] * (1 if own is None else 2)
    start = [full_of(scalar, 0.0), *given, *sums]
    found = while_loop(lambda c: lax.lt(c[0], last.value), body, start)[6:]
    totals = [Expression(v) * (width * (a / y)) for v in found]
    if own is not None:
        totals[1] = totals[1] + where(own, totals[0] / a, 0.0)
    return totals


@cache
def _rule(kind: Any, count: int) -> tuple[Any, Any]:
    """Nodes and weights of Gauss' rule from 0 to 1.

    With more digits than those of NumPy, whose weights lack two.
    """
    nodes, weights = np.zeros(count, kind), np.zeros(count, kind)
    with localcontext() as context:
        context.prec = 40
        for i, guess in enumerate(np.polynomial.legendre.leggauss(count)[0]):
            near, _ = _nearer_root(Decimal(float(guess)), count)
            x, slope = _nearer_root(near, count)
            nodes[i], weights[i] = float((x + 1) / 2), float(1 / ((1 - x * x) * slope * slope))
    return nodes, weights


def _nearer_root(x: Decimal, count: int) -> tuple[Decimal, Decimal]:
    """A root of Legendre's polynomial by one step of Newton's from ``x``, and the slope there."""
    last, value = _legendre(x, count)
    slope = count * (last - x * value) / (1 - x * x)
    return x - value / slope, slope


def _legendre(x: Decimal, count: int) -> tuple[Decimal, Decimal]:
    """Two Legendre polynomials, of the degree ``count`` the second one."""
    last, value = Decimal(1), x
    for n in range(1, count):
        last, value = value, ((2 * n + 1) * x * value - n * last) / (n + 1)
    return last, value


def _fraction(a: Expression, b: Expression, x: Expression, y: Expression) -> Expression:
    """The fraction of Didonato and Morris times ``a``; no terms cancel.

    Each term moves the sum of all, by Steed's method: what it divides is in one place.
    """
    eps, scalar = x.eps(), x.aval.update(shape=())

    def active(state: list[Any]) -> Any:
        moved, total = [Expression(v).of(lax.abs) for v in state[1:]]
        return some(moved > total * eps)

    def goes_on(carry: Any) -> Any:
        n, last, *_ = carry
        # A quarter of terms more after all have converged, for the sake of derivatives.
        end = lax.min(lax.add(lax.mul(last, 1.25), 4.0), full_of(scalar, TERMS))
        return lax.lt(n, end)

    def body(carry: Any) -> Any:
        n, last, *rest = carry
        first = lax.eq(n, full_of(scalar, 0.0))
        n = lax.add(n, full_of(scalar, 1.0))
        # A zero of each step: else XLA computes parts outside, as further arrays.
        zero = lax.min(n, full_of(scalar, 0.0))
        given = [Expression(lax.add(v, zero)) for v in rest[:5]]
        ratio, moved, total = [where(Expression(first), 1.0, Expression(v)) for v in rest[5:]]
        ratio = _next_ratio(Expression(n), Expression(first), given, ratio)
        moved = (ratio - 1.0) * moved
        state = [ratio.value, moved.value, (total + moved).value]
        last = lax.select(active(state), n, last)
        return [n, last, *rest[:5], *state]

    zero = full_of(scalar, 0.0)
    # One gap for all: in a step of its own it would be rounded in another way, and the sum is over
    # it, however small it is.
    # Its value is that of the exact distance from the mean; the slopes are those in the parameters.
    fixed_a, fixed_b = a.of(lax.stop_gradient), b.of(lax.stop_gradient)
    gap = distance_from_mean(fixed_a, fixed_b, x, y) + 1.0
    gap = gap + ((a - fixed_a) * y - (b - fixed_b) * x)
    given = [v.value for v in (a, b, x, y, gap)]
    total = Expression(while_loop(goes_on, body, [zero, zero, *given, *given[:3]])[-1])
    return total * (a + 1.0) / gap


def _next_ratio(
    n: Expression, first: Expression, given: list[Expression], ratio: Expression
) -> Expression:
    """``1 / (1 + c_n ratio)``, where ``c_n`` is term ``n`` over the two denominators beside it."""
    a, b, x, y, gap = given
    # The factor a + n - 1 of a term, but 1 for the first.
    lead = where(first, 1.0, a + (n - 1.0))
    even = a + (n * 2.0 - 1.0)
    inverses = [divided(1.0, v) for v in (where(first, 1.0, even - 2.0), even, even + 2.0)]
    step = y + 1.0
    part = n * (b - n) * x * inverses[1]
    old_part = (n - 1.0) * (b - (n - 1.0)) * x * inverses[0]
    top = lead * inverses[1] * (a + b + (n - 1.0)) * x * part
    old = (n - 1.0) + old_part + lead * (gap + (n - 1.0) * step) * inverses[1]
    below = n + part + (a + n) * (gap + n * step) * inverses[2]
    both = old * below
    return both / (both + top * ratio)
