"""Scopes in which operations have frontend attributes: what programs tell XLA about them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any, final

from tracebridge.core.config.scope_stack import Change
from tracebridge.core.config.user_context import UserContext, UserScope
from tracebridge.core.ir.name_scopes import enter, leave_one_of
from tracebridge.core.ir.name_stack import Attributes, AttributeScope

# The attributes in force: programs are traced for each set of them.
_IN_FORCE = UserContext(())


def text_of(value: object) -> str:
    """An attribute's text: ``true`` and ``false`` as XLA writes them."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def attributes_in_force() -> dict[str, str]:
    """The attributes of operations that are made now, by name."""
    return dict(_IN_FORCE.value)


@final
class OpAttributes:
    """A block whose operations have attributes; also a decorator. May be entered again.

    Args:
        attributes: text by name; None takes away what a block around this one gives.
    """

    __slots__ = ("_attributes", "_open")

    def __init__(self, attributes: dict[str, str | None]) -> None:
        self._attributes: Attributes = tuple(sorted(attributes.items()))
        self._open: list[tuple[UserScope, Change]] = []

    def __enter__(self) -> None:
        if not self._attributes:
            return
        merged: dict[str, Any] = {**attributes_in_force(), **dict(self._attributes)}
        kept = tuple(sorted([(name, text) for name, text in merged.items() if text is not None]))
        block = _IN_FORCE(kept)
        block.__enter__()
        self._open.append((block, enter((AttributeScope.of(self._attributes),))))

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if not self._attributes:
            return
        block, change = self._open.pop()
        leave_one_of([change])
        block.__exit__(exc_type, exc, tb)

    def __call__(self, fun: Callable[..., Any]) -> InAttributes:
        """The function, each call of which runs in such a block."""
        return InAttributes(fun, dict(self._attributes))


@final
class InAttributes:
    """A function whose calls run in a block of attributes, and those of its methods too.

    So does ``lower`` of a jitted function.
    """

    def __init__(self, fun: Callable[..., Any], attributes: dict[str, str | None]) -> None:
        self._fun = fun
        self._attributes = attributes
        functools.update_wrapper(self, fun, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with OpAttributes(self._attributes):
            return self._fun(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(self._fun, name)
        return InAttributes(found, self._attributes) if callable(found) else found
