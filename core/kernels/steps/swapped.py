"""Products whose result is transposed, with their factors in the other order instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracebridge.core import lax
from tracebridge.core.interpreters.graph import Graph
from tracebridge.core.ir.debug_info import NO_DEBUG_INFO

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application, Params
    from tracebridge.core.ir.jaxpr import Jaxpr


def with_swapped_products(program: Jaxpr) -> Jaxpr:
    """``program``, which has no calls, without transpositions of products that nobody else reads."""
    products = _transposed(program)
    if not products:
        return program
    graph = Graph()
    numbers = [*graph.inputs(program.in_avals), *[graph.constant(c) for c in program.consts]]
    v = len(numbers)
    for app, args in program.equations:
        read = [numbers[a] for a in args]
        if v in products:
            read.reverse()
            numbers.append(graph.add_bound(app.primitive, read, _swapped(app)))
        elif app.primitive is lax.transpose_p and args[0] in products:
            numbers.append(numbers[args[0]])
        else:
            first = graph.add(app, read)
            numbers += range(first, first + len(app.outs))
        v += len(app.outs)
    outs = [numbers[v] for v in program.outs]
    return graph.program(range(program.n_in), outs, NO_DEBUG_INFO)


def _transposed(program: Jaxpr) -> set[int]:
    """The products that only a transposition reads, which has its free axes in the other order."""
    readers: dict[int, int] = dict.fromkeys(program.outs, 2)
    for _, args in program.equations:
        for a in args:
            readers[a] = readers.get(a, 0) + 1
    made: dict[int, Application] = {}
    found: set[int] = set()
    v = program.n_in + len(program.consts)
    for app, args in program.equations:
        if app.primitive is lax.dot_general_p and readers.get(v) == 1:
            made[v] = app
        elif app.primitive is lax.transpose_p and args[0] in made:
            (xc, _), (xb, _) = made[args[0]].params["dimension_numbers"]
            n, ndim = len(xb), app.out.ndim
            n_rows = made[args[0]].avals[0].ndim - len(xc) - n
            order = (*range(n), *range(n + n_rows, ndim), *range(n, n + n_rows))
            if tuple(app.params["permutation"]) == order:
                found.add(args[0])
        v += len(app.outs)
    return found


def _swapped(app: Application) -> Params:
    """The parameters of a product with its factors in the other order."""
    params: dict[str, Any] = {**app.params}
    summed, batch = params["dimension_numbers"]
    params["dimension_numbers"] = summed[::-1], batch[::-1]
    return params
