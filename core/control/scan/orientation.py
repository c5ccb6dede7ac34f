"""Matrices that each step of a loop multiplies by, the way round that the CPU's library wants them.

Few rows times a matrix are 1.3 to 2 times as fast where the sum runs over the first axis of the
matrix as over the last (jaxlib 0.10.2). Outside of a loop it makes no difference, because turning
the matrix costs as much; before a loop it is done once. The transpose of a layer multiplies by the
same matrix as the layer, turned: one of the two is always the wrong way round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracebridge.core import lax
from tracebridge.core.config.values import option
from tracebridge.core.dtypes.dtypes import float32
from tracebridge.core.interpreters.graph import Graph
from tracebridge.core.ir.jaxpr import Jaxpr

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.rule_contexts import LoweringContext

_FEWEST_STEPS = 8
_ROWS = range(2, 33)
_LEAST_MATRIX = 1 << 10


def turned(
    ctx: LoweringContext, jaxpr: Jaxpr, consts: Sequence[IrValue], length: object
) -> tuple[Jaxpr, Sequence[IrValue]]:
    """A body and its consts, of which some matrices are turned."""
    if ctx.platform != "cpu" or not option("platform_rules"):
        return jaxpr, consts
    if not (isinstance(length, int) and length >= _FEWEST_STEPS):
        return jaxpr, consts
    key = ("turned", len(consts))
    known = jaxpr.cache.get(key)
    if known is None:
        known = jaxpr.cache[key] = _turn(jaxpr, len(consts))
    body, places = known
    if body is None:
        return jaxpr, consts
    consts = list(consts)
    for i in places:
        consts[i] = ctx.transpose(consts[i], body.in_avals[i], (1, 0))
    return body, consts


def _turn(jaxpr: Jaxpr, n_consts: int) -> tuple[Jaxpr | None, list[int]]:
    """The body for turned matrices, and which consts these are; no body if there are none."""
    uses: dict[int, list[int]] = {}
    for k, (_, args) in enumerate(jaxpr.equations):
        for a in set(args):
            uses.setdefault(a, []).append(k)
    products = _Products(jaxpr, uses)
    places = [i for i in uses if i < n_consts and products.want_turned(i)]
    if not places:
        return None, []
    turned_ones = set(places)
    graph = Graph()
    avals = [
        a.update(shape=a.shape[::-1]) if i in turned_ones else a
        for i, a in enumerate(jaxpr.in_avals)
    ]
    numbers = [*graph.inputs(avals), *[graph.constant(c) for c in jaxpr.consts]]
    for k, (app, args) in enumerate(jaxpr.equations):
        if turned_ones.isdisjoint(args):
            made = app
        elif app.primitive is lax.transpose_p:
            numbers.append(numbers[args[0]])
            continue
        else:
            (contracted, _), batch = app.params["dimension_numbers"]
            dimensions = ((contracted, (0,)), batch)
            params: dict[str, Any] = {**app.params, "dimension_numbers": dimensions}
            made = app.primitive.application((app.avals[0], avals[args[1]]), params)
        source = jaxpr.sources[k] if jaxpr.sources else None
        first = graph.add(made, [numbers[a] for a in args], source)
        numbers.extend(range(first, first + len(made.outs)))
    outs = [numbers[i] for i in jaxpr.outs]
    return graph.program(range(jaxpr.n_in), outs, jaxpr.debug), places


class _Products:
    """The products of a body with matrices."""

    def __init__(self, jaxpr: Jaxpr, uses: dict[int, list[int]]) -> None:
        self.jaxpr, self.uses = jaxpr, uses
        self.first: list[int] = []
        """Of each equation: its first result."""
        number = jaxpr.n_in + len(jaxpr.consts)
        for app, _ in jaxpr.equations:
            self.first.append(number)
            number += len(app.outs)

    def want_turned(self, number: int) -> bool:
        """Whether all that reads a matrix multiplies few rows by it, the slow way round.

        Transposed in the body and multiplied the fast way round, it is the same to XLA.
        """
        if number in self.jaxpr.outs:
            return False
        for k in self.uses[number]:
            app, args = self.jaxpr.equations[k]
            if app.primitive is lax.transpose_p:
                made = self.first[k]
                if made in self.jaxpr.outs or app.params["permutation"] != (1, 0):
                    return False
                readers = self.uses.get(made, [])
                if not all([_multiplies(*self.jaxpr.equations[r], made, 0) for r in readers]):
                    return False
            elif not _multiplies(app, args, number, 1):
                return False
        return True


def _multiplies(app: Application, args: Sequence[int], number: int, axis: int) -> bool:
    """Whether an equation multiplies few rows by a matrix, summing over ``axis`` of that."""
    if app.primitive is not lax.dot_general_p or args[0] == number or args[1] != number:
        return False
    x, matrix = app.avals
    (x_contracted, contracted), (batch, _) = app.params["dimension_numbers"]
    if matrix.ndim != 2 or contracted != (axis,) or batch or matrix.dtype != float32:
        return False
    sizes = [n for i, n in enumerate(x.shape) if i not in x_contracted]
    if not all([isinstance(n, int) for n in (*sizes, *matrix.shape)]) or x.dtype != float32:
        return False
    rows = 1
    for n in sizes:
        rows *= n
    return rows in _ROWS and matrix.size >= _LEAST_MATRIX
