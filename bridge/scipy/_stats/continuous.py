"""Distributions with densities."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.dtypes.finfo import finfo
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.special import bessel
from tracebridge.core.special.incomplete_beta import beta_density_p
from tracebridge.core.special.incomplete_gamma import gamma_density_p
from tracebridge.scipy._special import far_tails as tails
from tracebridge.scipy._special import formulas as f
from tracebridge.scipy._special.elementwise import with_slopes
from tracebridge.scipy._stats.families import Distribution

_LOG_2_PI = math.log(2 * math.pi)


def _log1mexp(y: Array) -> Any:
    """``log(1 - exp(-y))`` of positive numbers."""
    small = y < math.log(2)
    near = tnp.log(-tnp.expm1(-tnp.where(small, y, 1)))
    return tnp.where(small, near, tnp.log1p(-tnp.exp(-tnp.where(small, 1, y))))


def _positive(*shapes: Any) -> Any:
    good: Any = True
    for s in shapes:
        good = good & (s > 0)
    return good


def _zero(*shapes: Any) -> Any:
    return 0.0


def _cauchy_quantile(q: Array) -> Any:
    edge, upper = (q == 0) | (q == 1), q > 0.5
    # The distance to the nearer end, which rounding leaves as it is.
    tail = tnp.where(edge, 0.125, tnp.where(upper, 1 - q, q))
    middle = tnp.abs(q - 0.5) < 0.25
    far = 1 / tnp.tan(math.pi * tnp.where(middle, 0.125, tail))
    near = tnp.tan(math.pi * tnp.where(middle, q - 0.5, 0))
    ends = tnp.where(upper, math.inf, -math.inf)
    return tnp.where(edge, ends, tnp.where(middle, near, tnp.where(upper, far, -far)))


def _log1p_of_square(y: Array) -> Any:
    """``log1p(y * y)``: the square of a large number overflows, its logarithm does not."""
    size = tnp.abs(y)
    kind = finfo(y.dtype)
    # Powers of the square are in slopes of the logarithm, of 16 bits few of its digits.
    large = size > max(0.9 * float(kind.tiny) ** -0.25, float(kind.eps) ** -0.5)
    # One logarithm for both: of the number itself where the square has no other digits.
    inner = tnp.where(large, size - 1, y * tnp.where(large, 0, y))
    return tnp.where(large, 2, 1) * tnp.log1p(inner)


def _slope_of_power(power: Array, y: Array, by: Callable[[Any], Any]) -> Any:
    """The power times a factor of the size; 0 at 0, where powers below 1 have two slopes.

    And 0 where it is about to overflow: nothing is left there of what falls with the power.
    """
    none = (y == 0) | (power > 1e-4 * float(finfo(power.dtype).max))
    return tnp.where(none, 0, power * by(tnp.where(none, 1, y)))


# ``abs(y) ** b``.
_power_of_size = with_slopes(
    lambda y, b: tnp.abs(y) ** b,
    lambda power, y, b: _slope_of_power(power, y, lambda y: b / y),
    lambda power, y, b: _slope_of_power(power, y, lambda y: tnp.log(tnp.abs(y))),
)


def _gennorm_below(y: Array, b: Array) -> Any:
    power = _power_of_size(y, b)
    middle = (y == 0) | (power == 0)
    tail = 0.5 * f.gammaincc(1 / b, tnp.where(middle, 1, power))
    # In the middle the value is known and the slope is the density.
    half = 0.5 + y * tnp.exp(tnp.log(b / 2) - f.gammaln(1 / b))
    return tnp.where(middle, half, tnp.where(y < 0, tail, 1 - tail))


def _log_gamma_density(y: Array, a: Array) -> Any:
    return tails.log_gamma_density(y, a, f.xlogy(a - 1, y) - y - f.gammaln(a))


def _log_beta_density(y: Array, a: Array, b: Array) -> Any:
    plain = f.xlogy(a - 1, y) + f.xlog1py(b - 1, -y) - f.log_beta_of_positive(a, b)
    return tails.log_beta_density(y, a, b, plain)


def _beta_above(y: Array, a: Array, b: Array) -> Any:
    # Up to the mean the distance to 1, of which a small number may leave no digit, is not needed.
    low = y * (a + b) < a
    first, second = tnp.where(low, a, b), tnp.where(low, b, a)
    share = f.incomplete_beta(first, second, tnp.where(low, y, 1 - y))
    return tnp.where(low, 1 - share, share)


# Of the exponential of a larger number the negative has the exponential 0.
_LARGEST_RATE = 7.0


def _rate(y: Array) -> Any:
    """``exp(y)``, or a number that is large enough."""
    return tnp.exp(tnp.minimum(y, _LARGEST_RATE))


def _log_rate_below(y: Array) -> Any:
    """``log(1 - exp(-exp(y)))``; far below it is ``y``, and ``exp(y)`` too small for a number."""
    far = y < -37
    return tnp.where(far, y, _log1mexp(_rate(tnp.where(far, 0, y))))


_largest_quantile = with_slopes(
    lambda q: -tnp.log(-tnp.log(q)),
    lambda ans, q: tnp.where((q == 0) | (q == 1), math.inf, tnp.exp(ans) / q),
)
# The logarithm of the rate: at 1 both factors of its slope have ends, of which one is larger.
_log_of_rate = with_slopes(
    lambda q: tnp.log(-tnp.log1p(-q)),
    lambda ans, q: tnp.where(q == 1, math.inf, tnp.exp(-ans) / (1 - q)),
)


def _laplace_below(y: Array) -> Any:
    tail = 0.5 * tnp.exp(-tnp.abs(y))
    return tnp.where(y < 0, tail, 1 - tail)


def _middle(a: Array, b: Array) -> Any:
    """A number between two bounds, of which each may be infinite."""
    one_sided = tnp.where(tnp.isinf(b), a + 1, b - 1)
    none = tnp.isinf(a) & tnp.isinf(b)
    inner = tnp.where(tnp.isinf(a) | tnp.isinf(b), one_sided, (a + b) / 2)
    return tnp.where(none, 0, inner)


NORM = Distribution(
    "norm", "normal numbers", (),
    lambda y: -0.5 * (y * y + _LOG_2_PI),
    functions={
        "cdf": f.ndtr, "sf": lambda y: f.ndtr(-y), "logcdf": f.log_ndtr,
        "logsf": lambda y: f.log_ndtr(-y), "ppf": f.ndtri, "isf": lambda q: -f.ndtri(q),
    },
)  # fmt: skip
CAUCHY = Distribution(
    "cauchy", "Cauchy numbers", (),
    lambda y: -math.log(math.pi) - _log1p_of_square(y),
    functions={
        "cdf": lambda y: tnp.arctan2(1, -y) / math.pi, "sf": lambda y: tnp.arctan2(1, y) / math.pi,
        "ppf": lambda q: _cauchy_quantile(q), "isf": lambda q: -_cauchy_quantile(q),
    },
)  # fmt: skip
EXPON = Distribution(
    "expon", "exponential numbers", (), lambda y: -y, low=_zero,
    functions={
        "cdf": lambda y: -tnp.expm1(-y), "sf": lambda y: tnp.exp(-y), "logcdf": _log1mexp,
        "logsf": lambda y: -y, "ppf": lambda q: -tnp.log1p(-q),
    },
    closed=True,
)  # fmt: skip
GAMMA = Distribution(
    "gamma", "gamma numbers", ("a",),
    _log_gamma_density, _positive, _zero,
    functions={
        "cdf": lambda y, a: f.gammainc(a, y), "sf": lambda y, a: f.gammaincc(a, y),
        "pdf": lambda y, a: gamma_density_p.bind(a, y),
    },
    vanishes=lambda y, a: (y == 0) & (a > 1), closed=True,
    far={
        "logcdf": lambda y, a: tails.log_gamma_below(a, y),
        "logsf": lambda y, a: tails.log_gamma_above(a, y),
    },
)  # fmt: skip
CHI2 = Distribution(
    "chi2", "sums of squares of normal numbers", ("df",),
    lambda y, n: _log_gamma_density(y / 2, n / 2) - math.log(2), _positive, _zero,
    functions={
        "cdf": lambda y, n: f.gammainc(n / 2, y / 2), "sf": lambda y, n: f.gammaincc(n / 2, y / 2),
        "pdf": lambda y, n: gamma_density_p.bind(n / 2, y / 2) / 2,
    },
    vanishes=lambda y, n: (y == 0) & (n > 2), closed=True,
    far={
        "logcdf": lambda y, n: tails.log_gamma_below(n / 2, y / 2),
        "logsf": lambda y, n: tails.log_gamma_above(n / 2, y / 2),
    },
)  # fmt: skip
BETA = Distribution(
    "beta", "beta numbers", ("a", "b"),
    _log_beta_density, _positive, _zero, lambda *s: 1.0,
    functions={
        "cdf": lambda y, a, b: f.incomplete_beta(a, b, y),
        "sf": _beta_above,
        "pdf": lambda y, a, b: beta_density_p.bind(a, b, y),
    },
    vanishes=lambda y, a, b: ((y == 0) & (a > 1)) | ((y == 1) & (b > 1)), example="2.0, 3.0",
    closed=True,
    far={
        "logcdf": lambda y, a, b: tails.log_beta_below(a, b, y, 1 - y),
        "logsf": lambda y, a, b: tails.log_beta_below(b, a, 1 - y, y),
    },
)  # fmt: skip
GENNORM = Distribution(
    "gennorm", "generalized normal numbers", ("beta",),
    lambda y, b: tnp.log(b / 2) - f.gammaln(1 / b) - _power_of_size(y, b), _positive,
    functions={
        "cdf": lambda y, b: _gennorm_below(y, b),
    },
    placed=(),
)  # fmt: skip
GUMBEL_R = Distribution(
    "gumbel_r", "Gumbel numbers, of largest values", (),
    lambda y: -y - tnp.exp(-y),
    functions={
        "cdf": lambda y: tnp.exp(-_rate(-y)), "logcdf": lambda y: -tnp.exp(-y),
        "sf": lambda y: -tnp.expm1(-_rate(-y)), "logsf": lambda y: _log_rate_below(-y),
        "ppf": _largest_quantile,
    },
    vanishes=lambda y: y < -_LARGEST_RATE,
    quantile="p",
)  # fmt: skip
GUMBEL_L = Distribution(
    "gumbel_l", "Gumbel numbers, of smallest values", (),
    lambda y: y - tnp.exp(y),
    functions={
        "cdf": lambda y: -tnp.expm1(-_rate(y)), "logcdf": _log_rate_below,
        "sf": lambda y: tnp.exp(-_rate(y)), "logsf": lambda y: -tnp.exp(y),
        "ppf": _log_of_rate,
    },
    vanishes=lambda y: y > _LARGEST_RATE,
    quantile="p",
)  # fmt: skip
LAPLACE = Distribution(
    "laplace", "Laplace numbers", (), lambda y: -tnp.abs(y) - math.log(2),
    functions={
        "cdf": _laplace_below,
    },
)  # fmt: skip
LOGISTIC = Distribution(
    "logistic", "logistic numbers", (),
    lambda y: -tnp.abs(y) - 2 * tnp.log1p(tnp.exp(-tnp.abs(y))),
    functions={
        "cdf": lambda y: lax.logistic(y), "sf": lambda y: lax.logistic(-y), "ppf": f.logit,
        "isf": lambda q: -f.logit(q),
    },
    quantile="x",
)  # fmt: skip


def _log_of_pareto(y: Array, b: Array) -> Any:
    beyond = tnp.isinf(b) & (y > 1)
    b = tnp.where(beyond, 1, b)
    return tnp.where(beyond, -math.inf, tnp.log(b) - _times_log(b + 1, y))


def _times_log(b: Array, y: Array) -> Any:
    """``b log(y)``; at 1 it is 0 for an infinite ``b`` too, the limit of large ones."""
    return tnp.where(tnp.isinf(b) & (y == 1), 1, b) * tnp.log(y)


PARETO = Distribution(
    "pareto", "Pareto numbers", ("b",),
    _log_of_pareto, _positive, lambda *s: 1.0,
    inner=lambda *s: 2.0,
    functions={
        "cdf": lambda y, b: -tnp.expm1(-_times_log(b, y)),
        "sf": lambda y, b: tnp.exp(-_times_log(b, y)),
        "logcdf": lambda y, b: _log1mexp(_times_log(b, y)),
        "logsf": lambda y, b: -_times_log(b, y),
        "ppf": lambda q, b: tnp.exp(-tnp.log1p(-q) / b),
    },
    closed=True,
)  # fmt: skip


def _log_density_of_t(y: Array, n: Array) -> Any:
    finite = tnp.isfinite(n)
    n = tnp.where(finite, n, 1)
    rest = -0.5 * tnp.log(n) - f.log_beta_of_positive(n / 2, 0.5 + 0 * n)
    # Of few degrees of freedom the quotient of a large number overflows, its logarithm does not.
    most = finfo(y.dtype).maxexp
    far = (tnp.abs(y) > 2.0 ** (0.625 * most)) & (n < 1)
    scaled = y * tnp.where(far, 2.0 ** (-0.5 * most), 1) / tnp.sqrt(n)
    square = _log1p_of_square(scaled) + tnp.where(far, most * math.log(2), 0)
    log = -(n + 1) / 2 * square + rest
    return tnp.where(finite, log, -0.5 * (y * y + _LOG_2_PI))


T = Distribution(
    "t", "Student's t", ("df",),
    _log_density_of_t,
    _positive,
)  # fmt: skip


def _log_mass(a: Array, b: Array) -> Any:
    """Logarithm of the probability of normal numbers in ``[a, b]``, in the tail that is nearer."""
    width = b - a
    narrow = (width > 0) & (width * tnp.maximum(tnp.abs(a), 1) < 0.02)
    short, start = tnp.where(narrow, width, 1), tnp.where(narrow, a, 0)
    return tnp.where(narrow, _log_narrow_mass(start, short), _log_wide_mass(a, b))


def _log_narrow_mass(a: Array, width: Array) -> Any:
    """By Taylor's series around the middle: of the logarithms at the ends no digit may differ."""
    middle, square = (a + 0.5 * width) ** 2, width**2
    more = (middle - 1) / 24 + (middle * (middle - 6) + 3) * square / 1920
    return tnp.log(width) - 0.5 * (middle + _LOG_2_PI) + tnp.log1p(square * more)


