"""Hurwitz' zeta function, the derivatives of digamma, and Riemann's zeta function everywhere.

Riemann's has values below 1 too: those of the alternating series, which converges
there with Borwein's weights, and below 0 what the reflection gives.

Source: NIST DLMF 25.4; Borwein (2000), An efficient algorithm for the Riemann zeta
function, algorithm 2.
"""

from __future__ import annotations

import math
from typing import Any

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.runtime.arrays.array import Array


def zeta(s: Array, q: Array) -> Any:
    """Hurwitz' zeta function."""
    return lax.zeta(s, q)


def polygamma(n: Array, x: Array) -> Any:
    """The derivative of order ``n`` of digamma."""
    return lax.polygamma(n, x)


def _weights(n: int) -> list[float]:
    """Of the first ``n`` terms of the alternating series: the rest is below 6 ** -n."""
    parts = [
        math.factorial(n + k - 1) * 4**k * n / (math.factorial(n - k) * math.factorial(2 * k))
        for k in range(n + 1)
    ]
    sums = [math.fsum(parts[: k + 1]) for k in range(n + 1)]
    return [(-1) ** k * (1.0 - sums[k] / sums[n]) for k in range(n)]


_BORWEIN = _weights(24)


def _between(s: Array) -> Any:
    """From -1 to 1."""
    terms = [w * tnp.exp(-s * math.log(k)) for k, w in enumerate(_BORWEIN, 1)]
    return sum(terms[::-1]) / -tnp.expm1((1 - s) * math.log(2.0))


def _reflected(s: Array) -> Any:
    """Of negative numbers."""
    half = s / 2
    angle = half - 2 * tnp.round(half / 2)
    # The sine of pi times a whole number is 0.
    near = tnp.where(tnp.abs(angle) > 0.5, tnp.sign(angle) * (1 - tnp.abs(angle)), angle)
    t = 1 - s
    # Two halves: the product of both is finite where one factor is not.
    root = tnp.exp((lax.lgamma(t) - t * math.log(2 * math.pi)) / 2)
    return 2 * tnp.sin(math.pi * near) * root * root * lax.zeta(t, tnp.ones_like(t))


def riemann(s: Array) -> Any:
    """Riemann's zeta function."""
    plain = lax.zeta(tnp.where(s >= 1, s, 2), tnp.ones_like(s))
    # Near 0 the reflection would need values at the pole.
    below = _reflected(tnp.where(s < -0.5, tnp.maximum(s, -1e4), -1.5))
    inside = (s >= -0.5) & (s < 1)
    between = _between(tnp.where(inside, s, 0.5))
    out = tnp.where(s < -0.5, below, tnp.where(inside, between, plain))
    out = tnp.where(s == tnp.inf, 1, out)
    return tnp.where(tnp.isnan(s) | (s == -tnp.inf), tnp.nan, out)
