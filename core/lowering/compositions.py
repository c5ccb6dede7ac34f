"""Calls of compositions of operations, emitted once per module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracebridge.core.interpreters.staging import stage
from tracebridge.core.util.caching import BoundedCache

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.ir.rule_contexts import LoweringContext

_STAGED: BoundedCache[Jaxpr] = BoundedCache("compositions for single platforms", 512)


def composed(
    ctx: LoweringContext,
    compose: Callable[..., Any],
    operands: Sequence[Any],
    avals_in: tuple[ShapedArray, ...] | None = None,
) -> Any:
    """Call a composition of operations of ``lax``, emitted once per module and kind of operand."""
    kinds: tuple[ShapedArray, ...] = avals_in or ctx.avals_in
    key = (compose, kinds)
    jaxpr = _STAGED.get(key)
    if jaxpr is None:
        avals = [a.strong for a in kinds]
        jaxpr = stage(lambda *xs: [compose(*xs)], avals, locate=False)
        _STAGED.set(key, jaxpr)
    return ctx.call_jaxpr(jaxpr, operands, compose.__name__)[0]
