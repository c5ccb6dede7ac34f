"""The distribution of failures until so many successes."""

from __future__ import annotations

from tracebridge.core.util.listing import listing as _listing
from tracebridge.scipy._stats.discrete import NBINOM as _DISTRIBUTION

__all__ = ["logpmf", "pmf"]

__dir__ = _listing(globals())

logpmf = _DISTRIBUTION.function("logpmf")
pmf = _DISTRIBUTION.function("pmf")
