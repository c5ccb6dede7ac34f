"""Small functions of sequences that interpreters of programs are written with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex

from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.lax.shape.axes import as_axis


def safe_zip(*args: Iterable[object]) -> list[tuple[Any, ...]]:
    """The elements of iterables side by side.

    Args:
        args: iterables of equal lengths.

    Raises:
        ValueError: the lengths differ.

    >>> from tracebridge._src import util
    >>> util.safe_zip([1, 2], "ab")
    [(1, 'a'), (2, 'b')]
    """
    return list(zip(*args, strict=True))


def unzip2(xys: Iterable[tuple[object, object]]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The first and the second elements of pairs.

    Args:
        xys: the pairs.

    >>> from tracebridge._src import util
    >>> util.unzip2([(1, "a"), (2, "b")])
    ((1, 2), ('a', 'b'))
    """
    pairs = list(xys)
    return tuple([x for x, _ in pairs]), tuple([y for _, y in pairs])


def unzip3(
    xyzs: Iterable[tuple[object, object, object]],
) -> tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]:
    """The first, second and third elements of triples.

    Args:
        xyzs: the triples.

    >>> from tracebridge._src import util
    >>> util.unzip3([(1, "a", None)])
    ((1,), ('a',), (None,))
    """
    triples = list(xyzs)
    return (
        tuple([x for x, _, _ in triples]),
        tuple([y for _, y, _ in triples]),
        tuple([z for _, _, z in triples]),
    )


def split_list(args: Sequence[object], ns: Sequence[int]) -> list[list[Any]]:
    """A list cut into pieces: of the lengths ``ns``, and what remains.

    Args:
        args: the elements.
        ns: lengths of all pieces but the last.

    Raises:
        ArgumentValueError: the lengths are more than there are elements.

    >>> from tracebridge._src import util
    >>> util.split_list([1, 2, 3, 4], [1, 2])
    [[1], [2, 3], [4]]
    """
    rest = list(args)
    if sum(ns) > len(rest):
        msg = f"split_list: pieces of {list(ns)} elements from a list of {len(rest)}"
        raise ArgumentValueError(msg)
    pieces = []
    for n in ns:
        pieces.append(rest[:n])
        rest = rest[n:]
    return [*pieces, rest]


def partition_list(bs: Sequence[bool], xs: Sequence[object]) -> tuple[list[Any], list[Any]]:
    """The elements where ``bs`` is False, and those where it is True.

    Args:
        bs: one truth value for each element.
        xs: the elements.

    >>> from tracebridge._src import util
    >>> util.partition_list([True, False, True], "abc")
    (['b'], ['a', 'c'])
    """
    pairs = safe_zip(bs, xs)
    return [x for b, x in pairs if not b], [x for b, x in pairs if b]


def merge_lists(bs: Sequence[bool], l0: Sequence[object], l1: Sequence[object]) -> list[Any]:
    """One list, with the next element of ``l0`` where ``bs`` is False, else that of ``l1``.

    Args:
        bs: which list the elements come from.
        l0: the elements where ``bs`` is False.
        l1: the elements where ``bs`` is True.

    Raises:
        ArgumentValueError: the lists are longer or shorter than ``bs`` says.

    >>> from tracebridge._src import util
    >>> util.merge_lists([True, False, True], "b", "ac")
    ['a', 'b', 'c']
    """
    if [len(l0), len(l1)] != [len(bs) - sum(bs), sum(bs)]:
        msg = f"merge_lists: {len(l0)} and {len(l1)} elements by {list(bs)}"
        raise ArgumentValueError(msg)
    first, second = iter(l0), iter(l1)
    return [next(second if b else first) for b in bs]


def concatenate(xs: Iterable[Sequence[object]]) -> list[Any]:
    """The elements of sequences, in one list.

    Args:
        xs: the sequences.

    >>> from tracebridge._src import util
    >>> util.concatenate([[1, 2], (3,)])
    [1, 2, 3]
    """
    return [element for x in xs for element in x]


def tuple_insert(t: tuple[object, ...], idx: int, val: object) -> tuple[Any, ...]:
    """A tuple with one more element.

    Args:
        t: the tuple.
        idx: where the element stands in the result.
        val: the element.

    >>> from tracebridge._src import util
    >>> util.tuple_insert((1, 3), 1, 2)
    (1, 2, 3)
    """
    return (*t[:idx], val, *t[idx:])


def tuple_delete(t: tuple[object, ...], idx: int) -> tuple[Any, ...]:
    """A tuple without one of its elements.

    Args:
        t: the tuple.
        idx: where the element stands, from 0.

    >>> from tracebridge._src import util
    >>> util.tuple_delete((1, 2, 3), 1)
    (1, 3)
    """
    return (*t[:idx], *t[idx + 1 :])


def canonicalize_axis(axis: SupportsIndex, num_dims: int) -> int:
    """The number of an axis, counted from the first one.

    Args:
        axis: in ``[-num_dims, num_dims)``.
        num_dims: how many axes there are.

    Raises:
        AxisError: there is no such axis.

    >>> from tracebridge._src import util
    >>> util.canonicalize_axis(-1, 3)
    2
    """
    return as_axis("canonicalize_axis", axis, num_dims)
