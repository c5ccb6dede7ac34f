"""The distribution of Student's t."""

from __future__ import annotations

from tracebridge.core.util.listing import listing as _listing
from tracebridge.scipy._stats.continuous import T as _DISTRIBUTION

__all__ = ["logpdf", "pdf"]

__dir__ = _listing(globals())

logpdf = _DISTRIBUTION.function("logpdf")
pdf = _DISTRIBUTION.function("pdf")
