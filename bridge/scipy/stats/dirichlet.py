"""The distribution of shares of a whole."""

from __future__ import annotations

from tracebridge.core.errors.filtering import shield
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.scipy._stats.multivariate import DIRICHLET as _LOG
from tracebridge.scipy._stats.multivariate import DIRICHLET_PDF as _PDF

__all__ = ["logpdf", "pdf"]


def logpdf(x: ArrayLike, alpha: ArrayLike) -> Array:
    """Logarithm of the density of shares.

    Args:
        x: shares of shape ``(k, ...)`` that add up to 1, or ``(k - 1, ...)`` without the last.
        alpha: positive numbers of shape ``(k,)``.

    Returns:
        Array of the shape of ``x`` without its first axis: ``-inf`` where shares are negative or do
        not add up, NaN where a parameter is invalid.

    Raises:
        RankError: ``alpha`` is no vector, or ``x`` a number.
        ShapeMismatchError: the numbers of shares differ.

    >>> import tracebridge as tb
    >>> tnp, dirichlet = tb.numpy, tb.scipy.stats.dirichlet
    >>> round(float(dirichlet.logpdf(tnp.array([0.25, 0.75]), tnp.array([1.0, 1.0]))), 4) + 0.0
    0.0
    """
    return _LOG((x, alpha))


def pdf(x: ArrayLike, alpha: ArrayLike) -> Array:
    """Density of shares; arguments, errors and result as in ``logpdf``, without the logarithm.

    >>> import tracebridge as tb
    >>> tnp, dirichlet = tb.numpy, tb.scipy.stats.dirichlet
    >>> round(float(dirichlet.pdf(tnp.array([0.25, 0.75]), tnp.array([2.0, 1.0]))), 4)
    0.5
    """
    return _PDF((x, alpha))


shield(globals(), __name__)
