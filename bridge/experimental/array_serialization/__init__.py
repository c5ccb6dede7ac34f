"""Arrays in folders: what a program saves, and another one reads in parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracebridge._api.programs.missing import missing as _missing
from tracebridge.core.util.listing import listing as _listing
from tracebridge.experimental.array_serialization import (
    pytree_serialization as pytree_serialization,
)
from tracebridge.experimental.array_serialization import serialization as serialization

__all__: list[str] = []  # a star takes no submodules

__dir__ = _listing(globals(), loaded=True)

if not TYPE_CHECKING:  # a type checker knows the names above

    def __getattr__(name: str) -> Any:
        raise _missing(__name__, name)
