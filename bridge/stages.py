"""Stages of a jitted function: traced, lowered, compiled."""

from __future__ import annotations

from tracebridge.core.aot.compiled import Compiled
from tracebridge.core.aot.stage import ArgInfo
from tracebridge.core.aot.stages import CompilerOptions, Lowered, Traced, Wrapped
from tracebridge.core.util.listing import listing as _listing

__all__ = ["ArgInfo", "Compiled", "CompilerOptions", "Lowered", "Traced", "Wrapped"]

__dir__ = _listing(globals())
