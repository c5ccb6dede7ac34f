"""Arrays that a loop alone reads, slice by slice: made for a few steps at a time inside of it.

A backward loop reads factors that are computed of what the forward loop has kept (activations of
pre-activations, say). For all steps at once they are vectorised, but stand in memory while the
loop runs. A block of steps is vectorised as well, is computed by the same operations, and is in the
cache when the steps read it.

Only elementwise equations, and those that take parts of other axes, are moved. It is done where
the loop needs a megabyte less by that: what the equations read must be there in any case, as an
argument or because others read it later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, final

from tracebridge.core import lax
from tracebridge.core.config.values import option
from tracebridge.core.interpreters.graph import Graph
from tracebridge.core.ir.check import check_jaxpr
from tracebridge.core.ir.debug_info import NO_DEBUG_INFO
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.traverse import primitives_of
from tracebridge.core.lowering.rewrites.producers import producers, variable_avals

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from tracebridge.core.ir.application import Application, Params
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.jaxpr import Equation
    from tracebridge.core.ir.primitive import Primitive

# Measured with a backward loop of an LSTM, whose factors take 20 KB in each step: blocks of 10
# steps took 0.94 of the time without blocks, blocks of 25 steps 0.98.
_BLOCK_BYTES = 1 << 18
_FEWEST_STEPS = 8
_FEWEST_BLOCKS = 3
_LEAST_GAIN = 1 << 20
_BOUNDS = ("start_indices", "limit_indices", "strides")


def with_blocks(jaxpr: Jaxpr) -> Jaxpr:
    """``jaxpr`` with loops that make what they alone read."""
    # None stands for the Jaxpr itself, which must not refer to itself.
    if "by_blocks" not in jaxpr.cache:
        loops: dict[int, Loop] = {}
        if any([p.runs_steps for p in primitives_of(jaxpr)]):
            found = {k: app.primitive.by_blocks(app) for k, (app, _) in enumerate(jaxpr.equations)}
            large = [k for k, loop in found.items() if loop and _reads_enough(jaxpr, k, loop[0])]
            loops = _by_blocks(jaxpr, {k: found[k] for k in large}) if large else {}
        jaxpr.cache["by_blocks"] = with_loops(jaxpr, loops) if loops else None
    return jaxpr.cache["by_blocks"] or jaxpr


def _by_blocks(jaxpr: Jaxpr, found: Mapping[int, Any]) -> dict[int, Loop]:
    """Loops that make what they read, in the place of those that gain by that."""
    readings, loops = Readings(jaxpr), {}
    for k, (first_xs, length, replace) in found.items():
        plan = Moved(readings, k, first_xs, length)
        block = _block(plan)
        if block:
            primitive, params = replace(plan.of_steps(block), plan.made, block)
            operands = [*plan.unmade(), *plan.sources]
            loops[k] = Loop(primitive, params, operands, plan.moved)
    return loops


def _reads_enough(jaxpr: Jaxpr, k: int, first_xs: int) -> bool:
    """Whether the slices of a loop could save a megabyte at all."""
    avals = jaxpr.equations[k][0].avals[first_xs:]
    sizes = [_bytes(a) for a in avals if type(a.size) is int]
    return sum(sizes) >= _LEAST_GAIN


def _bytes(aval: ShapedArray) -> int:
    return aval.size * aval.dtype.itemsize


class Loop(NamedTuple):
    """What stands for a loop, and the equations that are done within it."""

    primitive: Primitive
    params: Params
    operands: Sequence[int]
    moved: Sequence[int]


def with_loops(jaxpr: Jaxpr, loops: Mapping[int, Loop]) -> Jaxpr:
    """The program with other loops in the place of the equations of these numbers."""
    equations, avals = list(jaxpr.equations), variable_avals(jaxpr)
    for k, loop in loops.items():
        given = tuple([avals[v] for v in loop.operands])
        app = loop.primitive.application(given, loop.params)
        equations[k] = app, tuple(loop.operands)
    moved = {k for loop in loops.values() for k in loop.moved}
    consts, sources, outs = jaxpr.consts, jaxpr.sources, jaxpr.outs
    if moved:
        numbers, kept = _numbers_without(jaxpr, equations, moved)
        n_in = jaxpr.n_in
        consts = tuple([c for v, c in enumerate(consts, n_in) if numbers[v] >= 0])
        equations = [(equations[k][0], tuple([numbers[a] for a in equations[k][1]])) for k in kept]
        sources = sources and tuple([sources[k] for k in kept])
        outs = tuple([numbers[v] for v in outs])
    new = Jaxpr(jaxpr.in_avals, consts, equations, outs, jaxpr.out_avals, sources, jaxpr.debug)
    if option("enable_checks"):
        check_jaxpr(new)
    return new


def _numbers_without(
    jaxpr: Jaxpr, equations: Sequence[Equation], gone: AbstractSet[int]
) -> tuple[list[int], list[int]]:
    """The numbers that variables have without some equations, and the other equations.

    -1 of what these made, and of constants that are not read any more.
    """
    kept = [k for k in range(len(equations)) if k not in gone]
    read = set(jaxpr.outs).union(*[equations[k][1] for k in kept])
    n_in, firsts = jaxpr.n_in, producers(jaxpr)[1]
    n_given = n_in + len(jaxpr.consts)
    numbers = [*range(n_in), *[-1] * (len(variable_avals(jaxpr)) - n_in)]
    at = n_in
    for v in range(n_in, n_given):
        if v in read:
            numbers[v] = at
            at += 1
    for k in kept:
        n, first = len(equations[k][0].outs), firsts[k]
        numbers[first : first + n] = range(at, at + n)
        at += n
    return numbers, kept


@final
class Readings:
    """Who makes and reads the variables of a program."""

    def __init__(self, jaxpr: Jaxpr) -> None:
        self.jaxpr, self.avals = jaxpr, variable_avals(jaxpr)
        _, self.firsts = producers(jaxpr)
        """Of each equation: its first result."""
        equations = jaxpr.equations
        self.readers: dict[int, set[int]] = {v: {len(equations)} for v in jaxpr.outs}
        """Of each variable the equations that read it, one after the last if it is a result."""
        for k, (_, args) in enumerate(equations):
            for a in args:
                self.readers.setdefault(a, set()).add(k)


@final
class Moved:
    """What of a program may be done within the loop that is its equation number ``at``.

    ``first_xs``: of its operands, the first that is read slice by slice; there are ``length``.
    """

    def __init__(self, readings: Readings, at: int, first_xs: int, length: int) -> None:
        self.at, self.first_xs, self.length = at, first_xs, length
        self.jaxpr = jaxpr = readings.jaxpr
        self.avals, self.firsts, self.readers = readings.avals, readings.firsts, readings.readers
        self.operands = jaxpr.equations[at][1]
        self.moved = self._moved()
        made = {v for k in self.moved for v in self.results(k)}
        self.made = [i for i, v in enumerate(self.operands[first_xs:]) if v in made]
        """Which of the xs the moved equations make."""
        read = dict.fromkeys([v for k in self.moved for v in jaxpr.equations[k][1]])
        self.sources = [v for v in read if v not in made and not self._is_number(v)]

    def _is_number(self, v: int) -> bool:
        """Whether a variable is a constant without axes: arrays are taken by blocks."""
        return self.is_there(v) and v >= self.jaxpr.n_in and not self.avals[v].ndim

    def is_there(self, v: int) -> bool:
        """Whether a variable is an argument or a constant."""
        return v < self.jaxpr.n_in + len(self.jaxpr.consts)

    def results(self, k: int) -> range:
        """The variables that an equation makes."""
        return range(self.firsts[k], self.firsts[k] + len(self.jaxpr.equations[k][0].outs))

    def _moved(self) -> list[int]:
        """The equations that nobody reads but the loop, slice by slice, and each other."""
        fixed = set(self.operands[: self.first_xs])
        allowed = {self.at}
        for k in range(self.at - 1, -1, -1):
            app = self.jaxpr.equations[k][0]
            readers: AbstractSet[int] = self.readers.get(self.firsts[k], frozenset())
            if app.multiple:
                readers = set().union(*[self.readers.get(v, ()) for v in self.results(k)])
            if not readers or not readers <= allowed:
                continue
            if not fixed.isdisjoint(self.results(k)):
                continue
            if _for_steps(app, self.length, self.length) is not None:
                allowed.add(k)
        return sorted(allowed - {self.at})

    def of_steps(self, steps: int) -> Jaxpr:
        """The moved equations for so many steps."""
        graph = Graph()
        inputs = graph.inputs([_of_steps(self.avals[v], steps) for v in self.sources])
        made = self.add_to(graph, dict(zip(self.sources, inputs, strict=True)), steps)
        return graph.program(inputs, made, NO_DEBUG_INFO)

    def add_to(self, graph: Graph, number_of: dict[int, int], steps: int) -> list[int]:
        """Append the moved equations for so many steps; the xs that they make.

        ``number_of``: the sources in the graph.
        """
        jaxpr = self.jaxpr
        constants = enumerate(jaxpr.consts, jaxpr.n_in)
        number_of.update({v: graph.constant(c) for v, c in constants if self._is_number(v)})
        for k in self.moved:
            app, args = jaxpr.equations[k]
            read = [number_of[a] for a in args]
            params: Any = app.params
            if not app.primitive.is_elementwise:  # those have the same ones
                params = _for_steps(app, self.length, steps)
            made = app.primitive.application(tuple([graph.avals[n] for n in read]), params)
            first = graph.add(made, read, jaxpr.sources[k] if jaxpr.sources else None)
            if app.multiple:
                number_of.update({v: first + i for i, v in enumerate(self.results(k))})
            else:
                number_of[self.firsts[k]] = first
        return [number_of[self.operands[self.first_xs + i]] for i in self.made]

    def unmade(self) -> list[int]:
        """The operands that the moved equations do not make."""
        made = {self.first_xs + i for i in self.made}
        return [v for i, v in enumerate(self.operands) if i not in made]


def _of_steps(aval: ShapedArray, steps: int) -> ShapedArray:
    return aval.update(shape=(steps, *aval.shape[1:])) if aval.ndim else aval


def _block(plan: Moved) -> int:
    """For how many steps at a time, 0 if memory gains too little."""
    made = {plan.operands[plan.first_xs + i] for i in plan.made}
    size = sum([_bytes(plan.avals[v]) for v in made])
    if size < _LEAST_GAIN:
        return 0
    block = max(_BLOCK_BYTES * plan.length // size, _FEWEST_STEPS)
    if block * _FEWEST_BLOCKS > plan.length:
        return 0
    kept = sum([_bytes(plan.avals[v]) for v in plan.sources if not _stays(plan, v)])
    return block if size - size * block // plan.length - kept >= _LEAST_GAIN else 0


def _stays(plan: Moved, source: int) -> bool:
    """Whether what the moved equations read is there while the loop runs in any case."""
    if plan.is_there(source) or not plan.avals[source].ndim:
        return True
    others = plan.readers[source].difference(plan.moved)
    return any([k >= plan.at for k in others])


def _for_steps(app: Application, length: int, steps: int) -> Any:
    """The parameters of an equation over ``length`` steps for some of them; None if it has none.

    Each result of a step is made of what its operands have in this step.
    """
    if app.outs[0].shape[:1] != (length,) or app.effects:
        return None
    if any([type(a.size) is not int for a in (*app.avals, *app.outs)]):
        return None
    if app.multiple and any([a.shape[:1] != (length,) for a in app.outs]):
        return None
    primitive, params = app.primitive, app.params
    if primitive.is_elementwise:
        is_plain = all([not a.ndim or a.shape == app.outs[0].shape for a in app.avals])
        return params if is_plain else None
    if primitive is lax.split_p:
        return params if params["axis"] else None
    if primitive is lax.broadcast_in_dim_p and not app.avals[0].ndim:
        return {**params, "shape": (steps, *params["shape"][1:])}
    if primitive is lax.slice_p:
        starts, limits, strides = [params[name] for name in _BOUNDS]
        if (starts[0], limits[0]) == (0, length) and (strides is None or strides[0] == 1):
            return {**params, "limit_indices": (steps, *limits[1:])}
    return None
