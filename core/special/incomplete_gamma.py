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
from tracebridge.core.special.expansions import (
    STIRLING_FROM,
    log1p_less,
    log_gamma_1p,
    repeat,
    stirling_rest,
    uniform_coefficients,
)
from tracebridge.core.special.programs import Expression, Smooth, first_of, polynomial, where

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Operand, Value

_INF = math.inf
_UNIFORM_FROM = 200.0
_TERMS = 4000


class _Point:
    """One pair of arguments, made safe, and in which region it is."""

    def __init__(self, a: Expression, x: Expression) -> None:
        self.invalid = (a < 0.0) | (x < 0.0) | a.is_nan() | x.is_nan()
        self.a_is_0, self.x_is_0 = a.is_equal(0.0), x.is_equal(0.0)
        self.a_is_inf, self.x_is_inf = a.is_equal(_INF), x.is_equal(_INF)
        edge = self.invalid | self.a_is_0 | self.x_is_0 | self.a_is_inf | self.x_is_inf
        self.inside = ~edge
        # Where the answer is known both are 1, and no loop runs.
        self.a, self.x = where(edge, 1.0, a), where(edge, 1.0, x)
        self.mu = (self.x - self.a) / self.a
        near = (self.a > _UNIFORM_FROM) & (self.mu.of(lax.abs) < 0.3)
        self.uniform = self.inside & near
        rest = self.inside & ~near
        self.fraction = rest & (self.x > 1.1) & (self.x > self.a)
        self.series = rest & ~self.fraction

    def factor(self) -> Expression:
        """``x**a exp(-x) / gamma(a + 1)``."""
        a, x = self.a, self.x
        large = where(a < STIRLING_FROM, STIRLING_FROM, a)
        mu, above = (where(a < STIRLING_FROM, v, u) for v, u in ((0.0, self.mu), (1.0, x / a)))
        power = large * log1p_less(mu, above) - stirling_rest(large)
        high = power.of(lax.exp) / (large * (2.0 * math.pi)).of(lax.sqrt)
        small = where(a < STIRLING_FROM, a, 1.0)
        # The power stays far from overflow where the exponential is not 0.
        modest = where((a < STIRLING_FROM) & (x < 1000.0), x, 1.0)
        low = modest.of(lax.pow, small) * (-modest).of(lax.exp)
        low = low / (small + 1.0).of(lax.lgamma).of(lax.exp)
        return where(a < STIRLING_FROM, where(x < 1000.0, low, 0.0), high)


def _power_series(p: _Point) -> tuple[Expression, Expression]:
    """The sum of ``x**n / ((a + 1) ... (a + n))`` and its derivative in ``a``."""
    a, x = where(p.series, p.a, 1.0), where(p.series, p.x, 0.5)
    eps = x.eps()

    def step(
        n: Expression, term: Expression, slope: Expression, total: Expression, d_total: Expression
    ) -> Any:
        below = a + n
        term = term * (x / below)
        slope = slope + 1.0 / below
        total = total + term
        return term <= total * eps, term, slope, total, d_total - term * slope

    one, zero = a.filled(1.0), a.filled(0.0)
    _, _, total, d_total = repeat(p.series, step, [one, zero, one, zero], _TERMS)
    return total, d_total


