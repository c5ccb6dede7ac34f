"""piecewise: conditions as masks and as single truth values."""

from __future__ import annotations

import numpy as np
import pytest

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
