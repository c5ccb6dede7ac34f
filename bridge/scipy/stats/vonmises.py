"""The distribution of angles around a direction."""

from __future__ import annotations

from tracebridge.core.util.listing import listing as _listing
from tracebridge.scipy._stats.continuous import VONMISES as _DISTRIBUTION

__all__ = ["logpdf", "pdf"]

__dir__ = _listing(globals())

logpdf = _DISTRIBUTION.function("logpdf")
pdf = _DISTRIBUTION.function("pdf")
