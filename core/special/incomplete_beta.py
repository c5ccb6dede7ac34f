"""The regularized incomplete beta function.

Source: NIST DLMF 8.17; Didonato, Morris (1992), ACM Trans. Math. Softw. 18(3), for the factor
``x**a (1 - x)**b / beta(a, b)`` at large parameters.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, final

from tracebridge.core import lax
from tracebridge.core.errors.transform_errors import MissingRuleError
from tracebridge.core.lax.ad_util import full_of
from tracebridge.core.lax.families import operands
from tracebridge.core.special.expansions import (
    STIRLING_FROM,
    digamma_rest,
    log1p_less,
    repeat,
    stirling_rest,
)
from tracebridge.core.special.programs import Expression, Smooth, first_of, where, with_derivative

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Operand, Value

_INF = math.inf
_TERMS = 20000


def log_beta(a: Expression, b: Expression) -> Expression:
    """``log(beta(a, b))`` of positive numbers, without cancellation where one is large."""
    small, large = a.of(lax.min, b), a.of(lax.max, b)
    # Both below the bound: the sum of three numbers of modest size.
    low, high = (where(v < STIRLING_FROM, v, 1.0) for v in (small, large))
    plain = low.of(lax.lgamma) + (high.of(lax.lgamma) - (low + high).of(lax.lgamma))
    top = where(large < STIRLING_FROM, STIRLING_FROM, large)
    whole = top + small
    shift = (top - 0.5) * -((small / top).of(lax.log1p)) - small * whole.of(lax.log) + small
    shift = shift + (stirling_rest(top) - stirling_rest(whole))
    one_large = low.of(lax.lgamma) + shift
    big = where(small < STIRLING_FROM, STIRLING_FROM, small)
    share = big / (big + top)
    logs = (big - 0.5) * share.of(lax.log) - top * (big / top).of(lax.log1p)
    rests = stirling_rest(big) + stirling_rest(top) - stirling_rest(big + top)
    both_large = logs - top.of(lax.log) * 0.5 + 0.5 * math.log(2.0 * math.pi) + rests
    return first_of(
        [(small >= STIRLING_FROM, both_large), (large >= STIRLING_FROM, one_large)], plain
    )


def _log_factor(a: Expression, b: Expression, x: Expression, y: Expression) -> Expression:
    """``log(x**a y**b / beta(a, b))`` where ``y = 1 - x``."""
    large = (a >= STIRLING_FROM) & (b >= STIRLING_FROM)
    p, q = (where(large, v, STIRLING_FROM) for v in (a, b))
    # At x = p / (p + q) the power has its maximum, around which it is expanded.
    gap = where(p <= q, x * q - p * y, p * -y + q * x)
    u, v = gap / p, -gap / q
    whole = p + q
    power = p * log1p_less(u, whole * x / p) + q * log1p_less(v, whole * y / q)
    rests = stirling_rest(whole) - stirling_rest(p) - stirling_rest(q)
    scale = (p / whole * q * (0.5 / math.pi)).of(lax.log) * 0.5
    far = a * x.of(lax.log) + b * where(x < 0.5, (-x).of(lax.log1p), y.of(lax.log))
    return where(large, power + rests + scale, far - log_beta(a, b))


def _fraction(
    inside: Expression, a: Expression, b: Expression, x: Expression, y: Expression
) -> Expression:
    """The fraction of Didonato and Morris over ``a``, by Lentz's method; no terms cancel."""
    eps, tiny = x.eps(), 1e-30

    def safe(v: Expression) -> Expression:
        return where(v.of(lax.abs) < tiny, tiny, v)

    gap = where(b * x < 0.5, a * y + (1.0 - b * x), (a * y - b * x) + 1.0)
    first = safe(gap / (a + 1.0))

    def step(n: Expression, lead: Expression, c: Expression, d: Expression, h: Expression) -> Any:
        even = a + (n * 2.0 - 1.0)
        part = n * (b - n) * x / even
        top = lead / even * (a + b + (n - 1.0)) * x * part
        below = n + part + (a + n) * (gap + n * (1.0 + y)) / (even + 2.0)
        d = 1.0 / safe(below + top * d)
        c = safe(below + top / c)
        ratio = c * d
        return (ratio - 1.0).of(lax.abs) <= eps, a + n, c, d, h * ratio

    # The factor a + n - 1 of a term, but 1 for the first.
    return repeat(inside, step, [a.filled(1.0), first, a.filled(0.0), first], _TERMS)[3]


