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
from tracebridge.core.control.loops.while_loop import while_loop
from tracebridge.core.errors.transform_errors import MissingRuleError
from tracebridge.core.lax.ad_util import full_of
from tracebridge.core.lax.families import operands
from tracebridge.core.special.expansions import (
    STIRLING_FROM,
    digamma_rest,
    inverse_gamma_1p,
    log1p_less,
    log_gamma_1p,
    remainder,
    stirling_rest,
    uniform_coefficients,
)
from tracebridge.core.special.programs import (
    Expression,
    Smooth,
    divided,
    first_of,
    polynomial,
    where,
)

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Operand, Value

_INF = math.inf
_UNIFORM_FROM = 200.0


class _Point:
    """One pair of arguments, and in which region it is.

    Formulas give anything for what is not inside, where the answer is known.
    """

    def __init__(self, a: Expression, x: Expression) -> None:
        self.a, self.x = a, x
        self.invalid = (a < 0.0) | (x < 0.0) | a.is_nan() | x.is_nan()
        # Subnormal numbers count as 0: some of XLA's operations take them for that.
        self.a_is_0, self.x_is_0 = (v.of(lax.abs) < v.tiny() for v in (a, x))
        self.a_is_inf, self.x_is_inf = a.is_equal(_INF), x.is_equal(_INF)
        inside = (a >= a.tiny()) & (x >= x.tiny()) & (a < _INF) & (x < _INF)
        near = (a > _UNIFORM_FROM) & ((x - a).of(lax.abs) < a * 0.3)
        self.uniform = inside & near
        self.rest = inside & ~near
        self.above = (x > 1.1) & (x > a)
        self.fraction = self.rest & self.above
        # Of large shapes: -eta**2 / 2 in Temme's expansion.
        self.is_large = a >= STIRLING_FROM
        self.large = where(self.is_large, a, STIRLING_FROM)
        self.mu = where(self.is_large, (x - a) / a, 0.0)
        self.share = where(self.is_large, x / a, 1.0)
        self.decay = log1p_less(self.mu, self.share)
        self.direct, self.power = self._power()
        self.gauss = where(self.direct, self.power, (self.large * self.decay).of(lax.exp))
        # Of the largest numbers the product would overflow.
        self.norm = self.large.of(lax.sqrt) * math.sqrt(2.0 * math.pi)
        self.stirling = stirling_rest(self.large)

    def factor(self) -> Expression:
        """``x**a exp(-x) / gamma(a + 1)``."""
        scale = divided((-self.stirling).of(lax.exp), self.norm)
        scale = where(self.is_large, scale, inverse_gamma_1p(where(self.is_large, 1.0, self.a)))
        power = where(self.is_large & (self.share > 0.1), self.gauss, self.power) * scale
        return where((self.x >= 1000.0) & ~self.is_large, 0.0, power)

    def _power(self) -> tuple[Expression, Expression]:
        """``x**a exp(-x)``, of large shapes over the same at ``x = a``; and where that is exact."""
        large = self.is_large
        modest = where(self.x >= 1000.0, 1.0, self.x)
        near, direct, apart, lost = self._quotient()
        # Far below the mean the power (share exp(1 - share))**a keeps digits that the exponential
        # of a large logarithm loses.
        part = where(near | ~large, self.a.filled(0.5), 0.125)
        decay = where(direct, -part * apart, where(large, -self.mu, -0.5 * modest)).of(lax.exp)
        base = where(large, self.share * where(direct, 1.0, decay), modest)
        whole = large & ~direct
        power = base.of(lax.pow, where(whole, self.a, part * self.a))
        # The root of the product: one factor may overflow, the other one underflow before.
        square = (power * decay).of(lax.square)
        fourth = square.of(lax.square).of(lax.square)
        square = where(near | ~large, square, fourth) * ((lost * 0.5 + 1.0) * lost + 1.0)
        return direct, where(whole, power, square)

    def _quotient(self) -> tuple[Expression, Expression, Expression, Expression]:
        """Where ``(x / a)**a exp(a - x)`` may be made of roots of its two factors, for large ``a``.

        By square roots, or by eighth ones; then the difference in the exponential, and what the
        rounding of it and of the quotient takes off the logarithm of the product.
        """
        a, x = self.large, where(self.is_large, self.x, STIRLING_FROM)
        apart = x - a
        most = 1.8 * -math.log(a.tiny())
        # Both logarithms: that of a share is below |share - 1| / sqrt(share).
        root = where(self.share < 1.0, self.share, 1.0).of(lax.sqrt)
        size = divided(apart.of(lax.abs), root)
        # Of the largest shapes what the quotient lost is no small correction, and the exponential
        # is exact: its argument is small.
        usable = self.is_large & (a < 0.002 / a.eps())
        near, direct = usable & (size < most), usable & (size < 4.0 * most)
        a, x = where(direct, a, STIRLING_FROM), where(direct, x, STIRLING_FROM)
        share, apart = where(direct, self.share, 1.0), where(direct, apart, 0.0)
        shadow = apart - x
        lost = (x - (apart - shadow)) - (a + shadow)
        return near, direct, apart, divided(remainder(x, share, a), share) - lost


