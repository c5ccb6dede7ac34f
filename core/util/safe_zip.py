"""zip and map that insist on equal lengths, and splitting and merging of lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
U = TypeVar("U")
V = TypeVar("V")
K = TypeVar("K")


def safe_zip(*args: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Zip sequences into a list.

    Raises:
        ValueError: if the lengths differ.
    """
    return list(zip(*args, strict=True))


def safe_map(fn: Callable[..., T], *args: Iterable[Any]) -> list[T]:
    """Apply `fn` to the elements of sequences in parallel.

    Raises:
        ValueError: if the lengths differ.
    """
    if len(args) == 1:
        return list(map(fn, args[0]))
    return [fn(*items) for items in zip(*args, strict=True)]


def unzip2(pairs: Iterable[tuple[T, U]]) -> tuple[list[T], list[U]]:
    """Return the first and the second elements of pairs; two empty lists for no pairs."""
    firsts: list[T] = []
    seconds: list[U] = []
    for first, second in pairs:
        firsts.append(first)
        seconds.append(second)
    return firsts, seconds


def unzip3(triples: Iterable[tuple[T, U, V]]) -> tuple[list[T], list[U], list[V]]:
    """Return the first, second and third elements of triples."""
    firsts: list[T] = []
    seconds: list[U] = []
    thirds: list[V] = []
    for first, second, third in triples:
        firsts.append(first)
        seconds.append(second)
        thirds.append(third)
    return firsts, seconds, thirds


def split_list(xs: Sequence[T], sizes: Sequence[int]) -> list[list[T]]:
    """Cut a list into pieces of the given sizes and a last piece with the rest.

    Raises:
        ValueError: if a size is negative or the sizes exceed the length.
    """
    items = list(xs)
    pieces: list[list[T]] = []
    start = 0
    for size in sizes:
        stop = start + size
        if size < 0 or stop > len(items):
            raise ValueError(f"split_list: got sizes {list(sizes)} for {len(items)} elements")
        pieces.append(items[start:stop])
        start = stop
    pieces.append(items[start:])
    return pieces


def partition_list(mask: Sequence[bool], xs: Sequence[T]) -> tuple[list[T], list[T]]:
    """Return the elements where the mask is false, and those where it is true.

    Raises:
        ValueError: if the lengths differ.
    """
    parts: tuple[list[T], list[T]] = ([], [])
    for chosen, x in zip(mask, xs, strict=True):
        parts[bool(chosen)].append(x)
    return parts


def merge_lists(mask: Sequence[bool], falses: Sequence[T], trues: Sequence[T]) -> list[T]:
    """Undo `partition_list`.

    Raises:
        ValueError: if the lengths do not fit the mask.
    """
    if len(falses) + len(trues) != len(mask) or sum(map(bool, mask)) != len(trues):
        raise ValueError(
            f"merge_lists: a mask of {len(mask)} with {sum(map(bool, mask))} true, got "
            f"{len(falses)} and {len(trues)} elements"
        )
    sources = (iter(falses), iter(trues))
    return [next(sources[bool(chosen)]) for chosen in mask]


def split_dict(mapping: Mapping[K, V], keys: Iterable[K]) -> tuple[dict[K, V], dict[K, V]]:
    """Return the entries whose key is in `keys`, in that order, and the others in theirs.

    Raises:
        KeyError: if a key is missing.
    """
    chosen = {key: mapping[key] for key in keys}
    return chosen, {key: value for key, value in mapping.items() if key not in chosen}
