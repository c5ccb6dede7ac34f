"""Weighted means whose weights are exponentials: divided behind the product, not before it.

The weights are a matrix, their mean is a few columns: so one pass over the matrix is less. Only
exponentials of what is at most 0, since sums of large ones would overflow where their means do not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, final

from tracebridge.core import lax
from tracebridge.core.interpreters.graph import Graph
from tracebridge.core.ir.debug_info import NO_DEBUG_INFO
from tracebridge.core.ir.values import Literal
from tracebridge.core.kernels.steps.axes import pairs_of
from tracebridge.core.kernels.steps.swapped import readers_of

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.jaxpr import Jaxpr

_NOTHING: Sequence[int] = ()
_VIEWS = frozenset({lax.broadcast_in_dim_p, lax.reshape_p, lax.stop_gradient_p})


class _Late(NamedTuple):
    """A quotient that one product reads: its operands, and where the divisor's axes come."""

    weights: int
    divisor: int
    shape: tuple[int, ...]
    axes: tuple[int, ...]


def with_late_quotients(program: Jaxpr) -> Jaxpr:
    """``program``, which has no calls, with products of exponentials that are divided behind."""
    found = _Search(program).found()
    if not found:
        return program
    graph = Graph()
    numbers = [*graph.inputs(program.in_avals), *[graph.constant(c) for c in program.consts]]
    v = len(numbers)
    for app, args in program.equations:
        read = [numbers[a] for a in args]
        late = found.get(v)
        if late is None:
            first = graph.add(app, read)
            numbers += range(first, first + len(app.outs))
        else:
            place, quotient = late
            read[place] = numbers[quotient.weights]
            mean = graph.add_bound(app.primitive, read, app.params)
            numbers.append(_divided(graph, mean, numbers[quotient.divisor], quotient))
        v += len(app.outs)
    outs = [numbers[v] for v in program.outs]
    return graph.program(range(program.n_in), outs, NO_DEBUG_INFO)


def _divided(graph: Graph, mean: int, divisor: int, late: _Late) -> int:
    """``mean`` by the divisor of its row."""
    each = divisor
    if graph.avals[each].shape != late.shape:
        each = graph.add_bound(lax.reshape_p, [each], {"new_sizes": late.shape})
    order = sorted(range(len(late.axes)), key=late.axes.__getitem__)
    if order != [*range(len(order))]:
        each = graph.add_bound(lax.transpose_p, [each], {"permutation": tuple(order)})
    axes = tuple(sorted(late.axes))
    wide = {"shape": graph.avals[mean].shape, "broadcast_dimensions": axes}
    rows = graph.add_bound(lax.broadcast_in_dim_p, [each], wide)
    return graph.add_bound(lax.div_p, [mean, rows], {})


@final
class _Search:
    def __init__(self, program: Jaxpr) -> None:
        self.program = program
        self.made: dict[int, tuple[Application, Sequence[int]]] = {}
        v = program.n_in + len(program.consts)
        for app, args in program.equations:
            self.made.update({v + i: (app, args) for i in range(len(app.outs))})
            v += len(app.outs)

    def found(self) -> dict[int, tuple[int, _Late]]:
        """By product: which of its operands is a quotient, and that."""
        found: dict[int, tuple[int, _Late]] = {}
        readers: dict[int, int] = {}
        for v, (app, args) in self.made.items():
            if app.primitive is not lax.dot_general_p:
                continue
            readers = readers or readers_of(self.program)
            for i, a in enumerate(args):
                late = self._late(app, i, a) if readers[a] == 1 else None
                if late is not None and v not in found:
                    found[v] = i, late
        return found

    def _late(self, product: Application, i: int, quotient: int) -> _Late | None:
        app, args = self.made.get(quotient, (None, _NOTHING))
        if app is None or app.primitive is not lax.div_p or app.out.size <= product.out.size:
            return None
        wide, operands = self.made.get(args[1], (None, _NOTHING))
        if wide is None or wide.primitive is not lax.broadcast_in_dim_p:
            return None
        if not self._is_at_most_one(args[0]):
            return None
        to, shape, axes = pairs_of(product)[i], list[int](), list[int]()
        for n, axis in zip(wide.avals[0].shape, wide.params["broadcast_dimensions"], strict=True):
            place = to[axis]
            if place is not None:
                shape.append(n)
                axes.append(place)
            elif n != 1:
                return None  # it differs along what is summed
        return _Late(args[0], operands[0], tuple(shape), tuple(axes))

    def _is_at_most_one(self, v: int) -> bool:
        """Whether a value is an exponential of a difference with the largest one."""
        app, args = self.made.get(v, (None, _NOTHING))
        if app is None or app.primitive is not lax.exp_p:
            return False
        app, args = self.made.get(args[0], (None, _NOTHING))
        return app is not None and app.primitive is lax.sub_p and self._is_largest(args[1], args[0])

    def _is_largest(self, v: int, x: int) -> bool:
        """Whether a value has, for each element of ``x``, the largest one along some axes of it."""
        app, args = self.made.get(v, (None, _NOTHING))
        views: list[Application] = []
        while app is not None and (app.primitive in _VIEWS or self._is_bounded(app, args)):
            views.append(app)
            app, args = self.made.get(args[0], (None, _NOTHING))
        if app is None or app.primitive is not lax.reduce_max_p or args[0] != x:
            return False
        of_x = dict(enumerate([i for i in range(app.avals[0].ndim) if i not in app.params["axes"]]))
        of_x = {i: j for i, j in of_x.items() if app.out.shape[i] != 1}
        for view in reversed(views):
            to = pairs_of(view)[0]
            if any([to[i] is None for i in of_x]):
                return False
            of_x = {place: j for i, j in of_x.items() if (place := to[i]) is not None}
        return all([i == j for i, j in of_x.items()])

    def _is_bounded(self, app: Application, args: Sequence[int]) -> bool:
        """Whether an equation is a maximum with the smallest number that there is."""
        const = args[1] - self.program.n_in if app.primitive is lax.max_p else -1
        number = self.program.consts[const] if 0 <= const < len(self.program.consts) else None
        return isinstance(number, Literal) and number.value == -math.inf
