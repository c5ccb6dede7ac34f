"""Loops whose steps are small that become one kernel (``core/kernels/steps``).

The body may have matrix products, elementwise equations, sums and maxima, and what takes arrays
apart and joins them. What the loop alone reads, slice by slice, and is made by such equations for
all steps at once, is made within the steps.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tracebridge.core import lax
from tracebridge.core.interpreters.inline import inline_calls
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import element_aval
from tracebridge.core.ir.jaxpr import eval_jaxpr
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.kernels.machine import is_there, machine
from tracebridge.core.kernels.steps.plan import Plan
from tracebridge.core.kernels.steps.scan_kernel import scan_kernel_p
from tracebridge.core.kernels.steps.values import NotWritten
from tracebridge.core.kernels.steps.writer import module_text
from tracebridge.core.lowering.rewrites.blocks import Loop, Moved, Readings, with_loops
from tracebridge.core.lowering.rewrites.flat import computed_by, flat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.jaxpr import Jaxpr

_FEWEST_STEPS = 4
_MOST_EQUATIONS = 400
_MOST_SCRATCH = 1 << 20  # bytes
_SURELY_SHORT = 32  # equations: their text is not counted
_MOST_LINES = 8192  # of the text: LLVM takes two seconds, XLA a fifth of that
_MOST_MULTIPLIED = 1 << 19  # products of numbers in one matrix product: XLA has more threads
_MOST_ELEMENTS = 1 << 15  # of an array


def with_scan_kernels(jaxpr: Jaxpr) -> Jaxpr:
    """``jaxpr`` with kernels for its small loops."""
    # None stands for the Jaxpr itself, which must not refer to itself.
    if "scan kernels" not in jaxpr.cache:
        found = [
            k
            for k, (app, _) in enumerate(jaxpr.equations)
            if app.primitive.runs_steps and _may_have(app) and is_there()
        ]
        jaxpr.cache["scan kernels"] = _with_kernels(jaxpr, found) if found else None
    return jaxpr.cache["scan kernels"] or jaxpr


def _with_kernels(jaxpr: Jaxpr, loops: Sequence[int]) -> Jaxpr:
    """The program with kernels for the loops that are equations of these numbers."""
    readings = Readings(jaxpr)
    return with_loops(jaxpr, {k: _kernel(readings, k) for k in loops})


def _may_have(app: Application) -> bool:
    """Whether the body of a loop can be a kernel at all. It is looked at once."""
    length, body = app.params["length"], app.params["jaxpr"]
    if type(length) is not int or length < _FEWEST_STEPS or app.effects:
        return False
    key = "may be a kernel", app.params["num_consts"], app.params["num_carry"]
    if key not in body.cache:
        body.cache[key] = _is_written(_flat(body), *key[1:])
    return body.cache[key]


def _flat(body: Jaxpr) -> Jaxpr:
    return flat(inline_calls(body), computed_by)


def _is_written(body: Jaxpr, n_consts: int, n_carry: int) -> bool:
    if len(body.equations) > _MOST_EQUATIONS or not _is_small(body):
        return False
    try:
        plan = Plan(body, n_consts, n_carry)
    except NotWritten:
        return False
    return plan.scratch <= _MOST_SCRATCH and _is_short(plan)


def _is_short(plan: Plan) -> bool:
    """Whether LLVM compiles a kernel in about the time that XLA takes for the loop."""
    if len(plan.body.equations) <= _SURELY_SHORT:
        return True
    return module_text(plan, False, machine().lanes).count("\n") <= _MOST_LINES


def _kernel(readings: Readings, at: int) -> Loop:
    """The kernel of the loop that is equation number ``at``."""
    params = readings.jaxpr.equations[at][0].params
    n_consts, n_carry = params["num_consts"], params["num_carry"]
    moved = Moved(readings, at, n_consts + n_carry, params["length"])
    flat_body = _flat(params["jaxpr"])
    if moved.moved:
        numbers = [v for v in moved.sources if not moved.avals[v].ndim]
        rows = [v for v in moved.sources if moved.avals[v].ndim]
        body, n_all = _with_moved(flat_body, n_consts, n_carry, moved), n_consts + len(numbers)
        if _is_written(body, n_all, n_carry):
            unmade = moved.unmade()
            operands = [*unmade[:n_consts], *numbers, *unmade[n_consts:], *rows]
            params = {**params, "jaxpr": body, "num_consts": n_all}
            return Loop(scan_kernel_p, params, operands, moved.moved)
    return Loop(scan_kernel_p, {**params, "jaxpr": flat_body}, moved.operands, ())


def _with_moved(body: Jaxpr, n_consts: int, n_carry: int, moved: Moved) -> Jaxpr:
    """The body with what makes some of its xs.

    It takes consts, numbers that the moved equations read, carry, the other xs, slices of what the
    moved equations read.
    """
    program = moved.of_steps(1)
    first_xs = n_consts + n_carry
    made = {first_xs + i for i in moved.made}

    def run(*args: Any) -> list[Any]:
        given = iter(args)
        found: dict[int, Any] = {i: next(given) for i in range(n_consts)}
        sources: dict[int, Any] = {v: next(given) for v in moved.sources if not moved.avals[v].ndim}
        found.update({i: next(given) for i in range(n_consts, body.n_in) if i not in made})
        for v in moved.sources:
            if moved.avals[v].ndim:
                sources[v] = lax.expand_dims(next(given), (0,))
        process = current_trace().process
        rows = eval_jaxpr(program, process, [sources[v] for v in moved.sources])
        found.update({i: lax.squeeze(x, (0,)) for i, x in zip(sorted(made), rows, strict=True)})
        return eval_jaxpr(body, process, [found[i] for i in range(body.n_in)])

    avals = [*body.in_avals[:n_consts]]
    avals += [moved.avals[v] for v in moved.sources if not moved.avals[v].ndim]
    avals += [a for i, a in enumerate(body.in_avals) if i >= n_consts and i not in made]
    avals += [element_aval(moved.avals[v]) for v in moved.sources if moved.avals[v].ndim]
    return stage(run, avals, body.debug, locate=False)


def _is_small(body: Jaxpr) -> bool:
    """Whether one thread does the work of a step as soon as XLA would have shared it out."""
    for app, _ in body.equations:
        sizes = [a.size for a in (*app.avals, *app.outs)]
        if any([type(size) is not int or size > _MOST_ELEMENTS for size in sizes]):
            return False
        if app.primitive is lax.dot_general_p:
            (summed, _), _ = app.params["dimension_numbers"]
            terms = math.prod([app.avals[0].shape[i] for i in summed])
            if terms * app.out.size > _MOST_MULTIPLIED:
                return False
    return True
