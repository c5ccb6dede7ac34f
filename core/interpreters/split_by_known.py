"""Splitting by known: equations with known and unknown results are bound as several equations.

Interpreters that sort equations by what they depend on (linear or not, known or not) look at whole
equations. A call or a loop that computes primals and tangents together would be unknown as a whole;
the rule ``split_by_known`` of higher-order primitives splits such an equation first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.trace import current_trace

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.trace import Process


def split_by_known(jaxpr: Jaxpr, unknown_in: tuple[bool, ...]) -> Jaxpr:
    """``jaxpr`` whose equations have only known or only unknown results, for ``unknown_in``."""
    key = ("split_by_known", unknown_in)
    if key not in jaxpr.cache:

        def run(*args: Any) -> list[Any]:
            return eval_split_by_known(jaxpr, current_trace().process, args, unknown_in)

        # None stands for the Jaxpr itself, which must not refer to itself.
        has_both = _analyze(jaxpr, unknown_in)[1]
        split = stage(run, jaxpr.in_avals, jaxpr.debug, locate=False) if has_both else None
        jaxpr.cache[key] = split
    return jaxpr.cache[key] or jaxpr


def eval_split_by_known(
    jaxpr: Jaxpr, process: Process, args: Sequence[object], unknown_in: Sequence[bool]
) -> list[Any]:
    """Run ``jaxpr``, splitting equations with known and unknown results."""
    env: list[Any] = [*args, *jaxpr.consts]
    unknown = [*unknown_in, *[False] * len(jaxpr.consts)]
    for app, idx in jaxpr.equations:
        values = [env[i] for i in idx]
        mask = tuple([unknown[i] for i in idx])
        flags = unknown_results(app, mask)
        if any(mask) and not all(flags):
            out = app.primitive.split_by_known(mask, values, **app.params)
        else:
            out = process(app, values)
        unknown.extend(flags)
        if app.multiple:
            env.extend(out)
        else:
            env.append(out)
    return [env[s] for s in jaxpr.outs]


def unknown_results(app: Application, mask: tuple[bool, ...]) -> Sequence[bool]:
    """Which results of an equation depend on unknown arguments, if it is split."""
    here = any(mask)
    if here and app.multiple and not all(mask):
        flags = app.primitive.unknown_outs(mask, **app.params)
        if flags is not None:
            return flags
    return (here,) * len(app.outs)


def unknown_outs(jaxpr: Jaxpr, unknown_in: tuple[bool, ...]) -> tuple[bool, ...]:
    """Which results depend on unknown inputs."""
    key = ("unknown_outs", unknown_in)
    found = jaxpr.cache.get(key)
    if found is None:
        found = jaxpr.cache[key] = _analyze(jaxpr, unknown_in)[0]
    return found


def _analyze(jaxpr: Jaxpr, unknown_in: tuple[bool, ...]) -> tuple[tuple[bool, ...], bool]:
    """Which results are unknown; whether an equation with unknown arguments has known results."""
    unknown = [*unknown_in, *[False] * len(jaxpr.consts)]
    has_both = False
    for app, idx in jaxpr.equations:
        mask = tuple([unknown[i] for i in idx])
        flags = unknown_results(app, mask)
        has_both = has_both or (any(mask) and not all(flags))
        unknown.extend(flags)
    return tuple([unknown[s] for s in jaxpr.outs]), has_both
