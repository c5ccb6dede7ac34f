"""The persistent compilation cache under the names of older programs."""

from __future__ import annotations

from tracebridge.core.util.listing import listing as _listing
from tracebridge.experimental.compilation_cache import compilation_cache as compilation_cache

__all__: list[str] = []  # a star takes no submodules

__dir__ = _listing(globals(), loaded=True)
