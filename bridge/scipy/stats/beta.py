"""The distribution of beta numbers."""

from __future__ import annotations

from tracebridge.core.util.listing import listing as _listing
from tracebridge.scipy._stats.continuous import BETA as _DISTRIBUTION

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]

__dir__ = _listing(globals())

cdf = _DISTRIBUTION.function("cdf")
logcdf = _DISTRIBUTION.function("logcdf")
logpdf = _DISTRIBUTION.function("logpdf")
logsf = _DISTRIBUTION.function("logsf")
pdf = _DISTRIBUTION.function("pdf")
sf = _DISTRIBUTION.function("sf")
