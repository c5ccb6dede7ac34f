"""Formulas of the generalized exponential integral. Source: NIST DLMF 8.19."""

from __future__ import annotations

import math
from typing import Any

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.control.scan.forward import scan
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.scipy._special.elementwise import with_slopes
from tracebridge.scipy._special.integral_formulas import exp1
from tracebridge.scipy._special.series import eps_of

_SERIES_TERMS = 20
_FRACTION_TERMS = 110


def _by_series(n: Array, x: Array) -> Any:
    """For ``0 < x <= 1`` and orders from 1 on: the term of order n - 1 has a logarithm."""
    total: Any = tnp.zeros_like(x)
    # The largest terms last, as each sum is rounded.
    for m in range(_SERIES_TERMS - 1, -1, -1):
        below = m + 1.0 - n
        special = below == 0
        term = tnp.where(special, 0.0, -1.0 / tnp.where(special, 1.0, below))
        total = term + total * (x * (-1.0 / (m + 1)))
    log = tnp.log(x)
    odd = n - 2.0 * tnp.floor(0.5 * n)
    size = tnp.exp((n - 1.0) * log - lax.lgamma(n))
    return tnp.where(odd == 1, size, -size) * (lax.digamma(n) - log) + total


def _by_fraction(n: Array, x: Array) -> Any:
    """For ``x > 1``, from the last term on."""
    terms = _FRACTION_TERMS if eps_of(x) < 1e-10 else _FRACTION_TERMS // 2
    counts = lax.iota(x.aval.dtype, terms)

    def step(below: Array, k: Array) -> Any:
        k = terms - k
        return (x + n + 2.0 * (k - 1.0)) - k * (n + k - 1.0) / below, None

    below, _ = scan(step, x + n + 2.0 * terms, counts)
    return tnp.exp(-x) / below


def _expn(n: Array, x: Array) -> Any:
    far = x > 1
    ordinary = (n >= 1) & (x > 0) & (x < math.inf) & (n == tnp.floor(n))
    near = ordinary & ~far
    safe_n = tnp.where(ordinary, n, 1.0)
    small = _by_series(safe_n, tnp.where(near, x, 0.5))
    large = _by_fraction(safe_n, tnp.where(ordinary & far, x, 2.0))
    # Of the order 1 the logarithm and the sum cancel.
    small = tnp.where(n == 1, exp1(x), small)
    found = tnp.where(far, large, small)
    found = tnp.where(n == 0, tnp.exp(-x) / x, found)
    end = tnp.where(n > 1, 1.0 / tnp.where(n > 1, n - 1.0, 1.0), math.inf)
    found = tnp.where(x == 0, end, tnp.where(x == math.inf, 0.0, found))
    nowhere = (n < 0) | (x < 0) | tnp.isnan(x) | (n != tnp.floor(n))
    return tnp.where(nowhere, math.nan, found)


def _slope(ans: Array, n: Array, x: Array) -> Any:
    safe = tnp.where(x == math.inf, 1.0, x)
    lowest = -ans * (1.0 + 1.0 / safe)
    return tnp.where(n == 0, lowest, -expn(tnp.maximum(n - 1.0, 0.0), x))


# Orders are whole numbers: the function does not change between them.
expn = with_slopes(_expn, None, _slope)
