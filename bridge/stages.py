"""Stages of a jitted function: traced, lowered, compiled."""

from __future__ import annotations

from tracebridge.core.aot.compiled import Compiled
from tracebridge.core.aot.stage import ArgInfo
from tracebridge.core.aot.stages import CompilerOptions, Lowered, Traced, Wrapped

__all__ = ["ArgInfo", "Compiled", "CompilerOptions", "Lowered", "Traced", "Wrapped"]
