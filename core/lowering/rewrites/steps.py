"""Loops whose steps are small that become one kernel (``core/kernels/steps``).

The body may have matrix products, elementwise equations, sums and maxima, and what takes arrays
apart and joins them. What the loop alone reads, slice by slice, and is made by such equations for
all steps at once, is made within the steps.

Arrays may be large where steps read neighbours of what they write, as those of a stencil do: XLA
writes each array of neighbours, which kernels read where it is.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tracebridge.core import lax
from tracebridge.core.interpreters.graph import Graph
from tracebridge.core.ir.aval import element_aval
from tracebridge.core.ir.content import content_of, has_arrays
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.debug_info import NO_DEBUG_INFO
from tracebridge.core.ir.traverse import distinct_applications, primitives_of
from tracebridge.core.kernels.machine import is_there, n_threads
from tracebridge.core.kernels.numbers import with_places
from tracebridge.core.kernels.steps.scan_kernel import scan_kernel_p, written
from tracebridge.core.lowering.rewrites.blocks import Loop, Moved, Readings, with_loops
from tracebridge.core.lowering.rewrites.flat import flat, with_shifts
from tracebridge.core.util.caching import BoundedCache, Hashed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core.ir.application import Application, Params
    from tracebridge.core.ir.jaxpr import Jaxpr

_NEIGHBOURS = frozenset({lax.roll_p, lax.slice_p, lax.pad_p, lax.concatenate_p})
_FUNCTIONS = frozenset({Cost.EXPENSIVE, Cost.COMPOSED})
_MOVES = frozenset({lax.broadcast_in_dim_p, lax.reshape_p, lax.squeeze_p})
_BODIES: BoundedCache[Jaxpr] = BoundedCache("bodies of scan kernels", 256)

_OF_EQUATIONS = frozenset({"applications", "primitives", "is small", "is stencil"})
"""What of a memo holds for all programs with the same equations."""

_FEWEST_STEPS = 4
_MOST_EQUATIONS = 400
_MOST_SCRATCH = 1 << 20  # bytes
_MOST_LINES = 8192  # of the text: LLVM takes two seconds, XLA a fifth of that
_MOST_MULTIPLIED = 1 << 19  # products of numbers in one matrix product: XLA has more threads
_MOST_ELEMENTS = 1 << 15  # of an array
_MOST_WITHOUT_PRODUCT = 1 << 12  # elements, where all of a step is one operation of XLA
_MOST_OF_STENCIL = 1 << 27  # elements: an index of theirs fits into 32 bits
_MOST_FOR_ONE = 1 << 15  # elements of a stencil in one part
_FASTER = 4  # times as fast as XLA, on one thread each, without exponentials and their like


def with_scan_kernels(jaxpr: Jaxpr) -> Jaxpr:
    """``jaxpr`` with kernels for its small loops."""
    # None stands for the Jaxpr itself, which must not refer to itself.
    if "scan kernels" not in jaxpr.cache:
        loops: list[int] = []
        if any([p.runs_steps for p in primitives_of(jaxpr)]):
            loops = [k for k, (app, _) in enumerate(jaxpr.equations) if _may_have(app)]
        jaxpr.cache["scan kernels"] = _with_kernels(jaxpr, loops) if loops and is_there() else None
    return jaxpr.cache["scan kernels"] or jaxpr


def _with_kernels(jaxpr: Jaxpr, loops: Sequence[int]) -> Jaxpr | None:
    """The program with kernels for loops of these numbers, if any of them can have one."""
    readings = Readings(jaxpr)
    kernels = {k: kernel for k in loops if (kernel := _kernel(readings, k)) is not None}
    return with_loops(jaxpr, kernels) if kernels else None


def _may_have(app: Application) -> bool:
    """Whether an equation is a loop that is small enough."""
    if not app.primitive.runs_steps or app.effects:
        return False
    length, body = app.params["length"], app.params["jaxpr"]
    if type(length) is not int or length < _FEWEST_STEPS:
        return False
    return _is_small(_flat(body))


def _flat(body: Jaxpr) -> Jaxpr:
    """A body without calls."""
    # None stands for the body itself.
    if "without calls" not in body.cache:
        found = flat(body, _meaning)
        body.cache["without calls"] = None if found is body else found
    return body.cache["without calls"] or body


def _meaning(app: Application) -> Jaxpr | None:
    """What a call computes."""
    return app.params["jaxpr"] if app.primitive.inlinable else with_shifts(app)


def _of_kernel(params: Params, body: Jaxpr) -> dict[str, Any]:
    """The parameters of the kernel of a loop with this body, which has no calls."""
    program, numbers = with_places(body)
    if program is not body:
        for fact in _OF_EQUATIONS & body.cache.keys():
            program.cache[fact] = body.cache[fact]
    return {**params, "jaxpr": _first_alike(program), "numbers": numbers}


def _first_alike(body: Jaxpr) -> Jaxpr:
    """The first body that was the same program, for which a kernel may have been planned.

    Programs are traced again, and come with bodies of their own each time.
    """
    return body if has_arrays(body) else _BODIES.get_or_make(Hashed(content_of(body)), lambda: body)


def _kernel(readings: Readings, at: int) -> Loop | None:
    """The kernel of the loop that is equation number ``at``."""
    params = readings.jaxpr.equations[at][0].params
    n_consts, n_carry = params["num_consts"], params["num_carry"]
    moved = Moved(readings, at, n_consts + n_carry, params["length"])
    flat_body = _flat(params["jaxpr"])
    if moved.moved:
        numbers = [v for v in moved.sources if not moved.avals[v].ndim]
        rows = [v for v in moved.sources if moved.avals[v].ndim]
        body = _with_moved(flat_body, n_consts, n_carry, moved)
        more = _of_kernel({**params, "num_consts": n_consts + len(numbers)}, body)
        if _is_written(more):
            unmade = moved.unmade()
            operands = [*unmade[:n_consts], *numbers, *unmade[n_consts:], *rows]
            return Loop(scan_kernel_p, more, operands, moved.moved)
    params = _of_kernel(params, flat_body)
    return Loop(scan_kernel_p, params, moved.operands, ()) if _is_written(params) else None


def _is_written(params: Params) -> bool:
    """Whether a loop has a kernel that LLVM compiles in about the time that XLA would take."""
    body = params["jaxpr"]
    kernel = written(params) if _is_small(body) else None
    if kernel is None or kernel.lines > _MOST_LINES:
        return False
    if not _is_stencil(body):
        return kernel.scratch <= _MOST_SCRATCH
    largest = max([a.size for a in body.out_avals])
    faster = 1 if _has_functions(body) else _FASTER
    return largest <= _MOST_FOR_ONE or faster * kernel.parts >= n_threads()


def _with_moved(body: Jaxpr, n_consts: int, n_carry: int, moved: Moved) -> Jaxpr:
    """The body with what makes some of its xs.

    It takes consts, numbers that the moved equations read, carry, the other xs, slices of what the
    moved equations read.
    """
    first_xs = n_consts + n_carry
    made = {first_xs + i for i in moved.made}
    numbers = [v for v in moved.sources if not moved.avals[v].ndim]
    rows = [v for v in moved.sources if moved.avals[v].ndim]
    kept = [i for i in range(n_consts, body.n_in) if i not in made]
    graph = Graph()
    found = dict(enumerate(graph.inputs(body.in_avals[:n_consts])))
    read = dict(zip(numbers, graph.inputs([moved.avals[v] for v in numbers]), strict=True))
    found.update(zip(kept, graph.inputs([body.in_avals[i] for i in kept]), strict=True))
    slices = graph.inputs([element_aval(moved.avals[v]) for v in rows])
    inputs = range(len(graph.avals))
    for v, n in zip(rows, slices, strict=True):
        shape = (1, *graph.avals[n].shape)
        params = {"shape": shape, "broadcast_dimensions": tuple(range(1, len(shape)))}
        read[v] = graph.add_bound(lax.broadcast_in_dim_p, [n], params)
    xs = moved.add_to(graph, read, 1)
    for i, x in zip(sorted(made), xs, strict=True):
        found[i] = graph.add_bound(lax.squeeze_p, [x], {"dimensions": (0,)})
    outs = graph.inline(body, [found[i] for i in range(body.n_in)])
    return graph.program(inputs, outs, NO_DEBUG_INFO)


def _is_small(body: Jaxpr) -> bool:
    """Whether one thread does the work of a step as soon as XLA would have shared it out."""
    if "is small" not in body.cache:
        body.cache["is small"] = _has_small_arrays(body)
    return body.cache["is small"]


def _has_small_arrays(body: Jaxpr) -> bool:
    if len(body.equations) > _MOST_EQUATIONS:
        return False
    has_product = lax.dot_general_p in primitives_of(body)
    most = _MOST_ELEMENTS if has_product else _MOST_WITHOUT_PRODUCT
    most = _MOST_OF_STENCIL if _is_stencil(body) else most
    for app in distinct_applications(body):
        for a in (*app.avals, *app.outs):
            if type(a.size) is not int or a.size > most:
                return False
        if app.primitive is lax.dot_general_p:
            (summed, _), _ = app.params["dimension_numbers"]
            terms = math.prod([app.avals[0].shape[i] for i in summed])
            if terms * app.out.size > _MOST_MULTIPLIED:
                return False
    return True


def _has_functions(body: Jaxpr) -> bool:
    """Whether most of the time may go to exponentials and their like."""
    return any([p.cost in _FUNCTIONS for p in primitives_of(body)])


def _is_stencil(body: Jaxpr) -> bool:
    """Whether steps read neighbours in large arrays, and do nothing but elementwise work else."""
    if "is stencil" not in body.cache:
        found = [app for app in distinct_applications(body) if app.primitive in _NEIGHBOURS]
        large = [app for app in found if app.avals[0].size >= _MOST_WITHOUT_PRODUCT]
        others = primitives_of(body) - _NEIGHBOURS
        is_plain = all([p.is_elementwise or p in _MOVES for p in others])
        body.cache["is stencil"] = bool(large) and is_plain
    return body.cache["is stencil"]
