"""Samplers by rejection: one attempt for all elements and more for the rest gives equal numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tracebridge import random
from tracebridge.core.config.scopes import scope

N = 5000
RATES = np.linspace(0, 9, N, dtype=np.float32)
CHANCES = np.linspace(0, 1, N, dtype=np.float32)
COUNTS: dict[str, Callable[[Any], Any]] = {
    "poisson": lambda k: random.poisson(k, RATES),
    "binomial": lambda k: random.binomial(k, 9.0, CHANCES),
}


@pytest.mark.parametrize("name", COUNTS)
def test_both_ways_give_the_same_counts(name: str) -> None:
    """Without the rules for platforms a loop goes over the whole array."""
    fast = tb.jit(COUNTS[name])(random.key(5))
    with scope("platform_rules", False):
        plain = tb.jit(COUNTS[name])(random.key(5))

    np.testing.assert_array_equal(plain, fast)


def test_elements_do_not_depend_on_each_other() -> None:
    """Two mapped draws, together large enough for the way in two steps, are those of each key."""
    keys = random.split(random.key(2), 2)
    shapes = np.resize(np.array([0.2, 1.0, 3.0, np.inf, np.nan, 0.0, -1.0], np.float32), N // 2)
    mapped = tb.jit(tb.vmap(lambda k: random.gamma(k, shapes)))(keys)
    second = np.asarray(random.gamma(keys[1], shapes))

    np.testing.assert_allclose(second, mapped[1], rtol=1e-5)
    assert np.isnan(second[[4, 6]]).all()
    assert np.isinf(second[3])
    assert second[5] == 0
