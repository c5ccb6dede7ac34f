"""Integrals of sampled functions, as in ``scipy.integrate``."""

from __future__ import annotations

import tracebridge.numpy as tnp
from tracebridge.core.errors.filtering import shield
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike

__all__ = ["trapezoid"]


def trapezoid(
    y: ArrayLike, x: ArrayLike | None = None, dx: ArrayLike = 1.0, axis: int = -1
) -> Array:
    """The integral of samples along an axis, by the trapezoidal rule.

    Args:
        y: samples.
        x: where they were taken (one axis, or an array that broadcasts against ``y``).
        dx: distance of neighbours if ``x`` is not given.
        axis: axis of ``y`` in ``[-ndim, ndim)``.

    Raises:
        AxisError: no such axis.

    >>> import tracebridge as tb
    >>> float(tb.scipy.integrate.trapezoid(tb.numpy.array([1.0, 2.0, 3.0])))
    4.0
    """
    return tnp.trapezoid(y, x, dx, axis)


shield(globals(), __name__)
