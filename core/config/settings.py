"""The options of a trace, kept for what is derived from the trace later."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, final

from tracebridge.core.config.options import OPTIONS, TRACING_OPTIONS
from tracebridge.core.config.state import State, enter_scope, leave_scope, state, with_value
from tracebridge.core.config.values import option, tracing_key


@final
class Settings:
    """The options that affect tracing and the contexts of users, as they are when this is made.

    Derivatives are often derived long after the trace, outside of the block of an option or on
    another thread (that of a framework's backward pass); they are of the same program all the same.
    """

    __slots__ = ("_values", "key")

    def __init__(self) -> None:
        current = state()
        self.key = tracing_key()
        own = [] if current is None else [pair for pair in current.key if pair[0] not in OPTIONS]
        self._values: list[tuple[str, Any]] = [(n, option(n)) for n in TRACING_OPTIONS] + own

    def again(self) -> AbstractContextManager[None]:
        """A block in which they are in force again."""
        return NO_CHANGE if tracing_key() == self.key else self._changed()

    @contextlib.contextmanager
    def _changed(self) -> Iterator[None]:
        change = enter_scope(_with_values, self._values)
        try:
            yield
        finally:
            leave_scope(change)


def current_settings() -> Settings:
    """``Settings()``: the ones of the last call, where none but global options are in force."""
    if state() is not None:
        return Settings()
    found = _LATEST[0] if _LATEST else None
    if found is None or found.key != tracing_key():
        found = Settings()
        _LATEST[:] = [found]
    return found


_LATEST: list[Settings] = []

NO_CHANGE: AbstractContextManager[None] = contextlib.nullcontext()


def _with_values(current: State | None, values: list[tuple[str, Any]]) -> State | None:
    for name, value in values:
        current = with_value(current, name, value)
    return current
