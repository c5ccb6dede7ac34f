"""The distribution of events of a rate."""

from __future__ import annotations

from tracebridge.scipy._stats.discrete import POISSON as _DISTRIBUTION

__all__ = ["cdf", "logpmf", "pmf"]

cdf = _DISTRIBUTION.function("cdf")
logpmf = _DISTRIBUTION.function("logpmf")
pmf = _DISTRIBUTION.function("pmf")
