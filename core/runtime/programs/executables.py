"""Loaded executables, shared by programs that lower to the same module.

An executable lives as long as a program uses it. A few that nobody uses any more are kept besides,
so that functions that are made anew in a loop need not be compiled each time.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Hashable
from typing import Any, final

from tracebridge.core.util.caching import register_cache


@final
class _Entry:
    """An executable, how many programs use it, and whether it may wait for others."""

    __slots__ = ("executable", "may_wait", "users")

    def __init__(self, executable: Any) -> None:
        self.executable = executable
        self.users = 0
        self.may_wait = True


@final
class SharedExecutables:
    """Executables by key: all that are in use, and at most ``max_unused`` others.

    Thread-safety: a lock guards each change. It may be taken again by the same thread, because the
    garbage collector, which ends programs, can run in any of these lines.
    """

    __slots__ = ("__weakref__", "_entries", "_lock", "_unused", "max_unused", "name")

    def __init__(self, name: str, max_unused: int) -> None:
        self.name = name
        self.max_unused = max_unused
        self._entries: dict[Hashable, _Entry] = {}
        # Keys of the entries that nobody uses, the one that was left first at the front.
        self._unused: dict[Hashable, None] = {}
        self._lock = threading.RLock()
        register_cache(self)

    def get(self, key: Hashable) -> Any:
        """The executable, or None."""
        entry = self._entries.get(key)
        return None if entry is None else entry.executable

    def use(self, key: Hashable, executable: object, program: object) -> Any:
        """The executable of ``key`` (given here, or by another thread), in use by ``program``."""
        with self._lock:
            entry = self._entries.setdefault(key, _Entry(executable))
            entry.users += 1
            self._unused.pop(key, None)
        weakref.finalize(program, self._leave, key, entry).atexit = False
        return entry.executable

    def _leave(self, key: Hashable, entry: _Entry) -> None:
        with self._lock:
            entry.users -= 1
            if entry.users or self._entries.get(key) is not entry:
                return
            if not entry.may_wait:
                del self._entries[key]
                return
            self._unused[key] = None
            while len(self._unused) > self.max_unused:
                oldest = next(iter(self._unused))
                del self._unused[oldest]
                del self._entries[oldest]

    def release(self, key: Hashable) -> None:
        """Do not keep this executable once its programs have ended."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                entry.may_wait = False

    def clear(self) -> None:
        """Forget all; programs keep theirs."""
        with self._lock:
            self._entries.clear()
            self._unused.clear()

    def __len__(self) -> int:
        return len(self._entries)


# By (bytecode, devices, options): functions that lower to the same program share one executable.
EXECUTABLES = SharedExecutables("executables", 128)
