"""Formulas of the hypergeometric functions, in float64 whatever the dtype.

Sources: NIST DLMF 13.2, 13.7 (1F1: series, Kummer's transformation, expansion for large arguments),
15.4, 15.8, 15.10 (2F1: Gauss's value at 1, Pfaff's transformation, the differential equation).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge._api.custom.custom_jvp import custom_jvp
from tracebridge._api.derivatives.jvp import jvp
from tracebridge.core.control.branches.switch import cond
from tracebridge.core.control.custom.symbolic_zeros import SymbolicZero
from tracebridge.core.control.loops.while_loop import while_loop
from tracebridge.core.control.scan.forward import scan
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.scipy._special import double_double as dd

_EPS = 2.0**-53
_F64 = np.dtype(np.float64)
_MOST_TERMS = 4000
_ASYMPTOTIC_TERMS = 60
_CANCELLED = 1e-14  # relative errors from which sums are taken again, with twice the digits


def in_float64(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` in float64: sums that cancel have digits to lose."""

    @functools.wraps(function)
    def run(*xs: Array) -> Any:
        dtype = xs[0].aval.dtype
        return lax.convert_dtype(function(*[lax.convert_dtype(x, _F64) for x in xs]), dtype)

    return run


def with_slopes_on_demand(function: Callable[..., Any], last: Callable[..., Any]) -> Any:
    """``function`` with ``last(*xs)``, its derivative in the last argument.

    Those in the others are its own: forward mode goes through loops. Only what is asked for is
    computed.
    """
    wrapped = custom_jvp(function)

    def rule(primals: tuple[Array, ...], tangents: tuple[Array | SymbolicZero, ...]) -> Any:
        ans = wrapped(*primals)
        total = tnp.zeros_like(ans)
        for i, t in enumerate(tangents):
            if isinstance(t, SymbolicZero):
                continue
            slope = last(*primals) if i == len(primals) - 1 else _slope_in(function, i, primals)
            total = total + slope * t
        return ans, total

    wrapped.defjvp(rule, symbolic_zeros=True)
    return wrapped


def _slope_in(function: Callable[..., Any], i: int, xs: tuple[Array, ...]) -> Any:
    def of_one(x: Array) -> Any:
        return function(*xs[:i], x, *xs[i + 1 :])

    return jvp(of_one, (xs[i],), (tnp.ones_like(xs[i]),))[1]


def _repeat(active: Array, step: Callable[..., Any], start: list[Array]) -> list[Any]:
    """``step(k, *state) -> (converged, *state)`` for k = 0, 1, ... until all elements converged."""

    def goes_on(carry: tuple[Array, ...]) -> Any:
        k, active, *_ = carry
        return tnp.any(active) & (k < _MOST_TERMS)

    def body(carry: tuple[Array, ...]) -> Any:
        k, active, *state = carry
        converged, *state = step(k, *state)
        return [k + 1.0, active & ~converged, *state]

    first = lax.convert_dtype(tnp.asarray(0.0), _F64)
    return while_loop(goes_on, body, [first, active, *start])[2:]


def _counts(n: int) -> Any:
    return lax.convert_dtype(lax.iota(np.dtype(np.float32), n), _F64)


def _is_whole_below_1(a: Array) -> Any:
    return (a <= 0) & (a == tnp.floor(a))


def _no_less(x: Array) -> Any:
    """The size of ``x``, at least 1: terms that vanish have derivatives that do not."""
    return tnp.maximum(tnp.abs(x), 1.0)


def _series_1f1(active: Array, a: Array, b: Array, x: Array, first: Array) -> tuple[Any, Any]:
    """The sum of the series times ``first``, and the sum of the sizes of its terms."""

    def step(k: Array, term: Array, bound: Array, total: Array, size: Array) -> Any:
        below = (b + k) * (k + 1.0)
        pole = below == 0
        quotient = x / tnp.where(pole, 1.0, below)
        # Where b is such a number too the polynomial has ended before.
        term = tnp.where(pole, 0.0, term * ((a + k) * quotient))
        ratio = tnp.abs(quotient) * _no_less(a + k)
        bound = tnp.minimum(bound * ratio, 1e300)
        total, size = total + term, size + tnp.abs(term)
        falls = (ratio < 0.9) & (k > -b) & (k > -a)
        return (bound <= 0.1 * _EPS * size) & falls, term, bound, total, size

    zero = tnp.zeros_like(x)
    start = [first + zero, tnp.abs(first + zero), first + zero, tnp.abs(first + zero)]
    _, _, total, size = _repeat(active, step, start)
    return total, size


