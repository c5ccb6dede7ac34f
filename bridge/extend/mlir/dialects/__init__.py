"""Dialects of MLIR with a class for each operation, such as ``stablehlo``.

Each is loaded at its first use: ``from tracebridge.extend.mlir.dialects import stablehlo``.
"""

from __future__ import annotations

from typing import Any

from tracebridge.core._jaxlib.mlir import dialect as _dialect
from tracebridge.core._jaxlib.mlir import dialect_names as _dialect_names


def __dir__() -> list[str]:
    return _dialect_names()


def __getattr__(name: str) -> Any:
    """The dialect of this name."""
    if name.startswith("_"):
        msg = f"module 'tracebridge.extend.mlir.dialects' has no attribute {name!r}"
        raise AttributeError(msg)
    return _dialect(name)
