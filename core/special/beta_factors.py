"""The logarithm of the beta function, and the factor of its incomplete kin.

Source: Didonato, Morris (1992), ACM Trans. Math. Softw. 18(3), for the factor
``x**a (1 - x)**b / beta(a, b)`` at large parameters.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from tracebridge.core import lax
from tracebridge.core.dtypes.finfo import finfo
from tracebridge.core.ir.values import literal
from tracebridge.core.lax.roundings import (
    exact_product,
    exact_sum,
    lost_of_product,
    upper_half,
)
from tracebridge.core.special.expansions import STIRLING_FROM, log1p_less, needed, stirling_rest
from tracebridge.core.special.lanczos import log_beta_of_modest
from tracebridge.core.special.programs import Expression, divided, first_of, polynomial, where

if TYPE_CHECKING:
    from tracebridge.core.dtypes.dtypes import DType
    from tracebridge.core.ir.value import Value

_LOG_2 = math.log(2.0)
# So short that products with whole numbers are exact, and what is left.
_PARTS_OF_LOG_2 = {
    np.dtype(np.float32): (0.693359375, -2.1219444005469057e-4),
    np.dtype(np.float64): (0.693147182464599609375, -1.904654299957768e-9),
}
# Of larger parameters quotients and products have not enough digits for their powers.
_LARGEST = {np.dtype(np.float32): 1e6, np.dtype(np.float64): 1e15}

# The layout of float32: the digits, the bias of the exponent, the bits of the root of a half.
_DIGITS, _BIAS, _ROOT_HALF = 23, 127, 0x3F3504F3
_F32, _INT32 = np.dtype(np.float32), np.dtype(np.int32)
# No float32 is above, and none of its normal ones below.
_ENDS = (2.0**-126, 2.0**127)


def log_beta(a: Expression, b: Expression, total: Expression) -> Expression:
    """``log(beta(a, b))`` of positive numbers, without cancellation where one is large.

    ``total`` is ``a + b``, which may be a number where ``a`` and ``b`` are arrays.
    """
    small, large = a.of(lax.min, b), a.of(lax.max, b)
    # Of each operand, not of the smaller and the larger one: one may be a number.
    gammas = [v.of(lax.min, STIRLING_FROM).of(lax.lgamma) for v in (a, b)]
    ordered = a <= b
    gamma_of_low = where(ordered, gammas[0], gammas[1])
    # Both below the bound.
    modest = total.of(lax.min, 2 * STIRLING_FROM)
    if a.eps() < 1e-10:
        low, high = small.of(lax.min, STIRLING_FROM), large.of(lax.min, STIRLING_FROM)
        plain = log_beta_of_modest(low, high, modest)
    else:
        gamma_of_high = where(ordered, gammas[1], gammas[0])
        plain = gamma_of_low + (gamma_of_high - modest.of(lax.lgamma))
    top, whole = large.of(lax.max, STIRLING_FROM), total.of(lax.max, STIRLING_FROM)
    share = small / top
    # A share that vanishes is one of a number that does not.
    drop = where(share < share.tiny(), small, (top - 0.5) * share.of(lax.log1p))
    shift = (stirling_rest(top) - stirling_rest(whole)) - drop
    scale = whole.of(lax.log)
    one_large = gamma_of_low + ((shift - small * scale) + small)
    big = small.of(lax.max, STIRLING_FROM)
    power = (big - 0.5) * (big / whole).of(lax.log)
    both_large = power + shift - scale * 0.5 + (stirling_rest(big) + 0.5 * math.log(2.0 * math.pi))
    return first_of(
        [(small >= STIRLING_FROM, both_large), (large >= STIRLING_FROM, one_large)], plain
    )


def factor_of_beta(
    a: Expression, b: Expression, x: Expression, y: Expression, divisor: Expression | float = 1.0
) -> Expression:
    """``x**a y**b / (beta(a, b) divisor)`` where ``y = 1 - x``.

    Where not both parameters are large, of a power of two and the exponential of what is left: that
    of the whole logarithm would lose as many digits as it is large.
    """
    large, p, q = _both_large(a, b)
    log = log_large_factor_of_beta(p, q, x, y)
    # Beside the maximum the logarithm is small, and of the largest parameters the powers cancel.
    flat = large & ((log > -3.0) | (p.of(lax.max, q) > _LARGEST[x.aval.dtype]))
    small = [where(large, w, v) for v, w in ((a, 1.0), (b, 1.0), (x, 0.25), (y, 0.75))]
    powers, rest = _small_factors(*small)
    far, far_rest = _large_factors(p, q, x, y)
    chosen = [_Power.where(large, v, w) for v, w in zip(far, powers, strict=True)]
    parts = [power.parts() for power in chosen]
    whole = parts[0][0] + parts[1][0]
    rest = parts[0][1] + parts[1][1] + where(large, far_rest, rest)
    # So that nothing overflows, or vanishes, on the way.
    size = rest.of(lax.abs) + whole.of(lax.abs) * (0.5 * _LOG_2)
    modest = ~flat & (size < -0.9 * math.log(x.tiny()))
    scales = _halves_of_power(where(modest, whole, 0.0))
    log = where(flat, log, whole * _LOG_2 + rest)
    if isinstance(divisor, Expression):
        log = log - divisor.of(lax.log)
        divisor = where(modest, divisor, 1.0)
    return where(modest, rest, log).of(lax.exp) * scales[0] / divisor * scales[1]


def log_factor_of_beta(a: Expression, b: Expression, x: Expression, y: Expression) -> Expression:
    """``log(x**a y**b / beta(a, b))`` where ``y = 1 - x``."""
    large, p, q = _both_large(a, b)
    return where(large, log_large_factor_of_beta(p, q, x, y), _log_small_factor(a, b, x, y))


def _log_small_factor(a: Expression, b: Expression, x: Expression, y: Expression) -> Expression:
    """``log_factor_of_beta`` where not both parameters are large.

    Programs of slopes are a third slower when they are given the parts of `_small_factors`.
    """
    # Of a number beside 1 the distance to it has the digits.
    logs = [where(v > 0.5, (-w).of(lax.log1p), v.of(lax.log)) for v, w in ((x, y), (y, x))]
    ordered = a <= b
    small, large = a.of(lax.min, b), a.of(lax.max, b)
    one_large = large >= STIRLING_FROM
    low, high = (where(one_large, 1.0, v) for v in (a, b))
    gammas = low.of(lax.lgamma) + high.of(lax.lgamma) - (low + high).of(lax.lgamma)
    plain = a * logs[0] + b * logs[1] - gammas
    # Else by Stirling's series, in which no logarithm of the large one is left alone.
    top, low = where(one_large, large, STIRLING_FROM), where(one_large, small, 1.0)
    whole = top + low
    near = low * ((where(ordered, x, y) * whole).of(lax.log) - 1.0)
    near = near + (top - 0.5) * (low / top).of(lax.log1p) - low.of(lax.lgamma)
    # The sum of the others first: this one may be large.
    far = top * where(ordered, logs[1], logs[0])
    return where(one_large, far + (near + (stirling_rest(whole) - stirling_rest(top))), plain)


def _both_large(a: Expression, b: Expression) -> tuple[Expression, Expression, Expression]:
    """Where both are, and both, or the least that is large."""
    large = (a >= STIRLING_FROM) & (b >= STIRLING_FROM)
    return large, where(large, a, STIRLING_FROM), where(large, b, STIRLING_FROM)


def log_large_factor_of_beta(
    p: Expression, q: Expression, x: Expression, y: Expression
) -> Expression:
    """``log_factor_of_beta`` of large parameters."""
    # At x = p / (p + q) the power has its maximum, around which it is expanded.
    gap = -distance_from_mean(p, q, x, y)
    u, v = divided(gap, p), divided(-gap, q)
    whole = p + q
    power = p * log1p_less(u, whole * x / p) + q * log1p_less(v, whole * y / q)
    return power + _rest_of_large(p, q)


def _rest_of_large(p: Expression, q: Expression) -> Expression:
    whole = p + q
    rests = stirling_rest(whole) - stirling_rest(p) - stirling_rest(q)
    return rests + (p / whole * q * (0.5 / math.pi)).of(lax.log) * 0.5


def distance_from_mean(a: Expression, b: Expression, x: Expression, y: Expression) -> Expression:
    """``a - (a + b) x`` to its last digit, far below that of ``a``; ``y`` is ``1 - x``."""
    # Of the two numbers the smaller one is not rounded.
    below = x <= y
    own, share = where(below, a, b), where(below, x, y)
    whole, missing = map(Expression, exact_sum(a.value, b.value))
    product, lost = map(Expression, exact_product(whole.value, share.value))
    distance = (own - product) - (lost + missing * share)
    return where(below, distance, -distance)


@dataclasses.dataclass(frozen=True, slots=True)
class _Power:
    """``(base + lost)**exponent``, where ``lost`` is what rounding has taken off the base."""

    base: Expression
    lost: Expression
    exponent: Expression

    @classmethod
    def where(cls, which: Expression, yes: _Power, no: _Power) -> _Power:
        """One of two, for each element."""
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(*[where(which, getattr(yes, name), getattr(no, name)) for name in names])

    def parts(self) -> tuple[Expression, Expression]:
        """It is ``2**whole * exp(rest)``, where the rest is small.

        Of halves of the digits the products are exact: of the exponent with the scale of the base,
        and with half of the digits of the logarithm of what is left of the base.
        """
        scale, mantissa = _scale_and_mantissa(self.base)
        info = finfo(self.base.aval.dtype)
        exponent = self.exponent.of(lax.min, float(info.max) * 2.0**-40)
        head = exponent.of(upper_half)
        tail = exponent - head
        high, low = head * scale, tail * scale
        log, log_tail = _log_in_parts(mantissa)
        main = head * log
        more = tail * log + exponent * (log_tail + self.lost / self.base)
        whole, turns = [
            v.of(lax.round, lax.RoundingMethod.TO_NEAREST_EVEN)
            for v in (high + low, (main + more) * (1.0 / _LOG_2))
        ]
        rest = ((high - whole) + low) * _LOG_2
        kept, left = _PARTS_OF_LOG_2[self.base.aval.dtype]
        return whole + turns, rest + ((main - turns * kept) + (more - turns * left))


def _log_in_parts(x: Expression) -> tuple[Expression, Expression]:
    """``log(x)``, where ``x`` is around 1, as half of its digits, and the rest.

    By ``2 atanh(r)`` with ``r = (x - 1) / (x + 1)``, of which only the first term counts.
    """
    above = x - 1.0
    whole, missing = map(Expression, exact_sum(x.value, x.filled(1.0).value))
    inverse = divided(1.0, whole)
    r = above * inverse
    head, part = r.of(upper_half), whole.of(upper_half)
    tail = ((above - head * part) - head * ((whole - part) + missing)) * inverse
    y = r * r
    terms = [Fraction(2, 2 * k + 3) for k in range(16)]
    series = r * y * polynomial(y, needed(terms, 0.0295, x))
    if finfo(x.aval.dtype).bits == 32:
        return head * 2.0, tail * 2.0 + series
    # Beyond the size of float32 the scale is not all of it.
    far = (x < 0.5) | (x > 2.0)
    return where(far, 0.0, head * 2.0), where(far, x.of(lax.log), tail * 2.0 + series)


def power_of(base: Expression, exponent: Expression) -> Expression:
    """``base**exponent`` of positive numbers; XLA's own is no vector instruction on CPUs.

    Of numbers beyond the size of float32 it has less digits.
    """
    whole, rest = _Power(base, base.filled(0.0), exponent).parts()
    first_scale, last_scale = _halves_of_power(whole)
    return rest.of(lax.exp) * first_scale * last_scale


def _scale_and_mantissa(x: Expression) -> tuple[Expression, Expression]:
    """``(n, x / 2**n)``, the quotient near 1 for numbers of the size of float32.

    By bits of 32: not all platforms take 64 of a float apart.
    """
    kind = x.aval.dtype
    size = lax.convert_dtype(x.of(lax.max, _ENDS[0]).of(lax.min, _ENDS[1]).value, _F32)
    word = lax.sub(_bitcast(size, _INT32), literal(_ROOT_HALF, _INT32))
    scale = lax.shift_right_arithmetic(word, literal(_DIGITS, _INT32))
    inverse = Expression(lax.convert_dtype(_two_to(lax.neg(scale)), kind))
    return Expression(lax.convert_dtype(scale, kind)), x * inverse


def _small_factors(
    a: Expression, b: Expression, x: Expression, y: Expression
) -> tuple[list[_Power], Expression]:
    """``factor_of_beta`` where not both parameters are large: two powers and a logarithm."""
    small, large = a.of(lax.min, b), a.of(lax.max, b)
    one_large = large >= STIRLING_FROM
    low, high = (where(one_large, 1.0, v) for v in (a, b))
    gammas = low.of(lax.lgamma) + high.of(lax.lgamma) - (low + high).of(lax.lgamma)
    # Else by Stirling's series, in which no logarithm of the large one is left alone.
    top, low = where(one_large, large, STIRLING_FROM), where(one_large, small, 1.0)
    total = top + low
    rest = (top - 0.5) * (low / top).of(lax.log1p) - low.of(lax.lgamma) - low
    rest = where(one_large, rest + (stirling_rest(total) - stirling_rest(top)), -gammas)
    swapped = one_large & (a <= b)
    u, p, w = where(swapped, y, x), where(swapped, b, a), where(swapped, x, y)
    v, q = where(one_large, w * total, w), where(swapped, a, b)
    # Beside 1 the distance to it has the digits.
    lost = where(u > 0.5, (1.0 - u) - w, 0.0)
    lost_of_other = where(~one_large & (v > 0.5), (1.0 - v) - u, 0.0)
    return [_Power(u, lost, p), _Power(v, lost_of_other, q)], rest


def _large_factors(
    p: Expression, q: Expression, x: Expression, y: Expression
) -> tuple[list[_Power], Expression]:
    """The same of large parameters: powers of quotients that are 1 at the maximum."""
    whole, missing = map(Expression, exact_sum(p.value, q.value))
    powers: list[_Power] = []
    for exponent, share, other in ((p, x, y), (q, y, x)):
        lost = where(share > 0.5, (1.0 - share) - other, 0.0)
        product, rest = map(Expression, exact_product(whole.value, share.value))
        base = product / exponent
        rest = rest + (missing * share + whole * lost)
        left = product.of(lambda v, b, e: lax.neg(lost_of_product(v, b, e)), base, exponent)
        powers.append(_Power(base, (left + rest) / exponent, exponent))
    return powers, _rest_of_large(p, q)


def _halves_of_power(whole: Expression) -> list[Expression]:
    """Two numbers whose product is ``2**whole``, or nearly nothing, or nearly infinite."""
    kind = whole.aval.dtype
    # So many times a power of float32 in each.
    times = 1 if finfo(kind).bits == 32 else 8
    end = 240.0 * times
    bounded = whole.of(lax.max, -end).of(lax.min, end)
    step = (bounded * (0.5 / times)).of(lax.round, lax.RoundingMethod.TO_NEAREST_EVEN)
    powers: list[Expression] = []
    for part in (step, bounded - step * (1.0 if times == 1 else 2.0 * times)):
        number = lax.convert_dtype(part.value, _INT32)
        powers.append(Expression(lax.convert_dtype(_two_to(number), kind)))
    first, second = powers
    if times == 1:
        return [first, second]
    for _ in range(3):
        first = first * first
    return [first, first * second]


def _two_to(n: Value) -> Any:
    """``2**n`` in float32, of int32."""
    word = lax.add(n, literal(_BIAS, _INT32))
    return _bitcast(lax.shift_left(word, literal(_DIGITS, _INT32)), _F32)


def _bitcast(x: Value, dtype: DType) -> Any:
    return lax.bitcast_convert_type_p.bind(x, new_dtype=dtype)
