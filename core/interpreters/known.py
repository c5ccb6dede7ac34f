"""The number of a staged value, where the numbers of the inputs are known while staging."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracebridge.core.ir.trace import current_trace, use_trace
from tracebridge.core.ir.tracer import known_value

if TYPE_CHECKING:
    from collections.abc import Sequence


def number_of(tracer: Any, equations: Sequence[tuple[Any, ...]], known: Sequence[Any]) -> Any:
    """The array that a tracer stands for, computed from the inputs; None if it has none.

    Values of enclosing traces have none, if these do more than differentiate, and what needs an
    effect is not computed here: it would happen twice.
    """
    trace = tracer._trace
    kept = needed_equations(tracer, equations)
    if kept is None:
        return None
    values: dict[int, Any] = {}

    def value_of(a: Any) -> Any:
        if a._trace is not trace:
            return known_value(a)
        return known[a.source] if isinstance(a.source, int) else values[id(a)]

    with use_trace(None):
        process = current_trace().process
        for app, args, outs, _ in kept:
            operands = [value_of(a) for a in args]
            if any([o is None for o in operands]):
                return None
            result = process(app, operands)
            if app.multiple:
                values.update(zip(map(id, outs), result, strict=True))
            else:
                values[id(outs)] = result
    return value_of(tracer)


def needed_equations(
    tracer: Any, equations: Sequence[tuple[Any, ...]]
) -> list[tuple[Any, ...]] | None:
    """The equations that a staged value needs, in order; None if one has an effect."""
    trace = tracer._trace
    needed = {id(tracer)}
    kept: list[tuple[Any, ...]] = []
    for equation in reversed(equations):
        app, args, outs, _ = equation
        if any([id(o) in needed for o in (outs if app.multiple else (outs,))]):
            if app.effects:
                return None
            kept.append(equation)
            needed.update([id(a) for a in args if a._trace is trace])
    return kept[::-1]
