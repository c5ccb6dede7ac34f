"""Calls of traced functions that use mutable references: contents in, last contents out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from tracebridge.core.control.ref import (
    Captures,
    Ref,
    check_distinct,
    final_of,
    make_ref,
    read_ref,
    write_ref,
)


@final
class RefUses:
    """Which references a traced function uses, and which of them it writes.

    Its inputs are the arguments, with contents in place of references, then the contents of
    ``captured``. Its results are followed by the last contents of the arguments ``written``,
    then of the captured references ``captured_written``.
    """

    __slots__ = ("_captures", "_inner", "arguments", "written")

    def __init__(self, captures: Captures, arguments: tuple[int, ...]) -> None:
        self._captures = captures
        self._inner: list[Ref] = []
        self.arguments = arguments
        self.written: list[bool] = []

    @property
    def captured(self) -> list[Ref]:
        """The references that the function closes over."""
        return self._captures.refs

    @property
    def captured_written(self) -> list[Ref]:
        """Those of them that it writes."""
        pairs = zip(self._captures.refs, self._captures.written, strict=True)
        return [ref for ref, written in pairs if written]

    def enter(self, xs: Sequence[Any]) -> list[Any]:
        """The arguments of the function, with references of its own in place of contents."""
        args = list(xs)
        for i in self.arguments:
            args[i] = make_ref(args[i], entered=True)
            self._inner.append(args[i])
        return args

    def leave(self, outs: Sequence[Any]) -> list[Any]:
        """The results with the last contents of the references among the arguments."""
        finals = [final_of(ref) for ref in self._inner]
        self._inner = []
        self.written = [f is not None for f in finals]
        return [*outs, *[f for f in finals if f is not None]]


@final
class RefCall:
    """One call of such a function: ``passed`` are the references among its arguments."""

    __slots__ = ("_passed", "_uses")

    def __init__(
        self, call: str, uses: RefUses | None, passed: Sequence[tuple[str, Ref]]
    ) -> None:
        self._uses = RefUses(Captures(), ()) if uses is None else uses
        check_distinct(call, passed, self._uses.captured)
        self._passed = [ref for _, ref in passed]

    def contents(self) -> list[Any]:
        """The contents of the captured references: further arguments."""
        return [read_ref(ref) for ref in self._uses.captured]

    def write_back(self, outs: Sequence[Any]) -> Sequence[Any]:
        """Write the last contents that follow the results; gives the results."""
        uses = self._uses
        pairs = zip(self._passed, uses.written, strict=True) if self._passed else ()
        targets = [*[ref for ref, written in pairs if written], *uses.captured_written]
        if not targets:
            return outs
        n = len(outs) - len(targets)
        for ref, value in zip(targets, outs[n:], strict=True):
            write_ref(ref, value)
        return outs[:n]


def ref_arguments(args: Any, call: str, names: Sequence[str]) -> list[tuple[str, Ref]]:
    """The references among the leaves and their names; their contents take their places."""
    found: list[tuple[str, Ref]] = []
    places: list[int] = []
    leaves = list(args.leaves)
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, Ref):
            found.append((names[i], leaf))
            places.append(i)
            leaves[i] = read_ref(leaf)
    check_distinct(call, found, ())
    args.leaves = leaves
    args.refs = tuple(places)
    return found
