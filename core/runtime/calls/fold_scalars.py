"""Python scalars of staged functions, taken in the dtype that the function converts them to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tracebridge.core.interpreters.staged_rules import StagedRule
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.lax.elementwise.convert import convert_element_type_p


def fold_scalars(
    rule: StagedRule, scalars: Sequence[bool]
) -> tuple[StagedRule, tuple[ShapedArray | None, ...]]:
    """Take scalar inputs that are only converted to one dtype in that dtype."""
    jaxpr = rule.jaxpr
    targets: list[ShapedArray | None] = [
        a if s else None for a, s in zip(jaxpr.in_avals, scalars, strict=True)
    ]
    folded: dict[int, ShapedArray] = {}
    for i, is_scalar in enumerate(scalars):
        uses = [app for app, idx in jaxpr.equations if i in idx] if is_scalar else []
        if (
            uses
            and i not in jaxpr.outs
            and all([u.primitive is convert_element_type_p and u.out is uses[0].out for u in uses])
        ):
            folded[i] = uses[0].out
            targets[i] = uses[0].out
    if not folded:
        return rule, tuple(targets)
    avals = [folded.get(i, a) for i, a in enumerate(jaxpr.in_avals)]
    skipped = stage(_skipping(jaxpr, folded), avals, locate=False)
    return StagedRule(skipped, rule.extra), tuple(targets)


def _skipping(jaxpr: Jaxpr, folded: dict[int, ShapedArray]) -> Callable[..., list[Any]]:
    """Evaluates ``jaxpr`` without the conversions of the inputs ``folded``."""

    def run(*args: Any) -> list[Any]:
        process = current_trace().process
        env: list[Any] = [*args, *jaxpr.consts]
        for app, idx in jaxpr.equations:
            if len(idx) == 1 and idx[0] in folded:
                env.append(env[idx[0]])
                continue
            result = process(app, [env[i] for i in idx])
            if app.multiple:
                env.extend(result)
            else:
                env.append(result)
        return [env[i] for i in jaxpr.outs]

    return run
