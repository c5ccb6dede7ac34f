"""Frontend attributes: what operations tell XLA about themselves.

They come from scopes (`name_stack.AttributeScope`): each operation that an equation in one becomes
has the attributes of the scopes around it.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from tracebridge.core._jaxlib import mlir
from tracebridge.core.ir.name_stack import attributes_of, in_use
from tracebridge.core.mlir.frontend import attach

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.lowering.context import LoweringContext

# Constants are shared by all operations of a function; the others are no operations of XLA.
_WITHOUT = frozenset({"stablehlo.constant", "stablehlo.return", "func.return", "func.func"})


def has_attributes(jaxpr: Jaxpr) -> bool:
    """Whether an equation is in a scope of attributes."""
    return (
        in_use[0]
        and jaxpr.sources is not None
        and any([attributes_of(source) for source in jaxpr.sources])
    )


@contextlib.contextmanager
def attributed(ctx: LoweringContext, source: object) -> Iterator[None]:
    """While the equation of ``source`` is emitted: its operations have the attributes of it."""
    scopes = attributes_of(source)
    if not scopes:
        yield
        return
    outer = ctx.attributes, ctx.create
    merged: dict[str, Any] = dict(ctx.attributes)
    for scope in scopes:
        merged.update(scope.attributes)
    ctx.attributes = {name: text for name, text in merged.items() if text is not None}
    ctx.create = _creating(ctx.attributes)
    try:
        yield
    finally:
        ctx.attributes, ctx.create = outer


def _creating(attributes: Mapping[str, str]) -> Any:
    make = mlir.ir.Operation.create
    if not attributes:
        return make

    def create(name: str, *args: Any, **options: Any) -> Any:
        operation = make(name, *args, **options)
        if name not in _WITHOUT:
            attach(operation, attributes)
        return operation

    return create