def _fraction(p: _Point) -> tuple[Expression, Expression]:
    """``gamma(a, x) / (x**a exp(-x))`` times ``x``, and its derivative in ``a``.

    Lentz's method; each quantity is followed by its derivative.
    """
    a, x = where(p.fraction, p.a, 1.0), where(p.fraction, p.x, 2.0)
    eps, tiny = x.eps(), 1e-30

    def safe(v: Expression) -> Expression:
        return where(v.of(lax.abs) < tiny, tiny, v)

    b = x - a + 1.0
    d = 1.0 / safe(b)
    c = a.filled(1.0 / tiny)
    zero = a.filled(0.0)
    start = [c, zero, d, d * d, d, d * d]

    def step(
        n: Expression,
        c: Expression,
        dc: Expression,
        d: Expression,
        dd: Expression,
        h: Expression,
        dh: Expression,
    ) -> Any:
        top, d_top = (a - n) * n, n
        bottom = b + n * 2.0
        below = safe(top * d + bottom)
        d_below = d_top * d + top * dd - 1.0
        # The old c divides; its derivative is that of a quotient.
        c_new = safe(bottom + top / c)
        dc = d_top / c - top / c * (dc / c) - 1.0
        d = 1.0 / below
        dd = -d_below * d * d
        ratio = c_new * d
        d_ratio = dc * d + c_new * dd
        return (
            (ratio - 1.0).of(lax.abs) <= eps,
            c_new,
            dc,
            d,
            dd,
            h * ratio,
            dh * ratio + h * d_ratio,
        )

    *_, h, dh = repeat(p.fraction, step, start, _TERMS)
    return x * h, x * dh


def _upper_near_zero(p: _Point) -> tuple[Expression, Expression]:
    """The upper function for small ``x``, and where this is the way to compute it.

    ``1 - x**a / gamma(1 + a)`` and the rest of the series, which begins with ``x``.
    """
    x, a = p.x, p.a
    small = where(x < 0.5, x, 0.5)
    bound = where(x < 0.5, -0.4 / small.of(lax.log), x * 1.1)
    here = p.series & (x <= 1.1) & (a <= bound) & (a <= 1.5)
    x, a = where(here, x, 0.5), where(here, a, 1.0)

    def step(n: Expression, term: Expression, total: Expression) -> Any:
        term = term * (-x / n)
        part = term / (a + n)
        total = total + part
        return part.of(lax.abs) <= total.of(lax.abs) * x.eps(), term, total

    zero = x.filled(0.0)
    _, total = repeat(here, step, [zero + 1.0, zero], 200)
    power = a * x.of(lax.log) - log_gamma_1p(a)
    return here, -power.of(lax.expm1) - power.of(lax.exp) * a * total


class _Uniform:
    """Temme's expansion: ``Q = erfc(eta sqrt(a/2)) / 2 + exp(-a eta**2 / 2) rest``."""

    def __init__(self, p: _Point) -> None:
        a, mu = where(p.uniform, p.a, _UNIFORM_FROM), where(p.uniform, p.mu, 0.0)
        self.mu = mu
        self.a = a
        half_square = -log1p_less(mu, mu + 1.0)  # eta**2 / 2
        size = (half_square * 2.0).of(lax.sqrt)
        self.eta = where(mu < 0.0, -size, size)
        # d eta / d a = -mu / (a eta); the quotient is 1 at 0.
        self.ratio = mu / where(self.eta.is_equal(0.0), 1.0, self.eta)
        self.ratio = where(self.eta.is_equal(0.0), 1.0, self.ratio)
        self.gauss = (-half_square * a).of(lax.exp)
        inverse = 1.0 / a
        total, d_eta, d_inverse = a.filled(0.0), a.filled(0.0), a.filled(0.0)
        for row in reversed(uniform_coefficients()):
            d_inverse = d_inverse * inverse + total
            total = total * inverse + polynomial(self.eta, row)
            slopes = [n * c for n, c in enumerate(row)][1:] or [0.0]
            d_eta = d_eta * inverse + polynomial(self.eta, slopes)
        self.norm = (a * (2.0 * math.pi)).of(lax.sqrt)
        self.rest = total / self.norm
        d_a = -d_eta * self.ratio * inverse - d_inverse * inverse * inverse
        self.d_rest = (d_a - total * (0.5 * inverse)) / self.norm

    def value(self, sign: float) -> Expression:
        """The upper function for 1, the lower one for -1."""
        tail = (self.eta * sign * (self.a * 0.5).of(lax.sqrt)).of(lax.erfc)
        return tail * 0.5 + self.rest * self.gauss * sign

    def slope(self) -> Expression:
        """The derivative of Q in ``a``, over ``exp(-a eta**2 / 2)``."""
        # d/da of eta sqrt(a/2), and of -a eta**2 / 2 = a log1p_less(mu).
        root = (self.a * 0.5).of(lax.sqrt)
        edge = self.eta * 0.25 / root - self.ratio / self.a * root
        decay = self.mu.of(lax.log1p)
        return self.d_rest + self.rest * decay - edge / math.sqrt(math.pi)

    def slope_over_factor(self) -> Expression:
        """The same over ``x**a exp(-x) / gamma(a + 1)``."""
        return self.slope() * self.norm * stirling_rest(self.a).of(lax.exp)


