"""pjit, the older name of jit."""

from __future__ import annotations

from tracebridge._api.jit import jit as pjit

__all__ = ["pjit"]
