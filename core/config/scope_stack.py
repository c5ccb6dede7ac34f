"""What is in force in a thread as a stack of changes, each of which can be taken back alone.

Blocks of one thread need not end in the reverse order of their beginnings: a generator that is
suspended inside a `with` statement goes on, or is closed by the garbage collector, at any time,
perhaps in another thread. So a block that ends does not put back the value that it found: it takes
its own change out of the stack, and the changes above it are applied again to what is below.
"""

from __future__ import annotations

import abc
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Generic, TypeVar, final

V = TypeVar("V")


@final
class Change:
    """What one block changes; each block that begins makes its own."""

    __slots__ = ("args", "function", "lost")

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.function = function
        self.args = args
        self.lost = False
        """Whether the block has ended for all contexts, but is still in force in another one than
        that in which it ended: it was closed by another thread, say, or is a trace of which there
        are copies."""


# The thread that is about to change a stack, or 0, and what is to be done when it has. The garbage
# collector may close generators at any allocation of such a step: what they did to the stack the
# step would undo, and `ContextVar.set` of Python 3.11 reads freed memory if it is called while it
# allocates. Where several threads take steps at once some are not seen here.
stepper: list[int] = [0]
ended_meanwhile: list[tuple[int, ScopeStack, Any]] = []
_begun_meanwhile: list[Any] = []


def finish_step() -> None:
    """End what finalizers have ended during a step of this thread."""
    here = threading.get_ident()
    for entry in tuple(ended_meanwhile):
        thread, stack, change = entry
        if thread == here:
            ended_meanwhile.remove(entry)
            stack.leave(change)


class ScopeStack(abc.ABC):
    """The blocks that are open in each thread (and asyncio task).

    They are nodes ``(outer, change, seen)``, innermost first, immutable but for ``seen``: how many
    changes were lost when the node was last looked at.
    """

    __slots__ = ("lost",)

    def __init__(self) -> None:
        self.lost = 0
        """How many blocks have ended where they were not in force."""

    @abc.abstractmethod
    def get(self) -> Any:
        """The innermost node of this thread; None if there is none."""

    @abc.abstractmethod
    def install(self, node: Any) -> None:
        """Put what a node says in force."""

    @abc.abstractmethod
    def node(self, outer: Any, change: Change) -> Any:
        """What a change makes of a node."""

    def enter(self, function: Callable[..., Any], *args: Any) -> Change:
        """Begin a block in which ``function(value outside, *args)`` is in force."""
        change = Change(function, args)
        busy = stepper[0] == threading.get_ident()
        stepper[0] = threading.get_ident()
        try:
            self.install(self.node(self.top(), change))
            if busy:
                _begun_meanwhile.append(change)
        finally:
            if not busy:
                stepper[0] = 0
        if ended_meanwhile and not busy:
            finish_step()
        return change

    def leave(self, change: Change) -> None:
        """End the block of a change; others stay as they are.

        Where it is not in force nothing changes. Where it still is, that is seen at the next
        occasion (``refresh``).
        """
        here = threading.get_ident()
        busy = stepper[0] == here
        if busy:
            if change not in _begun_meanwhile:
                ended_meanwhile.append((here, self, change))
                return
            _begun_meanwhile.remove(change)
        stepper[0] = here
        try:
            node = self.top()
            if node is not None and node.change is change:
                self.install(node.outer)
            elif change in _changes(node):
                self.install(self._rebuilt(node, lambda c: c is not change))
            else:
                change.lost = True
                self.lost += 1
        finally:
            if not busy:
                stepper[0] = 0
        if ended_meanwhile and not busy:
            finish_step()

    def leave_one_of(self, changes: list[Change]) -> None:
        """End the latest of several like blocks that is in force here, and forget its change."""
        node = self.get()
        if node is not None and node.change is changes[-1]:
            self.leave(changes.pop())
            return
        while node is not None and node.change not in changes:
            node = node.outer
        change = changes[-1] if node is None else node.change
        changes.remove(change)
        self.leave(change)

    def refresh(self, *, thoroughly: bool = False) -> None:
        """Take back what has ended elsewhere.

        Args:
            thoroughly: look even if nothing is known to have ended elsewhere.
        """
        node, top = self.get(), self.top(thoroughly=thoroughly)
        if top is not node:
            self.install(top)

    def top(self, *, thoroughly: bool = False) -> Any:
        """The innermost node without blocks that have ended elsewhere; perhaps a new one."""
        node = self.get()
        if node is None or (node.seen == self.lost and not thoroughly):
            return node
        if not any([c.lost for c in _changes(node)]):
            node.seen = self.lost
            return node
        return self._rebuilt(node, lambda c: not c.lost)

    def _rebuilt(self, node: Any, wanted: Callable[[Change], bool]) -> Any:
        """The same with the wanted changes only."""
        found: Any = None
        for change in reversed(list(_changes(node))):
            if wanted(change):
                found = self.node(found, change)
        return found


def _changes(node: Any) -> Iterator[Change]:
    while node is not None:
        yield node.change
        node = node.outer


@final
class _Node(Generic[V]):
    __slots__ = ("change", "outer", "seen", "value")

    def __init__(self, outer: _Node[V] | None, change: Change, value: V, seen: int) -> None:
        self.outer = outer
        self.change = change
        self.value = value
        self.seen = seen


@final
class VariableStack(ScopeStack, Generic[V]):
    """Blocks that change the value of a variable, which only they set.

    ``empty``: its value outside of all blocks.
    """

    __slots__ = ("_empty", "_nodes", "_shown")

    def __init__(self, shown: ContextVar[V], empty: V) -> None:
        super().__init__()
        self._shown = shown
        self._empty = empty
        self._nodes: ContextVar[_Node[V] | None] = ContextVar(f"{shown.name}_scopes", default=None)

    def get(self) -> _Node[V] | None:
        return self._nodes.get()

    def install(self, node: _Node[V] | None) -> None:
        self._nodes.set(node)
        self._shown.set(self._empty if node is None else node.value)

    def node(self, outer: _Node[V] | None, change: Change) -> _Node[V]:
        value = change.function(self._empty if outer is None else outer.value, *change.args)
        return _Node(outer, change, value, self.lost)
