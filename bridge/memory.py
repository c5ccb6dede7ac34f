"""Memories of devices and hosts."""

from __future__ import annotations

from tracebridge.core.sharding.memory import Space

__all__ = ["Space"]
