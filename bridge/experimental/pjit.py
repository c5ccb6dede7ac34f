"""pjit, the older name of jit."""

from __future__ import annotations

from tracebridge._api.programs.jit import jit as pjit
from tracebridge.core.util.listing import listing as _listing

__all__ = ["pjit"]

__dir__ = _listing(globals())
