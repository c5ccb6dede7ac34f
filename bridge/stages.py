"""Stages of a jitted function: traced, lowered, compiled."""

from __future__ import annotations

from tracebridge.core.aot.stages import ArgInfo, Compiled, CompilerOptions, Lowered, Traced, Wrapped

__all__ = ["ArgInfo", "Compiled", "CompilerOptions", "Lowered", "Traced", "Wrapped"]
