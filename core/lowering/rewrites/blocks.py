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

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, final

from tracebridge.core import lax
from tracebridge.core.interpreters.graph import Graph
from tracebridge.core.ir.debug_info import NO_DEBUG_INFO
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.lax.families import Elementwise

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.aval import ShapedArray

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
                plan = _Plan(jaxpr, k, *loop)
                if plan.block:
                    new = plan.program()
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
class _Plan:
    """What of a program becomes a part of the loop that is its equation number ``at``.

    ``block``: for how many steps at a time; 0 if nothing does.
    """

    def __init__(
        self, jaxpr: Jaxpr, at: int, first_xs: int, length: int, replace: Callable[..., Any]
    ) -> None:
        self.jaxpr, self.at, self.first_xs = jaxpr, at, first_xs
        self.length, self.replace = length, replace
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
        self.block = self._block()

    def _is_number(self, v: int) -> bool:
        """Whether a variable is a constant without axes: arrays are taken by blocks."""
        return self._is_there(v) and v >= self.jaxpr.n_in and not self.avals[v].ndim

    def _is_there(self, v: int) -> bool:
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

    def _block(self) -> int:
        """For how many steps at a time, 0 if memory gains too little."""
        made = {self.operands[self.first_xs + i] for i in self.made}
        size = sum([_bytes(self.avals[v]) for v in made])
        if size < _LEAST_GAIN:
            return 0
        block = max(_BLOCK_BYTES * self.length // size, _FEWEST_STEPS)
        if block * _FEWEST_BLOCKS > self.length:
            return 0
        kept = sum([_bytes(self.avals[v]) for v in self.sources if not self._stays(v)])
        return block if size - size * block // self.length - kept >= _LEAST_GAIN else 0

    def _stays(self, source: int) -> bool:
        """Whether what the moved equations read is there while the loop runs in any case."""
        if self._is_there(source) or not self.avals[source].ndim:
            return True
        others = self.readers[source].difference(self.moved)
        return any([k >= self.at for k in others])

    def program(self) -> Jaxpr:
        """The whole program."""
        jaxpr, graph = self.jaxpr, Graph()
        numbers = [*graph.inputs(jaxpr.in_avals), *[graph.constant(c) for c in jaxpr.consts]]
        moved = set(self.moved)
        for k, (app, args) in enumerate(jaxpr.equations):
            source = jaxpr.sources[k] if jaxpr.sources else None
            if k in moved:
                numbers.extend([-1] * len(app.outs))
                continue
            if k == self.at:
                made = {self.first_xs + i for i in self.made}
                read = [a for i, a in enumerate(args) if i not in made]
                primitive, params = self.replace(self.of_block(), self.made, self.block)
                read = [numbers[a] for a in (*read, *self.sources)]
                first = graph.add_bound(primitive, read, params)
            else:
                first = graph.add(app, [numbers[a] for a in args], source)
            numbers.extend(range(first, first + len(app.outs)))
        return graph.program(range(jaxpr.n_in), [numbers[v] for v in jaxpr.outs], jaxpr.debug)

    def of_block(self) -> Jaxpr:
        """The moved equations for the steps of a block."""
        jaxpr, graph = self.jaxpr, Graph()
        constants = enumerate(jaxpr.consts, jaxpr.n_in)
        number_of = {v: graph.constant(c) for v, c in constants if self._is_number(v)}
        avals = [self._of_block(self.avals[v]) for v in self.sources]
        inputs = graph.inputs(avals)
        number_of.update(zip(self.sources, inputs, strict=True))
        for k in self.moved:
            app, args = jaxpr.equations[k]
            read = [number_of[a] for a in args]
            params = _for_steps(app, self.length, self.block)
            made = app.primitive.application(tuple([graph.avals[n] for n in read]), params or {})
            first = graph.add(made, read, jaxpr.sources[k] if jaxpr.sources else None)
            number_of.update({v: first + i for i, v in enumerate(self.results(k))})
        made_xs = [number_of[self.operands[self.first_xs + i]] for i in self.made]
        return graph.program(inputs, made_xs, NO_DEBUG_INFO)

    def _of_block(self, aval: ShapedArray) -> ShapedArray:
        return aval.update(shape=(self.block, *aval.shape[1:])) if aval.ndim else aval


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
