"""Names that users give to parts of a program (named_scope), and where equations keep them."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, final

from tracebridge.core.config.scope_stack import VariableStack

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracebridge.core.ir.jaxpr import Jaxpr

Attributes = tuple[tuple[str, "str | None"], ...]
"""Frontend attributes of operations, by name; None takes one away."""


@final
class AttributeScope(str):
    """An entry among the names of scopes: what its operations tell XLA. It is no part of paths.

    ``root``, ``depth``: as in `name_scopes.Scope`.
    """

    __slots__ = ("attributes", "depth", "root")
    attributes: Attributes
    root: int
    depth: int

    @classmethod
    def of(cls, attributes: Attributes, root: int = 0, depth: int = 0) -> AttributeScope:
        """The entry for some attributes; its text tells entries apart."""
        made = cls(repr(attributes))
        made.attributes, made.root, made.depth = attributes, root, depth
        return made


NAMES: ContextVar[tuple[str, ...]] = ContextVar("tracebridge_names", default=())
"""Names of the scopes of this thread, outermost first."""

NAME_SCOPES = VariableStack(NAMES, ())
"""The blocks that give these names."""


def no_names(_: tuple[str, ...]) -> tuple[str, ...]:
    """The names inside of a block that takes its operations out of all scopes."""
    return ()


def attributes_only(names: tuple[str, ...]) -> tuple[str, ...]:
    """What is in force inside of functions that are used in many scopes, traced for each kind."""
    return tuple([n for n in names if type(n) is AttributeScope]) if names else names


def plain(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names that paths show."""
    return tuple([n for n in names if type(n) is not AttributeScope]) if names else names


def outermost_within(kind: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """``names``, of which the outermost one that paths show stands in a transformation."""
    for i, name in enumerate(names):
        if type(name) is not AttributeScope:
            return (*names[:i], f"{kind}({name})", *names[i + 1 :])
    return names


def attributes_of(source: object) -> list[AttributeScope]:
    """The attribute scopes of the source of an equation, outermost first."""
    if type(source) is not NamedSource:
        return []
    return [n for n in source.names if type(n) is AttributeScope]


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
    """The path ``outer/inner/operation`` of each equation in a scope; None if there is none.

    A path is None where an equation has attributes alone.
    """
    if jaxpr.sources is None or not any([type(s) is NamedSource for s in jaxpr.sources]):
        return None
    names = [plain(s.names) if type(s) is NamedSource else () for s in jaxpr.sources]
    pairs = zip(names, jaxpr.equations, strict=True)
    return ["/".join((*path, app.primitive.name)) if path else None for path, (app, _) in pairs]
