"""The slot of the traces that execute at once.

The composition root (bridge/_install) gives the slot a loader; the runtime is loaded by the first
operation, so that importing the package stays cheap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class EagerSlot:
    """``trace`` evaluates; ``debug`` does so where thread-scoped options are on."""

    __slots__ = ("_loader", "debug", "trace")
    _loader: Callable[[], tuple[Any, Any]]
    trace: Any
    debug: Any

    def __getattr__(self, name: str) -> Any:
        # Reached only while a slot is empty.
        if name not in ("trace", "debug"):
            raise AttributeError(name)
        self.trace, self.debug = self._loader()
        return object.__getattribute__(self, name)


EAGER = EagerSlot()


def install_eager_traces(loader: Callable[[], tuple[Any, Any]]) -> None:
    """Hook: ``loader()`` gives the eager traces, without and with thread-scoped options."""
    EAGER._loader = loader  # noqa: SLF001 - an object of this file
