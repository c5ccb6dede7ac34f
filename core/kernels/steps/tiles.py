"""Loops whose steps read neighbours along the first axis: each of several tiles is done by itself.

A tile is some rows, and more of them on both sides: in each step what is wrong at the ends of the
tile comes nearer by the reach of a step. So no tile waits for others, threads share them, and a
tile stays in the cache of a core for all steps. Tiles go around the end of the axis if steps do
(rolls). Otherwise those at the ends of the axis end there as well, where padding is right.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from tracebridge.core import lax
from tracebridge.core.interpreters.graph import Graph
from tracebridge.core.ir.debug_info import NO_DEBUG_INFO
from tracebridge.core.ir.traverse import distinct_applications
from tracebridge.core.kernels.steps.axes import Axes, pairs_with_neighbours
from tracebridge.core.kernels.steps.moves import only_adds
from tracebridge.core.kernels.steps.parts import cut_params
from tracebridge.core.kernels.steps.work import work

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tracebridge.core.ir.application import Application, Params
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.jaxpr import Jaxpr

_EDGE = 8  # rows: how far a step may reach
_FEWEST = 4 * _EDGE  # rows, or all of them are near an end
_CACHE = 3 << 18  # bytes: less than the second cache of a core
_OUTSIDE = 1.4  # how much longer a step takes whose arrays are not in it
_LAST_CACHE = 1 << 23  # bytes: what all threads together have of the last one, about
_IN_MEMORY, _COPY_IN_MEMORY = 8.0, 4.0  # how much longer where arrays are in no cache
_OPERATION, _COPY = 1 / 50, 1 / 8  # ns, of an element
_CALL = 10_000.0  # ns, of all tiles
_MOST_APART = 1 / 64  # of a step: what each tile would do, and there are many
_TILES = (1, 2, 3, 4, 6, 8, 16, 32, 64)  # for each thread


class Tiles(NamedTuple):
    """How many rows there are, how many a tile answers for, how many it has, and how many steps.

    ``goes_around``: whether the first row is a neighbour of the last one. ``ins``, ``outs``: which
    operands and results have rows.
    """

    n: int
    own: int
    rows: int
    steps: int
    margin: int
    goes_around: bool
    ins: tuple[bool, ...]
    outs: tuple[bool, ...]

    @property
    def number(self) -> int:
        """How many tiles there are."""
        return -(-self.n // self.own)


class Tiled(NamedTuple):
    """The step for one tile."""

    body: Jaxpr
    tiles: Tiles


class _NoTiles(Exception):
    """Rows of a loop do not depend on near ones alone."""


def tiles_of(body: Jaxpr, n_consts: int, n_carry: int, length: int, threads: int) -> Tiled | None:
    """The tiles that so many threads should share; None if there is one for all."""
    first = max(range(n_carry), key=lambda k: body.out_avals[k].size, default=None)
    if first is None or not body.out_avals[first].ndim:
        return None
    if body.out_avals[first].shape[0] < _FEWEST and body.outs[first] >= body.n_in:
        return None
    carried = [(n_consts + k, out) for k, out in enumerate(body.outs[:n_carry])]
    rows = Axes(body, carried, pairs_with_neighbours).members(n_consts + first, 0)
    if rows is None or any(rows.values()) or not _is_shared(body, rows):
        return None
    try:
        reach = _Reach(body, rows, body.out_avals[first].shape[0])
        radius = reach.of_step(n_consts, n_carry)
    except _NoTiles:
        return None
    sizes = _sizes(body, rows, reach.n, n_consts, n_carry, length, radius, threads)
    if sizes is None:
        return None
    own, steps = sizes
    margin = steps * radius
    ins = tuple([v in rows for v in range(body.n_in)])
    outs = tuple([v in rows for v in body.outs])
    wide = min(own + 2 * margin, reach.n)
    tiles = Tiles(reach.n, own, wide, steps, margin, reach.goes_around, ins, outs)
    return Tiled(_for_tile(body, rows, reach, wide), tiles)


def _is_shared(body: Jaxpr, rows: Mapping[int, int]) -> bool:
    """Whether most of a step is done for rows: each tile does all of the rest, for itself."""
    avals = body.variable_avals()
    taken = [(v, avals[v].size * _COPY) for v in body.outs]
    times: dict[Application, list[float]] = {}
    for app in distinct_applications(body):
        times[app] = [a.size * _COPY for a in app.outs]
        times[app][0] += work(app)
    taken += enumerate(
        [time for app, _ in body.equations for time in times[app]], body.n_in + len(body.consts)
    )
    has = sum([time for v, time in taken if v in rows])
    lacks = sum([time for v, time in taken if v not in rows])
    return lacks <= _MOST_APART * (has + lacks)


class _Reach:
    """How far away the rows are that each row of a value depends on."""

    def __init__(self, body: Jaxpr, rows: dict[int, int], n: int) -> None:
        self.body, self.rows, self.n = body, rows, n
        self.avals = body.variable_avals()
        self.goes_around, self.has_ends = False, False
        self.of: dict[int, tuple[int, int]] = {}
        """Of each value from which to which row, counted from its own; of an edge how deep."""
        for v in range(body.n_in):
            if v in rows:
                if self.avals[v].shape[0] != n:
                    raise _NoTiles
                self.of[v] = 0, 0
        v = body.n_in + len(body.consts)
        for app, args in body.equations:
            for out in range(v, v + len(app.outs)):
                if out in rows:
                    self.of[out] = self._of(app, args, out)
            v += len(app.outs)
        if self.goes_around and self.has_ends:
            raise _NoTiles

    def of_step(self, n_consts: int, n_carry: int) -> int:
        """How many rows on each side a step needs."""
        body = self.body
        for v in body.outs:
            if v in self.rows and self.avals[v].shape[0] != self.n:
                raise _NoTiles
        inputs = [v in self.rows for v in range(n_consts, n_consts + n_carry)]
        if inputs != [v in self.rows for v in body.outs[:n_carry]]:
            raise _NoTiles
        radius = max([abs(i) for pair in self.of.values() for i in pair], default=0)
        if radius > _EDGE:
            raise _NoTiles
        return radius

    def is_edge(self, v: int) -> bool:
        """Whether a value is some rows at an end of the axis."""
        size = self.avals[v].shape[0]
        if _EDGE < size < self.n - _EDGE or size > self.n + _EDGE or self.n < _FEWEST:
            raise _NoTiles
        return size <= _EDGE

    def _of(self, app: Application, args: Sequence[int], out: int) -> tuple[int, int]:
        found = [self.of[a] for a in args if a in self.of]
        if not found and app.primitive is not lax.broadcast_in_dim_p:
            raise _NoTiles
        low = min([a for a, _ in found], default=0)
        high = max([b for _, b in found], default=0)
        self.is_edge(out)
        move = _MOVED.get(app.primitive)
        if move is not None:
            return move(self, app, args, low, high)
        return low, high

    def rolled(self, app: Application, args: Sequence[int], low: int, high: int) -> tuple[int, int]:
        if app.params["dimension"]:
            return low, high
        self.goes_around = True
        if self.avals[args[0]].shape[0] != self.n:
            raise _NoTiles
        shift = _near(app.params["shift"], self.n)
        return low - shift, high - shift

    def sliced(self, app: Application, args: Sequence[int], low: int, high: int) -> tuple[int, int]:
        n, size = app.avals[0].shape[0], app.out.shape[0]
        start, steps = app.params["start_indices"][0], app.params["strides"]
        if n == size:
            return low, high
        self.has_ends = True
        if (steps and steps[0] != 1) or self.is_edge(args[0]):
            raise _NoTiles
        if size > _EDGE:
            return low + start, high + start
        before, after = start, n - start - size
        if min(before, after) > _EDGE:
            raise _NoTiles
        # A part at an end: as deep as its last row reaches.
        deep = min(before, after) + size + max(-low, high)
        return (0, deep) if before < after else (-deep, 0)

    def padded(self, app: Application, args: Sequence[int], low: int, high: int) -> tuple[int, int]:
        before, after, _ = app.params["padding_config"][0]
        if not only_adds(app):
            raise _NoTiles
        if not before and not after:
            return low, high
        self.has_ends = True
        if self.is_edge(args[0]):
            raise _NoTiles
        return low - before, high - before

    def joined(self, app: Application, args: Sequence[int], low: int, high: int) -> tuple[int, int]:
        if app.params["dimension"]:
            return low, high
        self.has_ends = True
        (main,) = [i for i, a in enumerate(args) if not self.is_edge(a)] or [-1]
        if main < 0:
            raise _NoTiles
        before = sum([a.shape[0] for a in app.avals[:main]])
        found = [self.of[args[main]]]
        found[0] = found[0][0] - before, found[0][1] - before
        for i, a in enumerate(args):
            if i == main:
                continue
            ends = self.of[a]
            # What comes first is of the beginning of the axis, what comes last of its end.
            if (i < main and ends[0] < 0) or (i > main and ends[1] > 0):
                raise _NoTiles
            deep = max(-ends[0], ends[1]) + app.avals[i].shape[0]
            found.append((-deep, deep))
        return min([a for a, _ in found]), max([b for _, b in found])


_MOVED: Mapping[Any, Callable[..., tuple[int, int]]] = {
    lax.roll_p: _Reach.rolled,
    lax.slice_p: _Reach.sliced,
    lax.pad_p: _Reach.padded,
    lax.concatenate_p: _Reach.joined,
}


def _near(shift: int, n: int) -> int:
    """A shift in the shorter direction."""
    return shift if 2 * shift <= n else shift - n


def _sizes(
    body: Jaxpr,
    rows: dict[int, int],
    n: int,
    n_consts: int,
    n_carry: int,
    length: int,
    radius: int,
    threads: int,
) -> tuple[int, int] | None:
    """How many rows a tile answers for, and for how many steps; None if one does all."""
    avals = body.variable_avals()

    def bytes_of_row(variables: Sequence[int]) -> int:
        sizes = [avals[v].size * avals[v].dtype.itemsize for v in variables if v in rows]
        return sum(sizes) // n

    n_fixed = n_consts + n_carry
    carried = bytes_of_row(range(n_consts, n_fixed))
    slices = bytes_of_row(range(n_fixed, body.n_in)) + bytes_of_row(body.outs[n_carry:])
    kept = 2 * carried + bytes_of_row(range(n_consts)) + slices
    outs = [app.out.size for app, _ in body.equations if not app.multiple]
    computed = sum(outs) / n * _OPERATION + slices / 4 * _COPY
    is_far = kept * n > _LAST_CACHE
    outside = _IN_MEMORY if is_far else _OUTSIDE
    copies = carried / 2 * _COPY * (_COPY_IN_MEMORY if is_far else 1.0)
    best, found = math.inf, None
    for steps in {length, *[1 << k for k in range(2, 10) if 1 << k < length]}:
        margin = steps * radius
        for k in (1, *[threads * k for k in _TILES]):
            own = -(-n // k)
            if own + 2 * margin > n and k > 1:
                continue
            wide = min(own + 2 * margin, n) if k > 1 else n
            turns = math.ceil(math.ceil(n / own) / threads)
            step = computed * (1.0 if wide * kept <= _CACHE else outside)
            cost = turns * wide * (steps * step + copies)
            total = (cost + _CALL * (k > 1)) * -(-length // steps)
            if total < best:
                best, found = total, (own, steps)
    if found is None or (found[0] == n and found[1] == length):
        return None
    return found


def _for_tile(body: Jaxpr, rows: dict[int, int], reach: _Reach, wide: int) -> Jaxpr:
    """The body for a tile of so many rows."""
    avals, less = reach.avals, reach.n - wide

    def cut(v: int) -> ShapedArray:
        if v not in rows or reach.is_edge(v):
            return avals[v]
        return avals[v].update(shape=(avals[v].shape[0] - less, *avals[v].shape[1:]))

    graph = Graph()
    numbers = [*graph.inputs([cut(v) for v in range(body.n_in)])]
    numbers += [graph.constant(c) for c in body.consts]
    v = body.n_in + len(body.consts)
    for app, args in body.equations:
        params = _params(app, v in rows, less, cut(v).shape)
        first = graph.add_bound(app.primitive, [numbers[a] for a in args], params)
        numbers += range(first, first + len(app.outs))
        v += len(app.outs)
    return graph.program(range(body.n_in), [numbers[v] for v in body.outs], NO_DEBUG_INFO)


def _params(app: Application, has_rows: bool, less: int, shape: tuple[int, ...]) -> Params:
    """The parameters of an equation for a tile."""
    params: dict[str, Any] = {**app.params}
    if not has_rows:
        return params
    if app.primitive is lax.roll_p:
        if not params["dimension"] and _near(params["shift"], app.out.shape[0]) < 0:
            params["shift"] -= less
    elif app.primitive is lax.slice_p:
        n = app.avals[0].shape[0]
        for name in ("start_indices", "limit_indices"):
            i, *others = params[name]
            params[name] = (i if 2 * i <= n else i - less, *others)
    else:
        params = {**cut_params(app, shape)}
    return params
