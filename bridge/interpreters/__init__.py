"""Rules of primitives: differentiation, batching, lowering, partial evaluation."""

from __future__ import annotations

import importlib
from types import ModuleType

_SUBMODULES = frozenset(("ad", "batching", "mlir", "partial_eval", "xla"))


def __getattr__(name: str) -> ModuleType:
    """Load a submodule at its first use."""
    if name not in _SUBMODULES:
        msg = f"module 'tracebridge.interpreters' has no attribute {name!r}"
        raise AttributeError(msg)
    return importlib.import_module(f"tracebridge.interpreters.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_SUBMODULES})
