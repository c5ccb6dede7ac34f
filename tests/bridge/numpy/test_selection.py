"""piecewise: conditions as masks and as single truth values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp

X = np.arange(-4, 5)
FUNCTIONS = [lambda x: x * 0, lambda x: x * 10, lambda x: x * 100]


@pytest.mark.parametrize(
    "conditions",
    [
        np.array([False, True, False]),
        [X < 0, X == 0, X > 0],
        np.array([X < 0, X == 0, X > 0]),
    ],
)
def test_an_array_of_conditions(conditions) -> None:
    """A vector that is no mask of ``x`` says for each function whether it applies to all of it."""
    listed = [np.broadcast_to(c, X.shape) for c in conditions]

    np.testing.assert_array_equal(
        np.piecewise(X, listed, FUNCTIONS), tnp.piecewise(X, conditions, FUNCTIONS)
    )


def test_a_mask_is_one_condition() -> None:
    """A vector like ``x`` is a mask, also where there are as many functions as elements."""
    mask = np.array([True, False])
    x = np.array([1, 2])

    np.testing.assert_array_equal(np.piecewise(x, mask, [5, 6]), tnp.piecewise(x, mask, [5, 6]))


def test_conditions_of_pieces_are_nested_lists_too() -> None:
    """One list for each condition, as in NumPy."""
    x = tnp.arange(3)

    assert [1, 2, 1] == tnp.piecewise(x, [[True, False, True]], [1, 2]).tolist()


def test_unsigned_numbers_of_repetitions() -> None:
    """Of 64 bits, too."""
    with tb.enable_x64(True):
        repeats = tnp.array([1, 0, 2], "uint64")

        assert [0, 2, 2] == tnp.repeat(tnp.arange(3), repeats).tolist()


@pytest.mark.parametrize("kind", [np.asarray, tnp.asarray])
def test_select_takes_arrays_as_lists_of_their_rows(kind: Any) -> None:
    """As NumPy does, also under jit, and of one row only."""
    conditions, choices = [[True, False, False], [True, True, False]], [[1, 2, 3], [4, 5, 6]]
    given = (kind(conditions), kind(choices))

    assert [1, 5, 9] == tnp.select(*given, 9).tolist()
    assert [1, 5, 9] == tb.jit(tnp.select)(*given, 9).tolist()
    assert [1, 0, 0] == tnp.select(given[0][:1], given[1][:1]).tolist()
    with pytest.raises(ValueError, match="at least one"):
        tnp.select(given[0][:0], given[1][:0])
