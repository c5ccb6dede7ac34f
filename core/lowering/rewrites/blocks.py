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

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core import lax
from tracebridge.core.interpreters.graph import Graph
from tracebridge.core.ir.debug_info import NO_DEBUG_INFO
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.lax.families import Elementwise

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application, Params
    from tracebridge.core.ir.aval import ShapedArray
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
        new = None
        for k, (app, _) in enumerate(jaxpr.equations):
            loop = app.primitive.by_blocks(app)
            if loop is not None and _reads_enough(app, loop[0]):
                first_xs, length, replace = loop
                plan = Moved(jaxpr, k, first_xs, length)
                block = _block(plan)
                if block:
                    primitive, params = replace(plan.of_steps(block), plan.made, block)
                    new = plan.program(primitive, params, [*plan.unmade(), *plan.sources])
                    break
        # A program may have several such loops.
        jaxpr.cache["by_blocks"] = None if new is None else with_blocks(new)
    return jaxpr.cache["by_blocks"] or jaxpr


def _reads_enough(app: Application, first_xs: int) -> bool:
    """Whether the slices of a loop could save a megabyte at all."""
    sizes = [_bytes(a) for a in app.avals[first_xs:] if type(a.size) is int]
    return sum(sizes) >= _LEAST_GAIN


def _bytes(aval: ShapedArray) -> int:
    return aval.size * aval.dtype.itemsize


@final
class Moved:
    """What of a program may be done within the loop that is its equation number ``at``.

    ``first_xs``: of its operands, the first that is read slice by slice; there are ``length``.
    """

    def __init__(self, jaxpr: Jaxpr, at: int, first_xs: int, length: int) -> None:
        self.jaxpr, self.at, self.first_xs, self.length = jaxpr, at, first_xs, length
        self.avals = jaxpr.variable_avals()
        self.firsts: list[int] = []
        """Of each equation: its first result."""
        self.readers: dict[int, set[int]] = {v: {len(jaxpr.equations)} for v in jaxpr.outs}
        number = jaxpr.n_in + len(jaxpr.consts)
        for k, (app, args) in enumerate(jaxpr.equations):
            self.firsts.append(number)
            number += len(app.outs)
            for a in args:
                self.readers.setdefault(a, set()).add(k)
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
            made = self.results(k)
            readers = set().union(*[self.readers.get(v, ()) for v in made])
            if readers and readers <= allowed and fixed.isdisjoint(made):
                app = self.jaxpr.equations[k][0]
                if _for_steps(app, self.length, self.length) is not None:
                    allowed.add(k)
        return sorted(allowed - {self.at})

    def of_steps(self, steps: int) -> Jaxpr:
        """The moved equations for so many steps."""
        jaxpr, graph = self.jaxpr, Graph()
        constants = enumerate(jaxpr.consts, jaxpr.n_in)
        number_of = {v: graph.constant(c) for v, c in constants if self._is_number(v)}
        avals = [_of_steps(self.avals[v], steps) for v in self.sources]
        inputs = graph.inputs(avals)
        number_of.update(zip(self.sources, inputs, strict=True))
        for k in self.moved:
            app, args = jaxpr.equations[k]
            read = [number_of[a] for a in args]
            params = _for_steps(app, self.length, steps)
            made = app.primitive.application(tuple([graph.avals[n] for n in read]), params or {})
            first = graph.add(made, read, jaxpr.sources[k] if jaxpr.sources else None)
            number_of.update({v: first + i for i, v in enumerate(self.results(k))})
        made_xs = [number_of[self.operands[self.first_xs + i]] for i in self.made]
        return graph.program(inputs, made_xs, NO_DEBUG_INFO)

    def program(self, primitive: Primitive, params: Params, operands: Sequence[int]) -> Jaxpr:
        """The whole program, where ``primitive`` of ``operands`` stands for loop and equations."""
        jaxpr, graph = self.jaxpr, Graph()
        numbers = [*graph.inputs(jaxpr.in_avals), *[graph.constant(c) for c in jaxpr.consts]]
        moved = set(self.moved)
        for k, (app, args) in enumerate(jaxpr.equations):
            if k in moved:
                numbers.extend([-1] * len(app.outs))
                continue
            if k == self.at:
                first = graph.add_bound(primitive, [numbers[v] for v in operands], params)
            else:
                source = jaxpr.sources[k] if jaxpr.sources else None
                first = graph.add(app, [numbers[a] for a in args], source)
            numbers.extend(range(first, first + len(app.outs)))
        return graph.program(range(jaxpr.n_in), [numbers[v] for v in jaxpr.outs], jaxpr.debug)

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
    if app.effects or any([type(a.size) is not int for a in (*app.avals, *app.outs)]):
        return None
    if any([a.shape[:1] != (length,) for a in app.outs]):
        return None
    primitive, params = app.primitive, app.params
    if isinstance(primitive, Elementwise):
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
