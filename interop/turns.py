"""Calls that change what all threads share, one after the other."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import final

_POLL_SECONDS = 0.005


@final
class Turn:
    """A lock for a call into code of others, which may run programs that make such calls again.

    Programs run callbacks in threads of their own, so that a call may come out of another one in
    another thread: it goes on while that one waits for its program.
    """

    __slots__ = ("_lock", "_owner")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._owner = 0

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Wait for the turn, and have it."""
        has_it = self._lock.acquire(blocking=False)
        while not has_it and not _waits_for_program(self._owner):
            has_it = self._lock.acquire(timeout=_POLL_SECONDS)
        if not has_it:
            yield
            return
        outer, self._owner = self._owner, threading.get_ident()
        try:
            yield
        finally:
            self._owner = outer
            self._lock.release()


def _waits_for_program(thread: int) -> bool:
    """Whether a thread is in the engine, below the call that has the turn."""
    frame = sys._current_frames().get(thread)
    name = "" if frame is None else frame.f_globals.get("__name__", "")
    return name.startswith("tracebridge.core.")
