"""Series, fractions and expansions of the incomplete gamma functions, each where it is accurate."""

from __future__ import annotations

import math
from typing import Any

from tracebridge.core import lax
from tracebridge.core.control.loops.while_loop import while_loop
from tracebridge.core.dtypes.finfo import finfo
from tracebridge.core.lax.ad_util import full_of
from tracebridge.core.lax.special.scaled_erfc import scaled_erfc
from tracebridge.core.special.beta_factors import power_of
from tracebridge.core.special.expansions import (
    STIRLING_FROM,
    inverse_gamma_1p,
    log1p_less,
    log_gamma_1p,
    remainder,
    stirling_rest,
    uniform_coefficients,
)
from tracebridge.core.special.programs import (
    Expression,
    divided,
    polynomial,
    where,
)

_INF = math.inf
_UNIFORM_FROM = 200.0


class Point:
    """One pair of arguments, and in which region it is.

    Formulas give anything for what is not inside, where the answer is known.
    """

    def __init__(self, a: Expression, x: Expression, *, over_x: bool = False) -> None:
        self.a, self.x = a, x
        # Of a power below 1 the difference would not be exact, and it vanishes nowhere.
        self.less = where(a >= 1.0, 1.0, a.filled(0.0)) if over_x else None
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
        return self._factor(self._scale())

    def density(self) -> Expression:
        """``x**(a - 1) exp(-x) / gamma(a)`` of a point ``over_x``; the power alone may vanish."""
        done = where(self.is_large, self.direct | (self.share <= 0.1), self.a >= 1.0)
        size = where(self.is_large, 1.0, self.a)
        share = where(done, size, self.a / where(done, 1.0, self.x))
        return self._factor(self._scale() * share)

    def _scale(self) -> Expression:
        scale = divided((-self.stirling).of(lax.exp), self.norm)
        return where(self.is_large, scale, inverse_gamma_1p(where(self.is_large, 1.0, self.a)))

    def _factor(self, scale: Expression) -> Expression:
        power = where(self.is_large & (self.share > 0.1), self.gauss, self.power) * scale
        return where((self.x >= 1000.0) & ~self.is_large, 0.0, power)

    def _power(self) -> tuple[Expression, Expression]:
        """``x**a exp(-x)``, of large shapes over the same at ``x = a``; and where that is exact.

        Of a point ``over_x`` the power is one less, of shapes from 1 on.
        """
        large = self.is_large
        modest = where(self.x >= 1000.0, 1.0, self.x)
        part, direct, apart, lost = self._quotient()
        # Far below the mean the power (share exp(1 - share))**a keeps digits that the exponential
        # of a large logarithm loses.
        decay = (-part * where(large, apart, modest)).of(lax.exp)
        base = where(large, where(direct, self.share, 1.0), modest)
        exponent = self.a if self.less is None else self.a - self.less
        power = self._base_power(base, part * exponent)
        # The root of the product: one factor may overflow, the other one underflow before.
        square = (power * decay).of(lax.square)
        square = where(part < 0.5, square.of(lax.square), square)
        square = where(part < 0.25, square.of(lax.square), square)
        # Nothing is left of other powers of small shares.
        whole = square * ((lost * 0.5 + 1.0) * lost + 1.0)
        return direct, where(large & ~direct, 0.0, whole)

    def _base_power(self, base: Expression, exponent: Expression) -> Expression:
        if finfo(base.aval.dtype).bits > 32:
            return base.of(lax.pow, exponent)
        large = self.is_large
        # Where the shape is a number, one of the two is no part of the program.
        power = where(large, base, 1.0).of(lax.pow, exponent)
        return where(large, power, power_of(where(large, 1.0, base), where(large, 1.0, exponent)))

    def _quotient(self) -> tuple[Expression, Expression, Expression, Expression]:
        """Where ``(x / a)**a exp(a - x)`` may be made of roots of its two factors, for large ``a``.

        By square roots, or by fourth or eighth ones: first which share of the logarithm that is.
        Then the difference in the exponential, and what the rounding of it and of the quotient
        takes off the logarithm of the product.
        """
        a, x = self.large, where(self.is_large, self.x, STIRLING_FROM)
        apart = x - a
        most = 1.8 * -math.log(a.tiny())
        # Both logarithms: that of a share is below 4 (share**(-1/8) - share**(1/8)).
        low = self.share < 1.0
        root = where(low & (self.share > 1e-3), self.share, 1e-3).of(lax.sqrt).of(lax.sqrt)
        root = root.of(lax.sqrt)
        size = where(low, a * 4.0 * (divided(1.0, root) - root), apart)
        # Of the largest shapes what the quotient lost is no small correction, and the exponential
        # is exact: its argument is small.
        usable = self.is_large & (a < 0.002 / a.eps()) & (self.share > a.tiny() ** 0.25)
        direct = usable & (size < 4.0 * most)
        part = where(self.is_large & (size >= most), self.a.filled(0.25), 0.5)
        part = where(self.is_large & (size >= 2.0 * most), 0.125, part)
        a, x = where(direct, a, STIRLING_FROM), where(direct, x, STIRLING_FROM)
        share, apart = where(direct, self.share, 1.0), where(direct, apart, 0.0)
        shadow = apart - x
        lost = (x - (apart - shadow)) - (a + shadow)
        return part, direct, apart, divided(remainder(x, share, a), share) - lost


class Terms:
    """The sums and fractions of all points, in one loop from their last terms to the first.

    A loop for each would sweep all elements as well, and compile as long again. ``value`` is

    * for ``series`` the sum of ``x**n / ((a + 1) ... (a + n))``,
    * for ``fraction`` what ``gamma(a, x) / (x**a exp(-x))`` is, a fraction in ``1 / x``,
    * for ``alternating``, if given, the sum of ``(-x)**n / ((n + 1)! (a + n + 1))``.

    ``slope`` is its derivative in ``a`` if asked for.
    """

    def __init__(
        self, p: Point, *, slope: bool = False, alternating: Expression | None = None
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


def is_near_zero(p: Point) -> Expression:
    """Where the upper function of small ``x`` is ``upper_near_zero``."""
    x, a = p.x, p.a
    small = where(x < 0.5, x, 0.5)
    bound = where(x < 0.5, -0.4 / small.of(lax.log), x * 1.1)
    return p.rest & ~p.above & (x <= 1.1) & (a <= bound) & (a <= 1.5)


def upper_near_zero(p: Point, here: Expression, total: Expression) -> Expression:
    """``1 - x**a / gamma(1 + a)`` and the rest of the series, which begins with ``x``."""
    a = where(here, p.a, 1.0)
    power = a * p.x.of(lax.log) - log_gamma_1p(a)
    return power.of(lax.exp) * a * p.x * total - power.of(lax.expm1)


class Uniform:
    """Temme's expansion: ``Q = erfc(eta sqrt(a/2)) / 2 + exp(-a eta**2 / 2) rest``."""

    def __init__(self, p: Point) -> None:
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
        place = self.eta * sign * (self.a * 0.5).of(lax.sqrt)
        below = place < 0.0
        # Over the exponential, which has its digits: that of the square of the place loses them.
        share = place.of(lax.abs).of(scaled_erfc) * 0.5
        rest = self.rest * sign
        tail = (share + where(below, -rest, rest)) * self.p.gauss
        return where(below, 1.0 - tail, tail)

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
