"""Sines and cosines of large arrays behind one test, with the elementwise operations round them.

Near angles take a third to a tenth of the time that any angle takes (``cpu_waves.py``). A test of
all angles decides, and a branch is not fused with what is round it: so everything elementwise that
reads a sine is put into the branches, with what it reads in turn. For the sum of a sine, a cosine
and an exponential of a million angles (jaxlib 0.10.2, two cores, in microseconds; the last column
is the time to compile, in milliseconds):

| what | runs | with one angle of 1e8 | compiles |
|---|---|---|---|
| a branch for the sine, one for the cosine | 820 | 1200 | 185 |
| one branch; all angles compared | 570 | 1270 | 115 |
| one branch; their squares summed, compared only if the sum is large | 445 | 1250 | 83 |
| no test | 420 | wrong | 39 |

A program is cut into stages: values in a region have an odd number, and what depends on them and
cannot be in a region has the next even one. So nothing leaves a region and comes back. A sine of an
angle that comes out of a region opens another one, two stages later; a sine of an angle that has a
bound, such as another sine, needs no test.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from tracebridge.core import lax
from tracebridge.core.interpreters.graph import Graph
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.debug_info import NO_DEBUG_INFO
from tracebridge.core.ir.traverse import primitives_of
from tracebridge.core.ir.values import Literal
from tracebridge.core.lax.elementwise.cpu_waves import FORMS, NEAR, are_near, are_surely_near
from tracebridge.core.lowering.rewrites.chosen import chosen_p, composed_p
from tracebridge.core.lowering.rewrites.producers import producers
from tracebridge.core.util.caching import BoundedCache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.jaxpr import Jaxpr

# A test of all elements and two branches, which take 50 ms to compile, are worth it for so many.
LEAST_GUARDED = 2**16

_WAVES = frozenset([primitive for primitive, _ in FORMS])
_SHAPED = frozenset({lax.reshape_p, lax.broadcast_in_dim_p, lax.convert_element_type_p})
_AT_MOST_ONE = frozenset({lax.sin_p, lax.cos_p, lax.tanh_p, lax.logistic_p, lax.erf_p})
_KEEPS_SIZE = frozenset({lax.neg_p, lax.abs_p, *_SHAPED, lax.transpose_p, lax.slice_p})

_STAGED: BoundedCache[Jaxpr] = BoundedCache("tests of angles", 64)


def with_guarded_waves(jaxpr: Jaxpr) -> Jaxpr | None:
    """``jaxpr`` with large sines and cosines in regions behind a test; None if there are none."""
    if primitives_of(jaxpr).isdisjoint(_WAVES):
        return None
    if any([_is_wave(app) for app, _ in jaxpr.equations]):
        return _Waves(jaxpr).result()
    return None


def _is_wave(app: Application) -> bool:
    return (
        app.primitive in _WAVES
        and not app.params
        and (app.primitive, app.out.dtype) in FORMS
        and type(app.out.size) is int
        and app.out.size >= LEAST_GUARDED
    )


def _is_fusable(app: Application) -> bool:
    """Whether an operation works element by element on arrays of one size."""
    if app.multiple or app.effects:
        return False
    if not app.primitive.is_elementwise and app.primitive not in _SHAPED:
        return app.primitive is lax.select_n_p
    size = app.out.size
    return type(size) is int and all([a.size in (1, size) for a in app.avals])


@final
@dataclass
class _Region:
    """What is computed behind one test, as numbers of equations and of variables."""

    equations: list[int] = field(default_factory=list)
    angles: list[int] = field(default_factory=list)
    outs: list[int] = field(default_factory=list)
    operands: list[int] = field(default_factory=list)


@final
class _Waves:
    """One program while its regions are found; variables are those of the Jaxpr."""

    def __init__(self, jaxpr: Jaxpr) -> None:
        self.jaxpr = jaxpr
        self.n_given = jaxpr.n_in + len(jaxpr.consts)
        self.made_by, self.first = producers(jaxpr)
        self.stages = [0] * len(self.made_by)
        self.places: list[int] = []
        """The stages of equations, those without results too."""
        self.readers: list[list[int]] = [[] for _ in self.made_by]
        self.parents: dict[int, int] = {}
        """Forest of equations that are in one region."""
        self.easy: set[int] = set()
        """Sines of angles with a bound."""
        self.bounds: dict[int, float] = {}

    def result(self) -> Jaxpr:
        """The program with its regions."""
        self._find_readers()
        self._number_stages()
        regions = self._regions()
        for region in regions:
            self._extend(region)
        return self._program(regions)

    def _find_readers(self) -> None:
        """Who reads what, among the equations that are needed; -1 stands for the results."""
        jaxpr, readers = self.jaxpr, self.readers
        for v in jaxpr.outs:
            readers[v].append(-1)
        for k in range(len(jaxpr.equations) - 1, -1, -1):
            app, args = jaxpr.equations[k]
            start = self.first[k]
            is_read = any([readers[v] for v in range(start, start + len(app.outs))])
            if is_read or app.effects or app.primitive.has_rules_of_users:
                for v in args:
                    readers[v].append(k)

    def _number_stages(self) -> None:
        stages, angles, last_effect = self.stages, dict[int, int](), 0
        for k, (app, args) in enumerate(self.jaxpr.equations):
            here = max([stages[v] for v in args], default=0)
            start = self.first[k]
            if _is_wave(app):
                if self._bound(args[0]) < NEAR[app.out.dtype]:
                    self.easy.add(k)
                else:
                    here += 1 if here % 2 == 0 else 2
                    self.parents[k] = self._root(angles.setdefault(args[0], k))
            if here % 2 and k not in self.parents:
                if _is_fusable(app):
                    self.parents[k] = k
                else:
                    here += 1
            if k in self.parents:
                # Of what it reads in its own stage, one is its parent, the others go below it.
                for v in args:
                    if stages[v] == here:
                        self.parents[self._root(self.made_by[v])] = self._root(k)
            elif app.effects:
                # Sorted by stages, effects stay in their order.
                here = last_effect = max(here, last_effect)
            self.places.append(here)
            for v in range(start, start + len(app.outs)):
                stages[v] = here

    def _root(self, k: int) -> int:
        parents = self.parents
        while parents.setdefault(k, k) != k:
            parents[k] = k = parents[parents[k]]
        return k

    def _bound(self, v: int) -> float:
        """What a value cannot exceed in size, NaN aside, as far as it is easy to see."""
        known = self.bounds.get(v)
        if known is None:
            known = self.bounds[v] = self._new_bound(v)
        return known

    def _new_bound(self, v: int) -> float:
        k = self.made_by[v]
        if k < 0:
            const = self.jaxpr.consts[v - self.jaxpr.n_in] if v >= self.jaxpr.n_in else None
            return abs(const.value) if isinstance(const, Literal) else math.inf
        app, args = self.jaxpr.equations[k]
        if app.multiple or app.out.dtype.kind != "f":
            return math.inf
        if app.primitive in _AT_MOST_ONE:
            return 1.01
        if app.primitive in _KEEPS_SIZE:
            return self._bound(args[0]) if app.avals[0].dtype.kind == "f" else math.inf
        if app.primitive is lax.mul_p:
            product = self._bound(args[0]) * self._bound(args[1])
            return math.inf if math.isnan(product) else product
        if app.primitive in (lax.add_p, lax.sub_p):
            return self._bound(args[0]) + self._bound(args[1])
        return math.inf

    # regions -------------------------------------------------------------------------------------

    def _regions(self) -> list[_Region]:
        """The regions as far as they follow from sines, and what others read of them."""
        by_root: dict[int, _Region] = {}
        jaxpr = self.jaxpr
        for k in sorted(self.parents):
            region = by_root.setdefault(self._root(k), _Region())
            region.equations.append(k)
            app, args = jaxpr.equations[k]
            if _is_wave(app) and k not in self.easy and args[0] not in region.angles:
                region.angles.append(args[0])
        for region in by_root.values():
            inside = set(region.equations)
            region.outs = [
                self.first[k]
                for k in region.equations
                if any([reader not in inside for reader in self.readers[self.first[k]]])
            ]
        return [region for region in by_root.values() if region.outs]

    def _extend(self, region: _Region) -> None:
        """Add what XLA would have fused into the region, and find what remains as an operand."""
        jaxpr, inside = self.jaxpr, set(region.equations)
        waiting = [(-self.made_by[v], v) for v in self._read_by(inside)]
        heapq.heapify(waiting)
        done: set[int] = set()
        while waiting:
            _, v = heapq.heappop(waiting)
            if v in done:
                continue
            done.add(v)
            k = self.made_by[v]
            if k < 0 or not self._joins(k, v, inside):
                region.operands.append(v)
                continue
            inside.add(k)
            for a in jaxpr.equations[k][1]:
                if self.made_by[a] not in inside and not self._is_number(a):
                    heapq.heappush(waiting, (-self.made_by[a], a))
        region.equations = sorted(inside)

    def _read_by(self, inside: Iterable[int]) -> list[int]:
        """What these equations read that they do not make."""
        equations = self.jaxpr.equations
        return [
            v
            for k in inside
            for v in equations[k][1]
            if self.made_by[v] not in inside and not self._is_number(v)
        ]

    def _is_number(self, v: int) -> bool:
        n_in = self.jaxpr.n_in
        return n_in <= v < self.n_given and isinstance(self.jaxpr.consts[v - n_in], Literal)

    def _joins(self, k: int, v: int, inside: set[int]) -> bool:
        """Whether an equation outside of regions is computed in one that reads its result."""
        app, _ = self.jaxpr.equations[k]
        if self.stages[v] % 2 or app.multiple or app.effects:
            return False
        cost = app.primitive.cost
        if cost is Cost.FREE:
            return True
        if not _is_fusable(app):
            return False
        readers = self.readers[v]
        if cost is not Cost.CHEAP:
            return all([reader in inside for reader in readers])
        return all([reader >= 0 and self._is_fused(reader) for reader in readers])

    def _is_fused(self, k: int) -> bool:
        app, _ = self.jaxpr.equations[k]
        return _is_fusable(app) or app.primitive.cost in (Cost.FREE, Cost.MOVES_DATA)

    # programs ------------------------------------------------------------------------------------

    def _program(self, regions: Sequence[_Region]) -> Jaxpr:
        """All equations by stages, regions as one equation each."""
        jaxpr, graph = self.jaxpr, Graph()
        numbers = dict(enumerate(graph.inputs(jaxpr.in_avals)))
        for i, const in enumerate(jaxpr.consts):
            numbers[jaxpr.n_in + i] = graph.constant(const)
        items: list[tuple[int, int, _Region | None]] = [
            (self.stages[region.outs[0]], region.equations[0], region) for region in regions
        ]
        for k in range(len(jaxpr.equations)):
            if k not in self.parents:
                items.append((self.places[k], k, None))
        for _, k, region in sorted(items, key=lambda item: item[:2]):
            if region is not None:
                self._add_region(graph, numbers, region)
                continue
            app, args = jaxpr.equations[k]
            source = jaxpr.sources[k] if jaxpr.sources else None
            if k in self.easy:
                app = _composed(app, 0)
            first = graph.add(app, [numbers[v] for v in args], source)
            for i in range(len(app.outs)):
                numbers[self.first[k] + i] = first + i
        return graph.program(
            [numbers[i] for i in range(jaxpr.n_in)], [numbers[v] for v in jaxpr.outs], jaxpr.debug
        )

    def _add_region(self, graph: Graph, numbers: dict[int, int], region: _Region) -> None:
        near, far = [self._form(region, region.outs, which) for which in (0, 1)]
        angles = self._form(region, region.angles, 1)
        params = {
            "near": near,
            "far": far,
            "is_surely_near": _tested(angles, are_surely_near),
            "is_near": _tested(angles, are_near),
        }
        first = graph.add_bound(chosen_p, [numbers[v] for v in region.operands], params)
        for i, v in enumerate(region.outs):
            numbers[v] = first + i

    def _form(self, region: _Region, outs: Sequence[int], which: int) -> Jaxpr:
        """The program of a region from its operands to ``outs``, sines in one of their forms."""
        jaxpr, graph = self.jaxpr, Graph()
        operands = graph.inputs([self._aval(v) for v in region.operands])
        numbers = dict(zip(region.operands, operands, strict=True))
        for k in region.equations:
            app, args = jaxpr.equations[k]
            for v in args:
                if self._is_number(v):
                    numbers[v] = graph.constant(jaxpr.consts[v - jaxpr.n_in])
            if _is_wave(app):
                app = _composed(app, 0 if k in self.easy else which)
            source = jaxpr.sources[k] if jaxpr.sources else None
            numbers[self.first[k]] = graph.add(app, [numbers[v] for v in args], source)
        program = graph.program(operands, [numbers[v] for v in outs], NO_DEBUG_INFO)
        program.cache["rewritten"] = None
        return program

    def _aval(self, v: int) -> ShapedArray:
        jaxpr, k = self.jaxpr, self.made_by[v]
        if k >= 0:
            return jaxpr.equations[k][0].outs[v - self.first[k]]
        return jaxpr.in_avals[v] if v < jaxpr.n_in else jaxpr.consts[v - jaxpr.n_in].aval


def _composed(app: Application, which: int) -> Application:
    form = FORMS[app.primitive, app.out.dtype][which]
    return app if form is None else composed_p.application(app.avals, {"compose": form})


def _tested(angles: Jaxpr, test: Callable[..., Any]) -> Jaxpr:
    """``angles`` followed by a test of its results."""
    key = test, angles.out_avals
    staged = _STAGED.get(key)
    if staged is None:
        staged = stage(lambda *xs: [test(*xs)], angles.out_avals, locate=False)
        _STAGED.set(key, staged)
    graph = Graph()
    operands = graph.inputs(angles.in_avals)
    outs = graph.inline(staged, graph.inline(angles, operands))
    program = graph.program(operands, outs, NO_DEBUG_INFO)
    # Rewritten again, tests of products would be 12 % faster and take 100 ms to compile.
    program.cache["rewritten"] = None
    return program
