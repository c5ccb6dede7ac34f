"""Products whose result is transposed, with their factors in the other order instead.

Then results of products are results of the program, in which sums over parts can be added up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracebridge.core import lax
from tracebridge.core.interpreters.graph import Graph
from tracebridge.core.ir.debug_info import NO_DEBUG_INFO
from tracebridge.core.lax.contract.precision import exchanged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.jaxpr import Jaxpr


def with_swapped_products(program: Jaxpr) -> Jaxpr:
    """``program``, which has no calls, without transpositions of products read by nobody else.

    Transpositions that move axes of one element only are reshapes.
    """
    if all([app.primitive is not lax.transpose_p for app, _ in program.equations]):
        return program
    products, graph = _transposed(program), Graph()
    numbers = [*graph.inputs(program.in_avals), *[graph.constant(c) for c in program.consts]]
    v = len(numbers)
    for app, args in program.equations:
        read = [numbers[a] for a in args]
        if v in products:
            read.reverse()
            numbers.append(graph.add_bound(app.primitive, read, exchanged(app.params)))
        elif app.primitive is lax.transpose_p and (args[0] in products or _is_reshape(app)):
            shape = app.out.shape
            params = {"new_sizes": shape}
            is_there = graph.avals[read[0]].shape == shape
            numbers += read if is_there else [graph.add_bound(lax.reshape_p, read, params)]
        else:
            first = graph.add(app, read)
            numbers += range(first, first + len(app.outs))
        v += len(app.outs)
    outs = [numbers[v] for v in program.outs]
    return graph.program(range(program.n_in), outs, NO_DEBUG_INFO)


def products_of_results(program: Jaxpr) -> dict[int, int]:
    """Results of the program that are products, or reshapes of these: which ones they are.

    No equation reads them but the reshapes, and none is there twice.
    """
    readers = readers_of(program)
    found: dict[int, int] = {}
    v = program.n_in + len(program.consts)
    for app, args in program.equations:
        if app.primitive is lax.dot_general_p and readers.get(v) == 1:
            found[v] = v
        elif app.primitive is lax.reshape_p and readers.get(v) == 1 and args[0] in found:
            found[v] = found[args[0]]
        v += len(app.outs)
    return {v: found[v] for v in program.outs if v in found}


def readers_of(program: Jaxpr) -> dict[int, int]:
    """How often each variable is read, or a result."""
    readers: dict[int, int] = {}
    for args in (program.outs, *[args for _, args in program.equations]):
        for a in args:
            readers[a] = readers.get(a, 0) + 1
    return readers


def _is_reshape(app: Application) -> bool:
    """Whether a transposition moves no element."""
    return _without_ones(app.params["permutation"], app.avals[0].shape) == sorted(
        _without_ones(range(app.out.ndim), app.avals[0].shape)
    )


def _without_ones(axes: Sequence[int], shape: Sequence[int]) -> list[int]:
    return [a for a in axes if shape[a] != 1]


def _transposed(program: Jaxpr) -> set[int]:
    """The products that only a transposition reads, which has their free axes in another order."""
    readers = readers_of(program)
    made: dict[int, Application] = {}
    found: set[int] = set()
    v = program.n_in + len(program.consts)
    for app, args in program.equations:
        if app.primitive is lax.dot_general_p and readers.get(v) == 1:
            made[v] = app
        elif app.primitive is lax.transpose_p and args[0] in made and not _is_reshape(app):
            (xc, _), (xb, _) = made[args[0]].params["dimension_numbers"]
            n, ndim, shape = len(xb), app.out.ndim, app.avals[0].shape
            n_rows = made[args[0]].avals[0].ndim - len(xc) - n
            order = (*range(n), *range(n + n_rows, ndim), *range(n, n + n_rows))
            if _without_ones(app.params["permutation"], shape) == _without_ones(order, shape):
                found.add(args[0])
        v += len(app.outs)
    return found