def _long_series_1f1(active: Array, a: dd.Double, b: Array, x: Array, first: Array) -> Any:
    """``_series_1f1`` with twice the digits, ``a`` too."""

    def step(k: Array, high: Array, low: Array, bound: Array, *sums: Array) -> Any:
        numbers = dd.double(tnp.zeros_like(x) + k)
        upper = dd.add(a, numbers)
        below = dd.multiply(dd.add(dd.double(b), numbers), dd.double(numbers[0] + 1.0))
        pole = below[0] == 0
        below = tnp.where(pole, 1.0, below[0]), tnp.where(pole, 0.0, below[1])
        term = dd.divide(dd.multiply((high, low), dd.multiply(upper, dd.double(x))), below)
        term = tnp.where(pole, 0.0, term[0]), tnp.where(pole, 0.0, term[1])
        ratio = tnp.abs(x / below[0]) * _no_less(upper[0])
        bound = tnp.minimum(bound * ratio, 1e300)
        total, size = dd.add(sums[:2], term), sums[2] + tnp.abs(term[0])
        falls = (ratio < 0.9) & (k > -b) & (k > -a[0])
        return (bound <= dd.EPS * size) & falls, *term, bound, *total, size

    start = dd.double(tnp.zeros_like(x) + first)
    *_, high, low, size = _repeat(
        active, step, [*start, tnp.abs(start[0]), *start, tnp.abs(start[0])]
    )
    return high + low, size


def _reciprocal_gamma(x: Array) -> tuple[Any, Any]:
    """The sign of ``1 / gamma(x)``, 0 at poles, and the logarithm of its size."""
    pole = _is_whole_below_1(x)
    whole = tnp.floor(x)
    odd = whole - 2.0 * tnp.floor(0.5 * whole) == 1
    sign = tnp.where(pole, 0.0, tnp.where((x < 0) & odd, -1.0, tnp.ones_like(x)))
    return sign, -lax.lgamma(tnp.where(pole, 1.0, x))


def _inverse_powers(p: Array, q: Array, z: Array) -> tuple[Any, Any]:
    """The sum of ``(p)_k (q)_k / (k! z**k)`` up to its smallest term, and this."""

    def step(carry: tuple[Array, ...], k: Array) -> Any:
        term, total, stopped = carry
        following = term * ((p + k) * (q + k) / ((k + 1.0) * z))
        # Terms may grow before they fall.
        stopped = stopped | ((tnp.abs(following) >= tnp.abs(term)) & (tnp.abs(term) < 1e-3))
        term = tnp.where(stopped, term, following)
        return (term, tnp.where(stopped, total, total + following), stopped), None

    one = tnp.ones_like(z)
    counts = _counts(_ASYMPTOTIC_TERMS)
    (term, total, _), _ = scan(step, (one, one, z == 0), counts)
    return total, tnp.abs(term)


def _far_1f1(a: Array, b: Array, x: Array) -> tuple[Any, Any]:
    """``exp(-x)`` times the function by its expansion for large ``x``, and its error."""
    signs, logs = _reciprocal_gamma(tnp.stack([a, b - a, b]))
    signs, logs = signs[:2] * signs[2], logs[:2] - logs[2]
    # Of the second part, small beside the first, the mean of its two continuations.
    turn = tnp.cos(math.pi * (a - 2.0 * tnp.round(0.5 * a)))
    turns = tnp.stack([tnp.ones_like(x), turn * tnp.exp(-x)])
    powers = tnp.stack([a - b, -a]) * tnp.log(x)
    factors = signs * turns * tnp.exp(logs + powers)
    totals, least = _inverse_powers(
        tnp.stack([1.0 - a, a]), tnp.stack([b - a, a - b + 1.0]), tnp.stack([x, -x])
    )
    parts = factors * totals
    relative = _EPS * (4.0 + tnp.abs(logs) + tnp.abs(powers))
    errors = tnp.abs(factors) * least + tnp.abs(parts) * relative
    return parts[0] + parts[1], errors[0] + errors[1]


