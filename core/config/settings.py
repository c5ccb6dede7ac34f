"""The options of a trace, kept for what is derived from the trace later."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, final

from tracebridge.core.config.options import OPTIONS, TRACING_OPTIONS
from tracebridge.core.config.scopes import (
    option,
    reset_state,
    set_state,
    state,
    tracing_key,
    with_value,
)


@final
class Settings:
    """The options that affect tracing and the contexts of users, as they are when this is made.

    Derivatives are often derived long after the trace, outside of the block of an option or on
    another thread (that of a framework's backward pass); they are of the same program all the same.
    """

    __slots__ = ("_key", "_values")

    def __init__(self) -> None:
        current = state()
        self._key = tracing_key()
        own = [] if current is None else [pair for pair in current.key if pair[0] not in OPTIONS]
        self._values: list[tuple[str, Any]] = [(n, option(n)) for n in TRACING_OPTIONS] + own

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        """A block in which they are in force again."""
        before = inside = state()
        if tracing_key() == self._key:
            yield
            return
        for name, value in self._values:
            now = {} if inside is None else inside.values
            if name not in OPTIONS or option(name) != value or name in now:
                inside = with_value(inside, name, value)
        if inside is before:
            yield
            return
        token = set_state(inside)
        try:
            yield
        finally:
            reset_state(token)
