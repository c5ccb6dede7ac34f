"""The MLIR bindings, for lowering rules that create operations themselves."""

from __future__ import annotations

from typing import Any

from tracebridge.core._jaxlib import mlir as _bindings
from tracebridge.extend.mlir import dialects

__all__ = ["dialects"]


def __dir__() -> list[str]:
    return ["dialects", "ir", "passmanager"]


def __getattr__(name: str) -> Any:
    """``ir`` and ``passmanager`` are loaded at their first use."""
    if name in {"ir", "passmanager"}:
        return getattr(_bindings, name)
    msg = f"module 'tracebridge.extend.mlir' has no attribute {name!r}"
    raise AttributeError(msg)
