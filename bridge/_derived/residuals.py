"""Which intermediate values a forward pass keeps for its backward pass: one rule, in one place.

Kept are results of contractions, reductions, sorts, loops and other equations of some cost, and
elementwise functions that cost more than reading their result back from memory (exp, tanh, ...).
Cheap elementwise work, conversions and changes of shape are done again inside the backward
program, where XLA fuses them with what needs them: for a chain of cheap operations on 1e6 elements
that took 2.1 ms instead of 6.0, for a chain of tanh keeping took 6.0 ms instead of 10.7.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, final

import tracebridge.core.lax as lax
from tracebridge.core.errors.base import InternalError
from tracebridge.core.errors.transform_errors import (
    EffectError,
    GradientTypeError,
    MissingRuleError,
)
from tracebridge.core.interpreters.dce import dce_jaxpr
from tracebridge.core.interpreters.jvp import jvp_jaxpr
from tracebridge.core.interpreters.partial_eval import partial_eval_jaxpr
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.jaxpr import Jaxpr, eval_jaxpr
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.lax.ad_util import zeros_of
from tracebridge.core.lax.contract.dot import dot_general_p
from tracebridge.interop.dtypes import is_exchanged

Mask = tuple[bool, ...]

# What derivatives of a function raise that has none, whatever its sizes are.
NO_DERIVATIVE = (GradientTypeError, EffectError, MissingRuleError)

# Below this much work (see ``cost``) a forward pass keeps nothing: passing a residual from one
# program to the next takes about 4 us, as long as some 4e4 multiplications.
SMALL = 40_000
_EXPENSIVE = 20  # of an elementwise function such as tanh, in multiplications


def saveable(application: Any) -> bool:
    """Whether results of an equation may be kept; a policy of ``partial_eval_jaxpr``."""
    return not application.primitive.cost.is_repeatable and all(
        [is_exchanged(a.dtype) for a in application.outs]
    )


def nothing_saveable(application: Any) -> bool:
    """The policy that keeps inputs only."""
    del application
    return False


def cost(jaxpr: Jaxpr) -> float:
    """A rough number of multiplications of a program; infinite with loops and the like."""
    total = 0.0
    for app, _ in jaxpr.equations:
        elements = sum([float(a.size) for a in app.outs])
        kind = app.primitive.cost
        if app.primitive is dot_general_p:
            total += _products(app) * elements
        elif kind is Cost.REDUCTION or kind.is_repeatable:
            total += max(elements, *[float(a.size) for a in app.avals], 0.0)
        elif kind in (Cost.EXPENSIVE, Cost.COMPOSED):
            total += _EXPENSIVE * elements
        else:
            return float("inf")
    return total


def _products(app: Any) -> float:
    """Length of the sums of a contraction."""
    contracted = app.params["dimension_numbers"][0][0]
    result = 1.0
    for d in contracted:
        result *= app.avals[0].shape[d]
    return result


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
    0 * inf = nan where torch computes nothing at all.
    """
    nonzero = (*(False,) * n_fixed, *kept_inputs)
    both, _ = jvp_jaxpr(jaxpr, nonzero, True)
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
    n_grads = len(joint.outs) - n_out
    policy = nothing_saveable if cost(joint) < SMALL else saveable
    parts = partial_eval_jaxpr(
        joint,
        (False,) * n_in + (True,) * n_cts,
        (False,) * n_out + (True,) * n_grads,
        policy,
    )
    known = parts.known
    variables = known.outs[n_out:]
    inputs: list[int] = []
    results: list[int] = []
    computed: list[int] = []
    origin: list[tuple[int, int]] = []  # (group, position in the group) of each residual
    of_result = {variable: i for i, variable in reversed(list(enumerate(known.outs[:n_out])))}
    for k, variable in enumerate(variables):
        group = inputs if variable < n_in else results if variable in of_result else computed
        which = 0 if group is inputs else 1 if group is results else 2
        origin.append((which, len(group)))
        group.append(variable if which == 0 else of_result[variable] if which == 1 else n_out + k)
    kept = tuple([i < n_out or i in computed for i in range(len(known.outs))])
    forward, _ = dce_jaxpr(known, kept, keep_in=True)
    starts = (0, len(inputs), len(inputs) + len(results))
    order = [starts[which] + place for which, place in origin]
    n_saved = len(order)

    def run(*values: Any) -> list[Any]:
        args = [*[values[i] for i in order], *values[n_saved:]]
        return eval_jaxpr(parts.unknown, current_trace().process, args)

    unknown_avals = parts.unknown.in_avals
    saved_avals: list[Any] = [None] * n_saved
    for place, aval in zip(order, unknown_avals[:n_saved], strict=True):
        saved_avals[place] = aval
    backward = stage(run, [*saved_avals, *unknown_avals[n_saved:]], primal.debug, locate=False)
    _, used = dce_jaxpr(joint, (False,) * n_out + (True,) * n_grads, keep_in=True)
    redo = tuple([i for i in range(n_in) if used[i]])
    return Split(forward, backward, tuple(inputs), tuple(results), len(computed), redo, cotangents)
