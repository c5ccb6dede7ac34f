"""The distribution of Cauchy numbers."""

from __future__ import annotations

from tracebridge.core.util.listing import listing as _listing
from tracebridge.scipy._stats.continuous import CAUCHY as _DISTRIBUTION

__all__ = ["cdf", "isf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]

__dir__ = _listing(globals())

cdf = _DISTRIBUTION.function("cdf")
isf = _DISTRIBUTION.function("isf")
logcdf = _DISTRIBUTION.function("logcdf")
logpdf = _DISTRIBUTION.function("logpdf")
logsf = _DISTRIBUTION.function("logsf")
pdf = _DISTRIBUTION.function("pdf")
ppf = _DISTRIBUTION.function("ppf")
sf = _DISTRIBUTION.function("sf")
