"""Calls of compositions of operations, emitted once per module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.rule_contexts import LoweringContext


def composed(
    ctx: LoweringContext,
    compose: Callable[..., Any],
    operands: Sequence[Any],
    avals_in: tuple[ShapedArray, ...] | None = None,
) -> Any:
    """Call a composition of operations of ``lax``, emitted once per module and kind of operand."""
    kinds: tuple[ShapedArray, ...] = avals_in or ctx.avals_in
    return ctx.call_fun(compose, compose, operands, kinds, compose.__name__)[0]
