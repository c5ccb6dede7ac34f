"""Linearization of Jaxprs: their equations and those of the linear part in one graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from tracebridge.core.interpreters.graph import Graph, GraphEquation, within
from tracebridge.core.interpreters.staged_rules import staged_linearize
from tracebridge.core.interpreters.still_shifts import still_extrema
from tracebridge.core.ir.name_stack import in_use

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.jaxpr import Jaxpr


@final
class LinearGraph:
    """A linearized Jaxpr: values and tangents as numbers of ``graph``.

    ``inputs``, ``outs``: of the primal program, whose equations are those of ``graph``.
    ``tangents``: the inputs of the linear part, whose equations are ``tape``, with results
    ``tangent_outs`` (None where a result has no tangent).
    """

    __slots__ = ("graph", "inputs", "outs", "tangent_outs", "tangents", "tape")

    def __init__(self, jaxpr: Jaxpr, nonzero_in: Sequence[bool]) -> None:
        graph = self.graph = Graph()
        self.inputs = graph.inputs(jaxpr.in_avals)
        self.tangents = graph.inputs(
            [a.tangent for a, nz in zip(jaxpr.in_avals, nonzero_in, strict=True) if nz]
        )
        self.tape: list[GraphEquation] = []
        remaining_tangents = iter(self.tangents)
        nodes: list[int | None] = [next(remaining_tangents) if nz else None for nz in nonzero_in]
        values = [*self.inputs, *[graph.constant(c) for c in jaxpr.consts]]
        nodes.extend([None] * len(jaxpr.consts))
        sources = jaxpr.sources
        named = in_use[0]
        still = still_extrema(jaxpr)
        for k, (app, idx) in enumerate(jaxpr.equations):
            source = None if sources is None else sources[k]
            if named:
                source = within("jvp", source)
            mask = 0
            args: list[int] = []
            tangents: list[int] = []
            for j, i in enumerate(idx):
                args.append(values[i])
                node = nodes[i]
                if node is not None:
                    mask |= 1 << j
                    tangents.append(node)
            if mask and k not in still:
                self._add(app, mask, args + tangents, source, values, nodes)
                continue
            first = graph.add(app, args, source)
            n_out = len(app.outs)
            values.extend(range(first, first + n_out))
            nodes.extend([None] * n_out)
        self.outs = [values[s] for s in jaxpr.outs]
        self.tangent_outs = [nodes[s] for s in jaxpr.outs]

    def _add(
        self,
        app: Application,
        mask: int,
        args: list[int],
        source: object,
        values: list[int],
        nodes: list[int | None],
    ) -> None:
        """The equations of the staged rule of ``app``; ``args``: values, then those of tangents."""
        staged_rules = app.staged_linearizes
        staged = None if staged_rules is None else staged_rules.get(mask)
        if staged is None:
            staged = staged_linearize(app, mask)
        graph = self.graph
        avals, equations, tape = graph.avals, graph.equations, self.tape
        env = [*args, *[graph.constant(c) for c in staged.consts]] if staged.consts else args
        number = len(avals)
        for inner, idx in staged.primal_equations:
            equations.append((inner, [env[i] for i in idx], number, source))
            for aval in inner.outs:
                avals.append(aval)
                env.append(number)
                number += 1
        for inner, idx, _ in staged.linear_equations:
            tape.append((inner, [env[i] for i in idx], number, source))
            for aval in inner.outs:
                avals.append(aval)
                env.append(number)
                number += 1
        for value, tangent in staged.outs:
            values.append(env[value])
            nodes.append(None if tangent is None else env[tangent])

    def residuals(self) -> list[int]:
        """Values of the primal program that the linear part needs. Drops dead equations of it."""
        consts = self.graph.consts
        # Numbers of the linear part: its inputs, and whatever its equations make.
        linear = bytearray(len(self.graph.avals))
        live = bytearray(len(linear))
        for number in self.tangents:
            linear[number] = 1
        for app, _, first, _ in self.tape:
            if app.multiple:
                n_out = len(app.outs)
                linear[first : first + n_out] = b"\1" * n_out
            else:
                linear[first] = 1
        for number in self.tangent_outs:
            if number is not None:
                live[number] = 1
        residual_numbers: dict[int, None] = {}
        kept: list[GraphEquation] = []
        for entry in reversed(self.tape):
            app, args, first, _ = entry
            if not (any(live[first : first + len(app.outs)]) if app.multiple else live[first]):
                continue
            kept.append(entry)
            for number in args:
                if linear[number]:
                    live[number] = 1
                elif number not in consts:
                    residual_numbers[number] = None
        kept.reverse()
        self.tape = kept
        return list(residual_numbers)
