"""Small questions about lists."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")
H = TypeVar("H", bound=Hashable)


def unique(xs: Iterable[H]) -> list[H]:
    """Return the elements without repetitions, in the order of their first appearance."""
    return list(dict.fromkeys(xs))


def duplicates(xs: Iterable[H]) -> list[H]:
    """Return each element that appears more than once, in the order of the repetition."""
    seen: set[H] = set()
    again: dict[H, None] = {}
    for x in xs:
        if x in seen:
            again[x] = None
        seen.add(x)
    return list(again)


def concatenate(xss: Iterable[Iterable[T]]) -> list[T]:
    """Join lists into one."""
    return [x for xs in xss for x in xs]


def subs_list(indices: Sequence[int | None], src: Sequence[T], base: Sequence[T]) -> list[T]:
    """Return `base` with the elements that have an index taken from `src`.

    Raises:
        ValueError: if `indices` and `base` differ in length.
    """
    return [
        default if index is None else src[index]
        for index, default in zip(indices, base, strict=True)
    ]


def inverse_permutation(order: Sequence[int]) -> list[int]:
    """Return the permutation that undoes `order`.

    Raises:
        ValueError: if it is not a permutation.
    """
    if sorted(order) != list(range(len(order))):
        raise ValueError(f"inverse_permutation: got {list(order)}, which is not a permutation")
    inverse = [0] * len(order)
    for position, source in enumerate(order):
        inverse[source] = position
    return inverse
