"""The distribution of events of a rate."""

from __future__ import annotations

from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.util.listing import listing as _listing
from tracebridge.scipy._stats.discrete import POISSON as _DISTRIBUTION
from tracebridge.scipy._stats.entropy import POISSON_ENTROPY as _ENTROPY

__all__ = ["cdf", "entropy", "logpmf", "pmf"]

__dir__ = _listing(globals())

cdf = _DISTRIBUTION.function("cdf")
logpmf = _DISTRIBUTION.function("logpmf")
pmf = _DISTRIBUTION.function("pmf")


def entropy(mu: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Entropy in nats: the mean of ``-logpmf``, of events of a rate.

    Args:
        mu: rates, at least 0.
        loc: location, which has no effect.

    Returns:
        Array of the common shape; NaN where a rate is negative.

    >>> import tracebridge as tb
    >>> round(float(tb.scipy.stats.poisson.entropy(1.0)), 4)
    1.3048
    """
    return _ENTROPY((mu, loc))
