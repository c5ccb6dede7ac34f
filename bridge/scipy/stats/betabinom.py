"""The distribution of successes at a probability that is a beta number."""

from __future__ import annotations

from tracebridge.core.util.listing import listing as _listing
from tracebridge.scipy._stats.discrete import BETABINOM as _DISTRIBUTION

__all__ = ["logpmf", "pmf"]

__dir__ = _listing(globals())

logpmf = _DISTRIBUTION.function("logpmf")
pmf = _DISTRIBUTION.function("pmf")
