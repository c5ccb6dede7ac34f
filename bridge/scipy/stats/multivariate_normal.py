"""The distribution of normal vectors."""

from __future__ import annotations

from tracebridge.core.errors.filtering import shield
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.scipy._stats.multivariate import NORMAL as _LOG
from tracebridge.scipy._stats.multivariate import NORMAL_PDF as _PDF
from tracebridge.scipy._stats.multivariate import check_not_singular as _check_not_singular

__all__ = ["logpdf", "pdf"]


def logpdf(x: ArrayLike, mean: ArrayLike, cov: ArrayLike, allow_singular: None = None) -> Array:
    """Logarithm of the density of normal vectors.

    Args:
        x: vectors of shape ``(..., n)``; numbers of any shape where ``mean`` and ``cov`` are
            numbers.
        mean: their means, of shape ``(..., n)``, or a number.
        cov: their covariances, positive definite matrices of shape ``(..., n, n)``; a number
            stands for the unit matrix times it.
        allow_singular: only None: densities of singular covariances are not available.

    Returns:
        Array of shape ``(...)``, leading axes broadcast; NaN where ``cov`` has no Cholesky
        factor.

    Raises:
        ShapeMismatchError: the shapes do not fit.
        UnsupportedArgumentError: ``allow_singular`` is True.

    >>> import tracebridge as tb
    >>> tnp, multivariate_normal = tb.numpy, tb.scipy.stats.multivariate_normal
    >>> round(float(multivariate_normal.logpdf(tnp.zeros(2), tnp.zeros(2), tnp.eye(2))), 4)
    -1.8379
    """
    _check_not_singular(allow_singular)
    return _LOG((x, mean, cov))


def pdf(x: ArrayLike, mean: ArrayLike, cov: ArrayLike) -> Array:
    """Density of normal vectors; arguments and result as in ``logpdf``, without the logarithm.

    Raises:
        ShapeMismatchError: the shapes do not fit.

    >>> import tracebridge as tb
    >>> tnp, multivariate_normal = tb.numpy, tb.scipy.stats.multivariate_normal
    >>> round(float(multivariate_normal.pdf(0.0, 0.0, 1.0)), 4)
    0.3989
    """
    return _PDF((x, mean, cov))


shield(globals(), __name__)
