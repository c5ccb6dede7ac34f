"""The distribution of logistic numbers."""

from __future__ import annotations

from tracebridge.core.util.listing import listing as _listing
from tracebridge.scipy._stats.continuous import LOGISTIC as _DISTRIBUTION

__all__ = ["cdf", "isf", "logpdf", "pdf", "ppf", "sf"]

__dir__ = _listing(globals())

cdf = _DISTRIBUTION.function("cdf")
isf = _DISTRIBUTION.function("isf")
logpdf = _DISTRIBUTION.function("logpdf")
pdf = _DISTRIBUTION.function("pdf")
ppf = _DISTRIBUTION.function("ppf")
sf = _DISTRIBUTION.function("sf")
