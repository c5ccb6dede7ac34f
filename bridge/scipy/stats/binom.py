"""The distribution of successes among trials."""

from __future__ import annotations

from tracebridge.scipy._stats.discrete import BINOM as _DISTRIBUTION

__all__ = ["logpmf", "pmf"]

logpmf = _DISTRIBUTION.function("logpmf")
pmf = _DISTRIBUTION.function("pmf")