class _Terms:
    """The sums and fractions of all points, in one loop from their last terms to the first.

    A loop for each would sweep all elements as well, and compile as long again. ``value`` is

    * for ``series`` the sum of ``x**n / ((a + 1) ... (a + n))``,
    * for ``fraction`` what ``gamma(a, x) / (x**a exp(-x))`` is, a fraction in ``1 / x``,
    * for ``alternating``, if given, the sum of ``(-x)**n / ((n + 1)! (a + n + 1))``.

    ``slope`` is its derivative in ``a`` if asked for.
    """

    def __init__(
        self, p: _Point, *, slope: bool = False, alternating: Expression | None = None
    ) -> None:
        self.some_alternate = alternating is not None
        # What has converged at once stands for points that need no loop.
        a, x = where(p.rest, p.a, 1.0), where(p.rest, p.x, 1e-30)
        # XLA makes each array that enters a loop by a kernel of its own, and compiling these is
        # what takes long: the signs say in which region a point is, the state begins as `a`.
        x = where(p.above, -x, x)
        a = a if alternating is None else where(alternating, -a, a)
        count = _count_of(*self._parts(0.0, a, x)).of(lax.ceil).value
        count = lax.reduce_max(count, tuple(range(count.aval.ndim)))
        begun = full_of(count.aval, 0.0)
        carry = [count, begun, a.value, x.value, a.value, *([a.value] if slope else [])]
        _, _, _, _, *state = while_loop(lambda c: lax.gt(c[0], 0.0), self._body, carry)
        self.value, self.slope = Expression(state[0]), Expression(state[-1])

    def _parts(self, zero: Expression | float, a: Expression, x: Expression) -> list[Expression]:
        """Whether it is the fraction, whether it alternates, and the numbers without signs."""
        above, alternates = x < zero, a < zero
        a = where(alternates, zero - a, a) if self.some_alternate else a
        return [above, alternates, a, where(above, zero - x, x)]

    def _body(self, carry: Any) -> Any:
        n, begun, a, x, *state = carry
        # A zero of each step: else XLA computes parts outside, as further arrays.
        zero = Expression(lax.min(n, 0.0))
        parts = self._parts(zero, Expression(a), Expression(x))
        moved = self._step(Expression(n), *parts, *[Expression(lax.mul(begun, s)) for s in state])
        return [lax.sub(n, 1.0), full_of(n.aval, 1.0), a, x, *[v.value for v in moved]]

    def _step(
        self,
        n: Expression,
        above: Expression,
        alternates: Expression,
        a: Expression,
        x: Expression,
        value: Expression,
        *slope: Expression,
    ) -> list[Expression]:
        top = (a - n) * n
        below = where(above, (x - a) + (n * 2.0 - 1.0) + top * value, a + n)
        if slope:
            inverse = divided(1.0, below)
            d_fraction = (1.0 - n * value - top * slope[0]) * inverse * inverse
            d_series = x * inverse * (slope[0] - value * inverse)
            moved = where(above, inverse, x * inverse * value + 1.0)
            return [moved, where(above, d_fraction, d_series)]
        over = where(above, 1.0, x)
        if self.some_alternate:
            over = where(alternates, (n + 1.0) - x * (a + n) * value, over)
            below = where(alternates, (a + n) * (n + 1.0), below)
        ratio = divided(over, below)
        return [where(above | alternates, ratio, ratio * value + 1.0)]


def _count_of(above: Expression, _: object, a: Expression, x: Expression) -> Expression:
    """How many terms leave an error below the precision, of values and slopes."""
    digits = 2.0 - math.log(x.eps() / 2.0)
    # Chernoff's bound of the tail of a Poisson distribution, and that of a geometric series.
    root = (x * (2.0 * digits) + digits * digits / 9.0).of(lax.sqrt)
    series = (digits / ((a + 1.0) / x).of(lax.log)).of(lax.abs)
    series = series.of(lax.min, root + (digits / 3.0 + 2.0)) + 1.0
    # Measured: the fraction is slow for small x, and near the mean of the distribution.
    width = a.of(lax.sqrt).of(lax.min, a * 2.0 / where(above, x - a, 1.0))
    fraction = width * (0.65 * math.sqrt(digits)) + digits * digits * 0.075 / x + 6.0
    return where(above, fraction, series).of(lax.min, 400.0)


def _is_near_zero(p: _Point) -> Expression:
    """Where the upper function of small ``x`` is ``_upper_near_zero``."""
    x, a = p.x, p.a
    small = where(x < 0.5, x, 0.5)
    bound = where(x < 0.5, -0.4 / small.of(lax.log), x * 1.1)
    return p.rest & ~p.above & (x <= 1.1) & (a <= bound) & (a <= 1.5)


