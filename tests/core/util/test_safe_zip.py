"""Equal lengths are insisted on; splitting and merging are inverses."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tracebridge.core.util.safe_zip import (
    merge_lists,
    partition_list,
    safe_map,
    safe_zip,
    split_dict,
    split_list,
    unzip2,
    unzip3,
)

INTS = st.lists(st.integers())


def test_zip_and_map_give_lists() -> None:
    """Of tuples and of results."""
    assert safe_zip([1, 2], "ab") == [(1, "a"), (2, "b")]
    assert safe_map(lambda a, b: a + b, [1, 2], [3, 4]) == [4, 6]
    assert safe_map(str, (1, 2)) == ["1", "2"]
    assert safe_zip() == []


@pytest.mark.parametrize("fn", [safe_zip, lambda *args: safe_map(max, *args)])
def test_different_lengths_are_refused(fn: object) -> None:
    """Neither is cut silently."""
    with pytest.raises(ValueError, match=r"shorter|longer"):
        fn([1, 2], [3])  # type: ignore[operator] - both are callables


@given(st.lists(st.tuples(st.integers(), st.text(), st.booleans())))
def test_unzip_undoes_zip(triples: list[tuple[int, str, bool]]) -> None:
    """For no elements too."""
    assert safe_zip(*unzip3(triples)) == triples
    pairs = [t[:2] for t in triples]
    assert safe_zip(*unzip2(pairs)) == pairs


@given(INTS, st.data())
def test_split_list_pieces_join_to_the_list(xs: list[int], data: st.DataObject) -> None:
    """One piece more than sizes, with the given lengths."""
    sizes: list[int] = []
    left = len(xs)
    for _ in range(data.draw(st.integers(0, 3))):
        sizes.append(data.draw(st.integers(0, left)))
        left -= sizes[-1]
    pieces = split_list(xs, sizes)

    assert [len(piece) for piece in pieces] == [*sizes, left]
    assert [x for piece in pieces for x in piece] == xs


@pytest.mark.parametrize("sizes", [[4], [2, 2], [-1]])
def test_split_list_refuses_sizes_that_do_not_fit(sizes: list[int]) -> None:
    """Too many or negative."""
    with pytest.raises(ValueError, match="split_list"):
        split_list([1, 2, 3], sizes)


@given(st.lists(st.tuples(st.booleans(), st.integers())))
def test_merge_undoes_partition(pairs: list[tuple[bool, int]]) -> None:
    """And each part has what its side of the mask says."""
    mask, xs = unzip2(pairs)
    falses, trues = partition_list(mask, xs)

    assert falses == [x for chosen, x in pairs if not chosen]
    assert trues == [x for chosen, x in pairs if chosen]
    assert merge_lists(mask, falses, trues) == xs


def test_merge_refuses_lists_that_do_not_fit() -> None:
    """The counts of the mask must be those of the lists."""
    with pytest.raises(ValueError, match="a mask of 2 with 1 true, got 0 and 2"):
        merge_lists([True, False], [], [1, 2])
    with pytest.raises(ValueError, match="longer"):
        partition_list([True], [1, 2])


def test_split_dict_keeps_both_orders() -> None:
    """Chosen keys in the asked order, the others in theirs; a missing key is an error."""
    chosen, others = split_dict({"a": 1, "b": 2, "c": 3}, ["c", "a"])

    assert (list(chosen.items()), list(others.items())) == ([("c", 3), ("a", 1)], [("b", 2)])
    with pytest.raises(KeyError):
        split_dict({}, ["a"])
