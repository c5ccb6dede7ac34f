"""Arrays in folders: what a program saves, and another one reads in parts."""

from __future__ import annotations

from tracebridge.experimental.array_serialization import (
    pytree_serialization as pytree_serialization,
)

__all__: list[str] = []  # a star takes no submodules
