"""Powers: mixed exponents, derivatives at zero, exactness."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mpmath import mp

import tracebridge as tb
from tests.quick_compiles import check_grads
from tracebridge.core import lax
from tracebridge.core.interpreters.jvp import jvp_flat
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.runtime.arrays.transfer import put_numpy
from tracebridge.testing import check_rules


def slope(f: Any, x: float) -> float:
    """The derivative of a function of one number, by forward mode."""
    (_,), (t,) = jvp_flat(lambda x: [f(x)], [as_value(x)], [as_value(1.0)])
    return 0.0 if t is None else float(np.asarray(getattr(t, "value", t)))


@pytest.mark.parametrize(
    ("f", "x", "expected"),
    [
        (lambda x: lax.pow(x, 0), 0.0, 0.0),
        (lambda x: lax.pow(x, 1), 0.0, 1.0),
        (lambda x: lax.pow(x, 2), 0.0, 0.0),
        (lambda x: lax.pow(x, 1.0), 0.0, 1.0),
        (lambda x: lax.pow(x, 0.5), 0.0, np.inf),
        (lambda x: lax.pow(x, 2.0), -2.0, -4.0),
        (lambda y: lax.pow(0.0, y), 0.0, 0.0),
        (lambda y: lax.pow(0.0, y), 1.0, 0.0),
        (lambda y: lax.pow(-2.0, y), 2.0, np.nan),
        (lambda x: lax.integer_pow(x, 0), 0.0, 0.0),
        (lambda x: lax.integer_pow(x, 1), 0.0, 1.0),
        (lambda x: lax.integer_pow(x, -1), 2.0, -0.25),
        (lax.sqrt, 0.0, np.inf),
        (lax.cbrt, 0.0, np.inf),
        (lax.rsqrt, 0.0, -np.inf),
    ],
)
def test_derivatives_at_edges(f: Any, x: float, expected: float) -> None:
    """Limits where they exist; integer exponents give no 0 * inf."""
    np.testing.assert_allclose(slope(f, x), expected)


@pytest.mark.parametrize("y", [*range(-9, 18), 31, 64])
def test_integer_powers_by_repeated_multiplication(y: int) -> None:
    """Small results are exact; the last unit may differ elsewhere."""
    x = np.array([1.0, 2.0, -1.5, 0.75])

    actual = np.asarray(lax.integer_pow(x.astype(np.float32), y))

    np.testing.assert_allclose(actual, x**y, rtol=1e-6 * max(1, abs(y)))
    assert np.float32(2.0) ** y == actual[1]


def test_integer_exponents_of_any_width() -> None:
    """The exponent's dtype does not matter, nor does its sign."""
    x = np.array([0.5, -2.0, 3.0])
    for dtype in (np.int8, np.int32, np.uint8):
        y = np.array([2, 3, 0]).astype(dtype)
        check_rules(lax.pow, x, y, reference=lambda x, y: x ** y.astype(float))


def test_wrong_operands() -> None:
    """Integer bases have integer_pow; exponents must fit."""
    with pytest.raises(TypeError, match="bases that are floats or complex numbers, got int32"):
        lax.pow(2, 2)
    with pytest.raises(TypeError, match="exponent must be an integer or have the base's dtype"):
        lax.pow(np.float32(2), np.complex64(1))
    with pytest.raises(TypeError, match="exponent must be an integer"):
        lax.pow(np.float32(2), True)
    with pytest.raises(TypeError, match="int32 has no negative powers, got -1"):
        lax.integer_pow(2, -1)
    with pytest.raises(TypeError):
        lax.integer_pow(2.0, 0.5)  # type: ignore[arg-type]  # what is tested


def test_powers_have_all_derivatives() -> None:
    """Third order, in both arguments."""
    check_grads(lax.pow, (np.array([0.5, 2.0]), np.array([1.5, -0.5])), order=3, rtol=1e-4)


def test_slopes_in_the_exponent_at_ends() -> None:
    """Those of bases beside 0 and infinity: no product of 0 and infinity."""
    inf = np.inf
    cases = [
        (0.0, -1.0, -inf), (0.0, 0.0, 0.0), (0.0, 2.0, 0.0), (inf, -1.0, 0.0), (inf, 0.0, inf),
        (inf, 2.0, inf), (0.5, inf, 0.0), (2.0, -inf, 0.0), (2.0, 3.0, 8 * np.log(2)),
    ]  # fmt: skip
    x, y, expected = np.array(cases).T
    slopes = tb.vmap(tb.grad(lax.pow, 1))(x.astype(np.float32), y.astype(np.float32))

    np.testing.assert_allclose(slopes, expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
def test_slope_in_the_base_when_the_lower_exponent_is_rounded(dtype: type) -> None:
    """-0.3 - 1 is rounded, and large bases multiply that by their logarithms."""
    y = dtype(-0.3)
    bases = np.array([1e-25, 1e-3, 0.9, 1.0, 7.0, 1e25], dtype)
    with tb.enable_x64(True):
        slopes = tb.grad(lambda x: lax.reduce_sum(lax.pow(x, y), (0,)))(put_numpy(bases))
        ends = [float(tb.grad(lax.pow)(dtype(x), y)) for x in (0.0, np.inf)]
    with mp.workprec(200):
        power = mp.mpf(float(y))
        exact = [power * mp.mpf(float(x)) ** (power - 1) for x in bases]
    eps = float(np.finfo(dtype).eps)

    assert [-np.inf, 0.0] == ends
    assert all(abs(s - e) <= 2 * eps * abs(e) for s, e in zip(slopes.tolist(), exact, strict=True))


def test_slope_in_the_base_of_an_infinite_exponent() -> None:
    """Infinite where the power is a number, 0 where it has vanished."""
    inf = np.inf
    cases = [(1.0, inf, inf), (1.0, -inf, -inf), (2.0, inf, inf), (2.0, -inf, 0.0), (0.5, inf, 0.0)]
    x, y, expected = np.array(cases, np.float32).T

    np.testing.assert_array_equal(tb.vmap(tb.grad(lax.pow))(x, y), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
def test_slopes_of_subnormal_bases(dtype: type) -> None:
    """Of the power 0 they are 0, as at the base 0, whose inverse is infinite, too."""
    tiny = np.finfo(dtype).smallest_normal
    bases = np.array([0.0, tiny / 2, -tiny / 2, tiny / 64], dtype)
    with tb.enable_x64(True):
        slope = tb.grad(lambda x: lax.reduce_sum(lax.pow(x, dtype(0)), (0,)))
        slopes = [f(put_numpy(bases)) for f in (slope, tb.jit(slope))]

    np.testing.assert_array_equal(slopes, np.zeros((2, 4)))
