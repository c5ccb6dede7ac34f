"""Which intermediate values a forward pass keeps for its backward pass: one rule, in one place.

A cheapest cut decides (core/interpreters/residual_plan.py): what contractions, reductions, sorts,
loops and other equations of some cost give is never computed again, but for large scores, products
of batches with short sums; of elementwise functions those
are kept that cost more than reading their result back from memory (exp, tanh, ...). Equal values
are found first and kept once. Cheap work is done again inside the backward program, where XLA fuses
it with what needs it: for a chain of cheap operations on 1e6 elements that took 2.1 ms instead of
6.0, for a chain of tanh keeping took 6.0 ms instead of 10.7.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, final

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import float32, int8, is_integer, is_signed, uint8
from tracebridge.core.errors.base import InternalError
from tracebridge.core.errors.transform_errors import (
    EffectError,
    GradientTypeError,
    MissingRuleError,
)
from tracebridge.core.interpreters.dce import dce_jaxpr
from tracebridge.core.interpreters.inline import inline_calls
from tracebridge.core.interpreters.jvp import jvp_jaxpr
from tracebridge.core.interpreters.known_graph import KnownGraph
from tracebridge.core.interpreters.residual_plan import Prices, plan_residuals, redo_all
from tracebridge.core.interpreters.split_by_known import split_by_known
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.jaxpr import Jaxpr, eval_jaxpr
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.lax.ad_util import zeros_of
from tracebridge.core.lax.contract.dot import dot_general_p
from tracebridge.core.prng.keys import implementation_of, random_unwrap_p, random_wrap_p
from tracebridge.interop.dtypes import is_exchanged

if TYPE_CHECKING:
    from tracebridge.core.interpreters.graph import Graph, GraphEquation

Mask = tuple[bool, ...]

# What derivatives of a function raise that has none, whatever its sizes are.
NO_DERIVATIVE = (GradientTypeError, EffectError, MissingRuleError)

# What keeping one value costs beside its elements, in milliseconds.
_PER_VALUE = 0.004

# Below this much work (see ``cost``) a forward pass keeps nothing: passing a residual from one
# program to the next takes about 4 us, as long as some 4e4 multiplications.
SMALL = 40_000
_EXPENSIVE = 20  # of an elementwise function such as tanh, in multiplications


def cost(jaxpr: Jaxpr) -> float:
    """A rough number of multiplications of a program; infinite with loops and the like."""
    total = 0.0
    for app, _ in jaxpr.equations:
        size = sum([_size(a.shape) for a in app.outs])
        kind = app.primitive.cost
        if app.primitive is dot_general_p:
            total += _products(app) * size
        elif kind is Cost.REDUCTION or kind.is_repeatable:
            total += max(size, *[_size(a.shape) for a in app.avals], 0.0)
        elif kind in (Cost.EXPENSIVE, Cost.COMPOSED):
            total += _EXPENSIVE * size
        else:
            return float("inf")
    return total


def _products(app: Any) -> float:
    """Length of the sums of a contraction."""
    contracted = app.params["dimension_numbers"][0][0]
    return _size([app.avals[0].shape[d] for d in contracted])


def _size(shape: Iterable[object]) -> float:
    """Number of elements; symbolic sizes count as a thousand, as in plans of residuals."""
    return math.prod([d if isinstance(d, int) else 1000.0 for d in shape], start=1.0)


@final
class Split:
    """A function split for reverse mode.

    ``forward``: inputs -> (results, residuals that are neither inputs nor results).
    ``backward``: (saved values, cotangents) -> gradients. The saved values are ``inputs``,
    then ``results`` (positions of both), then the residuals. ``redo``: inputs that a backward
    pass without residuals needs; it is used when the backward pass is itself differentiated.
    """

    __slots__ = (
        "_of_all",
        "backward",
        "cotangents",
        "forward",
        "inputs",
        "n_residuals",
        "redo",
        "results",
    )

    def __init__(
        self,
        forward: Jaxpr,
        backward: Jaxpr,
        inputs: tuple[int, ...],
        results: tuple[int, ...],
        n_residuals: int,
        redo: tuple[int, ...],
        cotangents: Mask,
    ) -> None:
        self.forward = forward
        self.backward = backward
        self.inputs = inputs
        self.results = results
        self.n_residuals = n_residuals
        self.redo = redo
        self.cotangents = cotangents
        self._of_all: dict[Mask, Jaxpr] = {}

    def backward_for(self, cotangents: Mask) -> Jaxpr:
        """The backward program when only some results have a cotangent."""
        n_saved = self.backward.n_in - sum(self.cotangents)
        given = tuple([c for c, here in zip(cotangents, self.cotangents, strict=True) if here])
        if all(given):
            return self.backward
        return restrict_linear(self.backward, n_saved, given)

    def backward_of_all(self, cotangents: Mask) -> Jaxpr:
        """``backward_for`` as a function of all inputs, then the other saved values."""
        found = self._of_all.get(cotangents)
        if found is None:
            found = self._of_all[cotangents] = self._stage_of_all(self.backward_for(cotangents))
        return found

    def _stage_of_all(self, backward: Jaxpr) -> Jaxpr:
        n_in = self.forward.n_in
        chosen = self.inputs

        def run(*values: Any) -> list[Any]:
            args = [*[values[i] for i in chosen], *values[n_in:]]
            return eval_jaxpr(backward, current_trace().process, args)

        avals = [*self.forward.in_avals, *backward.in_avals[len(chosen) :]]
        return stage(run, avals, backward.debug, locate=False)


def restrict_linear(jaxpr: Jaxpr, n_fixed: int, kept_inputs: Mask) -> Jaxpr:
    """``jaxpr``, linear in its inputs after ``n_fixed``, with those not in ``kept_inputs`` as 0.

    A linear function is its own derivative: its jvp for tangents at the kept inputs knows that
    the other ones are zero, so that nothing is computed for them. Putting zeros in would give
    0 * inf = nan where torch computes nothing at all. Programs that were saved without derivatives
    of this order do not tell what they do: they are given zeros.
    """
    nonzero = (*(False,) * n_fixed, *kept_inputs)
    try:
        both, _ = jvp_jaxpr(jaxpr, nonzero, True)
    except MissingRuleError:
        return _with_zeros(jaxpr, n_fixed, kept_inputs)
    n_out = len(jaxpr.outs)
    tangents, used = dce_jaxpr(both, (False,) * n_out + (True,) * n_out, keep_in=True)
    if any(used[n_fixed : jaxpr.n_in]):
        msg = "a backward program is not linear in its cotangents"
        raise InternalError(msg)

    def run(*values: Any) -> list[Any]:
        unused = [zeros_of(a) for a in jaxpr.in_avals[n_fixed:]]
        args = [*values[:n_fixed], *unused, *values[n_fixed:]]
        return eval_jaxpr(tangents, current_trace().process, args)

    avals = [*jaxpr.in_avals[:n_fixed], *tangents.in_avals[jaxpr.n_in :]]
    return stage(run, avals, jaxpr.debug, locate=False)


def _with_zeros(jaxpr: Jaxpr, n_fixed: int, kept_inputs: Mask) -> Jaxpr:
    """``jaxpr`` with zeros for those of its inputs after ``n_fixed`` that are not kept."""
    kept = (*(True,) * n_fixed, *kept_inputs)

    def run(*values: Any) -> list[Any]:
        given = iter(values)
        pairs = zip(jaxpr.in_avals, kept, strict=True)
        args = [next(given) if here else zeros_of(aval) for aval, here in pairs]
        return eval_jaxpr(jaxpr, current_trace().process, args)

    avals = [aval for aval, here in zip(jaxpr.in_avals, kept, strict=True) if here]
    return stage(run, avals, jaxpr.debug, locate=False)


def from_values(jaxpr: Jaxpr, places: Collection[int]) -> Jaxpr:
    """``jaxpr`` where the inputs at ``places`` come as the one value of all their elements."""
    avals = [a.update(shape=()) if i in places else a for i, a in enumerate(jaxpr.in_avals)]

    def run(*values: Any) -> list[Any]:
        args = [
            lax.broadcast_in_dim(x, aval.shape, ()) if i in places else x
            for i, (x, aval) in enumerate(zip(values, jaxpr.in_avals, strict=True))
        ]
        return eval_jaxpr(jaxpr, current_trace().process, args)

    return stage(run, avals, jaxpr.debug, locate=False)


def split_for_backward(joint: Jaxpr, primal: Jaxpr, cotangents: Mask) -> Split:
    """Split ``joint``: (inputs, cotangents) -> (results, gradients); see ``Split``."""
    n_in, n_out = primal.n_in, len(primal.outs)
    n_cts = joint.n_in - n_in
    _, used = dce_jaxpr(joint, (False,) * n_out + (True,) * (len(joint.outs) - n_out), keep_in=True)
    redo = tuple([i for i in range(n_in) if used[i]])
    is_small = cost(joint) < SMALL and not joint.effects
    jaxpr = split_by_known(inline_calls(joint, rules=True), (False,) * n_in + (True,) * n_cts)
    whole = KnownGraph(jaxpr, n_in)
    graph = whole.graph
    outs = whole.outs[:n_out]
    results = {number: i for i, number in reversed(list(enumerate(outs)))}

    def free(number: int) -> bool:
        return number < n_in or (number in results and not is_small)

    needed = whole.needed(whole.outs[n_out:])
    if is_small:
        plan = redo_all(graph, needed, free)
    else:
        prices = Prices(graph, outs, _PER_VALUE, lambda aval: is_exchanged(aval.dtype))
        plan = plan_residuals(graph, graph.equations, free, needed, prices)
    inputs = [n for n in plan.kept if n < n_in]
    of_results = [n for n in plan.kept if n >= n_in and n in results]
    computed = [n for n in plan.kept if n >= n_in and n not in results]
    passed, restored = _in_passing(graph, computed)
    forward = graph.program(range(n_in), [*outs, *passed], primal.debug)
    backward = graph.program(
        [*inputs, *of_results, *passed, *whole.unknown_inputs],
        whole.outs[n_out:],
        primal.debug,
        [*restored, *plan.redone, *whole.unknown],
    )
    positions = tuple(inputs), tuple([results[n] for n in of_results])
    return Split(forward, backward, *positions, len(computed), redo, cotangents)


def _in_passing(graph: Graph, kept: list[int]) -> tuple[list[int], list[GraphEquation]]:
    """Residuals in dtypes that frameworks have, and the equations that make ``kept`` of them.

    Keys that a call or a gather gave, and that a loop or a checkpoint of the backward program
    takes, are passed as their words; integers of few bits as integers of eight,
    rare floats as float32.
    """
    passed: list[int] = []
    restored: list[GraphEquation] = []
    for number in kept:
        aval = graph.avals[number]
        if is_exchanged(aval.dtype):
            passed.append(number)
            continue
        implementation = implementation_of(aval)
        if implementation is not None:
            there: Any = random_unwrap_p.application((aval,), {})
            back = random_wrap_p.application(there.outs, {"impl": implementation.name})
        else:
            whole = int8 if is_signed(aval.dtype) else uint8
            params = {"new_dtype": whole if is_integer(aval.dtype) else float32, "weak_type": False}
            there = lax.convert_element_type_p.application((aval,), params)
            params = {"new_dtype": aval.dtype, "weak_type": aval.weak_type}
            back = lax.convert_element_type_p.application(there.outs, params)
        passed.append(graph.add(there, (number,)))
        restored.append((back, (passed[-1],), number, None))
    return passed, restored
