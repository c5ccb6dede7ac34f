"""Partial evaluation of Jaxprs: the part that depends on known inputs only, and the rest."""

from __future__ import annotations

from typing import Any, final

from tracebridge.core.interpreters.dce import dce_jaxpr
from tracebridge.core.interpreters.split_by_known import split_by_known
from tracebridge.core.ir.jaxpr import Jaxpr


@final
class PartialJaxprs:
    """The two halves of a Jaxpr.

    ``known``: known inputs -> (known results, residuals). ``unknown``: (residuals, unknown
    inputs) -> unknown results. ``unknown_out`` says which results are unknown.
    """

    __slots__ = ("known", "n_residuals", "unknown", "unknown_out")

    def __init__(
        self, known: Jaxpr, unknown: Jaxpr, unknown_out: tuple[bool, ...], n_residuals: int
    ) -> None:
        self.known = known
        self.unknown = unknown
        self.unknown_out = unknown_out
        self.n_residuals = n_residuals


def partial_eval_jaxpr(
    jaxpr: Jaxpr,
    unknown_in: tuple[bool, ...],
    instantiate: tuple[bool, ...] | bool = False,
    saveable: object = None,
) -> PartialJaxprs:
    """Split ``jaxpr`` by which inputs are unknown.

    Results at ``instantiate`` are made unknown. ``saveable(application)``, a bool or one per
    result in a list, decides which known results may become residuals (default: all); what may not
    is computed again in the unknown part, from inputs and saveable values.
    """
    n_out = len(jaxpr.outs)
    wanted = (instantiate,) * n_out if isinstance(instantiate, bool) else instantiate
    key = ("partial_eval", unknown_in, wanted, saveable)
    cached = jaxpr.cache.get(key)
    if cached is None:
        split = split_by_known(jaxpr, unknown_in)
        cached = jaxpr.cache[key] = _split(split, unknown_in, wanted, saveable)
    return cached


def _split(
    jaxpr: Jaxpr, unknown_in: tuple[bool, ...], wanted: tuple[bool, ...], saveable: Any
) -> PartialJaxprs:
    n_in = jaxpr.n_in
    fixed = n_in + len(jaxpr.consts)
    unknown = [*unknown_in, *[False] * len(jaxpr.consts)]
    saved = [True] * fixed
    known_steps: list[int] = []
    unknown_steps: list[int] = []
    for k, (app, idx) in enumerate(jaxpr.equations):
        is_unknown = any([unknown[i] for i in idx])
        may_save = is_unknown or saveable is None or saveable(app)
        (unknown_steps if is_unknown else known_steps).append(k)
        unknown.extend([is_unknown] * len(app.outs))
        saved.extend(may_save if type(may_save) is list else [bool(may_save)] * len(app.outs))
    unknown_out = tuple(unknown[s] or w for s, w in zip(jaxpr.outs, wanted, strict=True))
    needed, again = _needed_residuals(jaxpr, unknown, saved, unknown_steps, unknown_out, fixed)
    if saveable is not None:
        _repeat_effects(jaxpr, known_steps, needed, again, fixed)
    unknown_jaxpr = _sub_jaxpr(
        jaxpr,
        [*needed, *[i for i in range(n_in) if unknown_in[i]]],
        sorted([*again, *unknown_steps]),
        [s for s, u in zip(jaxpr.outs, unknown_out, strict=True) if u],
    )
    if again:
        # Of a call that is computed again, only some results may be wanted.
        unknown_jaxpr, needed = _without_unused(unknown_jaxpr, needed)
    known_outs = [s for s, u in zip(jaxpr.outs, unknown_out, strict=True) if not u]
    known_jaxpr = _sub_jaxpr(
        jaxpr,
        [i for i in range(n_in) if not unknown_in[i]],
        known_steps,
        [*known_outs, *needed],
    )
    known_jaxpr, _ = dce_jaxpr(known_jaxpr, (True,) * len(known_jaxpr.outs), keep_in=True)
    return PartialJaxprs(known_jaxpr, unknown_jaxpr, unknown_out, len(needed))


