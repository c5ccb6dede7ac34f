"""Pullbacks of exported programs, as exported programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracebridge._api.derivatives.vjp import vjp
from tracebridge.core.dtypes.dtypes import is_inexact
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.debug_info import DebugInfo
from tracebridge.core.ir.jaxpr import Jaxpr, eval_jaxpr
from tracebridge.core.ir.trace import current_trace


def pullback_of(jaxpr: Jaxpr, name: str) -> Jaxpr:
    """``(inputs, cotangents) -> cotangents``: of those results and inputs that have some."""
    moving_in = [i for i, a in enumerate(jaxpr.in_avals) if is_inexact(a.dtype)]
    moving_out = [i for i, a in enumerate(jaxpr.out_avals) if is_inexact(a.dtype)]
    n_in = jaxpr.n_in

    def run(*values: Any) -> Sequence[Any]:
        def primal(*moving: Any) -> list[Any]:
            xs = list(values[:n_in])
            for i, x in zip(moving_in, moving, strict=True):
                xs[i] = x
            outs = eval_jaxpr(jaxpr, current_trace().process, xs)
            return [outs[i] for i in moving_out]

        _, pull = vjp(primal, *[values[i] for i in moving_in])
        return tuple(pull(list(values[n_in:])))

    cotangents = [jaxpr.out_avals[i].strong for i in moving_out]
    return stage(run, [*jaxpr.in_avals, *cotangents], DebugInfo(name), locate=False)


def types_of_pullback(
    in_avals: Sequence[ShapedArray], out_avals: Sequence[ShapedArray]
) -> tuple[tuple[ShapedArray, ...], tuple[ShapedArray, ...]]:
    """Types of all inputs and all results of the pullback, with those that hold nothing."""
    return (*in_avals, *[_cotangent(a) for a in out_avals]), tuple(
        [_cotangent(a) for a in in_avals]
    )


def _cotangent(aval: ShapedArray) -> ShapedArray:
    return aval.tangent.strong
