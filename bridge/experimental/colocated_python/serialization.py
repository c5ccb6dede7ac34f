"""What libraries name that send functions to other hosts; nothing is sent from here."""

from __future__ import annotations

from tracebridge.core._jaxlib.xla import DeviceList

__all__ = ["DeviceList"]
