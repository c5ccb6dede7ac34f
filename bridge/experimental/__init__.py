"""Functions whose names may still change; modules below are loaded on import."""

from __future__ import annotations

from tracebridge.core.control.callbacks.io import io_callback

__all__ = ["io_callback"]
