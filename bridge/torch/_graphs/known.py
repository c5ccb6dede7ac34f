"""Calls of the operator that are known: to their programs past torch's dispatcher.

torch.compile writes the operator's Python object into its code. Through the dispatcher a call
takes as long again as a small program. So that object looks first whether the call is one that the
dispatcher would end in a program: plain tensors as in a call before, by one look that sees the
dispatch keys which the state of the thread adds or takes away, and nobody else who wants to see it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from tracebridge.core.config.state import state
from tracebridge.interop.torch_adapter import modes_active
from tracebridge.torch._eager.entry import CallTable
from tracebridge.torch._eager.guards import any_nested
from tracebridge.torch._eager.visible import function_modes, profiler

# Executables of calls in graphs by handle, dtypes and shapes.
KNOWN = CallTable("graphs")
_grad_enabled = torch.is_grad_enabled
_guarded = KNOWN.guarded.get


def guarded(xs: Sequence[torch.Tensor], h: str) -> Any:
    """What is known of a call of these plain tensors, by one look at them; or None."""
    if state() is None and not profiler._is_profiler_enabled and not any_nested(xs):
        for found in _guarded(h, ()):
            if found[0](*xs):
                return found
    return None


def shorten(operator: Any) -> None:
    """Let known calls of ``operator(xs, h, ...)`` from Python go straight to their programs."""
    dispatched = getattr(operator, "_op", None)
    if dispatched is None:
        return  # no part of torch's interface: without it all calls are dispatched

    # ``guarded``, written out: this is on the way of each call of compiled code.
    def call(xs: Sequence[torch.Tensor], h: str, program: str | None = None) -> Any:
        if (
            not modes_active()
            and not function_modes()
            and forward_ad._current_level < 0
            and state() is None
            and not profiler._is_profiler_enabled
            and not any_nested(xs)
        ):
            for check, wanted, compiled, _ in _guarded(h, ()):
                if check(*xs):
                    if wanted is None or not _grad_enabled():
                        return compiled.run(xs)
                    break
        return dispatched(xs, h) if program is None else dispatched(xs, h, program)

    operator._op = call
