"""pjit, the older name of jit."""

from __future__ import annotations

from tracebridge._api.programs.jit import jit as pjit

__all__ = ["pjit"]