def _upper_near_zero(p: _Point, here: Expression, total: Expression) -> Expression:
    """``1 - x**a / gamma(1 + a)`` and the rest of the series, which begins with ``x``."""
    a = where(here, p.a, 1.0)
    power = a * p.x.of(lax.log) - log_gamma_1p(a)
    return power.of(lax.exp) * a * p.x * total - power.of(lax.expm1)


class _Uniform:
    """Temme's expansion: ``Q = erfc(eta sqrt(a/2)) / 2 + exp(-a eta**2 / 2) rest``."""

    def __init__(self, p: _Point) -> None:
        self.p, self.a, self.mu = p, p.large, p.mu
        size = (p.decay * -2.0).of(lax.sqrt)
        self.eta = where(p.uniform, where(self.mu < 0.0, -size, size), 0.0)
        inverse = divided(1.0, self.a)
        total, d_eta, d_inverse = (self.a.filled(0.0) for _ in range(3))
        for row in reversed(uniform_coefficients(self.a.eps())):
            d_inverse = d_inverse * inverse + total
            total = total * inverse + polynomial(self.eta, row)
            slopes = [n * c for n, c in enumerate(row)][1:] or [0.0]
            d_eta = d_eta * inverse + polynomial(self.eta, slopes)
        self.rest = total / p.norm
        # d eta / d a = -mu / (a eta); the quotient is 1 at 0.
        level = self.eta.is_equal(0.0)
        self.ratio = where(level, 1.0, self.mu / self.eta)
        d_a = -d_eta * self.ratio * inverse - d_inverse * inverse * inverse
        self.d_rest = (d_a - total * (0.5 * inverse)) / p.norm

    def value(self, sign: float) -> Expression:
        """The upper function for 1, the lower one for -1."""
        tail = (self.eta * sign * (self.a * 0.5).of(lax.sqrt)).of(lax.erfc)
        return tail * 0.5 + self.rest * self.p.gauss * sign

    def slope(self) -> Expression:
        """The derivative of Q in ``a``, over ``exp(-a eta**2 / 2)``."""
        # d/da of eta sqrt(a/2), and of -a eta**2 / 2 = a log1p_less(mu).
        root = (self.a * 0.5).of(lax.sqrt)
        edge = (self.eta * 0.25 - self.ratio * 0.5) / root
        decay = self.mu.of(lax.log1p)
        return self.d_rest + self.rest * decay - edge / math.sqrt(math.pi)

    def slope_over_factor(self) -> Expression:
        """The same over ``x**a exp(-x) / gamma(a + 1)``."""
        return self.slope() * self.p.norm * self.p.stirling.of(lax.exp)


def _lower(a: Expression, x: Expression) -> Expression:
    p = _Point(a, x)
    part = p.factor() * where(p.fraction, p.a, 1.0) * _Terms(p).value
    inner = first_of([(p.uniform, _Uniform(p).value(-1.0)), (p.fraction, 1.0 - part)], part)
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
    here = _is_near_zero(p)
    value = _Terms(p, alternating=here).value
    part = p.factor() * where(p.fraction, p.a, 1.0) * value
    inner = first_of(
        [
            (p.uniform, _Uniform(p).value(1.0)),
            (p.fraction, part),
            (here, _upper_near_zero(p, here, value)),
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


def _upper_slope(p: _Point) -> Expression:
    """The derivative of the upper function in ``a``, over ``factor``."""
    terms = _Terms(p, slope=True)
    # Of x**a / gamma(a), and of the same over a.
    rate = p.x.of(lax.log) - where(p.fraction, p.a, p.a + 1.0).of(lax.digamma)
    # Of large shapes both numbers may be nearly the same.
    close = p.mu.of(lax.abs) < 0.5
    log = where(close, where(close, p.mu, 0.0).of(lax.log1p), p.share.of(lax.log))
    far = log - digamma_rest(p.large) - where(p.fraction, 0.0, 1.0 / p.large)
    rate = where(p.is_large, far, rate)
    inner = (terms.slope + terms.value * rate) * where(p.fraction, p.a, -1.0)
    return where(p.uniform, _Uniform(p).slope_over_factor(), inner)


def _lower_slope(a: Expression, x: Expression) -> Expression:
    # Close to 0 the derivative is what it is at 0, -E1(x).
    p = _Point(where(a.is_equal(0.0), 1e-30, a), x)
    inner = -(_upper_slope(p) * p.factor())
    nowhere = p.invalid | (a.is_equal(0.0) & p.x_is_0)
    return first_of([(nowhere, math.nan), (p.x_is_0 | p.x_is_inf | p.a_is_inf, 0.0)], inner)


def _number_slope(a: Expression, x: Expression) -> Expression:
    p = _Point(a, x)
    inner = _upper_slope(p) * (p.x / p.a)
    # All numbers of shape 0 are 0, and nearly all of those of small shapes.
    ends = [(p.x_is_0, 0.0), (p.a_is_0, math.nan), (p.a_is_inf, 1.0), (p.x_is_inf, _INF)]
    return first_of([(p.invalid, math.nan), *ends], inner)


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
