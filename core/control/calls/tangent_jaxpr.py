"""Derivatives of Jaxprs in which primal and linear equations stay apart."""

from __future__ import annotations

from typing import Any

from tracebridge.core.interpreters.linearize import linearize_flat
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.jaxpr import Jaxpr, eval_jaxpr
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.lax.ad_util import zeros_of

Flags = tuple[bool, ...]


def tangent_jaxpr(
    jaxpr: Jaxpr, nonzero_in: Flags, instantiate: Flags | bool = False
) -> tuple[Jaxpr, Flags]:
    """The Jaxpr ``(primals, nonzero tangents) -> (results, tangents)``; which tangents it gives.

    As ``jvp_jaxpr``, but no equation mixes primals and tangents, and rules that work in reverse
    mode only may be inside: it is for programs that will be transposed.
    """
    n, n_out = jaxpr.n_in, len(jaxpr.outs)
    wanted = (instantiate,) * n_out if isinstance(instantiate, bool) else instantiate
    key = ("tangents", nonzero_in, wanted)
    cached = jaxpr.cache.get(key)
    if cached is not None:
        return cached
    nonzero_out: list[bool] = []

    def run(*args: Any) -> list[Any]:
        process = current_trace().process

        def body(*xs: Any) -> list[Any]:
            return eval_jaxpr(jaxpr, current_trace().process, xs)

        outs, linear = linearize_flat(body, args[:n], nonzero_in)
        tangents = linear.forward(process, args[n:])
        for i, t in enumerate(tangents):
            if t is None and wanted[i]:
                tangents[i] = zeros_of(outs[i].aval.tangent)
        nonzero_out.extend([t is not None for t in tangents])
        return [*outs, *[t for t in tangents if t is not None]]

    avals = [a.tangent for a, nz in zip(jaxpr.in_avals, nonzero_in, strict=True) if nz]
    whole = stage(run, [*jaxpr.in_avals, *avals], jaxpr.debug, locate=False)
    cached = jaxpr.cache[key] = (whole, tuple(nonzero_out))
    return cached
