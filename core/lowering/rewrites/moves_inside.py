"""Called functions that get operands and give results in the order in which these lie in memory.

Blocks of attention are functions that are computed again in the backward pass, and kernels of
batches. A kernel reads and writes parts of arrays in any order; a function that is called with
transposed operands has them copied first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

from tracebridge.core import lax
from tracebridge.core.interpreters.graph import Graph
from tracebridge.core.ir.traverse import primitives_of
from tracebridge.core.kernels.steps.views import without_ones
from tracebridge.core.lowering.rewrites.inlined import is_part_of_kernel
from tracebridge.core.lowering.rewrites.producers import GIVEN, producers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.jaxpr import Jaxpr


class _Moves(NamedTuple):
    """Of each operand and result of a call: the equations that move it, the first one first."""

    before: tuple[tuple[int, ...], ...]
    after: tuple[tuple[int, ...], ...]

    @property
    def are_any(self) -> bool:
        """Whether anything moves."""
        return any(self.before) or any(self.after)


def with_moves_inside(jaxpr: Jaxpr) -> Jaxpr | None:
    """``jaxpr`` with what moves operands and results of such functions within them."""
    if not any([p.inlinable_at_last for p in primitives_of(jaxpr)]):
        return None
    program = _Program(jaxpr)
    calls = {
        k: moves
        for k, (app, _) in enumerate(jaxpr.equations)
        if is_part_of_kernel(app) and (moves := program.moves_of(k)).are_any
    }
    return program.rewritten(calls) if calls else None


def _is_move(app: Application) -> bool:
    """Whether an equation changes the order of axes, or makes or takes away axes of one element."""
    if app.primitive is lax.reshape_p or app.primitive is lax.squeeze_p:
        return without_ones(app.avals[0].shape) == without_ones(app.out.shape)
    return app.primitive is lax.transpose_p


@final
class _Program:
    def __init__(self, jaxpr: Jaxpr) -> None:
        self.jaxpr = jaxpr
        self.made_by, self.first = producers(jaxpr)
        self.readers: dict[int, list[int]] = {v: [GIVEN] for v in jaxpr.outs}
        for k, (_, args) in enumerate(jaxpr.equations):
            for a in args:
                self.readers.setdefault(a, []).append(k)
        self.taken: set[int] = set()
        """Moves that are within a call already: one between two calls is the first one's."""

    def moves_of(self, k: int) -> _Moves:
        """What moves the operands and results of a call and is read by nobody else.

        Calls are asked for in order; none gets what another one has got.
        """
        app, args = self.jaxpr.equations[k]
        first = self.first[k]
        before = tuple([self._before(a) for a in args])
        moves = _Moves(before, tuple([self._after(first + i) for i in range(len(app.outs))]))
        self.taken.update([m for chain in (*moves.before, *moves.after) for m in chain])
        return moves

    def _before(self, v: int) -> tuple[int, ...]:
        found: list[int] = []
        k = self.made_by[v]
        while len(self.readers[v]) == 1 and self._is_free_move(k):
            found.append(k)
            v = self.jaxpr.equations[k][1][0]
            k = self.made_by[v]
        return tuple(reversed(found))

    def _after(self, v: int) -> tuple[int, ...]:
        found: list[int] = []
        while len(readers := self.readers.get(v, [])) == 1:
            (k,) = readers
            if not self._is_free_move(k):
                break
            found.append(k)
            v = self.first[k]
        return tuple(found)

    def _is_free_move(self, k: int) -> bool:
        return k != GIVEN and k not in self.taken and _is_move(self.jaxpr.equations[k][0])

    def rewritten(self, calls: dict[int, _Moves]) -> Jaxpr:
        """The program with new functions in ``calls``."""
        jaxpr, graph = self.jaxpr, Graph()
        inside = {k for m in calls.values() for chain in (*m.before, *m.after) for k in chain}
        numbers = dict(enumerate([*graph.inputs(jaxpr.in_avals)]))
        numbers |= {jaxpr.n_in + i: graph.constant(c) for i, c in enumerate(jaxpr.consts)}
        for k, (app, args) in enumerate(jaxpr.equations):
            if k in inside:
                continue
            read, made = list(args), [self.first[k] + i for i in range(len(app.outs))]
            moves = calls.get(k)
            if moves is not None:
                read = [self._source(a, chain) for a, chain in zip(args, moves.before, strict=True)]
                made = [self._last(v, chain) for v, chain in zip(made, moves.after, strict=True)]
                app = self._moved(app, moves)  # noqa: PLW2901 - the same equation
            source = jaxpr.sources[k] if jaxpr.sources else None
            first = graph.add(app, [numbers[a] for a in read], source)
            numbers |= {v: first + i for i, v in enumerate(made)}
        outs = [numbers[v] for v in jaxpr.outs]
        return graph.program(range(jaxpr.n_in), outs, jaxpr.debug)

    def _source(self, v: int, chain: Sequence[int]) -> int:
        return self.jaxpr.equations[chain[0]][1][0] if chain else v

    def _last(self, v: int, chain: Sequence[int]) -> int:
        return self.first[chain[-1]] if chain else v

    def _moved(self, app: Application, moves: _Moves) -> Application:
        """The call of the function that moves its operands and results itself."""
        called: Jaxpr = app.params["jaxpr"]
        before, after = [
            tuple([tuple([self.jaxpr.equations[k][0] for k in chain]) for chain in chains])
            for chains in moves
        ]
        key = ("moves inside", before, after)
        if key not in called.cache:  # layers of a network are alike
            called.cache[key] = _with_moves(called, before, after)
        new: Jaxpr = called.cache[key]
        pairs = zip(app.avals, before, strict=True)
        avals = tuple([chain[0].avals[0] if chain else aval for aval, chain in pairs])
        return app.primitive.application(avals, {**app.params, "jaxpr": new})


_Chains = tuple[tuple["Application", ...], ...]


def _with_moves(called: Jaxpr, before: _Chains, after: _Chains) -> Jaxpr:
    graph = Graph()
    pairs = zip(called.in_avals, before, strict=True)
    inputs = graph.inputs([chain[0].avals[0] if chain else aval for aval, chain in pairs])
    moved = [_run(graph, v, chain) for v, chain in zip(inputs, before, strict=True)]
    results = graph.inline(called, moved, None)
    outs = [_run(graph, v, chain) for v, chain in zip(results, after, strict=True)]
    return graph.program(inputs, outs, called.debug)


def _run(graph: Graph, v: int, chain: Sequence[Application]) -> int:
    for app in chain:
        v = graph.add(app, [v])
    return v
