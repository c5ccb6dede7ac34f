"""The distribution of Student's t."""

from __future__ import annotations

from tracebridge.scipy._stats.continuous import T as _DISTRIBUTION

__all__ = ["logpdf", "pdf"]

logpdf = _DISTRIBUTION.function("logpdf")
pdf = _DISTRIBUTION.function("pdf")
