"""Recorded linear functions as pytrees: the residuals are leaves, all else is structure.

So the results of ``vjp`` and ``linearize`` can be arguments and results of jitted functions, and
two recordings of the same function have equal structures: a function jitted over them is
compiled once.
"""

from __future__ import annotations

import bisect
from collections.abc import Hashable, Sequence
from typing import Any, final

from tracebridge.core.interpreters.linearize import Linearized, TapeEntry
from tracebridge.core.ir.name_scopes import ScopedTape
from tracebridge.core.ir.values import Literal


@final
class TapeStructure:
    """A tape without its residuals, with further hashable facts. Compared by content.

    An argument of an entry is a node number, ``("residual", k)`` or ``("literal", key)``.
    """

    __slots__ = ("_hash", "_key", "entries", "facts", "linear", "literals", "scopes")

    def __init__(
        self,
        linear: Linearized,
        entries: tuple[Any, ...],
        literals: dict[Hashable, Literal],
        facts: tuple[Any, ...],
        scopes: tuple[Any, ...],
    ) -> None:
        self.linear = linear  # without its tape
        self.entries = entries
        self.literals = literals
        self.facts = facts
        self.scopes = scopes
        self._key = (
            entries,
            scopes,
            linear.size,
            tuple(linear.in_avals),
            tuple(linear.out_nodes),
            tuple(linear.out_avals),
            facts,
        )
        self._hash: int | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TapeStructure) and self._key == other._key

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(self._key)
        return self._hash

    def __repr__(self) -> str:
        return f"<tape of {len(self.entries)} steps>"


def take_apart(linear: Linearized, facts: tuple[Any, ...]) -> tuple[list[Any], TapeStructure]:
    """Residuals of the entries that results need, each once, and the structure."""
    positions: dict[int, int] = {}
    residuals: list[Any] = []
    literals: dict[Hashable, Literal] = {}

    def describe(value: Any) -> tuple[str, Any]:
        if type(value) is Literal:
            key = value.key()
            literals[key] = value
            return "literal", key
        # Values are kept alive by the tape, so that ids name them.
        k = positions.setdefault(id(value), len(residuals))
        if k == len(residuals):
            residuals.append(value)
        return "residual", k

    live = live_entries(linear)
    entries = [
        (app, mask, tuple([a if mask >> i & 1 else describe(a) for i, a in enumerate(args)]), node)
        for app, mask, args, node in live
    ]
    scopes = tuple(live.scopes) if type(live) is ScopedTape else ()
    empty = Linearized([], linear.size, linear.in_avals, linear.out_nodes, linear.out_avals)
    return residuals, TapeStructure(empty, tuple(entries), literals, facts, scopes)


def put_together(structure: TapeStructure, residuals: Sequence[Any]) -> Linearized:
    """The linear function of a structure and residuals: values, tracers, or placeholders."""
    literals = structure.literals

    def value(spec: tuple[str, Any]) -> Any:
        kind, key = spec
        return literals[key] if kind == "literal" else residuals[key]

    tape: list[TapeEntry] = [
        (app, mask, [a if mask >> i & 1 else value(a) for i, a in enumerate(args)], node)
        for app, mask, args, node in structure.entries
    ]
    if structure.scopes:
        tape = ScopedTape(tape, structure.scopes)
    empty = structure.linear
    return Linearized(tape, empty.size, empty.in_avals, empty.out_nodes, empty.out_avals)


def live_entries(linear: Linearized) -> list[TapeEntry]:
    """The entries on which results depend, in order."""
    live = [False] * linear.size
    for node in linear.out_nodes:
        if node is not None:
            live[node] = True
    kept: list[TapeEntry] = []
    for entry in reversed(linear.tape):
        app, mask, args, node = entry
        if any(live[node : node + len(app.outs)]):
            kept.append(entry)
            for i, a in enumerate(args):
                if mask >> i & 1:
                    live[a] = True
    kept.reverse()
    if type(linear.tape) is not ScopedTape:
        return kept
    # Where scopes begin is counted in entries that are kept: entries are in the order of nodes.
    nodes = [node for _, _, _, node in kept]
    return ScopedTape(
        kept,
        [
            (bisect.bisect_left(nodes, linear.tape[start][3]), names)
            for start, names in linear.tape.scopes
            if start < len(linear.tape)
        ],
    )
