"""The distribution of numbers of which none is likelier."""

from __future__ import annotations

from tracebridge.core.util.listing import listing as _listing
from tracebridge.scipy._stats.continuous import UNIFORM as _DISTRIBUTION

__all__ = ["cdf", "logpdf", "pdf", "ppf"]

__dir__ = _listing(globals())

cdf = _DISTRIBUTION.function("cdf")
logpdf = _DISTRIBUTION.function("logpdf")
pdf = _DISTRIBUTION.function("pdf")
ppf = _DISTRIBUTION.function("ppf")
