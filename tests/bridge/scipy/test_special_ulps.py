"""Special functions and their slopes are as exact as the table says, in units in the last place."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from mpmath import mp

import tracebridge as tb
from tracebridge.scipy import special


@dataclasses.dataclass(frozen=True)
class Row:
    """A function, its value and slopes in many digits, points, and the largest errors."""

    fun: Callable[..., Any]
    exact: Callable[..., Any]
    slopes: tuple[Callable[..., Any] | None, ...]
    points: tuple[tuple[float, ...], ...]
    # Of the value and of each slope.
    bounds: tuple[float, ...]


def _log_beta(a: Any, b: Any) -> Any:
    return mp.loggamma(a) + mp.loggamma(b) - mp.loggamma(a + b)


def _poch(z: Any, m: Any) -> Any:
    return mp.gammaprod([z + m], [z])


def _of(*xs: float) -> tuple[tuple[float, ...], ...]:
    return tuple([(x,) for x in xs])


def _lower_gamma(a: Any, x: Any) -> Any:
    return mp.gammainc(a, 0, x, regularized=True)


def _gamma_density(a: Any, x: Any) -> Any:
    return mp.exp((a - 1) * mp.log(x) - x - mp.loggamma(a))


def _slope_in_shape(a: Any, x: Any) -> Any:
    step = mpmath.mpf(2) ** -60 * a
    return (_lower_gamma(a + step, x) - _lower_gamma(a - step, x)) / (2 * step)


GAMMA_POINTS = (
    (163.296, 78.613), (86.7571, 23.6068), (41.4237, 2.08266), (38.03, 4.432), (33.6, 113.1),
    (14.6, 59.42), (7.34, 3.95), (8.5, 0.2566), (0.3, 0.7), (2.5, 1e-3), (104.475, 207.845),
    (1342.83, 1300.0), (9.5, 30.0), (0.5, 3.5), (40.86, 0.002574), (63.466, 0.00192288),
    (10.479931, 0.003434015), (145.6138, 43.94024), (2047.1914, 1766.8588),
)  # fmt: skip


TABLE = {
    "gammainc": Row(
        special.gammainc,
        _lower_gamma,
        (_slope_in_shape, _gamma_density),
        GAMMA_POINTS,
        (10, 40, 8),
    ),
    "gammaincc": Row(
        special.gammaincc,
        lambda a, x: mp.gammainc(a, x, mp.inf, regularized=True),
        (lambda a, x: -_slope_in_shape(a, x), lambda a, x: -_gamma_density(a, x)),
        GAMMA_POINTS,
        (10, 60, 8),
    ),
    # Powers that lose digits when they are exponentials of products.
    "betainc": Row(
        special.betainc,
        lambda a, b, x: mp.betainc(a, b, 0, x, regularized=True),
        (None, None, lambda a, b, x: x ** (a - 1) * (1 - x) ** (b - 1) / mp.beta(a, b)),
        (
            (84.374, 0.4822, 0.0099663),
            (53.843, 0.67268, 1.6513e-05),
            (3.6276, 48.46, 9.5062e-10),
            (7.6508, 0.36257, 7.0211e-09),
            (0.3, 0.7, 0.4),
            (21.7, 9.6, 0.6),
            (2.36, 8.35, 0.011),
            (11.123, 0.19405, 0.0020375),
            (2.5, 800.0, 1e-3),
            (0.06337, 7.1802, 0.00323),
            (15.2, 66.3, 1.3e-5),
            (31.0416, 13.4834, 0.000758625),
            (0.75777958, 721.45776, 0.00241734),
        ),
        (24, 0, 0, 26),
    ),
    "gamma": Row(
        special.gamma,
        mp.gamma,
        (lambda x: mp.gamma(x) * mp.digamma(x),),
        _of(1e-15, 0.3, 0.97, 2.9, 6.6, 7.1, 20.3, 33.7, -1e-15, -0.7, -15.68, -27.3),
        (5, 8),
    ),
    "factorial": Row(
        special.factorial,
        lambda x: mp.gamma(x + 1),
        (lambda x: mp.gamma(x + 1) * mp.digamma(x + 1),),
        _of(0.0, 1e-3, 0.5, 15.37525, 29.99365),
        (5, 6),
    ),
    "betaln": Row(
        special.betaln,
        _log_beta,
        (
            lambda a, b: mp.digamma(a) - mp.digamma(a + b),
            lambda a, b: mp.digamma(b) - mp.digamma(a + b),
        ),
        ((700.0, 2.5), (625.04, 1.36e-5), (9.4e-6, 15.4), (1e6, 1e-3), (0.3, 0.7), (40.0, 9.0)),
        (6, 4, 4),
    ),
    "poch": Row(
        special.poch,
        _poch,
        (
            lambda z, m: _poch(z, m) * (mp.digamma(z + m) - mp.digamma(z)),
            lambda z, m: _poch(z, m) * mp.digamma(z + m),
        ),
        ((8.135, 3.955), (7.07, 1.55e-5), (3.505, -1.1e-6), (0.3, 6.7), (20.3, -9.6), (2.5, 12.3)),
        (8, 10, 10),
    ),
    "i0e": Row(
        special.i0e,
        lambda x: mp.exp(-abs(x)) * mp.besseli(0, x),
        (lambda x: mp.sign(x) * mp.exp(-abs(x)) * (mp.besseli(1, abs(x)) - mp.besseli(0, x)),),
        _of(1e-7, 0.5, -3.0, 7.99, 8.01, -60.0, 1e3, 4e4),
        (4, 6),
    ),
    "zeta": Row(
        special.zeta,
        mp.zeta,
        (),
        _of(-0.4845, 0.0, 0.5, 0.9, 1.1, 7.5, -0.9, -1.1, -10.15, -13.168, -31.5),
        (7,),
    ),
}


def _units(got: Any, exact: Any, info: Any) -> float:
    exact = mpmath.mpf(exact)
    exponent = max(mpmath.frexp(exact)[1] - 1, int(info.minexp))
    return float(abs(got - exact) / mpmath.mpf(2) ** (exponent - int(info.nmant)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("name", TABLE)
def test_values_and_slopes(name: str, dtype: type) -> None:
    """On hard points."""
    row = TABLE[name]
    xs = [np.array(column, dtype) for column in zip(*row.points, strict=True)]
    with tb.enable_x64(True):
        if row.slopes:
            value, pull = tb.vjp(row.fun, *xs)
            results = [value, *pull(np.ones_like(xs[0]))]
        else:
            results = [row.fun(*xs)]

    info = np.finfo(dtype)
    wrong = []
    with mp.workprec(200):
        for bound, result, exact in zip(row.bounds, results, (row.exact, *row.slopes), strict=True):
            if exact is None:
                continue
            for got, *point in zip(np.asarray(result), *xs, strict=True):
                units = _units(got, exact(*[mpmath.mpf(float(x)) for x in point]), info)
                if not units <= bound:
                    wrong.append((point, float(got), units))
    assert [] == wrong
