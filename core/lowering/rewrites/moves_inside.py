"""Called functions that get operands and give results in the order in which these lie in memory.

Blocks of attention are functions that are computed again in the backward pass, and kernels of
batches. A kernel reads and writes parts of arrays in any order; a function that is called with
transposed operands has them copied first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

from tracebridge.core.interpreters.graph import Graph
from tracebridge.core.ir.traverse import distinct_applications, primitives_of
from tracebridge.core.lowering.rewrites.inlined import is_part_of_kernel
from tracebridge.core.lowering.rewrites.producers import GIVEN, producers
from tracebridge.core.lowering.rewrites.slices import is_move, is_slice

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

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
    if not any([is_part_of_kernel(app) for app in distinct_applications(jaxpr)]):
        return None
    program = _Program(jaxpr)
    calls = {k: moves for k, moves in program.moves().items() if moves.are_any}
    return program.rewritten(calls) if calls else None


@final
class _Program:
    def __init__(self, jaxpr: Jaxpr) -> None:
        self.jaxpr = jaxpr
        self.made_by, self.first = producers(jaxpr)
        self.readers: dict[int, list[int]] = {v: [GIVEN] for v in jaxpr.outs}
        for k, (_, args) in enumerate(jaxpr.equations):
            for a in args:
                self.readers.setdefault(a, []).append(k)

    def moves(self) -> dict[int, _Moves]:
        """Of each call what moves its operands and results, and is read by nobody else.

        What is behind one call and before another one is the first one's.
        """
        found = [k for k, (app, _) in enumerate(self.jaxpr.equations) if is_part_of_kernel(app)]
        after = {k: self._behind(k) for k in found}
        taken = {k for chains in after.values() for chain in chains for k in chain}
        calls: dict[int, _Moves] = {}
        for k in found:
            before = tuple([self._before(a, taken) for a in self.jaxpr.equations[k][1]])
            calls[k] = _Moves(before, after[k])
        return calls

    def _behind(self, k: int) -> tuple[tuple[int, ...], ...]:
        n = len(self.jaxpr.equations[k][0].outs)
        return tuple([self._after(self.first[k] + i) for i in range(n)])

    def _before(self, v: int, taken: Collection[int]) -> tuple[int, ...]:
        found: list[int] = []
        k = self.made_by[v]
        while k != GIVEN and k not in taken and self._goes_inside(k, v):
            found.append(k)
            v = self.jaxpr.equations[k][1][0]
            k = self.made_by[v]
        return tuple(reversed(found))

    def _goes_inside(self, k: int, v: int) -> bool:
        """Whether what makes an operand takes no copy within, and is not made for others as well.

        What such functions take slices of, and as a whole, is moved within each of them.
        """
        if not (is_move(app := self.jaxpr.equations[k][0]) or is_slice(app)):
            return False
        if len(self.readers[v]) == 1:
            return True
        if GIVEN in self.readers[v]:
            return False
        readers = [self.jaxpr.equations[k][0] for k in self.readers[v]]
        slices = [app for app in readers if is_slice(app)]
        others = [app for app in readers if not is_slice(app)]
        return bool(slices) and all([is_part_of_kernel(app) for app in others])

    def _after(self, v: int) -> tuple[int, ...]:
        found: list[int] = []
        while len(readers := self.readers.get(v, [])) == 1:
            (k,) = readers
            if k == GIVEN or not is_move(self.jaxpr.equations[k][0]):
                break
            found.append(k)
            v = self.first[k]
        return tuple(found)

    def rewritten(self, calls: dict[int, _Moves]) -> Jaxpr:
        """The program with new functions in ``calls``."""
        jaxpr, graph = self.jaxpr, Graph()
        inside = self._gone(calls)
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

    def _gone(self, calls: dict[int, _Moves]) -> set[int]:
        """The equations that nobody needs any more."""
        found = {k for m in calls.values() for chain in m.after for k in chain}
        before = {k for m in calls.values() for chain in m.before for k in chain}
        through = {(chain[-1], k) for k, m in calls.items() for chain in m.before if chain}
        for k in sorted(before, reverse=True):
            readers = self.readers[self.first[k]]
            if all([r in found or (k, r) in through for r in readers]):
                found.add(k)
        return found

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
