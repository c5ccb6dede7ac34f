"""Doors for code that extends the engine: primitives, programs, MLIR."""

from __future__ import annotations

import importlib
from types import ModuleType

_SUBMODULES = frozenset(("backend", "core", "linear_util", "mlir", "source_info_util"))


def __getattr__(name: str) -> ModuleType:
    """Load a submodule at its first use."""
    if name not in _SUBMODULES:
        msg = f"module 'tracebridge.extend' has no attribute {name!r}"
        raise AttributeError(msg)
    return importlib.import_module(f"tracebridge.extend.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_SUBMODULES})
