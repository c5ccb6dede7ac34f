"""Discrete cosine transforms, as in ``scipy.fft``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, SupportsIndex

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.canonicalize import to_inexact
from tracebridge.core.dtypes.dtypes import complex_of, float32, float64, is_complex, real_of
from tracebridge.core.errors.argument_errors import ArgumentValueError, index_of
from tracebridge.core.errors.filtering import shield
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.fft.fft import FftType
from tracebridge.core.fft.fft import fft as transform
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import zeros_of
from tracebridge.core.runtime.arrays.argument_types import Axis
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.arrays.transfer import put_made
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import hashable_axis, normalize_axis

__all__ = ["dct", "dctn", "idct", "idctn"]

_NORMS = ("backward", "ortho", "forward")
_INVERSE = {1: 1, 2: 3, 3: 2, 4: 4}


def _dct(
    x: Value, name: str, kind: int, s: tuple[int, ...] | None, axes: Any, norm: str, inverse: bool
) -> Any:
    """The transform of type ``kind`` along ``axes``, or its inverse."""
    ndim = x.aval.ndim
    order = _axes_of(name, ndim, s, axes)
    dtype = to_inexact(x.aval.dtype)
    if not is_complex(dtype):
        dtype = dtype if dtype == float64 else float32
    x = lax.convert_dtype(x, dtype)
    for i, axis in enumerate(order):
        there = (*[a for a in range(ndim) if a != axis], axis)
        back = tuple(sorted(range(ndim), key=there.__getitem__))
        n = x.aval.shape[axis] if s is None else s[i]
        if n < (2 if kind == 1 else 1):
            msg = f"{name}: type {kind} of {n} samples, expected {2 if kind == 1 else 1} or more"
            raise ArgumentValueError(msg)
        y = _resized(lax.transpose(x, there), n)
        x = lax.transpose(_last_axis(y, kind, norm, inverse), back)
    return x


def _axes_of(name: str, ndim: int, s: tuple[int, ...] | None, axes: Any) -> tuple[int, ...]:
    if axes is None:
        count = ndim if s is None else len(s)
        if count > ndim:
            msg = f"{name}: s={s} has {count} sizes for an array of {ndim} axes"
            raise RankError(msg)
        return tuple(range(ndim - count, ndim))
    axes = axes if isinstance(axes, tuple) else (axes,)
    if s is not None and len(s) != len(axes):
        msg = f"{name}: s={s} and axes={axes} have different lengths"
        raise ShapeMismatchError(msg)
    order = tuple([normalize_axis(a, ndim, name) for a in axes])
    if len(set(order)) != len(order):
        msg = f"{name}: axes={axes} names an axis twice"
        raise ArgumentValueError(msg)
    return order


def _resized(x: Value, n: int) -> Any:
    """``x`` with ``n`` elements along its last axis: cut, or with zeros behind."""
    size = x.aval.shape[-1]
    if n < size:
        return _part(x, 0, n)
    zero = zeros_of(x.aval.update(shape=()))
    return lax.pad(x, zero, [*[(0, 0, 0)] * (x.aval.ndim - 1), (0, n - size, 0)])


def _last_axis(x: Value, kind: int, norm: str, inverse: bool) -> Any:
    """One transform along the last axis; the matrices are real, so that parts transform alone."""
    if is_complex(x.aval.dtype):
        parts = [_last_axis(p, kind, norm, inverse) for p in (lax.real(x), lax.imag(x))]
        return lax.complex(*parts)
    n = x.aval.shape[-1]
    total = 2 * (n - 1) if kind == 1 else 2 * n
    used = _INVERSE[kind] if inverse else kind
    if norm != "ortho":
        y = _UNSCALED[used](x)
        return lax.mul(y, 1 / total) if inverse == (norm == "backward") else y
    ends = (0, n - 1) if used == 1 else (0,)
    root = 2**0.5
    y = _UNSCALED[used](_scaled_at(x, ends, root) if used in {1, 3} else x)
    y = lax.mul(y, total**-0.5)
    return _scaled_at(y, ends, 1 / root) if used in {1, 2} else y


def _scaled_at(x: Value, places: Sequence[int], factor: float) -> Any:
    factors = np.ones(x.aval.shape[-1])
    factors[list(places)] = factor
    return lax.mul(x, _along_last(factors, x))


def _along_last(values: np.ndarray[Any, Any], x: Value, dtype: Any = None) -> Any:
    """Constants along the last axis of an array like ``x``."""
    wanted = x.aval.dtype if dtype is None else dtype
    constant = put_made("dct", lambda: values.astype(wanted))
    shape = (*x.aval.shape[:-1], len(values))
    return lax.broadcast_in_dim(constant, shape, (x.aval.ndim - 1,))


def _turned(x: Value, angles: np.ndarray[Any, Any]) -> Any:
    """``x`` times the unit numbers of these angles, along the last axis."""
    dtype = complex_of(real_of(x.aval.dtype))
    return lax.mul(lax.convert_dtype(x, dtype), _along_last(np.exp(1j * angles), x, dtype))


def _part(x: Value, start: int, stop: int, step: int = 1) -> Any:
    axes = x.aval.ndim - 1
    shape = x.aval.shape[:-1]
    return lax.slice(x, (*[0] * axes, start), (*shape, stop), (*[1] * axes, step))


def _reversed(x: Value) -> Any:
    return lax.rev(x, (x.aval.ndim - 1,))


def _joined(parts: Sequence[Any]) -> Any:
    return lax.concatenate(list(parts), parts[0].aval.ndim - 1)


def _type_1(x: Value) -> Any:
    """The spectrum of the even extension, whose period has both ends once."""
    n = x.aval.shape[-1]
    whole = _joined([x, _reversed(_part(x, 1, n - 1))])
    return lax.real(transform(whole, FftType.RFFT, (2 * n - 2,)))


def _type_2(x: Value) -> Any:
    """The spectrum of the even samples followed by the odd ones backwards.

    Source: Makhoul (1980), IEEE Trans. ASSP 28(1).
    """
    n = x.aval.shape[-1]
    ordered = _joined([_part(x, 0, n, 2), _reversed(_part(x, 1, n, 2))]) if n > 1 else x
    spectrum = transform(ordered, FftType.RFFT, (n,))
    turned = _turned(spectrum, -np.pi * np.arange(n // 2 + 1) / (2 * n))
    tail = lax.neg(_reversed(_part(lax.imag(turned), 1, (n + 1) // 2)))
    return lax.mul(_joined([lax.real(turned), tail]), 2.0)


def _type_3(x: Value) -> Any:
    """The steps of type 2 backwards."""
    n = x.aval.shape[-1]
    if n == 1:
        return x
    head = _part(x, 0, n // 2 + 1)
    tail = _resized(_reversed(_part(x, n - n // 2, n)), n // 2)
    zero = zeros_of(_part(x, 0, 1).aval)
    turned = _turned(
        lax.complex(head, lax.neg(_joined([zero, tail]))),
        np.pi * np.arange(n // 2 + 1) / (2 * n),
    )
    ordered = lax.mul(transform(turned, FftType.IRFFT, (n,)), float(n))
    even, odd = _part(ordered, 0, (n + 1) // 2), _reversed(_part(ordered, (n + 1) // 2, n))
    if n % 2:
        odd = _resized(odd, n // 2 + 1)
    axis = x.aval.ndim
    pairs = lax.concatenate([lax.expand_dims(even, (axis,)), lax.expand_dims(odd, (axis,))], axis)
    return _part(lax.reshape(pairs, (*x.aval.shape[:-1], n + n % 2)), 0, n)


def _type_4(x: Value) -> Any:
    """Products with both halves of the angles, around a transform of twice the length."""
    n = x.aval.shape[-1]
    steps = np.pi * np.arange(n) / (2 * n)
    spectrum = transform(_resized(_turned(x, -steps), 2 * n), FftType.FFT, (2 * n,))
    turned = _turned(_part(spectrum, 0, n), -steps - np.pi / (4 * n))
    return lax.mul(lax.real(turned), 2.0)


_UNSCALED: dict[int, Any] = {1: _type_1, 2: _type_2, 3: _type_3, 4: _type_4}
_staged = StagedFunction(_dct, "dct")


def _call(name: str, x: Any, type: Any, s: Any, axes: Any, norm: Any, inverse: bool) -> Array:
    kind = index_of(type, name, "type")
    if kind not in _INVERSE:
        msg = f"{name}: type is {kind}, expected 1, 2, 3 or 4"
        raise ArgumentValueError(msg)
    norm = "backward" if norm is None else norm
    if norm not in _NORMS:
        msg = f"{name}: norm is {norm!r}, expected one of {list(_NORMS)}"
        raise ArgumentValueError(msg)
    sizes = hashable_axis(s, name)
    sizes = (sizes,) if isinstance(sizes, int) else sizes
    return _staged((x,), (name, kind, sizes, hashable_axis(axes, name), norm, inverse))


def dct(
    x: ArrayLike, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None
) -> Array:
    """Discrete cosine transform along one axis.

    Args:
        x: array; integers and halves are transformed in single precision, the parts of complex
            numbers alone.
        type: 1, 2, 3 or 4: which symmetry the signal is continued with.
        n: number of samples; ``x`` is cut or gets zeros behind (default: its size).
        axis: axis in ``[-ndim, ndim)``.
        norm: what is scaled: "backward" (or ``None``) the inverse transform, "forward" the
            forward one, "ortho" makes the matrix orthogonal.

    Returns:
        Array with ``n`` coefficients along ``axis``.

    Raises:
        AxisError: no such axis.
        ArgumentValueError: no such type or norm, or too few samples.

    >>> import tracebridge as tb
    >>> tb.scipy.fft.dct(tb.numpy.array([1.0, 1.0])).tolist()
    [4.0, 0.0]
    """
    return _call("dct", x, type, n, index_of(axis, "dct", "axis"), norm, False)


def idct(
    x: ArrayLike, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None
) -> Array:
    """Inverse of ``dct``; arguments as there.

    >>> import tracebridge as tb
    >>> tb.scipy.fft.idct(tb.numpy.array([4.0, 0.0])).tolist()
    [1.0, 1.0]
    """
    return _call("idct", x, type, n, index_of(axis, "idct", "axis"), norm, True)


def dctn(
    x: ArrayLike,
    type: int = 2,
    s: SupportsIndex | Sequence[SupportsIndex] | None = None,
    axes: Axis = None,
    norm: str | None = None,
) -> Array:
    """Discrete cosine transform along several axes.

    Args:
        x: array, as of ``dct``.
        type: as of ``dct``.
        s: number of samples along each axis.
        axes: which axes (default: all; the last ones if ``s`` is given).
        norm: as of ``dct``.

    Returns:
        Array of coefficients.

    Raises:
        AxisError: no such axis.
        RankError: ``s`` has more sizes than ``x`` has axes.
        ShapeMismatchError: ``s`` and ``axes`` have different lengths.
        ArgumentValueError: no such type or norm, or an axis is named twice.

    >>> import tracebridge as tb
    >>> tb.scipy.fft.dctn(tb.numpy.ones((2, 2))).tolist()
    [[16.0, 0.0], [0.0, 0.0]]
    """
    return _call("dctn", x, type, s, axes, norm, False)


def idctn(
    x: ArrayLike,
    type: int = 2,
    s: SupportsIndex | Sequence[SupportsIndex] | None = None,
    axes: Axis = None,
    norm: str | None = None,
) -> Array:
    """Inverse of ``dctn``; arguments as there.

    >>> import tracebridge as tb
    >>> tb.scipy.fft.idctn(tb.numpy.ones((1, 1))).tolist()
    [[0.25]]
    """
    return _call("idctn", x, type, s, axes, norm, True)


shield(globals(), __name__)
