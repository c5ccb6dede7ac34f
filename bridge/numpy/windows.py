"""Window functions of signal processing: bartlett, blackman, hamming, hanning, kaiser."""

from __future__ import annotations

__all__ = ["bartlett", "blackman", "hamming", "hanning", "kaiser"]

from collections.abc import Callable
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.canonicalize import default_float
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError, index_of
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.arrays.transfer import put_made
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.core.special.bessel import bessel_i0e
from tracebridge.core.symbolic.dims import Dim
from tracebridge.numpy._promote import promote_inexact


def _window(name: str, M: Dim | float, formula: Callable[[int], np.ndarray[Any, Any]]) -> Any:
    """A window of ``M`` points, computed in double precision on the host."""
    if isinstance(M, float) and not M.is_integer():
        msg = f"{name}: M is {M}"
        raise ArgumentTypeError(msg, expected="a whole number of points")
    count = int(M) if isinstance(M, float) else index_of(M, name, "M")
    if count < 0:
        msg = f"{name}: the number of points must not be negative, got {count}"
        raise ArgumentValueError(msg)
    made = np.ones if count <= 1 else formula
    return put_made(name, lambda: made(count).astype(default_float()))


def bartlett(M: int) -> Array:
    """The triangular window of ``M`` points that is zero at both ends.

    >>> import tracebridge.numpy as tnp
    >>> tnp.bartlett(5).tolist()
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    return _window("bartlett", M, np.bartlett)


def blackman(M: int) -> Array:
    """The Blackman window of ``M`` points.

    >>> import tracebridge.numpy as tnp
    >>> [round(v, 3) for v in tnp.abs(tnp.blackman(5)).tolist()]
    [0.0, 0.34, 1.0, 0.34, 0.0]
    """
    return _window("blackman", M, np.blackman)


def hamming(M: int) -> Array:
    """The Hamming window of ``M`` points.

    >>> import tracebridge.numpy as tnp
    >>> [round(v, 2) for v in tnp.hamming(5).tolist()]
    [0.08, 0.54, 1.0, 0.54, 0.08]
    """
    return _window("hamming", M, np.hamming)


def hanning(M: int) -> Array:
    """The Hann window of ``M`` points.

    >>> import tracebridge.numpy as tnp
    >>> tnp.hanning(5).tolist()
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    return _window("hanning", M, np.hanning)


def _kaiser(beta: Value, count: int) -> Any:
    (beta,) = promote_inexact(beta)
    beta = lax.convert_dtype(beta, default_float())
    scalar = beta.aval.update(shape=())
    half = (count - 1) / 2
    steps = lax.sub(lax.iota_of(beta.aval.dtype, (count,), 0), full_of(scalar, half))
    ratio = lax.div(steps, full_of(scalar, half))
    inside = lax.sub(full_of(scalar, 1), lax.mul(ratio, ratio))
    size = lax.abs(lax.mul(lax.sqrt(lax.max(inside, zeros_of(scalar))), beta))
    # Quotients of exponentially scaled functions do not overflow.
    scale = lax.exp(lax.sub(size, lax.abs(beta)))
    return lax.mul(lax.div(bessel_i0e(size), bessel_i0e(lax.abs(beta))), scale)


_kaiser_staged = StagedFunction(_kaiser, "kaiser")


def kaiser(M: int, beta: ArrayLike) -> Array:
    """The Kaiser window of ``M`` points with shape ``beta``.

    >>> import tracebridge.numpy as tnp
    >>> [round(v, 3) for v in tnp.kaiser(3, 2.0).tolist()]
    [0.439, 1.0, 0.439]
    """
    count = index_of(M, "kaiser", "M")
    if count <= 1:
        return _window("kaiser", M, np.ones)
    return _kaiser_staged((beta,), (count,))
