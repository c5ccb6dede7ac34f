"""What rounding takes off sums and products, against exact fractions."""

from __future__ import annotations

import os
import subprocess
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tracebridge.core.lax.roundings import exact_product, exact_sum, upper_half

EXACT = {
    "sum": (exact_sum, lambda x, y: x + y),
    "product": (exact_product, lambda x, y: x * y),
}
DTYPES = [np.float32, np.float64]


def numbers(dtype: type, largest: bool, size: int = 200) -> tuple[Any, Any]:
    """Of modest sizes, or the first beside the end of the range and the other small."""
    random = np.random.default_rng(5)
    x, y = random.uniform(1, 2, (2, size)) * random.choice([-1, 1], (2, size))
    first, second = (np.finfo(dtype).maxexp - 2, -60) if largest else (3, -3)
    return (x * 2.0**first).astype(dtype), (y * 2.0**second).astype(dtype)


def check(name: str, dtype: type, *, largest: bool) -> None:
    """Both results of a compiled program make up the exact one."""
    found, exact = EXACT[name]
    xs, ys = numbers(dtype, largest)

    with tb.enable_x64(True):
        pairs = np.asarray(tb.jit(found)(xs, ys)).T

    for x, y, (head, rest) in zip(xs.tolist(), ys.tolist(), pairs.tolist(), strict=True):
        assert exact(Fraction(x), Fraction(y)) == Fraction(head) + Fraction(rest)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", EXACT)
def test_nothing_is_lost(name: str, dtype: type) -> None:
    """Of numbers of modest size."""
    check(name, dtype, largest=False)


@pytest.mark.parametrize("dtype", DTYPES)
def test_nothing_is_lost_beside_the_end_of_the_range(dtype: type) -> None:
    """Halves are no differences of large multiples, which would be infinite there."""
    check("product", dtype, largest=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_halves_have_half_of_the_digits(dtype: type) -> None:
    """Squares of both, and their product, are exact."""
    xs, _ = numbers(dtype, largest=False)
    with tb.enable_x64(True):
        heads = np.asarray(tb.jit(upper_half)(xs))

    for x, head in zip(xs.tolist(), heads.tolist(), strict=True):
        for product in (head * head, head * (x - head), (x - head) ** 2):
            assert float(dtype(product)) == product
        parts = Fraction(head), Fraction(x) - Fraction(head)
        for a in parts:
            for b in parts:
                assert Fraction(float(dtype(float(a * b)))) == a * b


@pytest.mark.slow
def test_nothing_is_lost_on_processors_without_fused_operations() -> None:
    """Where products are rounded before they are added, here too."""
    program = """
from tests.core.lax.test_roundings import DTYPES, EXACT, check
from tests.core.special.test_expansions import check_remainders
for dtype in DTYPES:
    for name in EXACT:
        check(name, dtype, largest=False)
    check_remainders(dtype)
"""
    env = {**os.environ, "XLA_FLAGS": "--xla_cpu_max_isa=SSE4_2"}
    done = subprocess.run(  # noqa: PLW1510 - the code is compared below
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=300
    )

    assert (0, "") == (done.returncode, done.stderr)
