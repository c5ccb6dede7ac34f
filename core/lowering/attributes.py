"""What is written beside operations: where they come from, and what they tell XLA.

Frontend attributes come from scopes (`name_stack.AttributeScope`): each operation that an equation
in one becomes has the attributes of the scopes around it.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from tracebridge.core._jaxlib import mlir
from tracebridge.core.ir.name_stack import attributes_of, in_use, scopes_of
from tracebridge.core.lowering.locations import name_in_path
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


def blocks_around(
    ctx: LoweringContext, jaxpr: Jaxpr
) -> list[contextlib.AbstractContextManager[None]] | None:
    """A block for each equation, in which its operations are emitted; None if none needs one."""
    sources = jaxpr.sources
    if sources is None:
        return None
    if ctx.locations is not None:
        pairs = zip(jaxpr.equations, sources, strict=True)
        return [_located(ctx, source, name_in_path(app)) for (app, _), source in pairs]
    scopes = scopes_of(jaxpr)
    if scopes is None:
        return None
    return [_named(ctx, scope, s) for scope, s in zip(scopes, sources, strict=True)]


@contextlib.contextmanager
def _located(ctx: LoweringContext, source: object, name: str) -> Iterator[None]:
    located: Any = ctx.locations
    with located.of(source, name), located.body_of(source, name), _attributed(ctx, source):
        yield


@contextlib.contextmanager
def _named(ctx: LoweringContext, scope: str | None, source: object) -> Iterator[None]:
    place: Any = contextlib.nullcontext() if scope is None else mlir.ir.Location.name(scope)
    with place, _attributed(ctx, source):
        yield


@contextlib.contextmanager
def _attributed(ctx: LoweringContext, source: object) -> Iterator[None]:
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
