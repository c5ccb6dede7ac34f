"""Why a plan of residuals keeps some values and computes others again, for who asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tracebridge.core.interpreters.residual_plan import Prices, ResidualPlan, can_repeat
from tracebridge.core.ir.cost import Cost

if TYPE_CHECKING:
    from tracebridge.core.interpreters.graph import Graph, GraphEquation
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.jaxpr import Jaxpr

_KEY = "residual notes"

_NEVER = {
    Cost.CONTRACTION: "contractions are repeated only where they give far more than they read",
    Cost.REDUCTION: "reductions are never repeated",
}


class Redone(NamedTuple):
    """A value that is computed again."""

    aval: ShapedArray
    primitive: str
    source: Any
    reason: str


class PlanNotes(NamedTuple):
    """``kept``: a reason per result that is kept, by its position; ``redone``: the others."""

    kept: dict[int, str]
    redone: list[Redone]


def notes_of(jaxpr: Jaxpr) -> PlanNotes | None:
    """The notes on a forward program, if its residuals were planned."""
    found = jaxpr.cache.get(_KEY)
    return None if found is None else found()


def note_plan(
    forward: Jaxpr, kept: Mapping[int, int], graph: Graph, plan: ResidualPlan, prices: Prices
) -> None:
    """Note on ``forward`` why the results at the places ``kept`` are, values of ``graph``.

    The texts are made when somebody asks for them.
    """
    wanted = set(kept.values())
    made_by = {
        number: equation
        for equation in graph.equations
        for number in range(equation[2], equation[2] + len(equation[0].outs))
        if number in wanted
    }

    def notes() -> PlanNotes:
        reasons = {
            place: _why_kept(number, made_by[number], prices)
            for place, number in kept.items()
            if number in made_by
        }
        return PlanNotes(reasons, [_redone(equation, prices) for equation in plan.redone])

    forward.cache[_KEY] = notes


def _why_kept(number: int, equation: GraphEquation, prices: Prices) -> str:
    app = equation[0]
    if not can_repeat(app):
        return f"kept: {_why_never(app)}"
    keeping, again = prices.keeping(number, equation), prices.again(equation)
    if again > keeping:
        return f"kept: {_time(keeping)}, again {_time(again)}"
    return f"kept for {_time(keeping)}: cheaper than all that it is computed from"


def _why_never(app: Application) -> str:
    if app.effects:
        return f"{app.primitive.name} has effects"
    return _NEVER.get(app.primitive.cost, f"{app.primitive.name} is never repeated")


def _redone(equation: GraphEquation, prices: Prices) -> Redone:
    app, _, number, source = equation
    keeping, again = prices.keeping(number, None), prices.again(equation)
    reason = f"computed again: {_time(again)}, kept {_time(keeping)}"
    if again > keeping:
        reason = f"computed again for {_time(again)}: cheaper than all that it would replace"
    return Redone(app.outs[0], app.primitive.name, source, reason)


def _time(milliseconds: float) -> str:
    return f"{1000 * milliseconds:.2g} us"
