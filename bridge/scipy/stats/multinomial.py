"""The distribution of counts of several outcomes."""

from __future__ import annotations

from tracebridge.core.errors.filtering import shield
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.scipy._stats.multivariate import MULTINOMIAL as _LOG
from tracebridge.scipy._stats.multivariate import MULTINOMIAL_PMF as _PMF

__all__ = ["logpmf", "pmf"]


def logpmf(x: ArrayLike, n: ArrayLike, p: ArrayLike) -> Array:
    """Logarithm of the probability of counts.

    Args:
        x: whole numbers of shape ``(..., k)``.
        n: how many trials, of shape ``(...)``.
        p: probabilities of the outcomes, of shape ``(..., k)``; that they add up to 1 is not
            checked.

    Returns:
        Array of shape ``(...)``, leading axes broadcast: ``-inf`` where counts are negative or do
        not add up to ``n``, NaN where ``n`` or ``p`` is invalid.

    Raises:
        RankError: ``x`` or ``p`` is a number.
        ShapeMismatchError: not as many counts as probabilities.

    >>> import tracebridge as tb
    >>> tnp, multinomial = tb.numpy, tb.scipy.stats.multinomial
    >>> round(float(multinomial.logpmf(tnp.array([2, 0]), 2, tnp.array([1.0, 0.0]))), 4)
    0.0
    """
    return _LOG((x, n, p))


def pmf(x: ArrayLike, n: ArrayLike, p: ArrayLike) -> Array:
    """Probability of counts; arguments, errors and result as in ``logpmf``, without the logarithm.

    >>> import tracebridge as tb
    >>> tnp, multinomial = tb.numpy, tb.scipy.stats.multinomial
    >>> round(float(multinomial.pmf(tnp.array([1, 1]), 2, tnp.array([0.5, 0.5]))), 4)
    0.5
    """
    return _PMF((x, n, p))


shield(globals(), __name__)