def _without_unused(unknown: Jaxpr, needed: list[int]) -> tuple[Jaxpr, list[int]]:
    """The unknown part without what nothing needs, and the residuals that are left."""
    smaller, used = dce_jaxpr(unknown, (True,) * len(unknown.outs), keep_in=True)
    n = len(needed)
    if not all(used[:n]):
        inputs = [i for i in range(smaller.n_in) if i >= n or used[i]]
        smaller = _sub_jaxpr(smaller, inputs, [*range(len(smaller.equations))], [*smaller.outs])
    return smaller, [s for s, u in zip(needed, used, strict=False) if u]


def _needed_residuals(
    jaxpr: Jaxpr,
    unknown: list[bool],
    saved: list[bool],
    unknown_steps: list[int],
    unknown_out: tuple[bool, ...],
    fixed: int,
) -> tuple[list[int], list[int]]:
    """Slots to pass as residuals, and known equations that are computed again."""
    producer: dict[int, int] = {}
    variable = fixed
    for k, (app, _) in enumerate(jaxpr.equations):
        for _ in app.outs:
            producer[variable] = k
            variable += 1
    residuals: dict[int, None] = {}
    again: set[int] = set()
    pending: list[int] = []
    for k in unknown_steps:
        pending.extend(jaxpr.equations[k][1])
    pending.extend(s for s, u in zip(jaxpr.outs, unknown_out, strict=True) if u)
    seen: set[int] = set()
    while pending:
        s = pending.pop()
        if s in seen or unknown[s] or jaxpr.n_in <= s < fixed:
            continue
        seen.add(s)
        if saved[s]:
            residuals[s] = None
        else:
            equation = producer[s]
            if equation not in again:
                again.add(equation)
                pending.extend(jaxpr.equations[equation][1])
    return sorted(residuals), sorted(again)


def _repeat_effects(
    jaxpr: Jaxpr, known_steps: list[int], needed: list[int], again: list[int], fixed: int
) -> None:
    """Extend ``again``, and ``needed`` by inputs, by equations that have effects.

    What prints a value that is computed again prints it again, if nothing more has to be computed
    for that.
    """
    if not jaxpr.effects:
        return
    at_hand, repeated = set(needed), set(again)
    computed: set[int] = set()
    variable = fixed
    for k, (app, idx) in enumerate(jaxpr.equations):
        if app.effects and k not in repeated and k in known_steps:
            values = [i for i in idx if i < jaxpr.n_in or i >= fixed]
            lacking = [i for i in values if i not in at_hand and i not in computed]
            if any([i in computed for i in values]) and all([i < jaxpr.n_in for i in lacking]):
                repeated.add(k)
                at_hand.update(lacking)
        if k in repeated:
            computed.update(range(variable, variable + len(app.outs)))
        variable += len(app.outs)
    needed[:] = sorted(at_hand)
    again[:] = sorted(repeated)


def _sub_jaxpr(jaxpr: Jaxpr, inputs: list[int], equations: list[int], outs: list[int]) -> Jaxpr:
    """The Jaxpr of some equations, from the variables ``inputs`` to the variables ``outs``."""
    n_in, n_const = jaxpr.n_in, len(jaxpr.consts)
    avals = jaxpr.variable_avals()
    table: dict[int, int] = {s: i for i, s in enumerate(inputs)}
    for i in range(n_const):
        table[n_in + i] = len(inputs) + i
    first: list[int] = []
    variable = n_in + n_const
    for app, _ in jaxpr.equations:
        first.append(variable)
        variable += len(app.outs)
    position = len(inputs) + n_const
    new_steps: list[Any] = []
    for k in equations:
        app, idx = jaxpr.equations[k]
        new_steps.append((app, tuple([table[i] for i in idx])))
        for o in range(len(app.outs)):
            # A residual that is also an input keeps its input variable.
            table.setdefault(first[k] + o, position)
            position += 1
    return Jaxpr(
        [avals[s] for s in inputs],
        jaxpr.consts,
        new_steps,
        [table[s] for s in outs],
        [avals[s] for s in outs],
        [jaxpr.sources[k] for k in equations] if jaxpr.sources else None,
        jaxpr.debug,
    )
