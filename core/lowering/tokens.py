"""Tokens: what chains the ordered effects of a module.

The context holds one token for each ordered effect of the function that is being emitted; an
equation with the effect takes it and leaves a new one. Functions, loops and branches take tokens
as operands and give them back. The boundary of ``main`` has empty arrays in their place, which
the runtime passes from call to call (runtime/effects/tokens.py): only their readiness means
something.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracebridge.core._jaxlib import mlir
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.effects import Effect, Effects, ordered_effects

if TYPE_CHECKING:
    from tracebridge.core.ir.rule_contexts import LoweringContext


RUNTIME_TOKEN = ShapedArray((0,), np.dtype(np.bool_))
"""What stands for a token in the arguments and results of ``main``."""


def token_type() -> Any:
    """The type of tokens."""
    return mlir.ir.Type.parse("!stablehlo.token")


def create_tokens(ctx: LoweringContext, effects: Sequence[Effect]) -> None:
    """Begin the chains of ``effects``, at the start of main."""
    for effect in effects:
        ctx.tokens[effect] = ctx.op1("stablehlo.create_token", [], token_type())


def take(ctx: LoweringContext, effects: Sequence[Effect]) -> list[Any]:
    """The tokens of ``effects`` as they are now."""
    return [ctx.tokens[e] for e in effects]


def put(ctx: LoweringContext, effects: Sequence[Effect], values: Sequence[object]) -> None:
    """Replace the tokens of ``effects``."""
    for effect, value in zip(effects, values, strict=True):
        ctx.tokens[effect] = value


def while_loop(
    ctx: LoweringContext,
    effects: Effects,
    operands: Sequence[Any],
    avals: Sequence[ShapedArray],
    condition: Callable[[Sequence[Any]], Any],
    body: Callable[[Sequence[Any]], Sequence[Any]],
) -> list[Any]:
    """``ctx.while_loop`` that carries the tokens of the ordered ``effects`` of the body."""
    ordered = ordered_effects(effects)
    if not ordered:
        return ctx.while_loop(operands, avals, condition, body)
    n = len(ordered)

    def test(state: Sequence[object]) -> Any:
        return condition(state[n:])

    def step(state: Sequence[object]) -> Sequence[Any]:
        put(ctx, ordered, state[:n])
        outs = body(state[n:])
        return [*take(ctx, ordered), *outs]

    types = [token_type()] * n
    results = ctx.while_loop([*take(ctx, ordered), *operands], [*types, *avals], test, step)
    put(ctx, ordered, results[:n])
    return results[n:]


def case(
    ctx: LoweringContext,
    effects: Effects,
    index: Any,
    avals: Sequence[ShapedArray],
    branches: Sequence[Callable[[], Sequence[Any]]],
) -> list[Any]:
    """``stablehlo.case`` whose branches go on with the tokens of the ordered ``effects``."""
    ordered = ordered_effects(effects)
    n = len(ordered)
    before = take(ctx, ordered)
    types = [token_type()] * n if n else []
    operation = ctx.op("stablehlo.case", [index], [*types, *avals], regions=len(branches))
    for region, branch in zip(operation.regions, branches, strict=True):
        put(ctx, ordered, before)
        with ctx.block(region, ()):
            outs = branch()
            ctx.finish([*take(ctx, ordered), *outs])
    results = list(operation.results)
    put(ctx, ordered, results[:n])
    return results[n:]
