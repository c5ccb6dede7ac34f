"""Polynomials whose coefficients have further axes."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge.numpy as tnp
from tracebridge.errors import RankError

A = np.array([[2, 3, 1]])
B = np.array([[5, 7, 3], [8, 2, 6]])


@pytest.mark.parametrize("name", ["polyadd", "polysub"])
@pytest.mark.parametrize(("a", "b"), [(A, B), (B, A), (B, B), (B[:, :1], A)])
def test_columns_are_polynomials(name: str, a: np.ndarray, b: np.ndarray) -> None:
    """The first axis counts powers, each column is a polynomial of its own."""
    f, reference = getattr(tnp, name), getattr(np, name)
    n = max(a.shape[1], b.shape[1])
    expected = [reference(a[:, i % a.shape[1]], b[:, i % b.shape[1]]) for i in range(n)]

    np.testing.assert_array_equal(np.stack(expected, axis=1), f(a, b))


def test_different_ranks_are_refused() -> None:
    """A vector is not a row."""
    with pytest.raises(RankError, match="polyadd: coefficients must be vectors"):
        tnp.polyadd(B, np.ones(3, int))