def _scaled_1f1(a: Array, b: Array, x: Array, direct: Array) -> tuple[Any, Any]:
    """``exp(-x)`` times the function, ``x >= 0``: of three ways that with the least error.

    Where ``direct`` the series of the function of ``-x``, without factor.
    """
    far = (x >= 20.0) & ~direct
    # Most arguments are near, and sixty terms of an expansion for nobody take half of the time.
    value_a, error_a = cond(
        tnp.any(far),
        _far_1f1,
        lambda *xs: (tnp.zeros_like(xs[2]), tnp.full_like(xs[2], math.inf)),
        *(a, b, tnp.where(far, x, 20.0)),
    )
    # The factors of the expansion vanish for polynomials, their derivatives do not.
    whole = _is_whole_below_1(b) | _is_whole_below_1(a) | _is_whole_below_1(b - a)
    error_a = tnp.where(far & ~whole, error_a, math.inf)
    near = (error_a > 8.0 * _EPS * tnp.abs(value_a)) & (x < 1400.0)
    turn = near & (x < 40.0) & ~_is_whole_below_1(b)
    # The series, and Kummer's: of b - a and -x.
    half = tnp.where(direct, 1.0, tnp.exp(-0.5 * tnp.minimum(x, 1400.0)))
    z = tnp.stack([tnp.where(near, tnp.where(direct, -x, x), 1.0), tnp.where(turn, -x, 1.0)])
    active = tnp.stack([near, turn])
    values, sizes = _series_1f1(
        active,
        tnp.where(active, tnp.stack([a, b - a]), 1.0),
        tnp.where(active, tnp.stack([b, b]), 1.0),
        z,
        tnp.stack([half, tnp.ones_like(x)]),
    )
    errors = tnp.where(active, _EPS * sizes * tnp.stack([half, tnp.ones_like(x)]), math.inf)
    better = errors[1] < errors[0]
    value = tnp.where(better, values[1], values[0] * half)
    error = tnp.minimum(errors[0], errors[1])
    expanded = error_a < error
    value, error = tnp.where(expanded | ~near, value_a, value), tnp.minimum(error, error_a)
    cancelled = near & ~(error <= _CANCELLED * tnp.abs(value))
    turn = cancelled & ~_is_whole_below_1(b)
    active = tnp.stack([cancelled, turn])
    longer, longer_error = _long_1f1(active, a, b, tnp.where(direct, -x, x), half)
    better = longer_error < error
    return tnp.where(better, longer, value), tnp.where(better, longer_error, error)


def _long_1f1(active: Array, a: Array, b: Array, x: Array, half: Array) -> tuple[Any, Any]:
    """The series and Kummer's with twice the digits, where they are ``active``."""
    one = tnp.ones_like(x)
    turned = dd.add(dd.double(b), dd.negative(dd.double(a)))
    high = tnp.where(active, tnp.stack([a, turned[0]]), 1.0)
    low = tnp.where(active, tnp.stack([tnp.zeros_like(a), turned[1]]), 0.0)
    values, sizes = _long_series_1f1(
        active,
        (high, low),
        tnp.where(active, tnp.stack([b, b]), 1.0),
        tnp.where(active, tnp.stack([x, -x]), 0.5),
        tnp.stack([half, one]),
    )
    factors = tnp.stack([half, one])
    errors = tnp.abs(values) * (4.0 * _EPS) + sizes * dd.EPS
    errors = tnp.where(active, errors * factors, math.inf)
    better = errors[1] < errors[0]
    return tnp.where(better, values[1], values[0] * half), tnp.minimum(errors[0], errors[1])


