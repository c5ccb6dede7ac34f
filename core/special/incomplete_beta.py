"""The regularized incomplete beta function.

Source: NIST DLMF 8.17; Didonato, Morris (1992), ACM Trans. Math. Softw. 18(3).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from tracebridge.core import lax
from tracebridge.core.control.branches.switch import cond
from tracebridge.core.control.loops.while_loop import while_loop
from tracebridge.core.errors.transform_errors import MissingRuleError
from tracebridge.core.lax.ad_util import full_of
from tracebridge.core.lax.families import operands
from tracebridge.core.lowering.compositions import composed
from tracebridge.core.lowering.context import register_platform_lowering
from tracebridge.core.mlir.types import is_static
from tracebridge.core.special.beta_factors import factor_of_beta, log_beta, log_factor_of_beta
from tracebridge.core.special.beta_integrals import TERMS, over_factor, over_factor_with_slope
from tracebridge.core.special.expansions import (
    STIRLING_FROM,
    digamma_gap,
    digamma_rest,
    log_gamma_1p,
    log_gamma_step,
)
from tracebridge.core.special.incomplete_gamma import share_of_power
from tracebridge.core.special.lanczos import log_beta_in_float64
from tracebridge.core.special.programs import (
    Expression,
    Smooth,
    first_of,
    some,
    where,
    with_derivative,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.ir.value import Operand, Value

_INF = math.inf


def _complement(b: Expression, a: Expression, y: Expression) -> Expression:
    """One less the answer at ``(b, a, y)`` for small ``b``, where the answer is close to 1.

    The series in ``y`` is ``1 + rest``, before it stands ``exp(log)``, both close to 1.
    """
    log = b * y.of(lax.log) - (log_gamma_1p(b) - log_gamma_step(a, b))
    rest = b * _series(b, a, y)
    return -(log.of(lax.expm1) * (rest + 1.0) + rest)


def _series(b: Expression, a: Expression, y: Expression) -> Expression:
    """The sum of ``(1 - a)_n y**n / (n! (n + b))`` from ``n = 1`` on, for small ``y (a + 1)``."""
    eps, scalar = y.eps(), y.aval.update(shape=())

    def goes_on(carry: Any) -> Any:
        n, power, total = carry[0], *[Expression(v).of(lax.abs) for v in carry[4:]]
        return lax.bitwise_and(
            lax.lt(n, full_of(scalar, TERMS)), some((power > total * eps) | (n < 2.0))
        )

    def body(carry: Any) -> Any:
        n = lax.add(carry[0], full_of(scalar, 1.0))
        b, a, y, power, total = map(Expression, carry[1:])
        power = power * y * (Expression(n) - a) / Expression(n)
        total = total + power / (b + Expression(n))
        return [n, *carry[1:4], power.value, total.value]

    zero = full_of(scalar, 0.0)
    state = [v.value for v in (b, a, y, y.filled(1.0), y.filled(0.0))]
    return Expression(while_loop(goes_on, body, [zero, *state])[-1])


def _tail(
    close: Expression, part: Expression, p: Expression, q: Expression, z: Expression
) -> Expression:
    """``1 - part``, computed as such where ``close``; without cost where that is nowhere."""
    given = [where(close, v, w).value for v, w in ((p, 0.25), (q, 1.0), (z, 0.25))]
    plain = (1.0 - part).of(lax.max, 0.0)
    found = cond(
        some(close),
        lambda *xs: _complement(*map(Expression, xs)).value,
        lambda *xs: lax.full_like(xs[0], 0.0),
        *given,
    )
    return where(close, Expression(found), plain)


def _betainc(a: Expression, b: Expression, x: Expression) -> Expression:
    a_is_0 = a.is_equal(0.0) | b.is_equal(_INF)
    b_is_0 = b.is_equal(0.0) | a.is_equal(_INF)
    x_is_0, x_is_1 = x.is_equal(0.0), x.is_equal(1.0)
    nowhere = ~((a >= 0.0) & (b >= 0.0) & (x >= 0.0) & (x <= 1.0)) | (a_is_0 & b_is_0)
    turned = _is_beyond(a, b, x)
    p, q, z, y = _from_nearer_end(turned, a, b, x)
    inside = _is_inside(a, b, x)
    given = [where(inside, v, w) for v, w in ((p, 1.0), (q, 1.0), (z, 0.25), (y, 0.75))]
    part = factor_of_beta(p, q, z, y) * (over_factor(*given) / p)
    close = turned & inside & (p < 1.0) & (p * 2.0 < q)
    tail = _tail(close, part, p, q, z)
    return first_of(
        [
            (nowhere, math.nan),
            ((b_is_0 & ~x_is_1) | (a_is_0 & x_is_0), 0.0),
            (a_is_0 | b_is_0, 1.0),
            (x_is_0, 0.0),
            (x_is_1, 1.0),
            (turned, tail),
        ],
        part,
    )


def _is_inside(a: Expression, b: Expression, x: Expression) -> Expression:
    """Where the answer is not known; formulas give anything elsewhere."""
    return (a > 0.0) & (b > 0.0) & (x > 0.0) & (x < 1.0) & (a < _INF) & (b < _INF)


def _is_beyond(a: Expression, b: Expression, x: Expression) -> Expression:
    """The fraction converges quickly up to the mean; beyond it the tail is computed.

    So it is before the fraction's first denominator ``a + 1 - (a + b) x`` loses its digits.
    """
    return (x * (b + 1.0) > (1.0 - x) * (a + 1.0)) | (x * (a + b) > a + 0.5)


def _from_nearer_end(
    turned: Expression, a: Expression, b: Expression, x: Expression
) -> list[Expression]:
    """The parameters, ``x`` and ``1 - x`` as they are, or in the other order."""
    y = 1.0 - x
    return [where(turned, v, w) for v, w in ((b, a), (a, b), (y, x), (x, y))]


def _density(a: Expression, b: Expression, x: Expression) -> Expression:
    # What depends on parameters only is computed once where these are numbers: no point changes it.
    known = (a > 0.0) & (b > 0.0) & (a < _INF) & (b < _INF)
    nowhere = ~(known & (x >= 0.0) & (x <= 1.0))
    x_is_0, x_is_1 = x.is_equal(0.0), x.is_equal(1.0)
    edge = nowhere | x_is_0 | x_is_1
    p, q, z = where(known, a, 1.0), where(known, b, 1.0), where(edge, 0.5, x)
    inner = factor_of_beta(p, q, z, 1.0 - z, z * (1.0 - z))
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


def rate_of_power(
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
        a, b = (where(v.is_equal(0.0), 1e-30, v) for v in (a, b))
        turned = _is_beyond(a, b, x)
        inside = _is_inside(a, b, x)
        p, q, z, y = _from_nearer_end(turned, a, b, x)
        given = [where(inside, v, w) for v, w in ((p, 1.0), (q, 1.0), (z, 0.25), (y, 0.75))]
        own = turned if self.index else ~turned
        value, slope = over_factor_with_slope(own, *given)
        part = log_factor_of_beta(p, q, z, y).of(lax.exp) * (value / p)
        own, other, u, v = (a, b, x, 1.0 - x) if self.index == 0 else (b, a, 1.0 - x, x)
        rate = rate_of_power(own, other, u, v, turned if self.index == 0 else ~turned)
        inner = where(part.is_equal(0.0), 0.0, part * (rate + slope / value))
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
            rate = lax.sub(share_of_power(a, x), share_of_power(b, y))
        else:
            own = (a, b)[i]
            log = lax.log(x) if i == 0 else lax.log1p(lax.neg(x))
            rate = lax.add(lax.sub(log, lax.digamma(own)), lax.digamma(lax.add(a, b)))
        rate = _like(rate, ans)
        slope = lax.mul(ans, lax.select(lax.eq(ans, 0.0), full_of(rate.aval, 0.0), rate))
        return lax.add(slope, _ends_of_slope(a, b, x, ans)) if i == 2 else slope


def _like(x: Value, ans: Value) -> Any:
    return x if x.aval.shape == ans.aval.shape else lax.broadcast_like(x, ans)


def _ends_of_slope(a: Value, b: Value, x: Value, ans: Value) -> Any:
    """The slope of the density at an end where the density is 0, and 0 elsewhere.

    It is infinite for powers below 1, and for others above 1 it is 0.
    """
    a, b, x = (_like(v, ans) for v in (a, b, x))
    total = full_of(ans.aval, 0.0)
    for end, power, other, add in ((0.0, a, b, lax.add), (1.0, b, a, lax.sub)):
        rising = lax.bitwise_and(lax.gt(power, 1.0), lax.le(power, 2.0))
        steep = lax.mul(other, lax.add(other, 1.0))
        steep = lax.select(lax.lt(power, 2.0), full_of(ans.aval, math.inf), steep)
        here = lax.bitwise_and(lax.eq(x, end), rising)
        total = add(total, lax.select(here, steep, full_of(ans.aval, 0.0)))
    return total


@final
class LogBeta(Smooth):
    """The logarithm of the beta function of numbers that are not negative, and of their sum.

    The sum has no slope of its own: it is an operand because it may be one number for all elements.
    """

    name = "log_beta"

    def formula(self, *xs: Expression) -> Expression:
        return _with_ends(log_beta, *xs)

    def lower_cpu(self, ctx: LoweringContext, *xs: IrValue, **params: Any) -> Any:
        """In float64, if the numbers are of float32: one formula for all sizes."""
        out = ctx.aval_out
        if out.dtype != np.float32 or not is_static(out) or out.split is not None:
            return self.lower(ctx, *xs, **params)
        return composed(ctx, _log_beta_of_float32, xs)

    def slope(self, i: int, ans: Value, *xs: Value) -> Any:
        if i == 2:
            return full_of(ans.aval, 0.0)
        return lax.neg(digamma_gap_p.bind(xs[i], xs[1 - i]))


def _log_beta_of_float32(*xs: Value) -> Any:
    whole = max(xs, key=lambda x: x.aval.ndim)
    full = [x if x.aval.ndim else lax.broadcast_like(x, whole) for x in xs]
    return _with_ends(_by_float64, *[Expression(x) for x in full]).value


def _by_float64(a: Expression, b: Expression, _: Expression) -> Expression:
    return log_beta_in_float64(a, b)


def _with_ends(inside: Callable[..., Expression], *xs: Expression) -> Expression:
    a, b, *_ = xs
    some_0 = a.is_equal(0.0) | b.is_equal(0.0)
    some_inf = a.is_equal(_INF) | b.is_equal(_INF)
    nowhere = ~((a >= 0.0) & (b >= 0.0)) | (some_0 & some_inf)
    # Of numbers a choice by the arrays' edges would be an array.
    inner = inside(*[where((v > 0.0) & (v < _INF), v, 1.0) for v in xs])
    return first_of([(nowhere, math.nan), (some_0, _INF), (some_inf, -_INF)], inner)


@final
class DigammaGap(Smooth):
    """``digamma(a + b) - digamma(a)`` of numbers that are not negative."""

    name = "digamma_gap"

    def formula(self, *xs: Expression) -> Expression:
        a, b = xs
        nowhere = ~((a >= 0.0) & (b >= 0.0))
        a_is_0, b_is_0 = a < a.tiny(), b < b.tiny()
        edge = nowhere | a_is_0 | b_is_0 | a.is_equal(_INF) | b.is_equal(_INF)
        inner = digamma_gap(*[where(edge, 1.0, v) for v in (a, b)])
        # At infinity it goes to 0, as a difference of infinities.
        ends = [(a.is_equal(_INF) | (b_is_0 & ~a_is_0), 0.0), (a_is_0 | b.is_equal(_INF), _INF)]
        return first_of([(nowhere, math.nan), *ends], inner)

    def slope(self, i: int, ans: Value, *xs: Value) -> Any:
        return lax.polygamma(1.0, lax.add(*xs)) if i else trigamma_gap_p.bind(*xs)


@final
class TrigammaGap(Smooth):
    """The derivative of `DigammaGap` in ``a``, of which a difference leaves no digits for small b.

    That of each step of the sum and of the series, whose terms have one sign.
    """

    name = "trigamma_gap"

    def formula(self, *xs: Expression) -> Expression:
        a, b = xs
        nowhere = ~((a >= 0.0) & (b >= 0.0))
        a_is_0, b_is_0 = a < a.tiny(), b < b.tiny()
        b_is_inf = b.is_equal(_INF)
        edge = nowhere | a_is_0 | b_is_0 | a.is_equal(_INF) | b_is_inf
        given = [where(edge, 1.0, v) for v in xs]
        _, inner = with_derivative(digamma_gap, given, [a.flags(True), None])
        far = -where(b_is_inf & ~a_is_0, a, 1.0).of(lambda v: lax.polygamma(1.0, v))
        ends = [(a.is_equal(_INF) | (b_is_0 & ~a_is_0), 0.0), (a_is_0, -_INF), (b_is_inf, far)]
        return first_of([(nowhere, math.nan), *ends], inner)

    def slope(self, i: int, ans: Value, *xs: Value) -> Any:
        a, b = xs
        rate = lax.polygamma(2.0, lax.add(a, b))
        if i == 0:
            rate = lax.sub(rate, lax.polygamma(2.0, a))
            # It goes to 0 there, as a difference of infinities.
            level = lax.eq(a, _INF)
            level = level if level.aval.ndim == rate.aval.ndim else lax.broadcast_like(level, rate)
            rate = lax.select(level, full_of(rate.aval, 0.0), rate)
        return rate


log_beta_p = LogBeta()
register_platform_lowering(log_beta_p, "cpu", log_beta_p.lower_cpu, optional=True)
digamma_gap_p = DigammaGap()
trigamma_gap_p = TrigammaGap()
regularized_incomplete_beta_p = RegularizedIncompleteBeta()
betainc_grad_a_p = BetaincGradA()
betainc_grad_b_p = BetaincGradB()
beta_density_p = BetaDensity()


def betainc(a: Operand, b: Operand, x: Operand) -> Any:
    """The regularized incomplete beta function, elementwise.

    The integral of ``t**(a - 1) (1 - t)**(b - 1)`` from 0 to ``x``, over that from 0 to 1.

    Differentiable once in ``a`` and ``b``, to any order in ``x``. Results are
    accurate to 40 units in the last place, most of them to 5; far from the mean of parameters above
    a million (float32) or 1e15 (float64) they have fewer digits.

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
