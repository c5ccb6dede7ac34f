"""Cutting a backward program in pieces, so that what was kept for it is freed on the way.

A program holds all its arguments until it ends, and the memory of all its results from its
beginning. Frameworks free what a layer has kept when its gradient is there. So a large backward
program becomes several, one after the other, where a model of its memory says that this lowers the
peak: values that the next pieces need are results of one piece and arguments of others. What
depends on the kept values alone, element by element, each piece makes for itself.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, final

from tracebridge.core.config.values import option
from tracebridge.core.conv.primitive import conv_general_dilated_p
from tracebridge.core.interpreters.inline import inline_calls
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.application import Application
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.lax.contract.dot import dot_general_p
from tracebridge.core.lax.shape.reshape import reshape_p
from tracebridge.core.lax.shape.transpose import transpose_p
from tracebridge.core.lowering.rewrites.batches import kernels_of
from tracebridge.core.lowering.rewrites.inlined import is_part_of_kernel
from tracebridge.core.lowering.rewrites.moves_inside import with_moves_inside
from tracebridge.core.runtime.backends.clients import get_backend
from tracebridge.interop.dtypes import is_exchanged

LEAST_FREED = 1 << 20
"""Bytes that were kept, of which fewer are not worth to be freed within a backward pass."""

# A cut costs some 30 us, and the compiler another program.
_LEAST_GAIN = 3 << 20  # bytes that one more cut has to save
_LEAST_BYTES = 4 << 20  # of arguments: below, nothing is worth it
_LEAST_PART = 0.07  # of the peak with fewer cuts
_MOST_PIECES = 8
# That are tried as cuts: the model looks at each way to get from one to another.
_MOST_PLACES, _FEWEST_PLACES, _MOST_STEPS = 32, 16, 8000
_MOST_EQUATIONS = 2000  # of a program: to model a longer one takes seconds
# The compiler makes copies for loops and orders of axes, and runs kernels in an order that holds
# more than ours: of pieces, too (a decoder layer took 2.2 of what one has between, not 1.5).
_COPIES = 2.0
_EXPENSIVE = frozenset({Cost.EXPENSIVE, Cost.COMPOSED})
_ELEMENTWISE = frozenset({Cost.FREE, Cost.MOVES_DATA, Cost.CHEAP, *_EXPENSIVE})


class Piece(NamedTuple):
    """One program. Its arguments are at ``places`` among the inputs and all results so far.

    ``last``: the places that no later piece needs, and that are no results of the whole.
    """

    program: Jaxpr
    places: tuple[int, ...]
    last: tuple[int, ...]


class Pieces(NamedTuple):
    """The pieces, in order, and where the results of the whole program are."""

    pieces: tuple[Piece, ...]
    results: tuple[int, ...]


def split_pieces(jaxpr: Jaxpr, n_saved: int, freed: Collection[int]) -> Pieces | None:
    """Cut ``jaxpr``: (saved values, cotangents) -> gradients; None where that is not worth it.

    ``freed``: the saved values whose memory is free when the last piece that reads them ends.
    """
    if jaxpr.effects or sum([_size(a) for a in jaxpr.in_avals]) < _LEAST_BYTES:
        return None
    program = inline_calls(jaxpr)
    if _may_have_kernels():
        program = with_moves_inside(program) or program
    if len(program.equations) > _MOST_EQUATIONS:
        return None
    if not all([type(d) is int for a in program.variable_avals() for d in a.shape]):
        return None
    long = [app for app, _ in program.equations if _is_long(app)]
    if not long:
        return None  # passes over elements and rows, which are fused
    gain = sum([_size(program.in_avals[v]) for v in freed])
    if gain < _LEAST_GAIN and all([is_part_of_kernel(app) for app in long]):
        return None  # kernels read what stays, and add up gradients where these are
    order = _Order(program, n_saved)
    if any([not order.is_made(out) for out in program.outs]):
        return None  # a gradient that is an input or a constant: nothing large
    cuts = _Memory(order, freed).best_cuts()
    return _cut(order, cuts) if cuts else None


def _size(aval: ShapedArray) -> int:
    return aval.size * aval.dtype.itemsize


def _may_have_kernels() -> bool:
    """Whether batches of products become kernels, which have no memory for what is between."""
    return get_backend().platform == "cpu" and bool(option("platform_rules"))


def _is_long(app: Application) -> bool:
    """Whether an equation is a contraction or a loop, with which nothing is fused."""
    return app.primitive.cost is Cost.CONTRACTION or any(
        [isinstance(value, Jaxpr) for value in app.params.values()]
    )


def _is_copied(app: Application) -> bool:
    """Whether the compiler copies for an equation: products of matrices need nothing of it."""
    if app.primitive is dot_general_p:
        return bool(app.params["dimension_numbers"][1][0])
    return _is_long(app)


def _copies(app: Application) -> tuple[int, int]:
    """Bytes that an equation takes while it runs: convolutions arrange their arrays anew.

    First what the compiler plans for, which stays to the end of a program, then what the library
    takes and gives back. A gradient of a kernel, where the kernels are images, is done by halves
    of these (core/conv/library_forms.py), with the axes of both operands in another order.
    """
    if app.primitive is not conv_general_dilated_p:
        return 0, 0
    x, kernel, out = [_size(a) for a in (*app.avals, *app.outs)]
    if kernel > out:
        return x + kernel // 2, kernel // 2
    return 0, x + kernel + out


@final
class _Order:
    """The equations of a program: those that any piece may repeat, and the others in order.

    ``repeated`` are elementwise and depend on saved values alone. ``main`` are the others; one that
    depends on saved values alone stands where it is first needed.
    """

    def __init__(self, jaxpr: Jaxpr, n_saved: int) -> None:
        self.jaxpr = jaxpr
        self.avals = jaxpr.variable_avals()
        self.n_fixed = jaxpr.n_in + len(jaxpr.consts)
        self.outs_of: list[range] = []
        self.maker: dict[int, int] = {}
        start = self.n_fixed
        for k, (app, _) in enumerate(jaxpr.equations):
            self.outs_of.append(range(start, start + len(app.outs)))
            self.maker |= dict.fromkeys(self.outs_of[k], k)
            start += len(app.outs)
        late = set(range(n_saved, jaxpr.n_in))
        known: set[int] = set()
        self.repeated: set[int] = set()
        for k, (app, operands) in enumerate(jaxpr.equations):
            if late.isdisjoint(operands):
                known.add(k)
                if app.primitive.cost in _ELEMENTWISE and not app.primitive.has_rules_of_users:
                    self.repeated.add(k)
            else:
                late.update(self.outs_of[k])
        self.main: list[int] = []
        self._arrange([k for k in range(len(jaxpr.equations)) if k not in known])
        self.index = {k: i for i, k in enumerate(self.main)}

    def _arrange(self, late: Sequence[int]) -> None:
        """Fill ``main``: what one gradient alone needs comes as soon as it can be computed."""
        jaxpr = self.jaxpr
        serves: dict[int, set[int]] = {v: {v} for v in jaxpr.outs}
        users: dict[int, list[int]] = {}
        for k in reversed(range(len(jaxpr.equations))):
            operands = dict.fromkeys(jaxpr.equations[k][1])
            mine = set[int]().union(*[serves.get(v, ()) for v in self.outs_of[k]])
            for v in operands:
                serves.setdefault(v, set()).update(mine)
                users.setdefault(v, []).append(k)
        waited = set(late)
        single = {
            k for k in late if len({s for v in self.outs_of[k] for s in serves.get(v, ())}) == 1
        }
        placed: set[int] = set()

        def is_ready(k: int) -> bool:
            operands = jaxpr.equations[k][1]
            makers = {self.maker[v] for v in operands if v >= self.n_fixed}
            return k in single and k not in placed and makers & waited <= placed

        for k in [*[k for k in late if is_ready(k)], *late]:
            self._place(k, placed)
            ready = [k]
            while ready:
                values = self.outs_of[ready.pop()]
                for user in sorted({u for v in values for u in users.get(v, ())}):
                    if is_ready(user):
                        self._place(user, placed)
                        ready.append(user)

    def _place(self, k: int, placed: set[int]) -> None:
        """Append an equation to ``main``, after those that it needs."""
        self.main += [e for e in self.with_needs(k, placed) if e not in self.repeated]

    def with_needs(self, k: int, done: set[int], among: Collection[int] | None = None) -> list[int]:
        """An equation after those that it needs, ``among`` some, without those ``done``."""
        found: list[int] = []
        waiting = [(k, False)]
        while waiting:
            equation, is_ready = waiting.pop()
            if is_ready:
                found.append(equation)
            elif equation not in done:
                done.add(equation)
                waiting.append((equation, True))
                operands = self.jaxpr.equations[equation][1]
                makers = [self.maker[v] for v in operands if v >= self.n_fixed]
                waiting += [(m, False) for m in makers if among is None or m in among]
        return found

    def viewed(self, v: int) -> int:
        """The value that ``v`` is another view of."""
        while v in self.maker:
            app, operands = self.jaxpr.equations[self.maker[v]]
            if app.primitive is not reshape_p:
                break
            v = operands[0]
        return v

    def is_made(self, variable: int) -> bool:
        """Whether an equation of ``main`` makes a value."""
        return variable >= self.n_fixed and self.maker[variable] in self.index

    def needs(self, equations: Sequence[int]) -> tuple[set[int], set[int]]:
        """Inputs and values of ``main`` that equations read, and the equations to be repeated."""
        read: set[int] = set()
        again: set[int] = set()
        waiting = list(equations)
        while waiting:
            for v in self.jaxpr.equations[waiting.pop()][1]:
                k = self.maker.get(v)
                if k is not None and k in self.repeated:
                    if k not in again:
                        again.add(k)
                        waiting.append(k)
                else:
                    read.add(v)
        return read, again

    def program(
        self, equations: Sequence[int], inputs: Sequence[int], outs: Sequence[int]
    ) -> Jaxpr:
        """The program of some equations."""
        jaxpr = self.jaxpr

        def run(*values: Any) -> list[Any]:
            process = current_trace().process
            env = dict(zip(range(jaxpr.n_in, self.n_fixed), jaxpr.consts, strict=True))
            env |= zip(inputs, values, strict=True)
            for k in equations:
                app, operands = jaxpr.equations[k]
                result = process(app, [env[v] for v in operands])
                env |= zip(self.outs_of[k], result if app.multiple else (result,), strict=True)
            return [env[v] for v in outs]

        return stage(run, [self.avals[v] for v in inputs], jaxpr.debug, locate=False)


@final
class _Memory:
    """A model of what the pieces take: bytes beside what is there before and after them all."""

    def __init__(self, order: _Order, freed: Collection[int]) -> None:
        self.order = order
        jaxpr, main = order.jaxpr, order.main
        final = set(jaxpr.outs)
        reads = [order.needs([k]) for k in main]
        self.reads = [read for read, _ in reads]
        self.makes = [order.outs_of[k] for k in main]
        made = [v for makes in self.makes for v in makes]
        self.last: dict[int, int] = {}
        for i, read in enumerate(self.reads):
            self.last |= dict.fromkeys(read, i)
        # The last equation that a value is there for; gradients stay.
        self.until = {v: len(main) if v in final else self.last.get(v, -1) for v in made}
        self.sizes = {v: _size(order.avals[v]) for v in made}
        kernels = kernels_of(jaxpr) if _may_have_kernels() else []
        in_kernels = {k for members, _ in kernels for k in members}
        made_inside = {v for k in in_kernels for v in order.outs_of[k]}
        self.inside = made_inside.difference(*[results for _, results in kernels])
        self.there, self.stuck = self._between_equations(freed)
        self.stored = self._stored()
        # What each equation repeats and stores, and what is expensive of what it repeats.
        self.again = [
            [v for k in again for v in order.outs_of[k] if v in self.stored] for _, again in reads
        ]
        expensive = {
            k for k in order.repeated if jaxpr.equations[k][0].primitive.cost in _EXPENSIVE
        }
        self.expensive = [again & expensive for _, again in reads]
        apps = [jaxpr.equations[k][0] for k in main]
        self.passes = [app.primitive.cost in _ELEMENTWISE for app in apps]
        # Before each equation, how many are no pass.
        self.works = list(accumulate([not is_pass for is_pass in self.passes], initial=0))
        self.copies = [_copies(app) for app in apps]
        self.is_copied = any(
            [_is_copied(app) for app, k in zip(apps, main, strict=True) if k not in in_kernels]
        )

    def _stored(self) -> set[int]:
        """Values that stand in memory, since no pass over elements contains them.

        Those that an equation makes or reads which is no such pass, and what is transposed.
        """
        order = self.order
        found: set[int] = set()
        for k, (app, operands) in enumerate(order.jaxpr.equations):
            if app.primitive.cost not in _ELEMENTWISE:
                found.update(operands)
                found.update(order.outs_of[k])
            elif app.primitive is transpose_p:
                found.add(order.viewed(operands[0]))
        return found - self.inside

    def _shared(self, start: int, end: int) -> set[int]:
        """Equations that are repeated, expensive, and read before and after something else."""
        first: dict[int, int] = {}
        found: set[int] = set()
        for i in range(start, end):
            for k in self.expensive[i]:
                if self.works[i] > self.works[first.setdefault(k, i)]:
                    found.add(k)
        return found

    def best_cuts(self) -> list[int]:
        """Places in ``main`` before which a piece begins: the fewest that are worth it.

        What a piece takes depends on where it begins and ends alone: so the best way to get to a
        place with so many pieces is found from those to earlier places.
        """
        bounds = [0, *self._candidates(), len(self.reads)]
        n = len(bounds)
        takes = {(i, k): self.piece(bounds[i], bounds[k]) for k in range(n) for i in range(k)}
        whole = takes[0, n - 1]
        # Of each place: the peak on the way there, and the places before which a piece begins.
        ways: list[tuple[int, list[int]]] = [(0, []), *[(takes[0, k], []) for k in range(1, n)]]
        best, cuts = whole, list[int]()
        for n_cuts in range(1, _MOST_PIECES):
            ways = [
                min(
                    [(max(ways[i][0], takes[i, k]), [*ways[i][1], bounds[i]]) for i in range(1, k)],
                    default=ways[k],
                )
                for k in range(n)
            ]
            price = max(_LEAST_GAIN, int(_LEAST_PART * best))
            if ways[-1][0] + price * (n_cuts - len(cuts)) <= best:
                best, cuts = ways[-1]
        return cuts

    def _candidates(self) -> list[int]:
        """Where little has to be there: the least of each part of the program.

        Parts have as many bytes come and go as each other, so that what a long program frees at
        its end leaves no cut out at its beginning.
        """
        places = [p for p in range(1, len(self.reads)) if not self.stuck[p]]
        there = [self.there[p] for p in places]
        # Of places with as much, the first one and the last one: the others are like these.
        found = [
            p
            for n, p, before, after in zip(
                there, places, [-1, *there], [*there[1:], -1], strict=False
            )
            if n not in (before, after) or before != after
        ]
        n_most = min(_MOST_PLACES, max(_FEWEST_PLACES, _MOST_STEPS // (len(self.reads) + 1)))
        if len(found) <= n_most:
            return found
        moved = list(accumulate([abs(b - a) for a, b in itertools.pairwise(self.there)], initial=0))
        part_of = {p: n_most * moved[p] // (moved[-1] + 1) for p in found}
        least: dict[int, int] = {}
        for p in found:
            best = least.setdefault(part_of[p], p)
            if self.there[p] < self.there[best]:
                least[part_of[p]] = p
        return list(least.values())

    def _between_equations(self, freed: Collection[int]) -> tuple[list[int], list[int]]:
        """Before each equation: bytes of what is there, and how many values no result can be.

        In one pass over all values: programs of loops that are written out have ten thousands.
        """
        avals, n = self.order.avals, len(self.reads)
        there, stuck = [0] * (n + 2), [0] * (n + 2)
        for v in freed:
            size = _size(avals[v])
            there[0] += size
            there[self.last.get(v, 0) + 1] -= size
        for i, makes in enumerate(self.makes):
            for v in makes:
                there[i + 1] += self.sizes[v]
                there[max(self.until[v], i) + 1] -= self.sizes[v]
                if not is_exchanged(avals[v].dtype):
                    stuck[i + 1] += 1
                    stuck[max(self.last.get(v, i), i) + 1] -= 1
        return list(accumulate(there)), list(accumulate(stuck))

    def piece(self, start: int, end: int) -> int:
        """The most memory while a piece runs from ``start`` to ``end``."""
        leaving = [v for i in range(start, end) for v in self.makes[i] if self.until[v] >= end]
        fixed = self.there[start] + sum([self.sizes[v] for v in leaving])
        copies = _COPIES if self.is_copied else 1.0
        return fixed + int(copies * self._between(start, end, set(leaving)))

    def _between(self, start: int, end: int, leaving: Collection[int]) -> int:
        """The most memory of values that a piece makes and does not give."""
        outs_of, shared = self.order.outs_of, self._shared(start, end)
        again = [
            [*self.again[i], *[v for k in self.expensive[i] & shared for v in outs_of[k]]]
            for i in range(start, end)
        ]
        until = {v: i for i, there in enumerate(again, start) for v in there}
        alive: dict[int, int] = {}
        most = hidden = 0
        for i in range(start, end):
            alive |= {v: _size(self.order.avals[v]) for v in again[i - start]}
            made = {
                v: self.sizes[v]
                for v in self.makes[i]
                if v in self.stored and v not in leaving and v in self.last
            }
            ended = [v for v in alive if until[v] <= i]
            planned, given_back = self.copies[i]
            now = sum(alive.values()) + sum(made.values()) + planned
            if self.passes[i]:
                now -= min(sum([alive[v] for v in ended]), sum(made.values()))
            most, hidden = max(most, now), max(hidden, given_back)
            for v in ended:
                del alive[v]
            alive |= made
            until |= {v: self.last[v] for v in made}
        return most + hidden


def _cut(order: _Order, cuts: Sequence[int]) -> Pieces:
    """The pieces that begin at ``cuts``, and at the beginning."""
    jaxpr, main = order.jaxpr, order.main
    bounds = list(zip([0, *cuts], [*cuts, len(main)], strict=True))
    reads = [order.needs([main[i] for i in range(*b)]) for b in bounds]
    wanted: Mapping[int, int] = {v: n for n, (read, _) in enumerate(reads) for v in read}
    times = Counter(jaxpr.outs)
    place = {v: v for v in range(jaxpr.n_in)}
    found: dict[int, list[int]] = {}
    n_values = jaxpr.n_in
    pieces: list[Piece] = []
    for n, (bound, (read, again)) in enumerate(zip(bounds, reads, strict=True)):
        equations = [main[i] for i in range(*bound)]
        made = [v for k in equations for v in order.outs_of[k]]
        here = set(made)
        inputs = sorted([v for v in read if v in place and v not in here])
        # Who gets a gradient may change it: one that two inputs have is given twice.
        outs = [v for v in made for _ in range(times[v] or wanted.get(v, -1) > n)]
        done: set[int] = set()
        whole = [e for k in equations for e in order.with_needs(k, done, again)]
        program = order.program(whole, inputs, outs)
        for p, v in enumerate(outs, n_values):
            place[v] = p
            found.setdefault(v, []).append(p)
        n_values += len(outs)
        ended = [v for v in place if not times[v] and wanted.get(v, n) == n]
        places = tuple([place[v] for v in inputs])
        pieces.append(Piece(program, places, tuple([place.pop(v) for v in ended])))
    return Pieces(tuple(pieces), tuple([found[v].pop() for v in jaxpr.outs]))
