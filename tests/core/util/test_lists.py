"""Small functions on lists."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tracebridge.core.util.lists import (
    concatenate,
    duplicates,
    inverse_permutation,
    subs_list,
    unique,
)


@given(st.lists(st.integers(0, 5)))
def test_unique_and_duplicates(xs: list[int]) -> None:
    """Every element once, in order; those with a second appearance."""
    assert sorted(set(xs)) == sorted(unique(xs))
    assert unique(xs) == sorted(unique(xs), key=xs.index)
    assert set(duplicates(xs)) == {x for x in xs if xs.count(x) > 1}


def test_concatenate() -> None:
    """Lists of lists become one list."""
    assert concatenate([[1], [], (2, 3)]) == [1, 2, 3]


def test_subs_list() -> None:
    """An index takes from the source, None keeps the base."""
    assert subs_list([None, 1, 0], ["a", "b"], ["x", "y", "z"]) == ["x", "b", "a"]
    with pytest.raises(ValueError, match=r"shorter|longer"):
        subs_list([None], [], [1, 2])


@given(st.permutations(range(6)))
def test_inverse_permutation(order: list[int]) -> None:
    """Composed with the permutation it is the identity."""
    assert [order[i] for i in inverse_permutation(order)] == list(range(6))


def test_inverse_permutation_refuses_others() -> None:
    """Repeated or missing numbers."""
    with pytest.raises(ValueError, match="not a permutation"):
        inverse_permutation([0, 0])
