"""The persistent compilation cache under the names of older programs."""

from __future__ import annotations

from tracebridge.experimental.compilation_cache import compilation_cache as compilation_cache

__all__: list[str] = []  # a star takes no submodules
