"""Formulas of entropies: quotients of positive numbers, their logarithms and what these lack."""

from __future__ import annotations

import math
from typing import Any

import tracebridge.numpy as tnp
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.scipy._special.elementwise import with_slopes
from tracebridge.scipy._special.series import eps_of, horner

# Fits with 70 digits, highest power first, of both dtypes: of (atanh(s) / s - 1) / s**2 in s**2 up
# to 0.36.
_ATANH = {
    False: (
        0.2635807230450794, -0.08732588456959606, 0.12990830887355737, 0.08131133831205721,
        0.11203020463269642, 0.1428146478152585, 0.20000073922472103, 0.3333333312459831,
    ),
    True: (
        0.7231244952442025, -1.3242962706820647, 1.333616322082424, -0.7320086754787556,
        0.348344963615736, -0.043998859431011166, 0.06554060923625692, 0.049965169420631575,
        0.059109889918532166, 0.06664485414361612, 0.07692421909904909, 0.09090905181549921,
        0.11111111191733523, 0.14285714284843895, 0.20000000000003704, 0.3333333333333333,
    ),
}  # fmt: skip


def share_of(x: Array, y: Array) -> Any:
    """``x / y``, 0 for ``0 / 0``, and a sign for a quotient of infinities."""
    # Only quotients without a value are replaced, 0 / 0 and that of infinities: elsewhere the slope
    # in x counts, for second derivatives.
    none = (x == 0) & (y == 0)
    both = tnp.isinf(x) & tnp.isinf(y)
    share = tnp.where(none | both, 0, x) / tnp.where(none | both, 1, y)
    return tnp.where(both, tnp.sign(tnp.where(both, x, 1)), share)


def _parts(p: Array, q: Array) -> tuple[Any, Any, Any, Any]:
    """Whether positive numbers are close, ``s``, a rest, and ``log(larger / smaller)``.

    Of close ones it is ``2 s (1 + rest)``, where ``s`` is their difference over their sum.
    """
    wide = eps_of(p) < 1e-10
    least, most = tnp.minimum(p, q), tnp.maximum(p, q)
    close = most < 4 * least
    # Quotients that would overflow are taken of numbers nearer to each other.
    half = 600.0 if wide else 64.0
    extreme = (most * 2.0 ** (-1.6 * half) > least) & (least < 1)
    numerator = most * tnp.where(extreme, 2.0**-half, 1)
    denominator = least * tnp.where(extreme, 2.0**half, 1)
    gap = 0.5 * (most - least)
    s = tnp.where(close, gap, numerator) / tnp.where(close, least + gap, denominator)
    square = s * s
    rest = square * horner(square, _ATANH[wide][::-1])
    far = tnp.log(s) + tnp.where(extreme, 2 * half * math.log(2), 0)
    return close, s, rest, tnp.where(close, 2 * (s + s * rest), far)


def _log_ratio_value(p: Array, q: Array) -> Any:
    log = _parts(p, q)[-1]
    return tnp.where(p < q, -log, log)


# Of positive numbers: log(p / q).
_log_ratio = with_slopes(_log_ratio_value, lambda _, p, q: 1 / p, lambda _, p, q: -1 / q)


def _inside(p: Array, q: Array) -> tuple[Any, Any, Any]:
    """Where both are positive, and both, or 1 elsewhere."""
    both = (p > 0) & (q > 0)
    return both, tnp.where(both, p, 1), tnp.where(both, q, 1)


def _level(p: Array, q: Array) -> Any:
    """The slope outside."""
    return tnp.where(tnp.isnan(p) | tnp.isnan(q), math.nan, 0)


def _rel_entr(p: Array, q: Array) -> Any:
    both, safe_p, safe_q = _inside(p, q)
    inside = safe_p * _log_ratio(safe_p, safe_q)
    outside = tnp.where((p == 0) & (q >= 0), 0, math.inf)
    result = tnp.where(both, inside, outside)
    return tnp.where(tnp.isnan(p) | tnp.isnan(q), math.nan, result)


def _rel_entr_in_p(_: Any, p: Array, q: Array) -> Any:
    both, safe_p, safe_q = _inside(p, q)
    return tnp.where(both, _log_ratio(safe_p, safe_q) + 1, _level(p, q))


def _rel_entr_in_q(_: Any, p: Array, q: Array) -> Any:
    both, safe_p, safe_q = _inside(p, q)
    return tnp.where(both, -share_of(safe_p, safe_q), _level(p, q))


rel_entr = with_slopes(_rel_entr, _rel_entr_in_p, _rel_entr_in_q)


def _kl_div(p: Array, q: Array) -> Any:
    both, safe_p, safe_q = _inside(p, q)
    close, s, rest, log = _parts(safe_p, safe_q)
    # Of close numbers p (u - log(1 + u)) with u = q / p - 1, without its cancellation.
    less = safe_p < safe_q
    gap, more = safe_q - safe_p, 2 * (safe_p * rest)
    near = s * (tnp.abs(gap) - tnp.where(less, more, -more))
    inside = tnp.where(close, near, safe_p * tnp.where(less, -log, log) + gap)
    outside = tnp.where((p == 0) & (q >= 0), q, math.inf)
    result = tnp.where(both, inside, outside)
    return tnp.where(tnp.isnan(p) | tnp.isnan(q), math.nan, result)


def _kl_div_in_p(_: Any, p: Array, q: Array) -> Any:
    both, safe_p, safe_q = _inside(p, q)
    return tnp.where(both, _log_ratio(safe_p, safe_q), _level(p, q))


def _share_of_gap_value(p: Array, q: Array) -> Any:
    # Beside each other the difference has the digits that the quotient loses.
    return tnp.where(tnp.isinf(q), 1 - share_of(p, q), (q - p) / q)


_share_of_gap = with_slopes(
    _share_of_gap_value, lambda _, p, q: -1 / q, lambda _, p, q: share_of(p, q) / q
)


def _kl_div_in_q(_: Any, p: Array, q: Array) -> Any:
    both, safe_p, safe_q = _inside(p, q)
    slope = _share_of_gap(safe_p, safe_q)
    return tnp.where(both, slope, tnp.where((p == 0) & (q >= 0), 1, _level(p, q)))


# Like the relative entropy, not negative anywhere.
kl_div = with_slopes(_kl_div, _kl_div_in_p, _kl_div_in_q)
