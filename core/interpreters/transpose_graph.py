"""Transposition of linear Jaxprs in a graph: cotangents walk their equations backwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracebridge.core.interpreters.graph import within
from tracebridge.core.interpreters.split_by_known import split_by_known, unknown_results
from tracebridge.core.interpreters.staged_rules import staged_transpose
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.linear_input import LinearInput
from tracebridge.core.ir.name_stack import in_use
from tracebridge.core.lax.ad_util import add_application

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core.interpreters.graph import Graph
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.jaxpr import Jaxpr

Cotangents = list[int | None]


def transpose_into(
    graph: Graph,
    jaxpr: Jaxpr,
    linear_in: tuple[bool, ...],
    args: Sequence[int],
    cotangents: Sequence[int | None],
    *,
    is_split: bool = False,
) -> Cotangents:
    """Append the transpose of ``jaxpr`` to ``graph``: numbers of cotangents of linear inputs.

    ``args``: numbers of the nonlinear inputs. ``cotangents``: those of the results. ``None`` is a
    symbolic zero, both ways. ``is_split``: equations have been split by known as far as they
    can be.
    """
    start = len(graph.equations)
    remaining_args = iter(args)
    env = [-1 if is_linear else next(remaining_args) for is_linear in linear_in]
    env.extend([graph.constant(c) for c in jaxpr.consts])
    linear = [*linear_in, *[False] * len(jaxpr.consts)]
    tape: list[tuple[Any, int, Sequence[int], int, Any]] = []
    sources = jaxpr.sources
    named = in_use[0]
    for k, (app, idx) in enumerate(jaxpr.equations):
        source = None if sources is None else sources[k]
        mask = 0
        for j, i in enumerate(idx):
            if linear[i]:
                mask |= 1 << j
        n_out = len(app.outs)
        if mask:
            if app.multiple and not is_split and _has_known_results(app, [linear[i] for i in idx]):
                del graph.equations[start:]
                split = split_by_known(jaxpr, linear_in)
                return transpose_into(graph, split, linear_in, args, cotangents, is_split=True)
            if named:
                source = within("transpose", source)
            tape.append((app, mask, idx, len(env), source))
            env.extend([-1] * n_out)
        else:
            first = graph.add(app, [env[i] for i in idx], source)
            env.extend(range(first, first + n_out))
        linear.extend([mask != 0] * n_out)
    cts: Cotangents = [None] * len(env)
    for variable, ct in zip(jaxpr.outs, cotangents, strict=True):
        if ct is not None and linear[variable]:
            _accumulate(graph, cts, variable, ct, None)
    _walk_back(graph, tape, env, cts)
    return [cts[i] for i, is_linear in enumerate(linear_in) if is_linear]


def _has_known_results(app: Application, linear: Sequence[bool]) -> bool:
    """Whether some results of an equation do not depend on its linear arguments."""
    return not all(unknown_results(app, tuple(linear)))


def _walk_back(
    graph: Graph,
    tape: Sequence[tuple[Any, int, Sequence[int], int, Any]],
    env: Sequence[int],
    cts: Cotangents,
) -> None:
    zeros: set[int] = set()  # see ``walk_back``
    for app, mask, idx, start, source in reversed(tape):
        out_cts = cts[start : start + len(app.outs)] if app.multiple else [cts[start]]
        if app.multiple:
            values = [ct for ct in out_cts if ct is not None]
            ct_mask = sum([1 << j for j, ct in enumerate(out_cts) if ct is not None])
            if not ct_mask and not (zeros and takes_zeros(app, mask, idx, start, zeros)):
                continue
        else:
            (ct,) = out_cts
            if ct is None:
                if zeros:  # they go on to its arguments
                    takes_zeros(app, mask, idx, start, zeros)
                continue
            values, ct_mask = [ct], 1
        targets: list[int] = []
        for j, i in enumerate(idx):
            if mask >> j & 1:
                targets.append(i)
            else:
                values.append(env[i])
        if app.primitive.transposes_inline:
            jaxpr, present = _staged(graph, app, mask, out_cts, values)
            zeros.update([t for t, here in zip(targets, present, strict=True) if not here])
        else:
            staged_rules = app.staged_transposes
            staged = None if staged_rules is None else staged_rules.get((mask, ct_mask))
            if staged is None:
                staged = staged_transpose(app, mask, ct_mask)
            single = staged.single
            if single is not None and len(targets) == 1:
                ct, target = graph.add(single, values, source), targets[0]
                if cts[target] is None:
                    cts[target] = ct
                else:
                    _accumulate(graph, cts, target, ct, source)
                continue
            jaxpr, present = staged.jaxpr, staged.extra[0]
        results = iter(graph.inline(jaxpr, values, source))
        for target, here in zip(targets, present, strict=True):
            if here:
                _accumulate(graph, cts, target, next(results), source)


def takes_zeros(
    app: Application, mask: int, args: Sequence[Any], start: int, zeros: set[int]
) -> bool:
    """Whether an equation without cotangents is a rule of a user that gets zeros all the same.

    ``zeros``: the linear variables that have got a zero from such a rule; those of its linear
    arguments join them where the equation is none.
    """
    if zeros.isdisjoint(range(start, start + len(app.outs))):
        return False
    if app.primitive.transposes_inline:
        return True
    zeros.update([a for j, a in enumerate(args) if mask >> j & 1])
    return False


def _accumulate(graph: Graph, cts: Cotangents, variable: int, ct: int, source: object) -> None:
    old = cts[variable]
    cts[variable] = (
        ct if old is None else graph.add(add_application(graph.avals[ct]), (old, ct), source)
    )


def _staged(
    graph: Graph,
    app: Any,
    mask: int,
    cotangent_numbers: Sequence[int | None],
    values: Sequence[int],
) -> tuple[Jaxpr, list[bool]]:
    """The rule of a user, staged for this equation alone: it may close over anything."""
    present: list[bool] = []

    def run(*staged: object) -> list[Any]:
        operands = iter(staged)
        cts = [None if ct is None else next(operands) for ct in cotangent_numbers]
        args = [
            LinearInput(a) if mask >> i & 1 else next(operands) for i, a in enumerate(app.avals)
        ]
        results = app.primitive.transpose(cts, *args, **app.params)
        cotangents = [r for i, r in enumerate(results) if mask >> i & 1]
        present.extend([r is not None for r in cotangents])
        return [r for r in cotangents if r is not None]

    return stage(run, [graph.avals[v] for v in values], locate=False), present
