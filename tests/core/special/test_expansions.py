"""Parts of the incomplete gamma and beta functions, against exact fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tracebridge.core.special.expansions import remainder
from tracebridge.core.special.programs import Expression


def check_remainders(dtype: type) -> None:
    """What a rounded quotient leaves is a float, and found."""
    x, divisor = np.random.default_rng(2).uniform(1, 2, (2, 500)).astype(dtype)
    quotient = x / divisor

    def run(*xs: Any) -> Any:
        return remainder(*map(Expression, xs)).value

    with tb.enable_x64(True):
        found = np.asarray(tb.jit(run)(x, quotient, divisor))

    for a, q, d, rest in zip(*(v.tolist() for v in (x, quotient, divisor, found)), strict=True):
        assert Fraction(a) - Fraction(q) * Fraction(d) == Fraction(rest)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_remainders_are_exact(dtype: type) -> None:
    """Of quotients in a compiled program."""
    check_remainders(dtype)
