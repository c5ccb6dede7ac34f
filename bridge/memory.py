"""Memories of devices and hosts."""

from __future__ import annotations

from tracebridge.core.sharding.memory import Space
from tracebridge.core.util.listing import listing as _listing

__all__ = ["Space"]

__dir__ = _listing(globals())
