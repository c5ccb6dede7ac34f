"""Functions of one float and their slopes are as exact as a bound says, in units in the last place.

The reference is mpmath. Elementwise functions of ``lax`` and ``numpy`` have a table of their own
(tests/core/lax/elementwise/ulp_table.py), as have special functions of several arguments
(tests/bridge/scipy/test_special_ulps.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from mpmath import mp

import tracebridge as tb
from tracebridge import lax, nn
from tracebridge.core._jaxlib.xla import QUICK_COMPILE
from tracebridge.scipy import special as sp

# Around the joints of formulas, and far out.
SIZES = (
    1e-30, 3e-5, 0.0117, 0.1309, 0.2503, 0.4391, 0.5003, 0.6942, 0.8124, 0.9991, 1.0007, 1.2346,
    1.5031, 1.9997, 2.5107, 3.3827, 3.84, 4.0019, 5.7293, 6.2011, 7.9583, 8.0031, 8.94, 12.345,
    25.71, 61.7,
)  # fmt: skip
# Digits of the reference, far below 0 too, where values are 1 less nearly 1.
PRECISION = 900


@dataclasses.dataclass(frozen=True)
class Row:
    """A function, its value in many digits, and the largest errors of the value and the slope."""

    name: str
    fun: Callable[[Any], Any]
    exact: Callable[[Any], Any]
    bounds: tuple[float, float]
    # Points are the sizes between these limits, with both signs or without.
    low: float = 0.0
    high: float = 100.0
    negative: bool = True
    # Smaller values, and slopes, are measured in units of this: beside their zeros.
    least: tuple[float, float] = (0.0, 0.0)

    def points(self, dtype: Any) -> Any:
        """Of one dtype."""
        sizes = [x for x in SIZES if self.low < x < self.high]
        return np.array(sizes + [-x for x in sizes if self.negative], dtype)


def _softplus(x: Any) -> Any:
    return mp.log1p(mp.exp(x))


def _gelu(x: Any) -> Any:
    return x / (1 + mp.exp(-2 * mp.sqrt(2 / mp.pi) * (x + mpmath.mpf(0.044715) * x**3)))


TABLE = (
    Row("erfcx", sp.erfcx, lambda x: mp.erfc(x) * mp.exp(x * x), (6, 6), high=26),
    Row(
        "dawsn", sp.dawsn, lambda x: mp.exp(-x * x) * mp.erfi(x) * mp.sqrt(mp.pi) / 2, (4, 4),
        high=26, least=(0, 1),
    ),
    Row("exp1", sp.exp1, mp.e1, (3.5, 3), negative=False),
    Row("expi", sp.expi, mp.ei, (4.5, 5), high=60, least=(0.1, 0)),
    Row("spence", sp.spence, lambda x: mp.polylog(2, 1 - x), (4, 2.5), 1e-20, negative=False),
    Row("sine integral", lambda x: sp.sici(x)[0], mp.si, (2.5, 2)),
    Row(
        "cosine integral", lambda x: sp.sici(x)[1], lambda x: mp.re(mp.ci(x)), (3.5, 2),
        negative=False, least=(1, 0),
    ),
    Row("Fresnel S", lambda x: sp.fresnel(x)[0], mp.fresnels, (3, 7), 1e-20, 30, least=(0, 1)),
    Row("Fresnel C", lambda x: sp.fresnel(x)[1], mp.fresnelc, (3, 7), high=30, least=(0, 1)),
    Row("ndtr", sp.ndtr, mp.ncdf, (5, 3), high=13),
    Row("log_ndtr", sp.log_ndtr, lambda x: mp.log(mp.erfc(-x / mp.sqrt(2)) / 2), (9, 9), high=9),
    Row("logit", sp.logit, lambda x: mp.log(x / (1 - x)), (2, 2.5), high=1, negative=False),
    Row("entr", sp.entr, lambda x: -x * mp.log(x), (2, 2), negative=False, least=(0.1, 1)),
    Row("i0", sp.i0, lambda x: mp.besseli(0, x), (3.6, 5)),
    Row("i1", sp.i1, lambda x: mp.besseli(1, x), (3.6, 7)),
    Row(
        "i1e", sp.i1e, lambda x: mp.exp(-abs(x)) * mp.besseli(1, x), (3, 9), least=(0, 0.1),
    ),
    Row("gelu", nn.gelu, _gelu, (20, 18), high=4.1, least=(0, 0.1)),
    Row(
        "gelu exactly", lambda x: nn.gelu(x, approximate=False), lambda x: x * mp.ncdf(x), (5, 10),
        high=13, least=(0, 0.1),
    ),
    Row("silu", nn.silu, lambda x: x / (1 + mp.exp(-x)), (2.3, 6), high=80, least=(0, 0.1)),
    Row("softplus", nn.softplus, _softplus, (2.5, 2.5), high=80),
    Row("log_sigmoid", nn.log_sigmoid, lambda x: -_softplus(-x), (2.5, 2.5), high=80),
    Row("mish", nn.mish, lambda x: x * mp.tanh(_softplus(x)), (3.7, 9), high=80, least=(0, 0.1)),
    Row(
        "log1mexp", nn.log1mexp, lambda x: mp.log(-mp.expm1(-x)), (2.5, 2.5), high=80,
        negative=False,
    ),
    Row("squareplus", nn.squareplus, lambda x: (x + mp.sqrt(x * x + 4)) / 2, (2.2, 4.5)),
    Row("elu", nn.elu, lambda x: x if x > 0 else mp.expm1(x), (1.5, 2)),
    Row("tanh", nn.tanh, mp.tanh, (5, 10), high=30, least=(0, 0.5)),
    Row("sigmoid", nn.sigmoid, lambda x: 1 / (1 + mp.exp(-x)), (2.5, 5), high=80, least=(0, 0.5)),
    Row(
        "erf, far slope", lax.erf, mp.erf, (3, 12), high=4.1,
    ),
)  # fmt: skip


def in_units(got: Any, exact: Any, least: float, info: Any) -> float:
    """The distance in units in the last place of ``exact``, or of ``least`` if that is more."""
    if abs(exact) > float(info.max) and float(got) == float(mp.sign(exact)) * np.inf:
        return 0.0
    size = max(abs(exact), mpmath.mpf(least))
    exponent = max(mpmath.frexp(size)[1] - 1, int(info.minexp))
    error = abs(mpmath.mpf(float(got)) - exact) / mpmath.mpf(2) ** (exponent - int(info.nmant))
    # Numbers below the normal ones may be 0.
    return 0.0 if abs(exact) < float(info.tiny) and abs(got) <= info.tiny else float(error)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
def test_values_and_slopes(dtype: type) -> None:
    """At the same points; all functions in one program."""

    def run(points: list[Any]) -> Any:
        return [
            (row.fun(x), tb.grad(lambda v, fun=row.fun: fun(v).sum())(x))
            for row, x in zip(TABLE, points, strict=True)
        ]

    info, points = np.finfo(dtype), [row.points(dtype) for row in TABLE]
    with tb.enable_x64(True):
        found = tb.jit(run, compiler_options=dict(QUICK_COMPILE))(points)

    wrong: list[Any] = []
    for row, xs, values in zip(TABLE, points, found, strict=True):
        for i, x in enumerate(xs):
            with mp.workprec(PRECISION):
                point = mpmath.mpf(float(x))
                step = abs(point) / mpmath.mpf(2) ** 200
                exact = [mp.re(row.exact(point)), mp.re(mp.diff(row.exact, point, h=step))]
            for kind in (0, 1):
                units = in_units(values[kind][i], exact[kind], row.least[kind], info)
                if not units <= row.bounds[kind]:
                    wrong.append((row.name, ("value", "slope")[kind], float(x), units))

    assert [] == wrong


# Functions, their values in many digits, and the least unit in which second derivatives count.
_CURVES: tuple[tuple[str, Any, Any, float], ...] = (
    ("i1", sp.i1, lambda x: mp.besseli(1, x), 0.0),
    ("i1e", sp.i1e, lambda x: mp.exp(-abs(x)) * mp.besseli(1, x), 1.0),
    ("i0e", sp.i0e, lambda x: mp.exp(-abs(x)) * mp.besseli(0, x), 1.0),
    ("mish", nn.mish, lambda x: x * mp.tanh(_softplus(x)), 1.0),
)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
def test_second_derivatives(dtype: type) -> None:
    """No quotient by a small number and no square of a large one takes their digits."""

    def run(xs: Any) -> list[Any]:
        return [tb.vmap(tb.grad(tb.grad(fun)))(xs) for _, fun, _, _ in _CURVES]

    xs = np.array([v * s for v in SIZES if v < 30.0 for s in (1, -1)], dtype)
    with tb.enable_x64(True):
        found = tb.jit(run, compiler_options=dict(QUICK_COMPILE))(xs)

    wrong: list[Any] = []
    for (name, _, exact, least), values in zip(_CURVES, found, strict=True):
        for x, got in zip(xs, values, strict=True):
            with mp.workprec(PRECISION):
                point = mpmath.mpf(float(x))
                expected = mp.re(mp.diff(exact, point, 2, h=abs(point) / mpmath.mpf(2) ** 200))
            units = in_units(got, expected, least, np.finfo(dtype))
            if not units <= 20.0:
                wrong.append((name, float(x), units))

    assert [] == wrong
