"""Where the arrays of a step are in memory: those that are never needed together share it.

A kernel whose arrays fill less of the caches is faster. What is computed element by element from an
array that nobody reads later is written over it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tracebridge.core.kernels.steps.elementwise import Group
from tracebridge.core.kernels.steps.values import Statement
from tracebridge.core.kernels.steps.views import SIZES, View


class Life(NamedTuple):
    """The statements from the first to the last one that write or read an array."""

    first: int
    last: int


def places(
    sizes: Mapping[str, int], lasting: Iterable[Statement], passing: Sequence[Statement]
) -> tuple[dict[str, int], int]:
    """Where the arrays of these sizes begin, and the bytes of all.

    ``passing``: the statements of one step in their order; what others of ``lasting`` write or
    read, and what is read before it is written, keeps its memory.
    """
    lives = _lives(passing)
    kept = {v.base for s in lasting for v in _views(s)}
    kept |= {name for name in sizes if name not in lives}
    kept |= {v.base for k, s in enumerate(passing) for v in _reads(s) if lives[v.base].first == k}
    found: dict[str, int] = {}
    end = 0
    for name in [name for name in sizes if name in kept]:
        found[name] = end
        end += sizes[name]
    start = end
    placed: list[str] = []
    for name in sorted([n for n in sizes if n not in kept], key=lambda n: lives[n].first):
        above = _written_over(name, passing[lives[name].first], lives, sizes)
        others = [o for o in placed if o not in above and _meet(lives[o], lives[name])]
        wanted = [found[o] for o in above if o in found and o not in kept]
        busy = sorted([(found[o], found[o] + sizes[o]) for o in others])
        at = next((w for w in wanted if _is_free(w, sizes[name], busy)), None)
        if at is None:
            # Not half over something else that this statement still reads.
            busy = sorted([*busy, *[(found[o], found[o] + sizes[o]) for o in above if o in placed]])
            at = _first_free(start, sizes[name], busy)
        found[name] = at
        placed.append(name)
        end = max(end, at + sizes[name])
    return found, end


def _lives(statements: Sequence[Statement]) -> dict[str, Life]:
    lives: dict[str, Life] = {}
    for k, statement in enumerate(statements):
        for view in _views(statement):
            first = lives[view.base].first if view.base in lives else k
            lives[view.base] = Life(first, k)
    return lives


def _meet(a: Life, b: Life) -> bool:
    return a.first <= b.last and b.first <= a.last


def _views(statement: Statement) -> Iterator[View]:
    yield from _reads(statement)
    if isinstance(statement, Group):
        yield from [view for _, view in statement.stores]
    else:
        yield statement.out


def _reads(statement: Statement) -> list[View]:
    if isinstance(statement, Group):
        return statement.reads()
    return [x for x in statement if isinstance(x, View) and x is not statement.out]


def _written_over(
    name: str, statement: Statement, lives: Mapping[str, Life], sizes: Mapping[str, int]
) -> list[str]:
    """The arrays that a new one can replace while it is written: each element is read before.

    Elements have the same number of bytes, or those that are written would cover later ones.
    """
    if not isinstance(statement, Group):
        return []
    stores = [view for _, view in statement.stores if view.base == name]
    if len(stores) != 1:
        return []
    here, loads = lives[name].first, _reads(statement)
    wanted = _elements(stores[0])
    return [
        other
        for other in {v.base: None for v in loads}
        if other in sizes
        and sizes[other] == sizes[name]
        and lives[other].last == here
        and all([_elements(v) == wanted for v in loads if v.base == other])
    ]


def _elements(view: View) -> tuple[object, ...]:
    """Which bytes of an array its elements are."""
    return SIZES[view.kind], *view[1:4]


def _is_free(at: int, size: int, busy: Sequence[tuple[int, int]]) -> bool:
    return all([at + size <= a or b <= at for a, b in busy])


def _first_free(start: int, size: int, busy: Sequence[tuple[int, int]]) -> int:
    at = start
    for a, b in busy:
        if at + size <= a:
            break
        at = max(at, b)
    return at
