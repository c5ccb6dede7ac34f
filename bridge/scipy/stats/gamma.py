"""The distribution of gamma numbers."""

from __future__ import annotations

from tracebridge.scipy._stats.continuous import GAMMA as _DISTRIBUTION

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]

cdf = _DISTRIBUTION.function("cdf")
logcdf = _DISTRIBUTION.function("logcdf")
logpdf = _DISTRIBUTION.function("logpdf")
logsf = _DISTRIBUTION.function("logsf")
pdf = _DISTRIBUTION.function("pdf")
sf = _DISTRIBUTION.function("sf")
