"""Programs with their gradients, in the convention of torch.

The gradient of a real function of a complex number is the conjugate of the engine's.
"""

from __future__ import annotations

from typing import Any

import tracebridge.core.lax as lax
from tracebridge._derived.dependence import attached, paths_of, reached
from tracebridge.core.dtypes.dtypes import is_complex, is_inexact
from tracebridge.core.interpreters.dce import dce_jaxpr
from tracebridge.core.interpreters.inline import inline_calls
from tracebridge.core.interpreters.linearize import linearize_jaxpr
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.interpreters.transpose import transpose_jaxpr
from tracebridge.core.ir.jaxpr import Jaxpr, eval_jaxpr
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.lax.ad_util import zeros_of

Mask = tuple[bool, ...]


def with_gradients(primal: Jaxpr, active: Mask, cotangents: Mask) -> Jaxpr:
    """``(inputs, cotangents) -> (results, gradients of active inputs)`` in torch's convention."""
    key = ("torch gradients", active, cotangents)
    found = primal.cache.get(key)
    if found is None:
        found = primal.cache[key] = _stage_gradients(inline_calls(primal), active, cotangents)
    return found


def gradients(primal: Jaxpr, active: Mask, cotangents: Mask) -> Jaxpr:
    """``(inputs, cotangents) -> gradients of active inputs``.

    The forward pass has had the effects of the function: what is computed again has none.
    """
    if primal.effects:
        whole = _stage_gradients(inline_calls(primal), active, cotangents, again=True)
    else:
        whole = with_gradients(primal, active, cotangents)
    n = 0 if primal.effects else len(primal.outs)
    used = tuple([i >= n for i in range(len(whole.outs))])
    return dce_jaxpr(whole, used, keep_in=True)[0]


def with_slopes(primal: Jaxpr, active: Mask) -> Jaxpr:
    """``inputs -> (results, gradients of active inputs)`` where every cotangent is 1."""
    cotangents = attached(active, paths_of(primal))
    whole = with_gradients(primal, active, cotangents)
    given = [a for a, here in zip(primal.out_avals, cotangents, strict=True) if here]

    def run(*xs: Any) -> list[Any]:
        ones = [lax.full(a.shape, 1, a.dtype) for a in given]
        return eval_jaxpr(whole, current_trace().process, [*xs, *ones])

    return stage(run, primal.in_avals, primal.debug, locate=False)


def jvp_by_gradients(primal: Jaxpr, nonzero: Mask) -> Jaxpr:
    """What ``Jvp`` is where only gradients are known.

    Gradients are linear in the cotangents; the gradient by these is the transpose of that.
    """
    paths = paths_of(primal)
    active = reached(nonzero, paths, (True,) * len(paths))
    cotangents = attached(active, paths)
    n_in, n_active, n_cts = primal.n_in, sum(active), sum(cotangents)
    pull = push = primal  # if no result depends on an input that moves
    if n_active:
        pull = gradients(primal, active, cotangents)
        push = gradients(pull, (False,) * n_in + (True,) * n_cts, (True,) * n_active)

    def run(*values: Any) -> list[Any]:
        process = current_trace().process
        xs = values[:n_in]
        given = iter(values[n_in:])
        tangents = {i: next(given) for i, here in enumerate(nonzero) if here}
        taken = [tangents[i] for i, here in enumerate(active) if here]
        zeros = [zeros_of(a) for a in pull.in_avals[n_in:]]
        found = iter(eval_jaxpr(push, process, [*xs, *zeros, *taken]) if n_active else [])
        outs = eval_jaxpr(primal, process, xs)
        moved = [
            next(found) if c else zeros_of(a.strong)
            for c, a in zip(cotangents, primal.out_avals, strict=True)
            if is_inexact(a.dtype)
        ]
        return [*outs, *moved]

    given_avals = [a.strong for a, here in zip(primal.in_avals, nonzero, strict=True) if here]
    return stage(run, [*primal.in_avals, *given_avals], primal.debug, locate=False)


def _stage_gradients(
    primal: Jaxpr, active: Mask, cotangents: Mask, *, again: bool = False
) -> Jaxpr:
    """``again``: the gradients alone; of what has effects, only that on which they depend."""
    parts = linearize_jaxpr(primal, active)
    forward = parts.primal
    n_in, n_out = primal.n_in, len(primal.outs)
    if again:
        used = (False,) * n_out + (True,) * (len(forward.outs) - n_out)
        forward = dce_jaxpr(forward, used, keep_in=True, keep_effects=False)[0]
        n_out = 0
    has_cotangent = [
        c and nz and is_inexact(a.dtype)
        for c, nz, a in zip(cotangents, parts.nonzero_out, primal.out_avals, strict=True)
    ]
    linear_cts = tuple([g for g, nz in zip(has_cotangent, parts.nonzero_out, strict=True) if nz])
    n_res = len(parts.forwarded) + parts.n_residuals
    n_active = sum(active)
    linear_in = (False,) * n_res + (True,) * n_active
    backward, _ = transpose_jaxpr(parts.linear, linear_in, linear_cts, instantiate=True)

    def run(*values: Any) -> list[Any]:
        process = current_trace().process
        xs = values[:n_in]
        results = eval_jaxpr(forward, process, xs)
        residuals = [xs[i] for i in parts.forwarded] + results[n_out:]
        cts: list[Any] = []
        given_cts = iter(values[n_in:])
        for here, used in zip(cotangents, has_cotangent, strict=True):
            ct = next(given_cts) if here else None
            if used:
                cts.append(conjugate(ct))
        grads = eval_jaxpr(backward, process, [*residuals, *cts])
        return [*results[:n_out], *[conjugate(g) for g in grads]]

    ct_avals = [a.strong for a, c in zip(primal.out_avals, cotangents, strict=True) if c]
    return stage(run, [*primal.in_avals, *ct_avals], primal.debug, locate=False)


def conjugate(x: Any) -> Any:
    """The conjugate of a complex value; others as they are."""
    return lax.conj(x) if is_complex(x.aval.dtype) else x
