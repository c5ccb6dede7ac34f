"""Entering named scopes, under whatever transformations are at work.

A scope inside a transformation is named after both: ``jvp(layer)``, ``vmap(jvp(layer))``. The
names of forward operations are those in force when they are made. The backward pass comes later:
the tape of each linearization remembers where scopes began and ended, and ``transposed`` puts its
operations into ``transpose(jvp(layer))``. All work is done here, when scopes change; what has no
scopes pays nothing.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple, final

from tracebridge.core.ir.name_stack import (
    NAME_SCOPES,
    NAMES,
    AttributeScope,
    in_use,
    outermost_within,
)
from tracebridge.core.ir.trace import current_trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tracebridge.core.config.scope_stack import Change

Names = tuple[str, ...]


@final
class Scope(str):
    """A part of a path, with what it was made of: a name within ``kinds`` of transformations.

    ``root``: the id of the trace outside of all of them. ``depth``: how many of them this scope
    and those around it name.
    """

    __slots__ = ("depth", "kinds", "name", "root")
    name: str
    kinds: Names
    root: int
    depth: int


@final
class ScopedTape(list[Any]):
    """A tape that knows scopes: ``scopes`` holds ``(number of entries so far, names)``."""

    __slots__ = ("scopes",)

    def __init__(
        self, entries: Iterable[Any] = (), scopes: Iterable[tuple[int, Names]] = ()
    ) -> None:
        super().__init__(entries)
        self.scopes = list(scopes)

    def parts(self) -> Iterator[tuple[list[Any], Names]]:
        """Parts of the tape and their scopes, from the last part to the first."""
        stop = len(self)
        for start, names in reversed(self.scopes):
            if start < stop:
                yield self[start:stop], names
                stop = start
        if stop:
            yield self[:stop], ()


class _Level(NamedTuple):
    """A transformation at work; ``owner`` is its trace if that has a tape."""

    kind: str
    owner: Any


def _levels() -> tuple[list[_Level], int]:
    """The transformations at work, outermost first, and the id of the trace outside of them."""
    found: list[_Level] = []
    trace: Any = current_trace()
    while True:
        # The rule of a user runs on tangents: its trace puts them on the tape of the owner.
        trace = getattr(trace, "owner", trace)
        kind = getattr(trace, "scope_kind", None)
        if kind is None:
            break
        found.append(_Level(kind, trace if hasattr(trace, "tape") else None))
        trace = trace.parent
    found.reverse()
    return found, id(trace)


def _wrapped(kinds: Sequence[str], name: str) -> str:
    return "".join([f"{kind}(" for kind in kinds]) + name + ")" * len(kinds)


def _within(names: Names, level: int, root: int) -> Names:
    """The part of ``names`` inside of transformation ``level``: named by it and those inside it."""
    attributes: list[str] = []
    for i, scope in enumerate(names):
        if type(scope) is AttributeScope and scope.root == root and scope.depth > level:
            attributes.append(scope)
        if type(scope) is Scope and scope.root == root and scope.depth > level:
            outside = level - (scope.depth - len(scope.kinds))
            inner = _wrapped(scope.kinds[outside:], scope.name)
            return (*attributes, inner, *names[i + 1 :])
    return tuple(attributes)


def _note(levels: Sequence[_Level], root: int, names: Names) -> None:
    """Let the tapes at work know that the scopes are ``names`` from now on."""
    for level, (_, owner) in enumerate(levels):
        if owner is not None:
            tape: Any = owner.tape
            if type(tape) is not ScopedTape:
                tape = owner.tape = ScopedTape(tape)
            tape.scopes.append((len(tape), _within(names, level, root)))


def enter(names: Sequence[str]) -> Change:
    """Enter scopes, outermost first; ``leave`` takes what is returned."""
    in_use[0] = True
    levels, root = _levels()
    change = NAME_SCOPES.enter(_extended, _scopes(names, levels, root))
    _note(levels, root, NAMES.get())
    return change


def _extended(outer: Names, inside: Names) -> Names:
    return (*outer, *inside)


def _scopes(names: Sequence[str], levels: Sequence[_Level], root: int) -> Names:
    """Parts of a path for ``names`` inside of those in force."""
    outer = NAMES.get()
    known = 0
    named = [n for n in outer if type(n) is not AttributeScope]
    if named and type(last := named[-1]) is Scope and last.root == root:
        known = last.depth
    kinds = tuple([level.kind for level in levels[known:]])
    inside: list[str] = []
    for name in names:
        if type(name) is AttributeScope:
            inside.append(AttributeScope.of(name.attributes, root, len(levels)))
            continue
        scope = Scope(_wrapped(kinds, name))
        scope.name, scope.kinds, scope.root, scope.depth = name, kinds, root, len(levels)
        inside.append(scope)
        kinds = ()
    return tuple(inside)


def leave(change: Change) -> None:
    """Leave what ``enter`` entered, and nothing else."""
    NAME_SCOPES.leave(change)
    note_names()


def leave_one_of(changes: list[Change]) -> None:
    """Leave the latest of several like scopes that is in force here."""
    NAME_SCOPES.leave_one_of(changes)
    note_names()


def note_names() -> None:
    """Let the tapes at work know the scopes, which have changed."""
    levels, root = _levels()
    _note(levels, root, NAMES.get())


@contextlib.contextmanager
def entered(names: Names) -> Iterator[None]:
    """Scopes for a block."""
    if not names:
        yield
        return
    change = enter(names)
    try:
        yield
    finally:
        leave(change)


@contextlib.contextmanager
def transposed(names: Names) -> Iterator[None]:
    """Scopes of the backward pass of what was linearized in ``names``."""
    with entered(outermost_within("transpose", names)):
        yield
