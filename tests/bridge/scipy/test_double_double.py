"""Numbers of 32 digits, and their derivatives, against exact fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tracebridge.scipy._special import double_double as dd

RNG = np.random.default_rng(3)
N = 200


def numbers() -> Any:
    """Numbers of many sizes with a second part."""
    high = RNG.normal(size=N) * 10.0 ** RNG.integers(-5, 6, N)
    return high, high * RNG.uniform(-1, 1, N) * 2.0**-54


def exact(x: Any) -> list[Fraction]:
    """What such numbers stand for."""
    parts = [np.asarray(v).tolist() for v in x]
    return [Fraction(h) + Fraction(low) for h, low in zip(*parts, strict=True)]


@pytest.mark.parametrize("name", ["add", "multiply", "divide"])
def test_operations_and_derivatives_are_exact_to_30_digits(name: str) -> None:
    """Also the second derivative along a direction, in one program."""
    f = getattr(dd, name)
    x, y, dx, dy = [numbers() for _ in range(4)]

    def along(x: Any, y: Any) -> Any:
        return tb.jvp(f, (x, y), (dx, dy))[1]

    with tb.enable_x64():
        program = tb.jit(lambda x, y: (f(x, y), *tb.jvp(along, (x, y), (dx, dy))))
        found = [exact(v) for v in program(x, y)]
    for i, (p, q, dp, dq) in enumerate(zip(*map(exact, (x, y, dx, dy)), strict=True)):
        value, first, second = {
            "add": (p + q, dp + dq, Fraction(0)),
            "multiply": (p * q, dp * q + p * dq, 2 * dp * dq),
            "divide": (
                p / q,
                (dp * q - p * dq) / q**2,
                2 * dq * (p * dq - dp * q) / q**3,
            ),
        }[name]
        size = abs(p) + abs(q) + abs(dp) + abs(dq)
        scales = {
            "add": (abs(p) + abs(q), abs(dp) + abs(dq), size),
            "multiply": (abs(p * q), abs(dp * q) + abs(p * dq), abs(dp * dq)),
            "divide": (
                abs(p / q),
                (abs(dp * q) + abs(p * dq)) / q**2,
                abs(dq) * (abs(p * dq) + abs(dp * q)) / abs(q) ** 3,
            ),
        }[name]
        for made, wanted, scale in zip(found, (value, first, second), scales, strict=True):
            assert abs(made[i] - wanted) <= scale * Fraction(2) ** -96


def test_products_of_the_largest_numbers_are_exact() -> None:
    """No step on the way is infinite."""
    x, y = np.array([1.1e308, 3.3e302]), np.array([1.7e-200, 3.1e-9])
    with tb.enable_x64():
        found = exact(tb.jit(lambda x, y: dd.multiply(dd.double(x), dd.double(y)))(x, y))

    for a, b, product in zip(x.tolist(), y.tolist(), found, strict=True):
        right = Fraction(a) * Fraction(b)
        assert abs(product - right) <= right * Fraction(2) ** -100
