"""Formulas of the Faddeeva function and what is made of it.

Source: Al Azah, Chandler-Wilde (2021), SIAM J. Numer. Anal. 59(5): the trapezoidal rule, on one of
two grids, with the residue of the pole that the integrand has. Erfcx of real numbers as by Shepherd
and Laframboise (1981), Math. Comp. 36, dawsn likewise; the coefficients are of our own.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.lax.special.scaled_erfc import scaled_erfc
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.scipy._special import fits
from tracebridge.scipy._special.elementwise import with_slopes
from tracebridge.scipy._special.series import chebyshev, eps_of, exp_of_square, half_line

_NODES = 12
_STEP = math.sqrt(math.pi / _NODES)
_FAR = 6.2
"""From here on the sum over the nodes alone is exact: it is accurate with all derivatives."""
_2_OVER_ROOT_PI = 2.0 / math.sqrt(math.pi)


def _grid(shift: float) -> list[tuple[float, float]]:
    """Nodes and their weights."""
    nodes = [(k + shift) * _STEP for k in range(_NODES)]
    return [(t, math.exp(-t * t)) for t in nodes]


def _far_slope(x: Array, sign: float) -> Any:
    """The derivative of the sum ``x / (x**2 - sign t**2)``, its factor included, divided by h."""
    inverse = 1.0 / x
    total: Any = 0.0
    for t, weight in _grid(0.5):
        square = sign * (t * inverse) ** 2
        total = total + weight * (1.0 + square) / (1.0 - square) ** 2
    return -total * inverse * inverse


def _dawsn(x: Array) -> Any:
    far = tnp.abs(x) > 2.0
    near, large = tnp.where(far, 0.0, x), tnp.where(far, x, 2.0)
    small = near * chebyshev(0.5 * (near * near) - 1.0, fits.DAWSN_NEAR)
    square = tnp.minimum(tnp.abs(large), 1e15) ** 2  # a larger one would overflow
    tail = 0.5 / large * half_line(square, 4.0, 18.0, fits.DAWSN_FAR)
    return tnp.where(far, tail, small)


def _dawsn_slope(ans: Array, x: Array) -> Any:
    far = tnp.abs(x) > _FAR
    outside = _far_slope(tnp.where(far, x, 10.0), 1.0) * (_STEP / math.sqrt(math.pi))
    return tnp.where(far, outside, 1.0 - 2.0 * tnp.where(far, 0.0, x * ans))


dawsn = with_slopes(_dawsn, _dawsn_slope)


def _erfcx(x: Array) -> Any:
    size = tnp.abs(x)
    upper = scaled_erfc(size)
    lower = 2.0 * exp_of_square(x, 1.0) - upper
    return tnp.where(x < 0, lower, upper)


def _erfcx_slope(ans: Array, x: Array) -> Any:
    """The difference that it is cancels far out."""
    far = x > 0.5
    large = tnp.where(far, x, 1.0)
    share = 1.0 / (1.0 + 2.0 * large)
    outside = -(half_line(large, 0.0, 3.75, fits.ERFCX_SLOPE) * share) * share
    return tnp.where(far, outside, 2.0 * tnp.where(far, 0.0, x * ans) - _2_OVER_ROOT_PI)


erfcx = with_slopes(_erfcx, _erfcx_slope)


def _sums(x: Array, y: Array, middle: Array) -> tuple[Any, Any]:
    """Real and imaginary part of ``2 i h z / pi`` times the sum of ``weight / (z**2 - t**2)``.

    Nodes ``t`` are the midpoints of cells where ``middle`` holds, else their ends but 0.
    """
    size = x * x + y * y
    real = imaginary = tnp.zeros_like(x)
    for (midpoint, first), (point, second) in zip(_grid(0.5), _grid(1.0), strict=True):
        t, weight = tnp.where(middle, midpoint, point), tnp.where(middle, first, second)
        part = weight / (((x - t) ** 2 + y * y) * ((x + t) ** 2 + y * y))
        real = real + part * (size + t * t)
        imaginary = imaginary + part * (size - t * t)
    return (2.0 * _STEP / math.pi) * y * real, (2.0 * _STEP / math.pi) * x * imaginary


def _residue(x: Array, y: Array, sign: Array) -> tuple[Any, Any]:
    """``2 exp(-z**2) / (1 + sign exp(-2 pi i z / h))``, where ``y`` is not large beside ``x``."""
    angle = (2.0 * math.pi / _STEP) * (x - _STEP * tnp.round(x / _STEP))
    decay = tnp.exp((-2.0 * math.pi / _STEP) * y)
    real, imaginary = decay + sign * tnp.cos(angle), sign * tnp.sin(angle)
    scale = 2.0 * decay / (real * real + imaginary * imaginary)
    low = y < 1.0
    flat = tnp.where(low, y, 0.0)
    near = exp_of_square(x, -1.0) * tnp.exp(flat * flat)
    size = scale * tnp.where(low, near, tnp.exp((y - x) * (y + x)))
    cos, sin = tnp.cos(2.0 * x * y), tnp.sin(2.0 * x * y)
    return size * (real * cos + imaginary * sin), size * (imaginary * cos - real * sin)


def _quadrant(x: Array, y: Array) -> tuple[Any, Any]:
    """Real and imaginary part of the function for ``0 <= x, y < 1e9``."""
    cell = x / _STEP
    cell = cell - tnp.floor(cell)
    # Above, the sum alone; below, on the grid with the farther nodes, with the residue.
    alone = y >= tnp.maximum(x, math.pi / _STEP)
    middle = alone | (cell < 0.25) | (cell > 0.75)
    sums = _sums(x, y, middle)
    pole = _residue(x, tnp.where(alone, 0.0, y), tnp.where(middle, 1.0, -1.0))
    # The node at 0 of the second grid.
    at_0 = tnp.where(middle, 0.0, (_STEP / math.pi) / tnp.where(middle, 1.0, x * x + y * y))
    total: list[Any] = []
    for part, own, p in zip(sums, (y, x), pole, strict=True):
        total.append(part + own * at_0 + tnp.where(alone, 0.0, p))
    return total[0], total[1]


def _upper(x: Array, y: Array) -> tuple[Any, Any]:
    """The function for ``x, y >= 0``: far out it is ``i / (sqrt(pi) z)``."""
    most = tnp.maximum(x, y)
    large = most > (1e9 if eps_of(x) < 1e-10 else 1e5)
    infinite = tnp.isinf(most)
    # By products: XLA would join quotients to one by a square.
    inverse = 1.0 / tnp.where(large & ~infinite, most, 1.0)
    a, b = (tnp.where(large & ~infinite, v, 1.0) * inverse for v in (x, y))
    scale = inverse * (1.0 / math.sqrt(math.pi))
    near = _quadrant(tnp.where(large, 1.0, x), tnp.where(large, 1.0, y))
    far = [tnp.where(infinite, 0.0, v * scale / (a * a + b * b)) for v in (b, a)]
    return tnp.where(large, far[0], near[0]), tnp.where(large, far[1], near[1])


def _wofz(z: Array) -> Any:
    a, b = lax.real(z), lax.imag(z)
    x, y = tnp.abs(a), tnp.abs(b)
    real, imaginary = _upper(x, y)
    # Below the axis 2 exp(-z**2) - w(-z).
    size = 2.0 * tnp.exp((y - x) * (y + x))
    still = (x == 0) | (y == 0) | (size == 0)
    angle = tnp.where(still, 0.0, 2.0 * x * y)
    lower = size * tnp.cos(angle) - real
    turned = tnp.where(still, 0.0, size * tnp.sin(angle)) + imaginary
    below = b < 0
    real, imaginary = tnp.where(below, lower, real), tnp.where(below, turned, imaginary)
    nowhere = tnp.isnan(a) | tnp.isnan(b)
    real = tnp.where(nowhere, math.nan, real)
    imaginary = tnp.where(nowhere, math.nan, tnp.where(tnp.signbit(a), -imaginary, imaginary))
    return lax.complex(real, imaginary)


def _wofz_slope(ans: Array, z: Array) -> Any:
    x, y = lax.real(z), lax.imag(z)
    far = tnp.maximum(tnp.abs(x), tnp.abs(y)) > _FAR
    large = tnp.where(far, z, 10.0)
    outside = (2j * _STEP / math.pi) * _far_slope(large, 1.0)
    below = tnp.where(far & (y < 0), z, 0.0)
    outside = outside - 4.0 * below * tnp.exp(-below * below)
    inside = (2j / math.sqrt(math.pi)) - 2.0 * tnp.where(far, 0.0, z * ans)
    return tnp.where(far, outside, inside)


wofz = with_slopes(_wofz, _wofz_slope)


def erfcx_of_complex(z: Array) -> Any:
    """``w(i z)``."""
    return wofz(lax.complex(-lax.imag(z), lax.real(z)))


_HALF_NODES, _HALF_WEIGHTS = (v[24:].tolist() for v in np.polynomial.legendre.leggauss(48))
_BELL_END = 9.0
_NOTHING = 60.0
"""So many deviations out the density is 0."""
_ROOT_2 = math.sqrt(2.0)


def _tail(x: Array) -> Any:
    """The probability that a normal number is above ``x``, which is not negative."""
    return 0.5 * _erfcx(x / _ROOT_2) * exp_of_square(x, -0.5)


def _owens_inner(h: Array, a: Array) -> Any:
    """By Gauss and Legendre's rule for ``0 <= h``, ``0 <= a <= 1``."""
    # Beyond 9 deviations there is nothing to add.
    end = tnp.minimum(a, _BELL_END / tnp.maximum(h, 1e-3))
    width, square = 0.5 * (h * end) ** 2, end * end
    total: Any = 0.0
    for t, weight in zip(_HALF_NODES, _HALF_WEIGHTS, strict=True):
        total = total + weight * tnp.exp(-(t * t) * width) / (1.0 + (t * t) * square)
    return end * total * exp_of_square(h, -0.5) / (2.0 * math.pi)


