"""Positions of true elements, by a running sum and by blocks."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import tracebridge as tb
from tracebridge.core.lax.reduce.positions import true_positions

RNG = np.random.default_rng(0)


def expected(mask: np.ndarray, size: int) -> np.ndarray:
    """By NumPy."""
    found = np.flatnonzero(mask)[:size]
    return np.concatenate([found, np.full(size - len(found), mask.size)])


@pytest.mark.parametrize("n", [100, 2048, 2050])
def test_positions_of_several_densities(n: int) -> None:
    """None, few, half, all true; fewer, as many and more than asked for."""
    masks = RNG.random((4, n)) < np.array([[0.0], [0.03], [0.5], [1.0]])
    sizes = (1, n // 2, n + 7)
    found = tb.jit(lambda m: [[true_positions(row, size) for size in sizes] for row in m])(masks)

    for mask, row in zip(masks, found, strict=True):
        for size, (positions, total) in zip(sizes, row, strict=True):
            np.testing.assert_array_equal(expected(mask, size), positions)
            assert mask.sum() == int(total)


@pytest.mark.parametrize("n", [50, 2100])
def test_positions_of_rows(n: int) -> None:
    """Mapped functions search rows side by side."""
    masks = RNG.random((3, 2, n)) < 0.3
    search = tb.vmap(tb.vmap(partial(true_positions, size=40), 1), 0)
    positions, total = tb.jit(search)(masks.transpose(0, 2, 1))

    for i, j in np.ndindex(3, 2):
        np.testing.assert_array_equal(expected(masks[i, j], 40), positions[i, j])
    np.testing.assert_array_equal(masks.sum(-1), total)


def test_positions_of_nothing() -> None:
    """Empty axes give empty results."""
    search = tb.vmap(partial(true_positions, size=3))

    assert (0, 3) == search(np.zeros((0, 5), bool))[0].shape
    assert [0, 0] == search(np.zeros((2, 0), bool))[1].tolist()


def test_no_rows_of_many_elements() -> None:
    def find(row):
        return true_positions(row, 5)

    positions, total = tb.jit(tb.vmap(find))(np.ones((0, 3000), np.bool_))
    assert (positions.shape, total.shape) == ((0, 5), (0,))