def _betainc(a: Expression, b: Expression, x: Expression) -> Expression:
    a_is_0 = a.is_equal(0.0) | b.is_equal(_INF)
    b_is_0 = b.is_equal(0.0) | a.is_equal(_INF)
    x_is_0, x_is_1 = x.is_equal(0.0), x.is_equal(1.0)
    nowhere = (a < 0.0) | (b < 0.0) | (x < 0.0) | (x > 1.0)
    nowhere = nowhere | a.is_nan() | b.is_nan() | x.is_nan() | (a_is_0 & b_is_0)
    known = nowhere | a_is_0 | b_is_0 | x_is_0 | x_is_1
    a, b = (where(known, 1.0, v) for v in (a, b))
    x = where(known, 0.25, x)
    y = 1.0 - x
    # The fraction converges quickly up to the mean; beyond it the tail is computed.
    turned = x > (a + 1.0) / (a + b + 2.0)
    p, q = where(turned, b, a), where(turned, a, b)
    z, one_minus_z = where(turned, y, x), where(turned, x, y)
    factor = _log_factor(p, q, z, one_minus_z).of(lax.exp)
    part = factor / p / _fraction(~known, p, q, z, one_minus_z)
    inner = where(turned, 1.0 - part, part)
    return first_of(
        [
            (nowhere, math.nan),
            ((b_is_0 & ~x_is_1) | (a_is_0 & x_is_0), 0.0),
            (a_is_0 | b_is_0, 1.0),
            (x_is_0, 0.0),
            (x_is_1, 1.0),
        ],
        inner,
    )


def _density(a: Expression, b: Expression, x: Expression) -> Expression:
    nowhere = ~((a > 0.0) & (b > 0.0) & (x >= 0.0) & (x <= 1.0) & (a < _INF) & (b < _INF))
    x_is_0, x_is_1 = x.is_equal(0.0), x.is_equal(1.0)
    edge = nowhere | x_is_0 | x_is_1
    p, q, z = where(edge, 1.0, a), where(edge, 1.0, b), where(edge, 0.5, x)
    inner = (_log_factor(p, q, z, 1.0 - z) - (z * (1.0 - z)).of(lax.log)).of(lax.exp)
    # At an end: infinite below the power 0, the other parameter there, and 0 above.
    power, other = where(x_is_0, a, b), where(x_is_0, b, a)
    end = first_of([(power < 1.0, _INF), (power > 1.0, 0.0)], other)
    return first_of([(nowhere, math.nan), (edge, end)], inner)


@final
class RegularizedIncompleteBeta(Smooth):
    name = "regularized_incomplete_beta"
    public = "betainc"

    def formula(self, *xs: Expression) -> Expression:
        return _betainc(*xs)

    def slope(self, i: int, ans: Value, *xs: Value) -> Any:
        slopes = (betainc_grad_a_p, betainc_grad_b_p, beta_density_p)
        return slopes[i].bind(*xs)


def _rate(
    p: Expression, q: Expression, x: Expression, y: Expression, full: Expression
) -> Expression:
    """The derivative of ``log(x**p y**q / beta(p, q))`` in ``p``, where ``y = 1 - x``.

    Without ``1 / p`` where not ``full``: beside its pole it would leave no digits of the rest.
    """
    large = p >= STIRLING_FROM
    a, b = where(large, p, STIRLING_FROM), where(large, q, STIRLING_FROM)
    u = where(a <= b, x * b - a * y, a * -y + b * x) / a
    close = u.of(lax.abs) < 0.5
    log = where(close, where(close, u, 0.0).of(lax.log1p), ((a + b) * x / a).of(lax.log))
    far = log + (digamma_rest(a + b) - digamma_rest(a))
    far = far - where(full, 0.0, 1.0 / a)
    low, high = (where(large, 1.0, v) for v in (p, q))
    near = where(x > 0.5, (-y).of(lax.log1p), x.of(lax.log))
    near = near - where(full, low, low + 1.0).of(lax.digamma) + (low + high).of(lax.digamma)
    return where(large, far, near)


