"""`with` blocks that change what is in force in the current thread."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from tracebridge.core.config.scope_stack import Change
from tracebridge.core.config.state import SCOPES, State, enter_scope, with_value
from tracebridge.core.config.values import lookup
from tracebridge.core.errors.config_errors import OptionValueError

P = ParamSpec("P")
R = TypeVar("R")


class Decorating(abc.ABC):
    """A `with` block that can also decorate functions: each call runs in a block of its own."""

    __slots__ = ()

    @abc.abstractmethod
    def again(self) -> AbstractContextManager[None]:
        """A new block of the same kind, since several threads may call at once."""

    def __call__(self, fun: Callable[P, R]) -> Callable[P, R]:
        """Run `fun` inside the block."""

        @functools.wraps(fun)
        def within(*args: P.args, **kwargs: P.kwargs) -> R:
            with self.again():
                return fun(*args, **kwargs)

        return within


class StateScope(Decorating):
    """A `with` block in which the thread has another state; may be entered again."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: list[Change] = []

    @abc.abstractmethod
    def changed(self, current: State | None) -> State | None:
        """The state inside the block, where `current` is in force outside of it."""

    def __enter__(self) -> None:
        self._open.append(enter_scope(self.changed))

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        SCOPES.leave_one_of(self._open)


class Scope(StateScope):
    """A `with` block that changes one option for the current thread."""

    __slots__ = ("_name", "_value")

    def __init__(self, name: str, value: Any) -> None:
        super().__init__()
        row = lookup(name)
        if not row.scoped:
            raise OptionValueError(
                f"option {name} cannot be changed for one thread",
                hint=f"use tb.config.update({name!r}, ...)",
            )
        self._name = name
        self._value = row.check(value)

    def again(self) -> Scope:
        return Scope(self._name, self._value)

    def changed(self, current: State | None) -> State | None:
        return with_value(current, self._name, self._value)


def scope(name: str, value: object) -> Scope:
    """Return a `with` block that changes an option for the current thread."""
    return Scope(name, value)
