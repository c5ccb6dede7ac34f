"""Random bits and sines that are repeated or turned stand in memory: the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.equations import primitives_in
from tracebridge.core.config.scopes import scope
from tracebridge.core.lowering.rewrites.programs import rewritten

KEY = tb.random.key(0)
X = np.random.default_rng(0).standard_normal((64, 48)).astype(np.float32)


def stored_in(f: Any, *args: Any) -> int:
    """How many arrays the program for the CPU stores."""
    return primitives_in(rewritten(tb.make_jaxpr(f)(*args).jaxpr)).count("stored")


def columns(x: Any) -> Any:
    """Noise of each column."""
    return x + tb.random.normal(KEY, (48,))


def rotated(x: Any) -> Any:
    """Sines of each row."""
    return x * tnp.sin(x[:, :1])


def keys(x: Any) -> Any:
    """A key for each row, and noise of each row that a product turns."""
    noise = tb.vmap(lambda k: tb.random.normal(k, (48, 8)))(tb.random.split(KEY, 64))
    return tnp.einsum("ni,nij->nj", x, noise), tb.vmap(lambda w: x @ w)(noise)


def test_costly_arrays_are_stored_before_they_are_repeated() -> None:
    """One noise, one column of sines, the words of a split key and the turned noise."""
    assert [1, 1, 3] == [stored_in(f, X) for f in (columns, rotated, keys)]


def test_others_are_not() -> None:
    """Scalars, what is read once, what is cheap, what has few copies."""

    def others(x: Any) -> Any:
        scalar = tb.random.normal(KEY) + tnp.sin(x[0, 0])
        return x * scalar + tb.random.normal(KEY, x.shape), x + x[0] * 2, x[:4] + tnp.sin(x[0])

    noise = stored_in(lambda x: tb.random.normal(KEY, x.shape), X)  # of its own: its rows are short
    assert stored_in(others, X) == noise


def test_stored_numbers_are_the_same() -> None:
    """As without rules for speed, to the rounding of sums."""

    def all_of(x: Any) -> Any:
        return columns(x), rotated(x), *keys(x)

    # Equation by equation: jaxlib 0.11 takes minutes to compile noise that a product turns.
    with scope("platform_rules", False):
        plain = all_of(X)

    for fast, written in zip(tb.jit(all_of)(X), plain, strict=True):
        np.testing.assert_allclose(fast, written, rtol=1e-5, atol=1e-5)