def _hyp1f1(a: Array, b: Array, x: Array) -> Any:
    pole = _is_whole_below_1(b) & ~(_is_whole_below_1(a) & (a >= b))
    nowhere = tnp.isnan(a) | tnp.isnan(b) | tnp.isnan(x) | tnp.isinf(a) | tnp.isinf(b)
    end = tnp.isinf(x)
    known = pole | nowhere | end | (x == 0)
    p, q, z = tnp.where(known, 1.0, a), tnp.where(known, 1.0, b), tnp.where(known, 0.5, x)
    # Kummer: exp(x) times the function of b - a and -x; not where the lower parameter is a pole.
    direct = (z < 0) & _is_whole_below_1(q)
    negative = (z < 0) & ~direct
    value, error = _scaled_1f1(tnp.where(negative, q - p, p), q, tnp.abs(z), direct)
    half = tnp.where(z < 0, 1.0, tnp.exp(0.5 * z))
    value, error = half * value * half, half * error * half
    # Where the terms have cancelled to the last digit nothing is known.
    lost = (error > 0.1 * tnp.abs(value)) & (error > 1e-6)
    value = tnp.where(lost, math.nan, value)
    value = tnp.where((x == 0) & ~pole, 1.0, tnp.where(pole, math.inf, value))
    limit = tnp.where((a > 0) & (b > 0), tnp.where(x > 0, math.inf, 0.0), math.nan)
    value = tnp.where(end, tnp.where(pole, math.inf, limit), value)
    return tnp.where(nowhere, math.nan, value)


def _gauss_start(active: Array, a: Array, b: Array, c: Array, x: Array) -> tuple[Any, Any, Any]:
    """The series of 2F1, its derivative in ``x``, and the sum of the sizes of its terms."""

    def step(k: Array, term: Array, bound: Array, total: Array, slope: Array, size: Array) -> Any:
        below = (c + k) * (k + 1.0)
        pole = below == 0
        quotient = x / tnp.where(pole, 1.0, below)
        term = tnp.where(pole, 0.0, term * ((a + k) * (b + k) * quotient))
        ratio = tnp.abs(quotient) * _no_less(a + k) * _no_less(b + k)
        bound = tnp.minimum(bound * ratio, 1e300)
        total, size = total + term, size + tnp.abs(term)
        slope = slope + (k + 1.0) * term
        falls = (ratio < 0.95) & (k > -c) & (k > -a) & (k > -b)
        return ((k + 1.0) * bound <= 0.1 * _EPS * size) & falls, term, bound, total, slope, size

    one = tnp.ones_like(x)
    _, _, total, slope, size = _repeat(active, step, [one, one, one, tnp.zeros_like(x), one])
    return total, slope / tnp.where(x == 0, 1.0, x), size


_STEP_TERMS = 128


def _towards_1(active: Array, a: Array, b: Array, c: Array, end: Array, start: list[Array]) -> Any:
    """The function at ``1 - end`` from value and slope at ``1 - start[0]``.

    Taylor series of the differential equation, each halfway to the singularity at 1 at most.
    """

    def step(_: Array, w: Array, value: Array, slope: Array) -> Any:
        following = tnp.maximum(end, 0.5 * w)
        h = w - following
        below = w * (1.0 - w)
        first = (c - a - b - 1.0) + (a + b + 1.0) * w

        def term(carry: tuple[Array, ...], n: Array) -> Any:
            last, this, total, weighted = carry
            rise = ((2.0 * w - 1.0) * n + first) * (n + 1.0) * this * h
            more = ((n + a) * (n + b) * last * h * h - rise) / (below * (n + 1.0) * (n + 2.0))
            return (this, more, total + more, weighted + (n + 2.0) * more), None

        second = slope * h
        counts = _counts(_STEP_TERMS)
        carry, _ = scan(term, (value, second, value + second, second), counts)
        _, _, total, weighted = carry
        moved = h > 0
        slope = tnp.where(moved, weighted / tnp.where(moved, h, 1.0), slope)
        return following <= end, following, tnp.where(moved, total, value), slope

    return _repeat(active, step, start)[1]


