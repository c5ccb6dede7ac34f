"""The distribution of Gumbel numbers, of largest values."""

from __future__ import annotations

from tracebridge.core.util.listing import listing as _listing
from tracebridge.scipy._stats.continuous import GUMBEL_R as _DISTRIBUTION

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]

__dir__ = _listing(globals())

cdf = _DISTRIBUTION.function("cdf")
logcdf = _DISTRIBUTION.function("logcdf")
logpdf = _DISTRIBUTION.function("logpdf")
logsf = _DISTRIBUTION.function("logsf")
pdf = _DISTRIBUTION.function("pdf")
ppf = _DISTRIBUTION.function("ppf")
sf = _DISTRIBUTION.function("sf")