class _ParameterSlope(Smooth):
    """The derivative of betainc in a parameter, also of the fraction through its loop."""

    index: ClassVar[int]

    def formula(self, *xs: Expression) -> Expression:
        a, b, x = xs
        nowhere = ~((a >= 0.0) & (b >= 0.0) & (x >= 0.0) & (x <= 1.0))
        nowhere = nowhere | (a.is_equal(0.0) & b.is_equal(0.0))
        nowhere = nowhere | (a.is_equal(_INF) & b.is_equal(_INF))
        known = nowhere | x.is_equal(0.0) | x.is_equal(1.0) | a.is_equal(_INF) | b.is_equal(_INF)
        # Close to 0 the derivative is what it is at 0.
        a, b = (where(known, 1.0, where(v.is_equal(0.0), 1e-30, v)) for v in (a, b))
        x = where(known, 0.25, x)
        y = 1.0 - x
        turned = x > (a + 1.0) / (a + b + 2.0)
        z, one_minus_z = where(turned, y, x), where(turned, x, y)

        def fraction(v: Expression) -> Expression:
            first, second = (v, b) if self.index == 0 else (a, v)
            p, q = where(turned, second, first), where(turned, first, second)
            return _fraction(~known, p, q, z, one_minus_z)

        own = a if self.index == 0 else b
        value, slope = with_derivative(fraction, own)
        p, q = where(turned, b, a), where(turned, a, b)
        part = _log_factor(p, q, z, one_minus_z).of(lax.exp) / p / value
        rate = _rate(a, b, x, y, turned) if self.index == 0 else _rate(b, a, y, x, ~turned)
        inner = where(part.is_equal(0.0), 0.0, part * (rate - slope / value))
        return first_of([(nowhere, math.nan), (known, 0.0)], where(turned, -inner, inner))

    def slope(self, i: int, ans: Value, *xs: Value) -> Any:
        if i < 2:
            msg = "betainc has no second derivative in its first two arguments"
            raise MissingRuleError(self.name, "jvp", message=msg)
        return beta_density_p.slope(self.index, beta_density_p.bind(*xs), *xs)


@final
class BetaincGradA(_ParameterSlope):
    name = "betainc_grad_a"
    index = 0


@final
class BetaincGradB(_ParameterSlope):
    name = "betainc_grad_b"
    index = 1


@final
class BetaDensity(Smooth):
    """The derivative of betainc in ``x``; its own derivatives are elementary."""

    name = "beta_density"

    def formula(self, *xs: Expression) -> Expression:
        return _density(*xs)

    def slope(self, i: int, ans: Value, *xs: Value) -> Any:
        a, b, x = xs
        y = lax.sub(1.0, x)
        if i == 2:
            rate = lax.sub(lax.div(lax.sub(a, 1.0), x), lax.div(lax.sub(b, 1.0), y))
        else:
            own = (a, b)[i]
            log = lax.log(x) if i == 0 else lax.log1p(lax.neg(x))
            rate = lax.add(lax.sub(log, lax.digamma(own)), lax.digamma(lax.add(a, b)))
        rate = rate if rate.aval.shape == ans.aval.shape else lax.broadcast_like(rate, ans)
        return lax.mul(ans, lax.select(lax.eq(ans, 0.0), full_of(rate.aval, 0.0), rate))


@final
class LogBeta(Smooth):
    """The logarithm of the beta function of numbers that are not negative."""

    name = "log_beta"

    def formula(self, *xs: Expression) -> Expression:
        a, b = xs
        some_0 = a.is_equal(0.0) | b.is_equal(0.0)
        some_inf = a.is_equal(_INF) | b.is_equal(_INF)
        nowhere = ~((a >= 0.0) & (b >= 0.0)) | (some_0 & some_inf)
        edge = nowhere | some_0 | some_inf
        inner = log_beta(*[where(edge, 1.0, v) for v in (a, b)])
        return first_of([(nowhere, math.nan), (some_0, _INF), (some_inf, -_INF)], inner)

    def slope(self, i: int, ans: Value, *xs: Value) -> Any:
        return lax.sub(lax.digamma(xs[i]), lax.digamma(lax.add(*xs)))


log_beta_p = LogBeta()
regularized_incomplete_beta_p = RegularizedIncompleteBeta()
betainc_grad_a_p = BetaincGradA()
betainc_grad_b_p = BetaincGradB()
beta_density_p = BetaDensity()


def betainc(a: Operand, b: Operand, x: Operand) -> Any:
    """The regularized incomplete beta function, elementwise.

    The integral of ``t**(a - 1) (1 - t)**(b - 1)`` from 0 to ``x``, over that from 0 to 1.

    Differentiable once in ``a`` and ``b``, to any order in ``x``.

    Args:
        a: a float array, not negative.
        b: a float array of the same shape and dtype, not negative.
        x: a float array of the same shape and dtype, in ``[0, 1]``.

    Returns:
        Numbers in ``[0, 1]``; NaN where an argument is outside, or both parameters are 0.

    Raises:
        DtypeMismatchError: the dtypes differ.
        MissingRuleError: a second derivative in ``a`` or ``b`` is asked for.
        ShapeMismatchError: the shapes differ, and are no scalars.
        UnsupportedDtypeError: they are no floats.

    >>> import tracebridge as tb
    >>> float(tb.lax.betainc(2.0, 3.0, 0.5))
    0.6875
    """
    return regularized_incomplete_beta_p.bind(*operands("betainc", a, b, x))
