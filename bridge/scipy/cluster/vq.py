"""Vector quantisation, as in ``scipy.cluster.vq``."""

from __future__ import annotations

from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.errors.filtering import shield
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import promote_inexact

__all__ = ["vq"]


def _vq(obs: Value, book: Value) -> list[Any]:
    obs, book = promote_inexact(obs, book)
    got = f"obs {obs.aval.str_short()} and code_book {book.aval.str_short()}"
    if obs.aval.ndim != book.aval.ndim or obs.aval.ndim not in (1, 2):
        msg = f"vq: got {got}, expected two matrices or two vectors"
        raise RankError(msg)
    if obs.aval.ndim == 1:
        obs, book = lax.expand_dims(obs, (1,)), lax.expand_dims(book, (1,))
    m, n = obs.aval.shape
    k, width = book.aval.shape
    if n != width:
        msg = f"vq: got {got}, expected rows of the same length"
        raise ShapeMismatchError(msg)
    shape = (m, k, n)
    difference = lax.sub(
        lax.broadcast_in_dim(obs, shape, (0, 2)), lax.broadcast_in_dim(book, shape, (1, 2))
    )
    squared = lax.reduce_sum(lax.square(lax.abs(difference)), (2,))
    code = lax.argmin(squared, 1, np.dtype(np.int32))
    nearest = lax.reduce_min(squared, (1,))
    # The derivative of a distance of zero is zero, not NaN.
    is_zero = lax.eq(nearest, zeros_of(nearest.aval.update(shape=())))
    safe = lax.select(is_zero, full_of(nearest.aval, 1), nearest)
    return [code, lax.select(is_zero, zeros_of(nearest.aval), lax.sqrt(safe))]


_staged = StagedFunction(_vq, "vq")


def vq(obs: ArrayLike, code_book: ArrayLike, check_finite: bool = True) -> tuple[Array, Array]:
    """The nearest row of a code book for each observation, and its Euclidean distance.

    Args:
        obs: observations of shape ``(M, N)``, or ``(M,)`` for numbers.
        code_book: codes of shape ``(K, N)``, or ``(K,)``.
        check_finite: not used; arrays may be traced.

    Returns:
        ``(code, distance)``: int32 indices of shape ``(M,)``, and floats of that shape.

    Raises:
        RankError: the arguments are not both matrices or both vectors.
        ShapeMismatchError: observations and codes have different lengths.

    >>> import tracebridge as tb
    >>> points = tb.numpy.array([1.0, 5.0])
    >>> code, distance = tb.scipy.cluster.vq.vq(points, points - 1.0)
    >>> code.tolist(), distance.tolist()
    ([0, 1], [1.0, 1.0])
    """
    del check_finite
    code, distance = _staged((obs, code_book))
    return code, distance


shield(globals(), __name__)
