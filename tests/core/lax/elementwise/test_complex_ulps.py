"""Each part of a complex function, and its slopes on both sides of cuts, against mpmath."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from mpmath import mp

import tracebridge as tb
import tracebridge.numpy as tnp

# Enough for sums with squares of the smallest numbers below.
PRECISION = 1700
DTYPES = {"c64": np.complex64, "c128": np.complex128}


def _by(base: float) -> Callable[[Any], Any]:
    return lambda z: mp.log(z) / mp.log(base)


EXACT: dict[str, Callable[[Any], Any]] = {
    "sqrt": mp.sqrt, "log": mp.log, "log2": _by(2), "log10": _by(10), "exp": mp.exp,
    "log1p": lambda z: mp.log(1 + z), "sin": mp.sin, "cos": mp.cos, "tan": mp.tan,
    "sinh": mp.sinh, "cosh": mp.cosh, "tanh": mp.tanh, "arcsin": mp.asin, "arccos": mp.acos,
    "arctan": mp.atan, "arcsinh": mp.asinh, "arccosh": mp.acosh, "arctanh": mp.atanh,
    "reciprocal": lambda z: 1 / z, "sign": lambda z: z / abs(z),
}  # fmt: skip
# The largest error of either part, in ulps of that part, on the points below: complex64,
# complex128. expm1 has a real part that is a difference of two terms: ``BY_SIZE``.
BOUNDS = {
    "sqrt": (2, 2), "log": (2.5, 2.5), "log2": (3, 3), "log10": (3.5, 3.5), "exp": (3, 3),
    "log1p": (3, 3), "sin": (3.5, 3.5), "cos": (3.5, 3.5), "tan": (6, 6), "sinh": (3.5, 3.5),
    "cosh": (3.5, 3.5), "tanh": (6, 8), "arcsin": (4, 4), "arccos": (4, 4), "arctan": (3, 3),
    "arcsinh": (4, 4), "arccosh": (4, 4), "arctanh": (3, 3), "reciprocal": (3, 3),
    "sign": (3.5, 3.5),
}  # fmt: skip
# In mpmath errors; ``test_branch_cuts`` looks at them.
POLES = {"log1p": (0, -1), "arctanh": (0, 1, -1), "arctan": (0, 1j, -1j)}


def sizes(random: Any, low: float, high: float, count: int) -> Any:
    """Numbers of both signs with uniform logarithms."""
    return np.exp2(random.uniform(low, high, count)) * random.choice([-1, 1], count)


@functools.cache
def points(dtype: str, count: int = 14) -> Any:
    """Moderate numbers, numbers beside both circles, beside the ends of cuts, and each axis."""
    random = np.random.default_rng(zlib.crc32(b"complex"))
    digits = np.finfo(DTYPES[dtype]).nmant

    def pair(low: float, high: float) -> Any:
        return sizes(random, low, high, count) + 1j * sizes(random, low, high, count)

    circle = np.exp(1j * random.uniform(-np.pi, np.pi, count))
    beside = circle * (1 + sizes(random, -digits, -2, count))
    within = circle * random.uniform(0.6, 0.9, count)
    ends = random.choice([1, -1, 1j, -1j], count)
    parts = [pair(-20, 6), beside, beside - 1, within, within - 1, ends + pair(-digits, -1)]
    parts += [ends + 0j, pair(-60, -1), 1e-30 + pair(-3, 3).real, 1e-30 + 1j * pair(-3, 3).imag]
    z = np.concatenate(parts)
    # An end of a cut with a part whose square underflows.
    tiny = float(np.finfo(DTYPES[dtype]).tiny) ** 0.75
    # Of the sum of the squares less 1 the first difference is rounded.
    sides = [-0.6676332018787318 + 0.6660908048081373j]
    z = np.concatenate([z, [1 + 1j * tiny, -1 - 1j * tiny, tiny + 1j], sides])
    return z.astype(DTYPES[dtype])


def ulps(got: Any, exact: Any, info: Any) -> float:
    """The distance in units of the last place of ``exact``; subnormal parts may vanish."""
    distance = abs(mpmath.mpf(float(got)) - exact)
    if abs(exact) <= float(info.tiny) and distance <= float(info.tiny):
        return 0.0
    exponent = max(mpmath.frexp(abs(exact))[1] - 1, int(info.minexp))
    return float(distance / mpmath.mpf(2) ** (exponent - int(info.nmant)))


@functools.cache
def results(dtype: str) -> Any:
    """All functions in one program."""
    with tb.enable_x64(True):
        names = [*EXACT, "expm1"]
        found = tb.jit(lambda z: {n: getattr(tnp, n)(z) for n in names})(points(dtype))
        return {name: np.asarray(row) for name, row in found.items()}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", EXACT)
def test_both_parts_have_their_digits(name: str, dtype: str) -> None:
    """Neither part loses digits to the other one."""
    bound = BOUNDS[name][dtype == "c128"]
    info = np.finfo(DTYPES[dtype])
    wrong = []
    with mp.workprec(PRECISION):
        for z, got in zip(points(dtype), results(dtype)[name], strict=True):
            if z in POLES.get(name, (0,)):
                continue
            exact = mpmath.mpc(EXACT[name](mpmath.mpc(complex(z))))
            parts = [(got.real, exact.real), (got.imag, exact.imag)]
            if z.imag == 0 or z.real == 0:
                # On an axis mpmath has no signed zeros, which ``test_branch_cuts`` looks at.
                parts = [(abs(g), abs(e)) for g, e in parts]
            worst = max(ulps(g, e, info) for g, e in parts)
            if not worst <= bound:
                wrong.append((complex(z), complex(got), worst))

    assert [] == wrong[:8]


@pytest.mark.parametrize("dtype", DTYPES)
def test_expm1_far_below_zero_keeps_its_imaginary_part(dtype: str) -> None:
    """It is ``exp(x) sin(y)``, of which nothing is left in ``(expm1(x) + 1) sin(y)``."""
    z = np.array([-3 + 1j, -20 + 0.3j, -50 + 2j, -80 - 1e-3j], DTYPES[dtype])
    with tb.enable_x64(True):
        got = np.asarray(tnp.expm1(z))
    exact = [mp.exp(mpmath.mpc(complex(v))).imag for v in z]

    info = np.finfo(DTYPES[dtype])
    assert max(map(ulps, got.imag, exact, [info] * 4)) <= 3


@pytest.mark.parametrize("dtype", DTYPES)
def test_powers_have_numpys_digits(dtype: str) -> None:
    """In complex64 all of them; in complex128 an error grows with ``w log z``."""
    random = np.random.default_rng(3)
    z = np.exp2(random.uniform(-10, 10, 60)) * np.exp(1j * random.uniform(-3.14, 3.14, 60))
    w = random.uniform(-2, 2, 60) + 1j * random.uniform(-2, 2, 60)
    z, w = z.astype(DTYPES[dtype]), w.astype(DTYPES[dtype])
    with tb.enable_x64(True):
        got = np.asarray(tnp.power(z, w))
    epsilon = np.finfo(DTYPES[dtype]).eps
    worst = 0.0
    with mp.workprec(PRECISION):
        for base, exponent, found in zip(z, w, got, strict=True):
            exact = mp.power(mpmath.mpc(complex(base)), mpmath.mpc(complex(exponent)))
            error = abs(mpmath.mpc(complex(found)) - exact) / abs(exact)
            worst = max(worst, float(error) / epsilon)

    assert worst <= {"c64": 0.75, "c128": 12}[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
def test_powers_at_infinity(dtype: str) -> None:
    """They vanish or grow as the real part of the exponent says; squares are products."""
    infinite = np.array([complex(np.inf, 2), complex(-1, np.inf), complex(-np.inf, 0)])
    z = infinite.astype(DTYPES[dtype])
    with tb.enable_x64(True):
        below = np.asarray(tnp.power(z, np.full(3, -0.5 - 1j, DTYPES[dtype])))
        above = np.asarray(tnp.power(z, np.full(3, 1.5 - 1j, DTYPES[dtype])))
        shrinks = np.asarray(
            tnp.power(np.array([0.5], DTYPES[dtype]), np.array([np.inf], DTYPES[dtype]))
        )
        unknown = np.asarray(tnp.power(z[:1] * np.nan, np.array([np.inf], DTYPES[dtype])))
        square = np.asarray(tnp.power(np.array([-2 + 0j, 3j], DTYPES[dtype]), np.array([2, 3])))

    assert [0, 0, 0] == below.tolist()
    assert np.isinf(above.real).all()
    assert np.isnan(unknown).all()
    assert [0] == shrinks.tolist()
    assert [4, -27j] == square.tolist()


CUTS = {
    "arcsin": [complex(2, 0.0), complex(2, -0.0), complex(-2, 0.0), complex(-2, -0.0)],
    "arccos": [complex(2, 0.0), complex(2, -0.0), complex(-2, 0.0), complex(-2, -0.0)],
    "arcsinh": [complex(0.0, 2), complex(-0.0, 2), complex(0.0, -2), complex(-0.0, -2)],
    "arccosh": [complex(-2, 0.0), complex(-2, -0.0), complex(0.5, 0.0), complex(0.5, -0.0)],
    "sqrt": [complex(-2, 0.0), complex(-2, -0.0)],
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CUTS)
def test_slopes_are_those_of_the_side_that_zero_says(name: str, dtype: str) -> None:
    """On a cut the derivative is that of the function beside it, on the side of the value."""
    z = np.array(CUTS[name], DTYPES[dtype])
    step = 1e-4 * np.where(z.imag == 0, 1j * np.copysign(1, z.imag), np.copysign(1, z.real))
    with tb.enable_x64(True):
        fun = getattr(tnp, name)
        value, slope = map(np.asarray, tb.jvp(fun, (z,), (np.ones_like(z),)))
        near = z.astype(complex) + step
        beside = np.asarray(tb.jvp(fun, (near,), (np.ones_like(near),))[1])

    assert value.dtype == DTYPES[dtype]
    np.testing.assert_allclose(slope, beside, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["arcsin", "arccos", "arcsinh", "arccosh"])
def test_slopes_of_large_numbers(name: str, dtype: str) -> None:
    """The slope is about the reciprocal, whose square underflows."""
    large = float(np.finfo(DTYPES[dtype]).max) ** 0.7
    z = np.array([large + 1j, large * (1 + 1j), 1 + large * 1j], DTYPES[dtype])
    with tb.enable_x64(True):
        slope = np.asarray(tb.jvp(getattr(tnp, name), (z,), (np.ones_like(z),))[1])

    np.testing.assert_allclose(np.abs(slope) * np.abs(z), 1, rtol=1e-5)


def test_sinc_beside_whole_numbers() -> None:
    """The zeros are not lost in the product with pi."""
    z = np.array([3 + 1e-9j, -7 + 1e-12j, 20 + 1e-6 + 1e-7j])
    with tb.enable_x64(True):
        got = np.asarray(tnp.sinc(z))
    with mp.workprec(PRECISION):
        exact = [mp.sinpi(mpmath.mpc(complex(v))) / (mp.pi * mpmath.mpc(complex(v))) for v in z]

    np.testing.assert_allclose(got, np.array([complex(v) for v in exact]), rtol=1e-14)


@pytest.mark.parametrize("dtype", DTYPES)
def test_powers_to_infinite_imaginary_exponents(dtype: str) -> None:
    """They vanish or grow as the sign of the angle says, on the negative axis that of 0."""
    z = np.array([2j, -2j, complex(-2, 0.0), complex(-2, -0.0), 3 + 1j], DTYPES[dtype])
    for c in (0.0, 1.0):
        w = np.full(5, complex(c, np.inf), DTYPES[dtype])
        with tb.enable_x64(True):
            sizes = np.abs(np.asarray(tnp.power(z, w)))

        assert [0, np.inf, 0, np.inf, 0] == sizes.tolist()
