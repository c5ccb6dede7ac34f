"""Frequencies of the coefficients of Fourier transforms, and their order."""

from __future__ import annotations

from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.canonicalize import default_float, to_inexact
from tracebridge.core.errors.argument_errors import ArgumentValueError, index_of
from tracebridge.core.errors.shape_errors import RankError
from tracebridge.core.fft.fft import half
from tracebridge.core.ir.value import Value
from tracebridge.core.runtime.arrays.argument_types import Axis, DeviceLike, DType
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike, DTypeLike
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import hashable_axis, members, normalize_axis
from tracebridge.numpy._staging import shape_of, static_dtype
from tracebridge.numpy.conversion import asarray, on_device
from tracebridge.numpy.rearrangement import roll


def _frequencies(d: Value, n: int, real: bool, dtype: DType) -> Any:
    """0, 1, ... and, from half of ``n`` on, what is left to ``n`` below zero; over ``n * d``."""
    if d.aval.ndim:
        msg = f"fftfreq: d is {d.aval.str_short()}, expected a scalar"
        raise RankError(msg)
    made = to_inexact(dtype)
    k = lax.iota(np.dtype(np.int32), half(max(n, 0)) if real else max(n, 0))
    if not real:
        k = lax.select(lax.lt(k, (n + 1) // 2), k, lax.sub(k, n))
    period = lax.mul(lax.convert_dtype(d, made), float(n))
    return lax.convert_dtype(lax.div(lax.convert_dtype(k, made), period), dtype)


_frequencies_staged = StagedFunction(_frequencies, "fftfreq")


def _made(name: str, n: Any, d: Any, dtype: Any, device: Any) -> Any:
    kind = default_float() if dtype is None else static_dtype(name, dtype)
    if members(n) is not None:
        msg = f"{name}: n is {n!r}, which is several numbers: it only takes an int"
        raise ArgumentValueError(msg)
    count = index_of(n, name, "n")
    return on_device(_frequencies_staged((d,), (count, name == "rfftfreq", kind)), device)


def fftfreq(
    n: int,
    d: ArrayLike = 1.0,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
) -> Array:
    """Frequencies of the coefficients that ``fft`` gives, in cycles per unit of ``d``.

    Args:
        n: number of samples.
        d: time between two samples, a scalar.
        dtype: dtype of the result (default: the default float).
        device: where to put the array.

    Returns:
        ``n`` frequencies: from zero up, then the negative ones.

    Raises:
        RankError: ``d`` is no scalar.

    >>> import tracebridge.numpy as tnp
    >>> tnp.fft.fftfreq(4, 0.5).tolist()
    [0.0, 0.5, -1.0, -0.5]
    """
    return _made("fftfreq", n, d, dtype, device)


def rfftfreq(
    n: int,
    d: ArrayLike = 1.0,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
) -> Array:
    """Frequencies of the coefficients that ``rfft`` gives; arguments as of ``fftfreq``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.fft.rfftfreq(4, 0.5).tolist()
    [0.0, 0.5, 1.0]
    """
    return _made("rfftfreq", n, d, dtype, device)


def fftshift(x: ArrayLike, axes: Axis = None) -> Array:
    """``x`` with the coefficient of frequency zero moved to the middle.

    Args:
        x: array.
        axes: an axis or several (default: all).

    >>> import tracebridge.numpy as tnp
    >>> tnp.fft.fftshift(tnp.array([0, 1, -2, -1])).tolist()
    [-2, -1, 0, 1]
    """
    return _shifted("fftshift", x, axes, 1)


def ifftshift(x: ArrayLike, axes: Axis = None) -> Array:
    """Inverse of ``fftshift``; arguments as there.

    >>> import tracebridge.numpy as tnp
    >>> tnp.fft.ifftshift(tnp.array([-2, -1, 0, 1])).tolist()
    [0, 1, -2, -1]
    """
    return _shifted("ifftshift", x, axes, -1)


def _shifted(name: str, x: Any, axes: Any, sign: int) -> Any:
    shape = shape_of(x)
    wanted = hashable_axis(axes, name)
    wanted = (wanted,) if type(wanted) is int else wanted
    if wanted is None:
        order = tuple(range(len(shape)))
    else:
        order = tuple([normalize_axis(i, len(shape), name) for i in wanted])
    if not order:
        return asarray(x)
    return roll(x, tuple([sign * (shape[i] // 2) for i in order]), order)
