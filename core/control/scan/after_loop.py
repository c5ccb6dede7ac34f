"""What a backward scan need not do step by step: one contraction after the loop instead.

A linear const is used in each step, so its cotangent is a sum over the steps. Where the steps add
products of values that vary, as for the weights of a recurrent network, the values are stacked and
multiplied once after the loop: ``sum_t a_t^T b_t`` is one contraction over time as well. The same
holds for sums over axes of values that are stacked anyway (biases), and for cotangents of slices
that no step needs (``g_t W^T``). The result is the same sum in another order.

What has to be stacked for that is at most ``_MEMORY`` times as large as what it makes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core import lax
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.jaxpr import Jaxpr

if TYPE_CHECKING:
    from tracebridge.core.interpreters.graph import Graph
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.value import Value

_MEMORY = 4
_LINEAR = (lax.add_p, lax.transpose_p, lax.reshape_p, lax.squeeze_p, lax.neg_p)

Stacks = dict[int, Any]
"""Values with a leading axis of steps, and values that are the same in each, by number."""
Emit = Callable[[Stacks], Any]


@final
class AfterLoop:
    """Cotangents that are made after a backward loop from stacked values.

    ``consts``, ``xs``: which results of the body these are, as positions among its sums and among
    its cotangents of slices. ``stacked``: numbers of values that become further ys. ``inputs``:
    numbers of all inputs that the computation afterwards takes.
    """

    __slots__ = ("_made", "consts", "emits", "inputs", "stacked", "xs")

    def __init__(self) -> None:
        self.consts: list[int] = []
        self.xs: list[int] = []
        self.emits: list[Emit] = []
        self.stacked: list[int] = []
        self.inputs: list[int] = []
        self._made: dict[Any, Jaxpr] = {}

    def program(self, avals: Sequence[ShapedArray]) -> Jaxpr:
        """(values of ``inputs``) -> cotangents of ``consts``, then of ``xs``."""
        key = tuple(avals)
        found = self._made.get(key)
        if found is None:

            def run(*values: Value) -> list[Any]:
                stacks = dict(zip(self.inputs, values, strict=True))
                return [emit(stacks) for emit in self.emits]

            found = self._made[key] = stage(run, avals, locate=False)
        return found


def find_after_loop(
    graph: Graph,
    fixed: Sequence[int],
    sliced: Sequence[int],
    of_consts: Sequence[int],
    of_xs: Sequence[int],
) -> AfterLoop | None:
    """What the body ``graph`` leaves for after the loop.

    ``fixed``, ``sliced``: numbers of the inputs that are the same in each step, and of the slices;
    its other inputs are carried. ``of_consts``, ``of_xs``: its results.
    """
    search = _Search(graph, fixed, sliced)
    plans: list[tuple[str, int, Emit]] = []
    # Products first: what they stack serves the sums.
    for find in (search.contraction, search.total):
        for i, number in enumerate(of_consts):
            if not any([kind == "const" and i == j for kind, j, _ in plans]):
                emit = search.attempt(find, number)
                if emit is not None:
                    plans.append(("const", i, emit))
    for i, number in enumerate(of_xs):
        emit = search.attempt(search.product_with_fixed, number)
        if emit is not None:
            plans.append(("x", i, emit))
    if not plans:
        return None
    after = AfterLoop()
    plans.sort(key=lambda plan: plan[:2])
    after.consts = [i for kind, i, _ in plans if kind == "const"]
    after.xs = [i for kind, i, _ in plans if kind == "x"]
    after.emits = [emit for _, _, emit in plans]
    after.inputs = list(search.used)
    available = {*fixed, *sliced, *graph.consts}
    after.stacked = [n for n in after.inputs if n not in available]
    return after


@final
class _Search:
    """Looks at the equations behind results of a body."""

    __slots__ = ("allowance", "graph", "made_by", "new", "same", "sliced", "used", "varies")

    def __init__(self, graph: Graph, fixed: Sequence[int], sliced: Sequence[int]) -> None:
        self.graph = graph
        self.made_by: dict[int, tuple[Application, Sequence[int]]] = {}
        self.same = same = {*fixed, *graph.consts}
        self.varies = bytearray([n not in same for n in range(len(graph.avals))])
        for app, args, first, _ in graph.equations:
            if not app.multiple:
                self.made_by[first] = app, args
            varies = bool(app.effects) or any([self.varies[a] for a in args])
            for n in range(first, first + len(app.outs)):
                self.varies[n] = varies
        self.sliced = set(sliced)
        # Values that are used afterwards, in order; those of the attempt that is being made.
        self.used: dict[int, None] = {}
        self.new: dict[int, None] = {}
        self.allowance = 0

    def attempt(self, find: Callable[[int], Emit | None], number: int) -> Emit | None:
        """What ``find`` gives, unless too much would have to be stacked for it."""
        aval = self.graph.avals[number]
        if type(aval.size) is not int or aval.dtype.kind not in "fcV":
            return None
        self.new = {}
        self.allowance = _MEMORY * aval.size
        emit = find(number)
        if emit is None or self.allowance < 0:
            return None
        self.used.update(self.new)
        return emit

    def producer(self, number: int) -> tuple[Application | None, Sequence[int]]:
        """The application that makes a value, and the numbers of its arguments."""
        return self.made_by.get(number, (None, ()))

    def stack(self, number: int) -> Emit:
        """A value of all steps, transposed afterwards where the step transposes."""
        app, args = self.producer(number)
        if app is not None and app.primitive is lax.transpose_p and number not in self.used:
            inner = self.stack(args[0])
            permutation = (0, *[p + 1 for p in app.params["permutation"]])
            return lambda stacks: lax.transpose(inner(stacks), permutation)
        if number not in self.used and number not in self.new:
            if number not in self.sliced:
                size = self.graph.avals[number].size
                self.allowance = self.allowance - size if type(size) is int else -1
            self.new[number] = None
        return lambda stacks: stacks[number]

    def contraction(self, number: int) -> Emit | None:
        """The sum over the steps of products of values that vary."""
        return self._sum(number, self._dot)

    def total(self, number: int) -> Emit | None:
        """The sum over the steps of sums over axes, or of products."""
        return self._sum(number, lambda n: self._dot(n) or self._reduced(n))

    def _sum(self, number: int, term: Callable[[int], Emit | None]) -> Emit | None:
        """The sum over the steps of a sum of terms, or of other arrangements of their elements.

        A value with many uses is a long sum, in which a value may occur many times: each is looked
        at once, and without recursion.
        """
        emits: dict[int, Emit | None] = {}
        waiting = [number]
        while waiting:
            n = waiting[-1]
            if n in emits:
                waiting.pop()
                continue
            app, args = self.producer(n)
            if app is None or not self.varies[n]:
                return None
            if app.primitive in _LINEAR:
                missing = [a for a in args if a not in emits]
                if missing:
                    waiting.extend(missing)
                    continue
                emits[n] = None
            else:
                emit = term(n)
                if emit is None:
                    return None
                emits[n] = emit

        # What is kept refers to equations, not to the whole graph.
        steps = [(n, emit, *self.made_by[n]) for n, emit in emits.items()]

        def run(stacks: Stacks) -> Any:
            made: dict[int, Any] = {}
            for n, emit, app, args in steps:
                if emit is None:
                    made[n] = app.primitive.bind(*[made[a] for a in args], **app.params)
                else:
                    made[n] = emit(stacks)
            return made[number]

        return run

    def _dot(self, number: int) -> Emit | None:
        app, args = self.made_by[number]
        if app.primitive is not lax.dot_general_p or not all([self.varies[a] for a in args]):
            return None
        (xc, yc), (xb, yb) = app.params["dimension_numbers"]
        numbers = (
            ((0, *[d + 1 for d in xc]), (0, *[d + 1 for d in yc])),
            (tuple([d + 1 for d in xb]), tuple([d + 1 for d in yb])),
        )
        params = {**app.params, "dimension_numbers": numbers}
        x, y = [self.stack(a) for a in args]
        return lambda stacks: lax.dot_general_p.bind(x(stacks), y(stacks), **params)

    def _reduced(self, number: int) -> Emit | None:
        app, args = self.made_by[number]
        if app.primitive is not lax.reduce_sum_p:
            return None
        x, axes = self.stack(args[0]), (0, *[a + 1 for a in app.params["axes"]])
        return lambda stacks: lax.reduce_sum(x(stacks), axes)

    def product_with_fixed(self, number: int) -> Emit | None:
        """The product, for each step, of a value that varies with one that does not."""
        app, args = self.producer(number)
        if app is None or app.primitive is not lax.dot_general_p:
            return None
        (xc, yc), (xb, _) = app.params["dimension_numbers"]
        varies = [bool(self.varies[a]) for a in args]
        if xb or sum(varies) != 1 or not self.is_input(args[varies.index(False)]):
            return None
        side = varies.index(True)
        contracted = [tuple([d + (varies[k]) for d in dims]) for k, dims in enumerate((xc, yc))]
        params = {**app.params, "dimension_numbers": (tuple(contracted), ((), ()))}
        stacked = self.stack(args[side])
        other = args[1 - side]
        if other not in self.graph.consts:
            self.new[other] = None
        # The axis of steps is the first one that is left of its operand.
        place = 0 if side == 0 else self.graph.avals[other].ndim - len(xc)

        def emit(stacks: Stacks) -> Any:
            fixed = self.graph.consts.get(other)
            fixed = stacks[other] if fixed is None else fixed
            operands = (stacked(stacks), fixed) if side == 0 else (fixed, stacked(stacks))
            product = lax.dot_general_p.bind(*operands, **params)
            others = [d for d in range(product.aval.ndim) if d != place]
            return lax.transpose(product, (place, *others)) if place else product

        return emit

    def is_input(self, number: int) -> bool:
        """Whether a value that does not vary is there without being computed."""
        return number in self.same