def _log_wide_mass(a: Array, b: Array) -> Any:
    turned = a > 0
    low, high = tnp.where(turned, -b, a), tnp.where(turned, -a, b)
    # A bound at infinity has no slope, not even a product of 0 and infinity.
    end = tnp.isinf(low)
    bottom = tnp.where(end, -math.inf, f.log_ndtr(tnp.where(end, 0, low)))
    top = f.log_ndtr(high)
    finite = tnp.isfinite(bottom)
    gap = tnp.where(finite, top - tnp.where(finite, bottom, 0), 1)
    return tnp.where(finite, top + _log1mexp(tnp.where(gap > 0, gap, 1)), top)


def _log_of_part(part: Array, rest: Array, whole: Array) -> Any:
    """``part - whole``, of logarithms; where that is small, from the rest, which has its digits."""
    most = part - whole > -math.log(2)
    left = tnp.where(most, whole - rest, 1)
    # Without the rest there is nothing to take away.
    left = tnp.where(left == math.inf, 1e3, left)
    return tnp.where(most, tnp.log1p(-tnp.exp(-left)), part - whole)


TRUNCNORM = Distribution(
    "truncnorm", "normal numbers between two bounds", ("a", "b"),
    lambda y, a, b: -0.5 * (y * y + _LOG_2_PI) - _log_mass(a, b),
    lambda a, b: a < b, lambda a, b: a, lambda a, b: b,
    _middle,
    {
        "logcdf": lambda y, a, b: _log_of_part(_log_mass(a, y), _log_mass(y, b), _log_mass(a, b)),
        "cdf": lambda y, a, b: tnp.exp(_log_mass(a, y) - _log_mass(a, b)),
        "logsf": lambda y, a, b: _log_of_part(_log_mass(y, b), _log_mass(a, y), _log_mass(a, b)),
        "sf": lambda y, a, b: tnp.exp(_log_mass(y, b) - _log_mass(a, b)),
    },
    example="-1.0, 2.0",
    repeats=False,  # the mass between scalars is one number; XLA takes long to find that out
)  # fmt: skip
UNIFORM = Distribution(
    "uniform", "numbers of which none is likelier", (), lambda y: 0 * y, low=_zero,
    high=lambda *s: 1.0, closed=True,
    functions={"pdf": tnp.ones_like, "cdf": lambda y: y, "ppf": lambda q: q},
)  # fmt: skip
VONMISES = Distribution(
    "vonmises", "angles around a direction", ("kappa",),
    # One less the cosine, without its cancellation.
    lambda y, k: -2 * k * tnp.sin(y / 2) ** 2 - _LOG_2_PI - tnp.log(bessel.bessel_i0e(k)),
    lambda k: k >= 0, placed=(),
)  # fmt: skip
WRAPCAUCHY = Distribution(
    "wrapcauchy", "Cauchy numbers wound around a circle", ("c",),
    # Sums of squares, which do not cancel where c is close to 1.
    lambda y, c: tnp.log((1 - c) * (1 + c)) - _LOG_2_PI
    - tnp.log((1 - c) ** 2 + 4 * c * tnp.sin(y / 2) ** 2),
    lambda c: (c > 0) & (c < 1), _zero, lambda *s: 2 * math.pi, placed=(),
)  # fmt: skip
