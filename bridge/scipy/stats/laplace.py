"""The distribution of Laplace numbers."""

from __future__ import annotations

from tracebridge.scipy._stats.continuous import LAPLACE as _DISTRIBUTION

__all__ = ["cdf", "logpdf", "pdf"]

cdf = _DISTRIBUTION.function("cdf")
logpdf = _DISTRIBUTION.function("logpdf")
pdf = _DISTRIBUTION.function("pdf")
