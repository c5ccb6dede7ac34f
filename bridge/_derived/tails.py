"""Splitting a backward program: what all gradients share, then the last equations of each one.

Where gradients are added to earlier ones, torch frees each before it computes the next. One program
for all gradients would have all of them beside the earlier ones. A gradient of a large parameter is
most often the last contraction, sum or scatter of values that are much smaller: these values are
computed together, and each such gradient from them when its turn comes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, final

from tracebridge.core.interpreters.dce import dce_jaxpr
from tracebridge.core.interpreters.inline import inline_calls
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.trace import current_trace
from tracebridge.interop.dtypes import is_exchanged

# What may be kept for a gradient, as a part of its size.
WORTH = 0.5
# Less than this part is not worth looking further back; neither are more equations than these.
_ENOUGH = 1 / 64
_MAX_STEPS = 64
_INFINITE = float("inf")


def bytes_of(aval: ShapedArray) -> int:
    """How much memory a value takes."""
    return aval.size * aval.dtype.itemsize


@final
class Tails:
    """A program in two stages.

    ``first``: inputs -> (the results that have no tail, then values for the tails).
    ``last``: for each result with a tail its program, and the places of that program's inputs
    among (inputs of ``first``, results of ``first``).
    """

    __slots__ = ("first", "last")

    def __init__(self, first: Jaxpr, last: Mapping[int, tuple[Jaxpr, tuple[int, ...]]]) -> None:
        self.first = first
        self.last = last


def split_tails(
    jaxpr: Jaxpr, candidates: Collection[int], counted: Collection[int]
) -> Tails | None:
    """Split off tails of the results ``candidates`` that need little memory; None if too few.

    Inputs are there anyway and cost nothing, but for those ``counted``: who frees or changes them
    need not wait for the tails.
    """
    graph = _Graph(inline_calls(jaxpr), counted)
    cuts = {k: cut for k in candidates if (cut := graph.cut(k)) is not None}
    # A single one could be computed with the rest: its turn is the first.
    return _tails(graph, cuts) if len(cuts) > 1 else None


def _tails(graph: _Graph, cuts: Mapping[int, Sequence[int]]) -> Tails:
    jaxpr = graph.jaxpr
    n_in, n_fixed = jaxpr.n_in, graph.n_fixed
    early = [k for k in range(len(jaxpr.outs)) if k not in cuts]
    needed = sorted({variable for cut in cuts.values() for variable in cut if variable >= n_fixed})
    place = {variable: n_in + len(early) + i for i, variable in enumerate(needed)}
    last: dict[int, tuple[Jaxpr, tuple[int, ...]]] = {}
    for k, cut in cuts.items():
        cut_variables = [variable for variable in cut if variable < n_in or variable >= n_fixed]
        places = tuple(
            [variable if variable < n_in else place[variable] for variable in cut_variables]
        )
        last[k] = graph.program(cut_variables, k), places
    outs = [*[jaxpr.outs[k] for k in early], *needed]
    whole = Jaxpr(
        jaxpr.in_avals, jaxpr.consts, jaxpr.equations, outs, [graph.avals[v] for v in outs],
        jaxpr.sources, jaxpr.debug,
    )  # fmt: skip
    first, _ = dce_jaxpr(whole, (True,) * len(outs), keep_in=True)
    return Tails(first, last)


@final
class _Graph:
    """Who computes and who uses the values of a program."""

    __slots__ = ("avals", "counted", "jaxpr", "maker", "n_fixed", "outs_of", "users")

    def __init__(self, jaxpr: Jaxpr, counted: Collection[int]) -> None:
        self.jaxpr = jaxpr
        self.counted = counted
        self.avals = jaxpr.variable_avals()
        self.n_fixed = jaxpr.n_in + len(jaxpr.consts)
        self.maker: dict[int, int] = {}
        self.outs_of: list[range] = []
        self.users: dict[int, set[int]] = {}
        start = self.n_fixed
        for k, (app, operands) in enumerate(jaxpr.equations):
            self.outs_of.append(range(start, start + len(app.outs)))
            self.maker |= dict.fromkeys(self.outs_of[k], k)
            start += len(app.outs)
            for variable in operands:
                self.users.setdefault(variable, set()).add(k)

    def cut(self, k: int) -> list[int] | None:
        """The values that result ``k`` is best computed from last; None if there are none."""
        target = self.jaxpr.outs[k]
        if target < self.n_fixed or self.jaxpr.outs.count(target) > 1:
            return None
        enough = bytes_of(self.avals[target])
        least, best = WORTH * enough, None
        tail: set[int] = set()
        own: set[int] = set()  # of these, the equations that nobody else needs
        frontier = {target}
        while len(tail) < _MAX_STEPS:
            # The largest value first: it is what stands in the way.
            able = [s for s in frontier if self._may_move(s, own, target)]
            if not able:
                break
            equation = self.maker[max(able, key=self._price)]
            tail.add(equation)
            if self._is_own(equation, own, target):
                own.add(equation)
            frontier = (frontier - set(self.outs_of[equation])) | set(
                self.jaxpr.equations[equation][1]
            )
            price = sum([self._price(variable) for variable in frontier])
            if price < least:
                least, best = price, sorted(frontier)
            if least <= _ENOUGH * enough:
                break
        return best

    def _price(self, variable: int) -> float:
        """The memory that keeping a value takes."""
        aval = self.avals[variable]
        if variable < self.n_fixed and variable not in self.counted:
            return 0.0
        return float(bytes_of(aval)) if is_exchanged(aval.dtype) else _INFINITE

    def _may_move(self, variable: int, own: set[int], target: int) -> bool:
        """Whether what makes a value may be in the tail: nobody else needs it, or it is cheap."""
        equation = self.maker.get(variable)
        if equation is None or self.jaxpr.equations[equation][0].effects:
            return False
        if self._is_own(equation, own, target):
            return True
        return variable != target and self.jaxpr.equations[equation][0].primitive.cost.is_repeatable

    def _is_own(self, equation: int, own: set[int], target: int) -> bool:
        """Whether an equation is for the value ``target`` alone, if the equations ``own`` are."""
        outs = set(self.outs_of[equation])
        if any([variable in outs and variable != target for variable in self.jaxpr.outs]):
            return False
        return all([self.users.get(variable, set()) <= own for variable in outs])

    def program(self, inputs: Sequence[int], k: int) -> Jaxpr:
        """The program of result ``k`` from the values ``inputs``."""
        jaxpr = self.jaxpr

        def run(*values: Any) -> list[Any]:
            process = current_trace().process
            env = dict(zip(inputs, values, strict=True))
            env |= dict(zip(range(jaxpr.n_in, self.n_fixed), jaxpr.consts, strict=True))
            for equation in self._equations(jaxpr.outs[k], set(env)):
                app, operands = jaxpr.equations[equation]
                result = process(app, [env[variable] for variable in operands])
                env |= zip(
                    self.outs_of[equation], result if app.multiple else (result,), strict=True
                )
            return [env[jaxpr.outs[k]]]

        return stage(run, [self.avals[variable] for variable in inputs], jaxpr.debug, locate=False)

    def _equations(self, target: int, known: set[int]) -> list[int]:
        """The equations that compute a value from those known, in order."""
        found: set[int] = set()
        wanted = [target]
        while wanted:
            variable = wanted.pop()
            if variable in known or self.maker[variable] in found:
                continue
            found.add(self.maker[variable])
            wanted.extend(self.jaxpr.equations[self.maker[variable]][1])
        return sorted(found)
