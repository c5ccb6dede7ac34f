"""Families applied through torch's dispatcher, by the operator of _graphs/operator.py."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tracebridge._derived.families import Avals, Family, pin
from tracebridge._derived.residuals import NO_DERIVATIVE
from tracebridge.interop.torch_adapter import modes_active
from tracebridge.torch._crossing.numbers import aval_of
from tracebridge.torch._crossing.symbolic import Sizes, has_symbolic, least_size
from tracebridge.torch._graphs.saved import program_for_graph

_set_tracing_state = torch._C._set_tracing_state  # pyright: ignore[reportAttributeAccessIssue] - the stubs forget it


def apply_operator(xs: Sequence[torch.Tensor], family: Family) -> list[torch.Tensor]:
    """Call the operator. Under a mode torch may keep the handle in a graph."""
    tracing = torch._C._get_tracing_state()
    if tracing is not None:  # pyright: ignore[reportUnnecessaryComparison] - the stubs forget None
        # torch.jit.trace would warn that sizes are looked at, which it need not know of.
        _set_tracing_state(None)
        try:
            handle, _ = captured(family, xs)
        finally:
            _set_tracing_state(tracing)
        return torch.ops.tracebridge.call.default(list(xs), handle)
    handle, program = captured(family, xs) if modes_active() > 0 else (family.handle, "")
    if program:
        return torch.ops.tracebridge.call_saved.default(list(xs), handle, program)
    return torch.ops.tracebridge.call.default(list(xs), handle)


def captured(family: Family, xs: Sequence[torch.Tensor]) -> tuple[str, str]:
    """For a graph in which a family is called with ``xs``: its handle, and maybe its program."""
    try:
        avals = avals_for_trace(family, xs)[0]
        return family.captured(avals), program_for_graph(family, avals)
    except Exception:  # noqa: BLE001 - whatever it is, the call itself raises it where torch expects it
        pin(family.handle, family)
        return family.handle, ""


def avals_for_trace(family: Family, xs: Sequence[torch.Tensor]) -> tuple[Avals, Sizes | None]:
    """At which avals a graph's call is traced: for all sizes if the function lets it."""
    # Which equalities of the example are taken for granted, and what sizes are at least.
    tries: list[tuple[bool, bool, int]] = []
    if has_symbolic(xs):
        known = least_size(xs)
        least = known or 1
        tries = [(False, False, known)] if known else [(False, False, 0), (False, False, 1)]
        tries += [(True, False, least), (True, True, least)]
    for merge, settle, least in tries:
        try:
            sizes = Sizes(xs, merge=merge, settle=settle, least=least)
            avals = tuple([sizes.aval(x) for x in xs])
            for a in family.program(avals).out_avals:
                for d in a.shape:
                    sizes.value(d)
        except NO_DERIVATIVE:
            raise  # at no sizes there is one
        except Exception:  # noqa: BLE001, S112 - it needs to know more about the sizes
            continue
        if tries[0][2] < least:
            sizes.require(least)
        return avals, sizes
    # Asking torch for the values of sizes makes the graph a graph for these values only.
    return tuple([aval_of(x) for x in xs]), None
