"""Jaxprs with their inputs and results in another order, without tracing them again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.jaxpr import Jaxpr


def permute_jaxpr(
    jaxpr: Jaxpr,
    inputs: Sequence[int | ShapedArray] | None = None,
    outputs: Sequence[int] | None = None,
) -> Jaxpr:
    """``jaxpr`` with new inputs and results.

    ``inputs``: per new input the position of an old one, or an aval for an input that nothing
    uses; old inputs that are left out must be unused. ``outputs``: per new result a variable of
    ``jaxpr`` (results of equations, inputs, constants). ``None`` leaves either as it is.
    """
    n_old = jaxpr.n_in
    chosen: Sequence[int | ShapedArray] = range(n_old) if inputs is None else inputs
    n_new = len(chosen)
    table: list[int | None] = [None] * n_old
    in_avals: list[ShapedArray] = []
    for position, old in enumerate(chosen):
        if isinstance(old, ShapedArray):
            in_avals.append(old)
        else:
            table[old] = position
            in_avals.append(jaxpr.in_avals[old])
    shift = n_new - n_old

    def moved(variable: int) -> int:
        if variable >= n_old:
            return variable + shift
        position = table[variable]
        if position is None:
            msg = f"permute_jaxpr: input {variable} is used but was left out"
            raise ValueError(msg)
        return position

    variables = jaxpr.outs if outputs is None else tuple(outputs)
    if outputs is None:
        out_avals: Sequence[ShapedArray] = jaxpr.out_avals
    else:
        avals = jaxpr.variable_avals()
        out_avals = [avals[s] for s in variables]
    equations: list[Any] = [(app, tuple([moved(i) for i in idx])) for app, idx in jaxpr.equations]
    return Jaxpr(
        in_avals,
        jaxpr.consts,
        equations,
        [moved(s) for s in variables],
        out_avals,
        jaxpr.sources,
        jaxpr.debug,
    )


def used_inputs(jaxpr: Jaxpr) -> list[bool]:
    """Which inputs an equation or a result uses."""
    used = set(jaxpr.outs)
    for _, idx in jaxpr.equations:
        used.update(idx)
    return [i in used for i in range(jaxpr.n_in)]


def reached(jaxpr: Jaxpr, results: Sequence[bool]) -> list[bool]:
    """Which inputs the results marked by ``results`` depend on."""
    fixed = jaxpr.n_in + len(jaxpr.consts)
    live = [False] * (fixed + sum([len(app.outs) for app, _ in jaxpr.equations]))
    for variable, here in zip(jaxpr.outs, results, strict=True):
        live[variable] = live[variable] or here
    end = len(live)
    for app, idx in reversed(jaxpr.equations):
        start = end - len(app.outs)
        if any(live[start:end]):
            for i in idx:
                live[i] = True
        end = start
    return live[: jaxpr.n_in]