def _lower(a: Expression, x: Expression) -> Expression:
    p = _Point(a, x)
    factor = p.factor()
    series = factor * _power_series(p)[0]
    upper = factor * (p.a / p.x) * _fraction(p)[0]
    inner = first_of(
        [(p.uniform, _Uniform(p).value(-1.0)), (p.fraction, 1.0 - upper)],
        series,
    )
    return first_of(
        [
            (p.invalid | (p.a_is_0 & p.x_is_0) | (p.a_is_inf & p.x_is_inf), math.nan),
            (p.a_is_inf | p.x_is_0, 0.0),
            (p.a_is_0 | p.x_is_inf, 1.0),
        ],
        inner,
    )


def _upper(a: Expression, x: Expression) -> Expression:
    p = _Point(a, x)
    factor = p.factor()
    here, small = _upper_near_zero(p)
    inner = first_of(
        [
            (p.uniform, _Uniform(p).value(1.0)),
            (p.fraction, factor * (p.a / p.x) * _fraction(p)[0]),
            (here, small),
        ],
        1.0 - factor * _power_series(p)[0],
    )
    return first_of(
        [
            (p.invalid | (p.a_is_0 & p.x_is_0) | (p.a_is_inf & p.x_is_inf), math.nan),
            (p.a_is_inf | p.x_is_0, 1.0),
            (p.a_is_0 | p.x_is_inf, 0.0),
        ],
        inner,
    )


def _upper_slope(p: _Point) -> Expression:
    """The derivative of the upper function in ``a``, over ``factor``."""
    log_x = p.x.of(lax.log)
    total, d_total = _power_series(p)
    lower = d_total + total * (log_x - (p.a + 1.0).of(lax.digamma))
    value, d_value = _fraction(p)
    upper = (d_value + value * (log_x - p.a.of(lax.digamma))) * (p.a / p.x)
    return first_of(
        [(p.uniform, _Uniform(p).slope_over_factor()), (p.fraction, upper)],
        -lower,
    )


def _lower_slope(a: Expression, x: Expression) -> Expression:
    # Close to 0 the derivative is what it is at 0, -E1(x).
    p = _Point(where(a.is_equal(0.0), 1e-30, a), x)
    inner = -(_upper_slope(p) * p.factor())
    nowhere = p.invalid | (a.is_equal(0.0) & p.x_is_0)
    return first_of([(nowhere, math.nan), (p.x_is_0 | p.x_is_inf | p.a_is_inf, 0.0)], inner)


def _number_slope(a: Expression, x: Expression) -> Expression:
    p = _Point(a, x)
    inner = _upper_slope(p) * (p.x / p.a)
    nowhere = p.invalid | p.a_is_0
    return first_of(
        [(nowhere, math.nan), (p.x_is_0, 0.0), (p.a_is_inf, 1.0), (p.x_is_inf, _INF)], inner
    )


def _density(a: Expression, x: Expression) -> Expression:
    p = _Point(a, x)
    # At 0: infinite below the power 0, and 0 above.
    start = first_of([(a < 1.0, math.inf), (a > 1.0, 0.0)], a.filled(1.0))
    nowhere = p.invalid | p.a_is_0
    return first_of(
        [(nowhere, math.nan), (p.x_is_0, start), (p.x_is_inf | p.a_is_inf, 0.0)],
        p.factor() * (p.a / p.x),
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
            rate = lax.sub(lax.div(lax.sub(a, 1.0), x), 1.0)
        else:
            rate = lax.sub(lax.log(x), lax.digamma(a))
        return lax.mul(ans, _without_nan(ans, rate))


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
