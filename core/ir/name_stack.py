"""Names that users give to parts of a program (named_scope), and where equations keep them."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from tracebridge.core.config.scope_stack import VariableStack

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracebridge.core.ir.jaxpr import Jaxpr

NAMES: ContextVar[tuple[str, ...]] = ContextVar("tracebridge_names", default=())
"""Names of the scopes of this thread, outermost first."""

NAME_SCOPES = VariableStack(NAMES, ())
"""The blocks that give these names."""


def no_names(_: tuple[str, ...]) -> tuple[str, ...]:
    """The names inside of a block that takes its operations out of all scopes."""
    return ()


current_names: Callable[[], tuple[str, ...]] = NAMES.get

in_use: list[bool] = [False]
"""Whether this process has named anything yet: most never do, and then nothing looks for names."""


class NamedSource(NamedTuple):
    """The source of an equation inside named scopes."""

    names: tuple[str, ...]
    traceback: Any


def names_of(jaxpr: Jaxpr) -> list[tuple[str, ...]] | None:
    """The scopes of each equation, outermost first; None if no equation is in any."""
    if jaxpr.sources is None:
        return None
    found = [s.names if type(s) is NamedSource else () for s in jaxpr.sources]
    return found if any(found) else None


def scopes_of(jaxpr: Jaxpr) -> list[str | None] | None:
    """The path ``outer/inner/operation`` of each equation in a scope; None if there is none."""
    if jaxpr.sources is None:
        return None
    found: list[str | None] = [
        "/".join((*s.names, app.primitive.name)) if type(s) is NamedSource else None
        for s, (app, _) in zip(jaxpr.sources, jaxpr.equations, strict=True)
    ]
    return found if any(found) else None
