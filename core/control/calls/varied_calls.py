"""Programs inside of equations, at types that vary along more axes (ir/varied.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracebridge.core.collectives.casts import pcast_p
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.higher_order import HigherOrderPrimitive
from tracebridge.core.ir.jaxpr import Jaxpr, eval_jaxpr
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.ir.varied import Names, joined, varied

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application


def branches_alike(
    chooser: Names, jaxprs: Sequence[Jaxpr], operands: Sequence[Any]
) -> tuple[tuple[Jaxpr, ...], list[Any]]:
    """Branches whose results vary along the same axes, and their operands.

    Where devices choose for themselves, along the axes ``chooser``, operands and results vary along
    these too: what a branch passes back is summed outside, where all devices come.
    """
    columns = zip(*[j.out_avals for j in jaxprs], strict=True)
    outs = [chooser | joined(column) for column in columns]
    values = [varied(x, chooser) for x in operands]
    return tuple([_retyped(j, values, outs) for j in jaxprs]), values


def _retyped(jaxpr: Jaxpr, values: Sequence[Any], outs: Sequence[Names]) -> Jaxpr:
    """``jaxpr`` at the types of ``values``, with results that vary along ``outs``."""
    pairs = zip(jaxpr.in_avals, values, strict=True)
    avals = [a.with_vma(a.vma | v.aval.vma) for a, v in pairs]
    found = zip(jaxpr.out_avals, outs, strict=True)
    if all([a.vma == vma for a, vma in found]) and tuple(avals) == jaxpr.in_avals:
        return jaxpr

    def run(*xs: Any) -> list[Any]:
        staging = current_trace().process

        def process(app: Application, args: Sequence[Any]) -> Any:
            if app.primitive is pcast_p and app.params["to"] in ("varying", "joined"):
                return varied(args[0], frozenset(app.params["axes"]))
            if isinstance(app.primitive, HigherOrderPrimitive):
                return staging(app, args)
            return app.primitive.bind(*args, **app.params)

        results = eval_jaxpr(jaxpr, process, xs)
        return [varied(r, vma) for r, vma in zip(results, outs, strict=True)]

    return stage(run, avals, jaxpr.debug, locate=False)
