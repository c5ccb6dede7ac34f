"""Errors about mutable array references."""

from __future__ import annotations

from tracebridge.core.errors.base import TracebridgeError


class RefError(TracebridgeError, ValueError, TypeError):
    """A mutable array reference was used where, or in a way that, it can't be."""
