"""Export of programs. So far its part of symbolic shapes: see ``tracebridge.symbolic_shapes``."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tracebridge.symbolic_shapes import (
    SymbolicScope,
    is_symbolic_dim,
    symbolic_args_specs,
    symbolic_shape,
)

__all__ = ["SymbolicScope", "is_symbolic_dim", "symbolic_args_specs", "symbolic_shape"]

if not TYPE_CHECKING:  # a type checker knows the names above

    def __getattr__(name: str) -> Any:
        raise importlib.import_module("tracebridge._api.programs.missing").missing(__name__, name)
