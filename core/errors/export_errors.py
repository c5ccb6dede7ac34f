"""Errors about exported programs."""

from __future__ import annotations

from tracebridge.core.errors.base import TracebridgeError


class ExportError(TracebridgeError, ValueError):
    """A program cannot leave this process, or the consumer cannot take it."""