def _owens_t(h: Array, a: Array) -> Any:
    b, size = tnp.minimum(tnp.abs(h), _NOTHING), tnp.abs(a)
    steep = size > 1.0
    # T(h, a) + T(a h, 1 / a) = (P + Q) / 2 - P Q, where P and Q are tails.
    product = tnp.where(b == 0, 0.0, tnp.minimum(b * tnp.where(steep, size, 1.0), _NOTHING))
    inner = _owens_inner(tnp.where(steep, product, b), tnp.where(steep, 1.0 / size, size))
    p, q = _tail(b), _tail(product)
    found = tnp.where(steep, 0.5 * (p * (1.0 - q) + q * (1.0 - p)) - inner, inner)
    found = tnp.where(tnp.signbit(a), -found, found)
    return tnp.where(tnp.isnan(h) | tnp.isnan(a), math.nan, found)


def _owens_slope_h(_: Array, h: Array, a: Array) -> Any:
    bell = tnp.exp(-0.5 * h * h) * (-0.5 / math.sqrt(2.0 * math.pi))
    product = tnp.where((h == 0) | (a == 0), 0.0, h * a)
    return bell * lax.erf(product / _ROOT_2)


def _owens_slope_a(_: Array, h: Array, a: Array) -> Any:
    product = tnp.where((h == 0) | (a == 0), 0.0, h * a)
    return tnp.exp(-0.5 * (h * h + product * product)) / ((2.0 * math.pi) * (1.0 + a * a))


owens_t = with_slopes(_owens_t, _owens_slope_h, _owens_slope_a)