def _without_noise(total: Array, size: Array) -> Any:
    """NaN where terms have cancelled to the last digit."""
    error = _EPS * size
    return tnp.where((error > 0.1 * tnp.abs(total)) & (error > 1e-6), math.nan, total)


def _by_series_and_steps(whole: Array, a: Array, b: Array, c: Array, x: Array, w: Array) -> Any:
    """The function for ``0 <= x < 1``, where ``w`` is ``1 - x`` with all its digits.

    Where ``whole`` the series has an end, and ``x`` is any number.
    """
    near = (x > 0.5) & ~whole
    value, slope, size = _gauss_start(whole | True, a, b, c, tnp.where(near, 0.5, x))
    value = _without_noise(value, size)
    return tnp.where(
        whole, value, _towards_1(near, a, b, c, w, [tnp.where(near, 0.5, w), value, slope])
    )


def _at_1(a: Array, b: Array, c: Array) -> Any:
    """Gauss's value where ``c > a + b``, else infinity."""
    s = c - a - b
    sign, log = _reciprocal_gamma(tnp.stack([c - a, c - b, c, tnp.where(s > 0, s, 1.0)]))
    ratio = sign[0] * sign[1] * sign[2] * tnp.exp(log[0] + log[1] - log[2] - log[3])
    signs, _ = _reciprocal_gamma(tnp.stack([a, b]))
    infinite = math.inf * tnp.where(signs[0] * signs[1] * sign[2] < 0, -1.0, tnp.ones_like(a))
    return tnp.where(s > 0, ratio, infinite)


def _hyp2f1(a: Array, b: Array, c: Array, x: Array) -> Any:
    a, b = tnp.minimum(a, b), tnp.maximum(a, b)
    nowhere = tnp.isnan(x) | tnp.isnan(a) | tnp.isnan(b) | tnp.isnan(c)
    nowhere = nowhere | tnp.isinf(a) | tnp.isinf(b) | tnp.isinf(c) | tnp.isinf(x)
    ends_a, ends_b = _is_whole_below_1(a), _is_whole_below_1(b)
    polynomial = ends_a | ends_b
    shorter = tnp.where(ends_b, b, a)
    # The limit that SciPy takes; the polynomial that ends before the pole is another one.
    power = _is_whole_below_1(c) & ((c == a) | (c == b))
    pole = _is_whole_below_1(c) & ~power & ~(polynomial & (shorter > c))
    beyond = (x > 1) & ~polynomial & ~power
    known = nowhere | pole | beyond | power | ((x == 1) & ~polynomial)
    p, q, r, z = (tnp.where(known, v, u) for v, u in ((1.0, a), (1.0, b), (3.0, c), (0.25, x)))
    # Pfaff: (1 - x)**-a times the function of a, c - b, c and x / (x - 1), which is below 1.
    turned = (z < 0) & ~polynomial
    w = 1.0 - z
    b_now = tnp.where(turned, r - q, q)
    inverse = 1.0 / tnp.where(turned, w, 1.0)
    y, complement = tnp.where(turned, -z * inverse, z), tnp.where(turned, inverse, w)
    value = _by_series_and_steps(polynomial & ~known, p, b_now, r, y, complement)
    value = tnp.where(turned, lax.pow(tnp.where(turned, w, 1.0), -p) * value, value)
    value = tnp.where((x == 1) & ~polynomial, _at_1(a, b, c), value)
    below = tnp.where(power & (x < 1), 1.0 - x, 1.0)
    by_power = lax.pow(below, tnp.where(c == a, -b, -a))
    value = tnp.where(power & (x < 1), by_power, value)
    value = tnp.where(beyond | pole | (power & (x >= 1)), math.inf, value)
    return tnp.where(nowhere, math.nan, tnp.where(x == 0, 1.0, value))


_confluent = with_slopes_on_demand(_hyp1f1, lambda a, b, x: a / b * _confluent(a + 1.0, b + 1.0, x))
_gauss = with_slopes_on_demand(
    _hyp2f1, lambda a, b, c, x: a * b / c * _gauss(a + 1.0, b + 1.0, c + 1.0, x)
)
hyp1f1 = in_float64(_confluent)
hyp2f1 = in_float64(_gauss)
