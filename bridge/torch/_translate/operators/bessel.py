"""Bessel functions and Airy's. Torch has no derivatives of them: neither has the translation.

Up to 2 they are power series, above 2 all are the modified function of the second kind of a number
that is real or imaginary, by an integral that the trapezoidal rule knows to the last digits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.dtypes.dtypes import complex_of
from tracebridge.core.ir.value import Value
from tracebridge.core.linalg.matrices import as_dtype
from tracebridge.torch._translate.numbers import Operator, cast, promoted, wide

_SERIES_UNTIL = 2.0
_TERMS = 14
_STEP, _NODES = 0.3, 31

_HARMONIC = [0.0, *np.cumsum(1 / np.arange(1, _TERMS + 1)).tolist()]
_AIRY_AT_0 = 3 ** (-2 / 3) / math.gamma(2 / 3), -(3 ** (-1 / 3)) / math.gamma(1 / 3)


def _factorials(order: int) -> list[float]:
    """Of the power series: ``1 / (k! (k + order)!)``."""
    return [1 / (math.factorial(k) * math.factorial(k + order)) for k in range(_TERMS)]


def _logarithmic(order: int) -> list[float]:
    """Of the series beside the logarithm: the sum of two digamma functions over factorials."""
    sums = [_HARMONIC[k] + _HARMONIC[k + order] - 2 * np.euler_gamma for k in range(_TERMS)]
    return [s * f for s, f in zip(sums, _factorials(order), strict=True)]


def _airy(shift: int) -> list[float]:
    """Of a solution of Airy's equation in powers of ``x ** 3``; 1 is that which begins by x."""
    terms = [1.0]
    for k in range(1, _TERMS):
        last = 3 * k + shift
        terms.append(terms[-1] / (last * (last - 1)))
    return terms


def _polynomial(coefficients: Sequence[float], x: Any) -> Any:
    total = tnp.full_like(x, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = total * x + c
    return total


def _scaled(order: float, z: Any) -> Any:
    """``exp(z) K(z)``, the integral of ``exp(-u**2 / 2) cosh(order t) / sqrt(z + u**2 / 4)``.

    It is that of ``exp(-z cosh t) cosh(order t)``, with ``u = 2 sqrt(z) sinh(t / 2)``.
    """
    kind = tnp.real(z).dtype
    u = as_dtype(tnp.arange(_NODES), kind) * _STEP
    weights = tnp.exp(-u * u / 2) * _STEP * tnp.where(u == 0, 0.5, 1.0)
    z = tnp.expand_dims(z, -1)
    squares = as_dtype(u * u / 4, z.dtype)
    if order == 1:
        weights = as_dtype(weights, z.dtype) * (1 + 2 * squares / z)
    elif order:
        root = tnp.sqrt(z)
        sine = as_dtype(u / 2, z.dtype) / root
        growth = tnp.log(sine + tnp.sqrt(1 + sine * sine)) * (2 * order)
        weights = as_dtype(weights, z.dtype) * (tnp.exp(growth) + tnp.exp(-growth)) / 2
    return tnp.sum(as_dtype(weights, z.dtype) / tnp.sqrt(z + squares), -1)


def _turned(order: float, x: Any) -> Any:
    """The Hankel function of the first kind, but for a factor of size 1 that depends on order."""
    z = as_dtype(x, complex_of(x.dtype)) * -1j
    return _scaled(order, z) * tnp.exp(-z) * (-2j / math.pi)


def _first(order: int) -> Operator:
    def function(x: Any) -> Any:
        size = tnp.abs(x)
        half = size / 2
        near = _polynomial(_factorials(order), -half * half) * (half if order else 1)
        wave = _turned(order, tnp.maximum(size, _SERIES_UNTIL))
        far = tnp.imag(wave) if order else tnp.real(wave)
        y = tnp.where(size < _SERIES_UNTIL, near, far)
        return tnp.where(x < 0, -y, y) if order else y

    return function


def _second(order: int) -> Operator:
    def function(x: Any) -> Any:
        half = tnp.clip(x, 0, _SERIES_UNTIL) / 2
        square = -half * half
        power = half if order else 1
        near = 2 * tnp.log(half) * _polynomial(_factorials(order), square) * power
        near = (near - _polynomial(_logarithmic(order), square) * power) / math.pi
        near = near - 1 / (math.pi * half) if order else near
        wave = _turned(order, tnp.maximum(x, _SERIES_UNTIL))
        far = -tnp.real(wave) if order else tnp.imag(wave)
        y = tnp.where(x < _SERIES_UNTIL, near, far)
        return tnp.where(x > 0, y, tnp.where(x == 0, -np.inf, np.nan))

    return function


def _modified(order: int, *, scaled: bool) -> Operator:
    def function(x: Any) -> Any:
        half = tnp.clip(x, 0, _SERIES_UNTIL) / 2
        square = half * half
        power = half if order else 1
        sign = 1 if order else -1
        near = tnp.log(half) * _polynomial(_factorials(order), square) * power
        near = sign * (near - _polynomial(_logarithmic(order), square) * power / 2)
        near = near + 1 / (2 * half) if order else near
        large = tnp.maximum(x, _SERIES_UNTIL)
        far = _scaled(order, large)
        if scaled:
            near = near * tnp.exp(2 * half)
        else:
            far = far * tnp.exp(-large)
        y = tnp.where(x < _SERIES_UNTIL, near, far)
        return tnp.where(x > 0, y, tnp.where(x == 0, np.inf, np.nan))

    return function


def _airy_ai(x: Any) -> Any:
    inside = tnp.clip(x, -_SERIES_UNTIL, _SERIES_UNTIL)
    cube = inside * inside * inside
    even, odd = _AIRY_AT_0
    near = even * _polynomial(_airy(0), cube) + odd * inside * _polynomial(_airy(1), cube)
    size = tnp.maximum(tnp.abs(x), _SERIES_UNTIL)
    root = tnp.sqrt(size)
    s = size * root * (2 / 3)
    falling = _scaled(1 / 3, s) * tnp.exp(-s) / math.pi
    waves = tnp.real(_turned(1 / 3, s))
    far = tnp.where(x > 0, falling, waves) * root / math.sqrt(3)
    return tnp.where(tnp.abs(x) < _SERIES_UNTIL, near, tnp.where(tnp.isinf(x), np.nan, far))


def _spherical(x: Any) -> Any:
    y = tnp.sinc(x / math.pi)
    return tnp.where(tnp.isinf(x), 0, y)


def _constant(fun: Operator) -> Operator:
    def run(x: Value) -> Any:
        (x,) = promoted(x, floats=True)
        return cast(fun(wide(lax.stop_gradient(x))), x.dtype)

    return run


ROWS: Final[dict[str, Operator]] = {
    "special_airy_ai.default": _constant(_airy_ai),
    "special_bessel_j0.default": _constant(_first(0)),
    "special_bessel_j1.default": _constant(_first(1)),
    "special_bessel_y0.default": _constant(_second(0)),
    "special_bessel_y1.default": _constant(_second(1)),
    "special_modified_bessel_k0.default": _constant(_modified(0, scaled=False)),
    "special_modified_bessel_k1.default": _constant(_modified(1, scaled=False)),
    "special_scaled_modified_bessel_k0.default": _constant(_modified(0, scaled=True)),
    "special_scaled_modified_bessel_k1.default": _constant(_modified(1, scaled=True)),
    "special_spherical_bessel_j0.default": _constant(_spherical),
}
