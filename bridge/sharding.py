"""Where arrays live."""

from __future__ import annotations

from tracebridge.core.sharding.single_device import SingleDeviceSharding

__all__ = ["SingleDeviceSharding"]
