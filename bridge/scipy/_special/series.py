"""What formulas share: sums of Chebyshev polynomials, differences that keep digits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import tracebridge.numpy as tnp
from tracebridge.core.dtypes.finfo import finfo
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.special.expansions import powers_of_chebyshev


def eps_of(x: Array) -> float:
    """The spacing of floats above 1, of the dtype of ``x``."""
    return float(finfo(x.aval.dtype).eps)


def chebyshev(t: Array, coefficients: Sequence[float]) -> Any:
    """Their sum, ``t`` in [-1, 1]; terms below the rounding of the dtype are left out."""
    least = eps_of(t) * 1e-2
    kept = list(coefficients)
    while len(kept) > 1 and abs(kept[-1]) < least:
        kept.pop()
    return horner(t, powers_of_chebyshev(tuple(kept)))


def half_line(x: Array, start: float, middle: float, coefficients: Sequence[float]) -> Any:
    """A sum of Chebyshev polynomials in the map of ``x >= start`` to [-1, 1]."""
    return chebyshev(1.0 - 2.0 * middle / (x + (middle - start)), coefficients)


def horner(x: Array, coefficients: Sequence[float]) -> Any:
    """A polynomial; the constant comes first."""
    total = coefficients[-1]
    for c in coefficients[-2::-1]:
        total = total * x + c
    return total


def less(x: Array, high: float, low: float) -> Any:
    """``x - (high + low)``, with the digits of both: numbers near a zero of a function."""
    first = float(np.asarray(high, x.aval.dtype))
    rest = tnp.where(tnp.isnan(x), x, (high - first) + low)  # or XLA would add the numbers first
    return (x - first) - rest


def exp_of_square(x: Array, factor: float) -> Any:
    """``exp(factor x**2)``: the square of a rounded number is exact, and the rest is small."""
    scale = 2.0**20 if eps_of(x) < 1e-10 else 2.0**7
    bounded = tnp.clip(x, -60.0, 60.0)
    head = tnp.round(bounded * scale) / scale
    rest = (bounded - head) * (bounded + head)
    # Not exp(...) * exp(...), of which XLA would make one exponential of the sum. Of the rest four
    # terms are enough, as long as the other one neither overflows nor vanishes.
    large = tnp.exp(factor * head * head)
    rest = factor * rest
    rest = rest * (1.0 + rest * (0.5 + rest * (1 / 6 + rest * (1 / 24))))
    return tnp.where(tnp.isinf(large), large, large + large * rest)
