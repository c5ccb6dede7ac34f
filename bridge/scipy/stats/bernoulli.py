"""The distribution of one trial."""

from __future__ import annotations

from tracebridge.core.util.listing import listing as _listing
from tracebridge.scipy._stats.discrete import BERNOULLI as _DISTRIBUTION

__all__ = ["cdf", "logpmf", "pmf", "ppf"]

__dir__ = _listing(globals())

cdf = _DISTRIBUTION.function("cdf")
logpmf = _DISTRIBUTION.function("logpmf")
pmf = _DISTRIBUTION.function("pmf")
ppf = _DISTRIBUTION.function("ppf")
