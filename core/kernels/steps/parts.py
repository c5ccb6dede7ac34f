"""Loops that do the same for each of several parts of an axis: rows of a batch, signals.

Threads share the parts: each does all steps for its own ones. What has no axis of the kind is
computed for each part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tracebridge.core import lax
from tracebridge.core.interpreters.graph import Graph
from tracebridge.core.ir.debug_info import NO_DEBUG_INFO
from tracebridge.core.ir.traverse import distinct_applications
from tracebridge.core.kernels.steps.arrays import Arrays
from tracebridge.core.kernels.steps.axes import Axes
from tracebridge.core.kernels.steps.swapped import products_of_results, with_swapped_products
from tracebridge.core.kernels.steps.work import work

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tracebridge.core.ir.application import Application, Params
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.jaxpr import Jaxpr

_LEAST = 75_000  # ns of work in a part: to wake a thread takes up to 60,000
_FEWEST_ROWS = 4  # in a part: a matrix is read once for several rows
_FEWEST_COLUMNS = 16  # in a part, where elements of the axis lie one after another
FEWEST_ROWS = 32  # of a part of a matrix
_MOST_CACHED = 1 << 15  # elements of an array: a few of them are in the second cache
_LEAST_SHARED = 0.8  # of the work: what has no part is done by each thread


class Parts(NamedTuple):
    """How a step is cut for the parts of an axis: what it is given and gives, and all variables.

    ``members``: variables that have the axis, and which of theirs it is.
    """

    arrays: Arrays
    members: dict[int, int]

    def part_of(self, body: Jaxpr) -> Jaxpr:
        """The step for one part."""
        (count,), order = self.arrays.counts, range(body.n_in)
        return _for_part(body, body.variable_avals(), self.members, count, order)


def work_of(body: Jaxpr) -> float:
    """Nanoseconds of a step."""
    of_app = _works(body)
    return sum([of_app[app] for app, _ in body.equations])


def most_parts(total: float, length: int, threads: int) -> int:
    """How many parts of a loop have enough work for a thread; ``total``: that of a step."""
    return max(1, min(threads, int(total * length / _LEAST)))


def parts_of(body: Jaxpr, n_consts: int, n_carry: int, most: int) -> Parts | None:
    """The parts that threads should share, at most so many; None if one should do all.

    ``body``: (consts, carry, slices of xs) -> (carry, slices of ys), without calls.
    """
    if most < 2:
        return None
    of_app = _works(body)
    works = [of_app[app] for app, _ in body.equations]
    carried = [(n_consts + k, out) for k, out in enumerate(body.outs[:n_carry])]
    axes = Axes(body, carried)
    best: tuple[int, dict[int, int]] = 1, {}
    for members in axes.classes():
        if _shared(body, members, works) >= _LEAST_SHARED * sum(works):
            count = _count(axes.avals, members, most)
            best = max(best, (count, members), key=lambda pair: pair[0])
    count, members = best
    if count < 2:
        return None
    ins = tuple([(members.get(v),) for v in range(body.n_in)])
    outs = tuple([(members.get(v),) for v in body.outs])
    arrays = Arrays((count,), tuple(body.in_avals), tuple(body.out_avals), ins, outs)
    return Parts(arrays, members)


class Rows(NamedTuple):
    """A program for some rows of one element of a batch.

    ``order``: of the operands, those first that are not cut.
    """

    order: list[int]
    program: Jaxpr
    arrays: Arrays


def rows_of(program: Jaxpr, arrays: Arrays) -> Rows | None:
    """Rows of one element of a batch whose arrays stay in the caches of a core; None if all do.

    ``program``: of one part of ``arrays``, without carries.
    """
    # Exchanged products have as many elements as before.
    if max([a.size for a in program.variable_avals()], default=0) <= _MOST_CACHED:
        return None
    program = with_swapped_products(program)
    of_app = _works(program)
    works = [of_app[app] for app, _ in program.equations]
    products = products_of_results(program)
    axes = Axes(program, totals=products.values())
    best, most = 1, dict[int, int]()
    for members in axes.classes():
        totals = axes.totals_along(members)
        shared = members.keys() | totals
        if any([v not in members and products.get(v) not in totals for v in program.outs]):
            continue  # each part would write all of the result
        if _shared(program, shared, works) >= _LEAST_SHARED * sum(works):
            count = _count_of_rows(axes.avals, members)
            if count > best:
                best, most = count, members
    if best == 1:
        return None
    ins = [(*cut, most.get(v)) for v, cut in enumerate(arrays.ins)]
    outs = [(*cut, most.get(v)) for v, cut in zip(program.outs, arrays.outs, strict=True)]
    order = sorted(range(len(ins)), key=lambda v: ins[v] != (None,) * len(ins[v]))
    cut = Arrays(
        (*arrays.counts, best),
        tuple([arrays.in_avals[v] for v in order]),
        arrays.out_avals,
        tuple([ins[v] for v in order]),
        tuple(outs),
        by_rows=True,
        totals=frozenset([k for k, v in enumerate(program.outs) if v not in most]),
        places=tuple([arrays.places[v] for v in order]) if arrays.places else (),
    )
    return Rows(order, _for_part(program, axes.avals, most, best, order), cut)


def _count_of_rows(avals: Sequence[ShapedArray], members: dict[int, int]) -> int:
    """How many parts keep the largest array that has rows within the caches of a core."""
    largest = max([avals[v].size for v in members])
    v, i = next(iter(members.items()))
    size = avals[v].shape[i]
    inner = [v for v, i in members.items() if i == avals[v].ndim - 1]
    if largest <= _MOST_CACHED or any([avals[v].size > size for v in inner]):
        return 1
    each = [n for n in range(FEWEST_ROWS, size) if size % n == 0]
    small = [n for n in each if n * largest <= _MOST_CACHED * size]
    return size // max(small) if small else size // min(each) if each else 1


def _count(avals: Sequence[ShapedArray], members: dict[int, int], most: int) -> int:
    """How many parts: no more than ``most``, none of them too small."""
    # Small arrays do not make the loops over larger ones shorter.
    most_elements = max([avals[v].size for v in members])
    large = [(avals[v].ndim, i) for v, i in members.items() if 2 * avals[v].size > most_elements]
    last = any([i == ndim - 1 for ndim, i in large])
    least = _FEWEST_COLUMNS if last else _FEWEST_ROWS
    v, i = next(iter(members.items()))
    size = avals[v].shape[i]
    return max([n for n in range(1, min(most, size // least) + 1) if size % n == 0], default=1)


def _works(body: Jaxpr) -> dict[Application, float]:
    """Nanoseconds of the equations."""
    return {app: work(app) for app in distinct_applications(body)}


def _shared(body: Jaxpr, members: Collection[int], works: Sequence[float]) -> float:
    """The work of the equations whose results have the axis, or are sums along it."""
    v, total = body.n_in + len(body.consts), 0.0
    for (app, _), taken in zip(body.equations, works, strict=True):
        if v in members:
            total += taken
        v += len(app.outs)
    return total


def _for_part(
    body: Jaxpr,
    avals: Sequence[ShapedArray],
    members: dict[int, int],
    count: int,
    order: Sequence[int],
) -> Jaxpr:
    """The body for one part, with its inputs in another order."""

    def cut(v: int) -> ShapedArray:
        shape = list(avals[v].shape)
        if v in members:
            shape[members[v]] //= count
        return avals[v].update(shape=tuple(shape))

    graph = Graph()
    inputs = graph.inputs([cut(v) for v in order])
    numbers = dict(zip(order, inputs, strict=True))
    numbers.update({body.n_in + i: graph.constant(c) for i, c in enumerate(body.consts)})
    v = body.n_in + len(body.consts)
    for app, args in body.equations:
        params = cut_params(app, cut(v).shape)
        first = graph.add_bound(app.primitive, [numbers[a] for a in args], params)
        numbers.update({v + i: first + i for i in range(len(app.outs))})
        v += len(app.outs)
    return graph.program(inputs, [numbers[v] for v in body.outs], NO_DEBUG_INFO)


def cut_params(app: Application, shape: tuple[int, ...]) -> Params:
    """The parameters of an equation whose result has the shape ``shape``."""
    params: dict[str, Any] = {**app.params}
    if app.primitive is lax.broadcast_in_dim_p:
        params["shape"] = shape
    elif app.primitive is lax.reshape_p:
        params["new_sizes"] = shape
    elif app.primitive is lax.slice_p:
        pairs = zip(params["limit_indices"], app.out.shape, shape, strict=True)
        params["limit_indices"] = tuple([a - n + new for a, n, new in pairs])
    return params
