"""Hurwitz' zeta function, the derivatives of digamma, and Riemann's zeta function everywhere.

Riemann's has values below 1 too: those of a polynomial, and below -1 what the reflection gives.

Source: NIST DLMF 25.4.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.lax.elementwise.cpu_lowerings import horner as highest_first
from tracebridge.core.lax.special.cpu_gamma import SINE
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.scipy._special.gamma_formulas import gamma
from tracebridge.scipy._special.series import eps_of


def zeta(s: Array, q: Array) -> Any:
    """Hurwitz' zeta function."""
    return lax.zeta(s, q)


def polygamma(n: Array, x: Array) -> Any:
    """The derivative of order ``n`` of digamma."""
    return lax.polygamma(n, x)


# A fit with 60 digits, highest power first, of (s - 1) zeta(s) from -1 to 1, of both dtypes.
_BETWEEN = {
    False: (
        1.7196258284002397e-07, -1.480146124777093e-06, -6.379295314218325e-07,
        0.00012264905672054738, -0.0009058954892680049, -0.0023930356837809086,
        0.08423969149589539, 0.418938547372818, 0.5,
    ),
    True: (
        7.304058157347804e-14, -1.3194259710666242e-13, -9.367607751996602e-12,
        1.5914605564391016e-10, -1.060716000577933e-09, -4.853688814770614e-09,
        1.743805018593092e-07, -1.4697618283548874e-06, -6.397503063894314e-07,
        0.00012264139574677264, -0.0009058949764712529, -0.0023930334772497845,
        0.08423969474961969, 0.4189385332046727, 0.5,
    ),
}  # fmt: skip


def _between(s: Array) -> Any:
    """From -1 to 1."""
    return highest_first(s, _BETWEEN[eps_of(s) < 1e-10]) / (s - 1)


def _times_gamma(value: Any, s: Array) -> Any:
    """``value * gamma(t) / (2 pi)**t`` where ``t = 1 - s``, with the digits of ``s``."""
    wide = eps_of(s) < 1e-10
    turn = 2 * math.pi if wide else float(np.float32(2 * math.pi))
    rest = 2.4492935982947064e-16 if wide else 2 * math.pi - turn
    t = 1 - s
    # Where neither factor overflows; else two halves, whose product is finite where one is not.
    large = t > (170.0 if wide else 34.0)
    near, far = tnp.where(large, 2, t), tnp.where(large, t, 34)
    lost = tnp.where(large, 0, (1 - t) - s)
    change = lost * (tnp.log(near) - 0.5 / near - math.log(2 * math.pi)) - near * (rest / turn)
    power = lax.pow(tnp.full_like(s, turn), -near)
    modest = value * (gamma(near) * power)
    root = tnp.exp((lax.lgamma(far) - far * math.log(2 * math.pi)) / 2)
    return tnp.where(large, value * root * root, modest + modest * change)


def _reflected(s: Array) -> Any:
    """Of numbers from -1 down."""
    half = s / 2
    angle = half - 2 * tnp.round(half / 2)
    # The sine of pi times a whole number is 0.
    near = tnp.where(tnp.abs(angle) > 0.5, tnp.sign(angle) * (1 - tnp.abs(angle)), angle)
    sine = near * highest_first(near * near, SINE[s.aval.dtype])
    return _times_gamma(2 * sine * lax.zeta(1 - s, tnp.ones_like(s)), s)


def riemann(s: Array) -> Any:
    """Riemann's zeta function."""
    plain = lax.zeta(tnp.where(s >= 1, s, 2), tnp.ones_like(s))
    # Near 0 the reflection would need values at the pole.
    below = _reflected(tnp.where(s < -1, tnp.maximum(s, -1e4), -1.5))
    inside = (s >= -1) & (s < 1)
    between = _between(tnp.where(inside, s, 0.5))
    out = tnp.where(s < -1, below, tnp.where(inside, between, plain))
    out = tnp.where(s == tnp.inf, 1, out)
    return tnp.where(tnp.isnan(s) | (s == -tnp.inf), tnp.nan, out)
