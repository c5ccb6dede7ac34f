"""The regularized incomplete gamma functions and their derivatives in the shape parameter.

Each point is computed in the way that is accurate there:

* near ``x = a``, for large ``a``, Temme's uniform expansion;
* for ``x`` below ``a``, or small, the power series of the lower function;
* for small ``x`` and the upper function, a series without its cancellation;
* else the continued fraction of the upper function.

Derivatives in ``a`` go the same ways. Their common factor ``x**a exp(-x) / gamma(a + 1)`` stays
outside, so that the derivative of a gamma number in its shape needs no quotient of small numbers.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, final

from tracebridge.core import lax
from tracebridge.core.errors.transform_errors import MissingRuleError
from tracebridge.core.lax.ad_util import full_of
from tracebridge.core.lax.families import operands
from tracebridge.core.special.expansions import digamma_rest
from tracebridge.core.special.gamma_expansions import (
    Point,
    Terms,
    Uniform,
    is_near_zero,
    upper_near_zero,
)
from tracebridge.core.special.programs import (
    Expression,
    Smooth,
    first_of,
    where,
)

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Operand, Value

_INF = math.inf
_UNIFORM_FROM = 200.0


def _lower(a: Expression, x: Expression) -> Expression:
    p = Point(a, x)
    part = p.factor() * where(p.fraction, p.a, 1.0) * Terms(p).value
    inner = first_of([(p.uniform, Uniform(p).value(-1.0)), (p.fraction, 1.0 - part)], part)
    return first_of(
        [
            (p.invalid | (p.a_is_0 & p.x_is_0) | (p.a_is_inf & p.x_is_inf), math.nan),
            (p.a_is_inf | p.x_is_0, 0.0),
            (p.a_is_0 | p.x_is_inf, 1.0),
        ],
        inner,
    )


def _upper(a: Expression, x: Expression) -> Expression:
    p = Point(a, x)
    here = is_near_zero(p)
    value = Terms(p, alternating=here).value
    part = p.factor() * where(p.fraction, p.a, 1.0) * value
    inner = first_of(
        [
            (p.uniform, Uniform(p).value(1.0)),
            (p.fraction, part),
            (here, upper_near_zero(p, here, value)),
        ],
        1.0 - part,
    )
    return first_of(
        [
            (p.invalid | (p.a_is_0 & p.x_is_0) | (p.a_is_inf & p.x_is_inf), math.nan),
            (p.a_is_inf | p.x_is_0, 1.0),
            (p.a_is_0 | p.x_is_inf, 0.0),
        ],
        inner,
    )


def _upper_slope(p: Point) -> Expression:
    """The derivative of the upper function in ``a``, over ``factor``."""
    terms = Terms(p, slope=True)
    # Of x**a / gamma(a), and of the same over a.
    rate = p.x.of(lax.log) - where(p.fraction, p.a, p.a + 1.0).of(lax.digamma)
    # Of large shapes both numbers may be nearly the same.
    close = p.mu.of(lax.abs) < 0.5
    log = where(close, where(close, p.mu, 0.0).of(lax.log1p), p.share.of(lax.log))
    far = log - digamma_rest(p.large) - where(p.fraction, 0.0, 1.0 / p.large)
    rate = where(p.is_large, far, rate)
    inner = (terms.slope + terms.value * rate) * where(p.fraction, p.a, -1.0)
    return where(p.uniform, Uniform(p).slope_over_factor(), inner)


def _log_of_share(p: Point) -> Expression:
    """``log(x / a)`` of large shapes, where the quotient may underflow."""
    x = where(p.is_large, p.x, p.large)
    return where(p.share < 0.1, x.of(lax.log) - p.large.of(lax.log), p.share.of(lax.log))


def rate_of_gamma_power(a: Expression, x: Expression) -> Expression:
    """The derivative of ``log_power_of_gamma`` in ``a``."""
    p = Point(a, x)
    close = p.mu.of(lax.abs) < 0.5
    log = where(close, where(close, p.mu, 0.0).of(lax.log1p), _log_of_share(p))
    near = x.of(lax.log) - where(p.is_large, 1.0, a).of(lax.digamma)
    return where(p.is_large, log - digamma_rest(p.large), near)


def log_power_of_gamma(a: Expression, x: Expression) -> Expression:
    """``log(x**a exp(-x) / gamma(a))`` of positive finite numbers."""
    p = Point(a, x)
    # Of large shapes by Stirling's series, around the maximum at x = a.
    scale = (p.large * (0.5 / math.pi)).of(lax.log) * 0.5 - p.stirling
    small = where(p.is_large, 1.0, a)
    near = small * x.of(lax.log) - x - small.of(lax.lgamma)
    decay = where(p.share < 0.1, _log_of_share(p) - p.mu, p.decay)
    return where(p.is_large, p.large * decay + scale, near)


def _lower_slope(a: Expression, x: Expression) -> Expression:
    # Close to 0 the derivative is what it is at 0, -E1(x).
    p = Point(where(a.is_equal(0.0), 1e-30, a), x)
    inner = -(_upper_slope(p) * p.factor())
    nowhere = p.invalid | (a.is_equal(0.0) & p.x_is_0)
    return first_of([(nowhere, math.nan), (p.x_is_0 | p.x_is_inf | p.a_is_inf, 0.0)], inner)


def _number_slope(a: Expression, x: Expression) -> Expression:
    p = Point(a, x)
    inner = _upper_slope(p) * (p.x / p.a)
    # All numbers of shape 0 are 0, and nearly all of those of small shapes.
    ends = [(p.x_is_0, 0.0), (p.a_is_0, math.nan), (p.a_is_inf, 1.0), (p.x_is_inf, _INF)]
    return first_of([(p.invalid, math.nan), *ends], inner)


def _density(a: Expression, x: Expression) -> Expression:
    p = Point(a, x, over_x=True)
    # At 0: infinite below the power 0, and 0 above.
    start = first_of([(a < 1.0, math.inf), (a > 1.0, 0.0)], a.filled(1.0))
    nowhere = p.invalid | p.a_is_0
    return first_of(
        [(nowhere, math.nan), (p.x_is_0, start), (p.x_is_inf | p.a_is_inf, 0.0)],
        p.density(),
    )


def _without_nan(weight: Any, x: Value) -> Any:
    """``x``, but 0 where ``weight`` is 0: it goes to 0 faster than the other to infinity."""
    flags = lax.eq(weight, 0.0)
    x = x if x.aval.shape == flags.aval.shape else lax.broadcast_like(x, flags)
    return lax.select(flags, full_of(x.aval, 0.0), x)


@final
class GammaDensity(Smooth):
    """The derivative of igamma in ``x``; its own derivatives are elementary."""

    name = "gamma_density"

    def formula(self, *xs: Expression) -> Expression:
        return _density(*xs)

    def slope(self, i: int, ans: Value, *xs: Value) -> Any:
        a, x = xs
        if i:
            # That of the power x**(a - 1), which has its own end at 0.
            rate = lax.sub(share_of_power(a, x), 1.0)
            return lax.add(lax.mul(ans, _without_nan(ans, rate)), _start_of_slope(a, x, ans))
        rate = lax.sub(lax.log(x), lax.digamma(a))
        return lax.mul(ans, _without_nan(ans, rate))


def share_of_power(a: Value, x: Value) -> Any:
    """``(a - 1) / x``, 0 for the power 0."""
    power = lax.sub(a, 1.0)
    level = lax.eq(power, 0.0)
    return lax.select(level, full_of(power.aval, 0.0), lax.div(power, x))


def _start_of_slope(a: Value, x: Value, ans: Value) -> Any:
    """The slope of the density at 0 where the density is 0, and 0 elsewhere."""
    rising = lax.bitwise_and(lax.eq(x, 0.0), lax.bitwise_and(lax.gt(a, 1.0), lax.le(a, 2.0)))
    zero = full_of(ans.aval, 0.0)
    steep = lax.select(lax.lt(a, 2.0), full_of(a.aval, math.inf), full_of(a.aval, 1.0))
    steep, rising = (
        v if v.aval.shape == ans.aval.shape else lax.broadcast_like(v, ans) for v in (steep, rising)
    )
    return lax.select(rising, steep, zero)


@final
class Igamma(Smooth):
    name = "igamma"

    def formula(self, *xs: Expression) -> Expression:
        return _lower(*xs)

    def slope(self, i: int, ans: Value, *xs: Value) -> Any:
        return gamma_density_p.bind(*xs) if i else igamma_grad_a_p.bind(*xs)


@final
class Igammac(Smooth):
    name = "igammac"

    def formula(self, *xs: Expression) -> Expression:
        return _upper(*xs)

    def slope(self, i: int, ans: Value, *xs: Value) -> Any:
        return lax.neg(gamma_density_p.bind(*xs) if i else igamma_grad_a_p.bind(*xs))


@final
class IgammaGradA(Smooth):
    name = "igamma_grad_a"

    def formula(self, *xs: Expression) -> Expression:
        return _lower_slope(*xs)

    def slope(self, i: int, ans: Value, *xs: Value) -> Any:
        a, x = xs
        if i == 0:
            msg = "igamma_grad_a has no derivative in its first argument"
            raise MissingRuleError(self.name, "jvp", message=msg)
        density = gamma_density_p.bind(a, x)
        rate = lax.sub(lax.log(x), lax.digamma(a))
        return lax.mul(density, _without_nan(density, rate))


@final
class RandomGammaGrad(Smooth):
    name = "random_gamma_grad"

    def formula(self, *xs: Expression) -> Expression:
        return _number_slope(*xs)

    def slope(self, i: int, ans: Value, *xs: Value) -> Any:
        msg = "random_gamma_grad has no derivative: gamma numbers have first derivatives only"
        raise MissingRuleError(self.name, "jvp", message=msg)


gamma_density_p = GammaDensity()
igamma_p = Igamma()
igammac_p = Igammac()
igamma_grad_a_p = IgammaGradA()
random_gamma_grad_p = RandomGammaGrad()


def igamma(a: Operand, x: Operand) -> Any:
    """The regularized lower incomplete gamma function, elementwise.

    ``1 / gamma(a)`` times the integral of ``t**(a - 1) exp(-t)`` from 0 to ``x``. Differentiable
    in both arguments.

    Args:
        a: shape, a float array; NaN where negative.
        x: upper end, a float array of the same shape and dtype; NaN where negative.

    Raises:
        DtypeMismatchError: the dtypes differ.
        ShapeMismatchError: the shapes differ, and neither is a scalar.
        UnsupportedDtypeError: they are no floats.

    >>> import tracebridge as tb
    >>> float(tb.lax.igamma(2.0, 1.0))
    0.264241...
    """
    return igamma_p.bind(*operands("igamma", a, x))


def igammac(a: Operand, x: Operand) -> Any:
    """The regularized upper incomplete gamma function, ``1 - igamma(a, x)`` without cancellation.

    Args:
        a: shape, a float array; NaN where negative.
        x: lower end, a float array of the same shape and dtype; NaN where negative.

    Raises:
        DtypeMismatchError: the dtypes differ.
        ShapeMismatchError: the shapes differ, and neither is a scalar.
        UnsupportedDtypeError: they are no floats.

    >>> import tracebridge as tb
    >>> float(tb.lax.igammac(2.0, 1.0))
    0.735758...
    """
    return igammac_p.bind(*operands("igammac", a, x))


def igamma_grad_a(a: Operand, x: Operand) -> Any:
    """The derivative of ``igamma(a, x)`` in ``a``, elementwise.

    Args:
        a: shape, a float array; NaN where it is not positive.
        x: upper end, a float array of the same shape and dtype. Differentiable.

    Raises:
        DtypeMismatchError: the dtypes differ.
        ShapeMismatchError: the shapes differ, and neither is a scalar.
        UnsupportedDtypeError: they are no floats.

    >>> import tracebridge as tb
    >>> float(tb.lax.igamma_grad_a(2.0, 1.0))
    -0.27619...
    """
    return igamma_grad_a_p.bind(*operands("igamma_grad_a", a, x))


def random_gamma_grad(a: Operand, x: Operand) -> Any:
    """How a gamma number ``x`` of shape ``a`` changes with ``a``, its probability kept.

    Args:
        a: shape, a float array; NaN where it is not positive.
        x: gamma numbers, a float array of the same shape and dtype.

    Raises:
        DtypeMismatchError: the dtypes differ.
        ShapeMismatchError: the shapes differ, and neither is a scalar.
        UnsupportedDtypeError: they are no floats.

    >>> import tracebridge as tb
    >>> float(tb.lax.random_gamma_grad(2.0, 1.0))
    0.750778...
    """
    return random_gamma_grad_p.bind(*operands("random_gamma_grad", a, x))
