"""The beta function and its kin in float32 have nearly all digits, for numbers of all sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from mpmath import mp

import tracebridge as tb
from tracebridge.scipy import special

POINTS = (
    (0.3, 0.7), (12.5, 3.25), (1e-12, 3e-9), (625.04, 1.36e-5), (9.4e-6, 15.4), (1e6, 1e-3),
    (0.06881279, 5.2017344e12), (319.7818, 100410.28), (31.25, 40.5), (2.5e-3, 3.0e20),
)  # fmt: skip


def _log_beta(a: Any, b: Any) -> Any:
    return mp.loggamma(a) + mp.loggamma(b) - mp.loggamma(a + b)


CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]] = {
    "betaln": (special.betaln, _log_beta, lambda a, b: (a, b)),
    "beta": (special.beta, lambda a, b: mp.exp(_log_beta(a, b)), lambda a, b: (a, b)),
    "poch": (special.poch, lambda z, m: mp.gammaprod([z + m], [z]), lambda a, b: (b, min(a, 9))),
    "poch below": (
        special.poch,
        lambda z, m: mp.gammaprod([z + m], [z]),
        lambda a, b: (b, -min(a, b / 2, 9)),
    ),
    "comb": (
        special.comb,
        lambda n, k: mp.gammaprod([n + 1], [k + 1, n - k + 1]),
        lambda a, b: (max(a, b), min(a, b)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_digits_of_float32(name: str) -> None:
    """Less than one unit in the last place."""
    function, exact, arguments = CASES[name]
    points = [arguments(*point) for point in POINTS]
    xs = [np.array(column, np.float32) for column in zip(*points, strict=True)]
    found = np.asarray(tb.jit(function)(*xs))

    wrong = []
    with mp.workprec(300):
        for got, *point in zip(found, *xs, strict=True):
            value = exact(*[mpmath.mpf(float(x)) for x in point])
            if not 1e-37 < abs(value) < 3e38:
                continue
            unit = mpmath.mpf(2) ** (mpmath.frexp(value)[1] - 24)
            error = abs(mpmath.mpf(float(got)) - value) / unit
            if not error < 1:
                wrong.append((point, float(got), float(error)))
    assert [] == wrong


def test_slopes_through_reflections() -> None:
    """Numbers of both signs in one array have the slopes of each by itself."""
    a = np.array([0.5, -0.3, 2.5, -1.6], np.float32)
    b = np.array([1.5, 2.25, -0.75, -2.2], np.float32)
    slope = tb.grad(lambda x, y: special.betaln(x, y).sum())
    expected = [
        mp.digamma(float(x)) - mp.digamma(float(x) + float(y)) for x, y in zip(a, b, strict=True)
    ]

    np.testing.assert_allclose(slope(a, b), np.array(expected, np.float64), rtol=2e-5)
    np.testing.assert_allclose(tb.vmap(slope)(a, b), np.array(expected, np.float64), rtol=2e-5)
