"""Separation: equations that mix known and unknown arguments are bound as several equations.

Interpreters that sort equations by what they depend on (linear or not, known or not) look at whole
equations. A call or a loop that computes primals and tangents together would be unknown as a whole;
the rule ``separate`` of higher-order primitives takes such an equation apart first.
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


def separate_jaxpr(jaxpr: Jaxpr, unknown_in: tuple[bool, ...]) -> Jaxpr:
    """``jaxpr`` with its mixed equations taken apart, for unknown inputs ``unknown_in``."""
    key = ("separate", unknown_in)
    if key not in jaxpr.cache:

        def run(*args: Any) -> list[Any]:
            return separate_eval(jaxpr, current_trace().process, args, unknown_in)

        # None stands for the Jaxpr itself, which must not refer to itself.
        mixed = _analyze(jaxpr, unknown_in)[1]
        apart = stage(run, jaxpr.in_avals, jaxpr.debug, locate=False) if mixed else None
        jaxpr.cache[key] = apart
    return jaxpr.cache[key] or jaxpr


def separate_eval(
    jaxpr: Jaxpr, process: Process, args: Sequence[object], unknown_in: Sequence[bool]
) -> list[Any]:
    """Run ``jaxpr`` with mixed equations taken apart."""
    env: list[Any] = [*args, *jaxpr.consts]
    unknown = [*unknown_in, *[False] * len(jaxpr.consts)]
    for app, idx in jaxpr.equations:
        values = [env[i] for i in idx]
        mask = tuple([unknown[i] for i in idx])
        flags = unknown_results(app, mask)
        if any(mask) and not all(flags):
            out = app.primitive.separate(mask, values, **app.params)
        else:
            out = process(app, values)
        unknown.extend(flags)
        if app.multiple:
            env.extend(out)
        else:
            env.append(out)
    return [env[s] for s in jaxpr.outs]


def unknown_results(app: Application, mask: tuple[bool, ...]) -> Sequence[bool]:
    """Which results of an equation depend on unknown arguments, if it is taken apart."""
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
    mixed = False
    for app, idx in jaxpr.equations:
        mask = tuple([unknown[i] for i in idx])
        flags = unknown_results(app, mask)
        mixed = mixed or (any(mask) and not all(flags))
        unknown.extend(flags)
    return tuple([unknown[s] for s in jaxpr.outs]), mixed
