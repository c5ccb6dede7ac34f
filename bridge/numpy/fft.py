"""Discrete Fourier transforms, as in ``numpy.fft``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, SupportsIndex

import tracebridge.core.lax as lax
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError, index_of
from tracebridge.core.errors.filtering import shield
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.fft.fft import FftType, half
from tracebridge.core.fft.fft import fft as transform
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import full_of
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._frequencies import fftfreq, fftshift, ifftshift, rfftfreq
from tracebridge.numpy._promote import members, normalize_axis

__all__ = [
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
]

_NORMS = ("backward", "ortho", "forward")
_OPPOSITE = {"backward": "forward", "ortho": "ortho", "forward": "backward"}


# transforms --------------------------------------------------------------------------------------


def _fft(
    x: Value,
    name: str,
    kind: FftType,
    s: tuple[int, ...] | None,
    axes: tuple[int, ...] | None,
    norm: str,
) -> Any:
    """A transform over ``axes``, in this order, at sizes ``s`` of the signal."""
    ndim = x.aval.ndim
    order = _axes_of(name, ndim, s, axes)
    n = len(order)
    other_axes = [i for i in range(ndim) if i not in order]
    there = (*other_axes, *order)
    y = lax.transpose(x, there)
    lengths = _lengths(name, kind, y.aval.shape[ndim - n :], s)
    y = transform(_resized(y, kind, lengths), kind, lengths)
    scale = _scale(kind, lengths, norm)
    if scale != 1.0:
        y = lax.mul(y, scale)
    return lax.transpose(y, tuple(sorted(range(ndim), key=there.__getitem__)))


def _axes_of(
    name: str, ndim: int, s: tuple[int, ...] | None, axes: tuple[int, ...] | None
) -> tuple[int, ...]:
    if axes is None:
        count = ndim if s is None else len(s)
        if count > ndim:
            msg = f"{name}: s={s} has {count} sizes for an array of {ndim} axes"
            raise RankError(msg)
        return tuple(range(ndim - count, ndim))
    if s is not None and len(s) != len(axes):
        msg = f"{name}: s={s} and axes={axes} have different lengths"
        raise ShapeMismatchError(msg)
    order = tuple([normalize_axis(a, ndim, name) for a in axes])
    if len(set(order)) != len(order):
        msg = f"{name}: axes={axes} names an axis twice"
        raise ArgumentValueError(msg, hint="transform one axis after the other")
    return order


def _lengths(
    name: str, kind: FftType, sizes: tuple[Any, ...], s: tuple[int, ...] | None
) -> tuple[Any, ...]:
    """Sizes of the signal."""
    if s is not None:
        chosen = zip(sizes, s, strict=True)
        sizes = tuple([n if type(k) is int and k == _WHOLE else k for n, k in chosen])
    elif kind is FftType.IRFFT and sizes:
        sizes = (*sizes[:-1], 2 * (sizes[-1] - 1))
    if kind in {FftType.RFFT, FftType.IRFFT} and sizes and _is_below(sizes[-1], 1):
        msg = f"{name}: a real signal of {max(sizes[-1], 0)} samples has no transform"
        raise ArgumentValueError(msg, hint="say how many samples the signal has, n or s")
    return sizes


# In ``s`` of NumPy: as many as the axis has.
_WHOLE = -1


def _is_below(size: Any, limit: int) -> bool:
    return type(size) is int and size < limit


def _resized(x: Any, kind: FftType, lengths: tuple[Any, ...]) -> Any:
    """``x`` cut, or with zeros behind, so that its last axes have the sizes of the transform."""
    if kind is FftType.IRFFT and lengths:
        lengths = (*lengths[:-1], half(lengths[-1]))
    shape = x.aval.shape
    wanted = (*shape[: len(shape) - len(lengths)], *lengths)
    if wanted == shape:
        return x
    cut = [
        min(a, b) if type(a) is type(b) is int else a for a, b in zip(shape, wanted, strict=True)
    ]
    x = lax.slice(x, (0,) * len(shape), cut)
    zero = full_of(x.aval.update(shape=()), False if x.aval.dtype.kind == "b" else 0)
    return lax.pad(x, zero, [(0, w - c, 0) for w, c in zip(wanted, cut, strict=True)])


def _scale(kind: FftType, lengths: tuple[Any, ...], norm: str) -> float:
    """By what the unnormalised result, or the inverse divided by the size, is multiplied."""
    if norm == "backward" or not lengths:
        return 1.0
    total = math.prod(lengths)
    scale = math.sqrt(total) if norm == "ortho" else float(total)
    if not total:
        return 1.0
    return scale if kind in {FftType.IFFT, FftType.IRFFT} else 1 / scale


_staged = StagedFunction(_fft, "fft")


def _norm_of(name: str, norm: str | None) -> str:
    if norm is None:
        return "backward"
    if norm not in _NORMS:
        msg = f"{name}: norm is {norm!r}, expected one of {list(_NORMS)}"
        raise ArgumentValueError(msg)
    return norm


def _several(
    name: str, kind: FftType, a: Any, s: Any, axes: Any, norm: str | None, only: int | None = None
) -> Any:
    """A transform over several axes."""
    if s is not None:
        s = tuple([_size(name, n, "s", whole=_WHOLE) for n in _sequence(name, "s", s)])
    if axes is not None:
        axes = tuple([index_of(i, name, "an axis") for i in _sequence(name, "axes", axes)])
    if only is not None and (axes is None or len(axes) != only):
        msg = f"{name}: transforms {only} axes, got axes={axes}"
        raise ArgumentValueError(msg, hint=f"use {name[:-1]}n for another number of axes")
    return _staged((a,), (name, kind, s, axes, _norm_of(name, norm)))


def _one(name: str, kind: FftType, a: Any, n: Any, axis: Any, norm: str | None) -> Any:
    """A transform over one axis."""
    if members(axis) is not None:
        msg = f"{name}: axis is {axis!r}, expected one axis"
        raise ArgumentValueError(msg, hint="transform several axes by fftn and its kin")
    axes = None if axis is None else (index_of(axis, name, "axis"),)
    s = None if n is None else (_size(name, n, "n"),)
    return _staged((a,), (name, kind, s, axes, _norm_of(name, norm)))


def _sequence(name: str, what: str, numbers_like: Any) -> Any:
    numbers = members(numbers_like)
    if numbers is None:
        msg = f"{name}: {what} is {numbers_like!r}, expected a sequence of integers"
        raise ArgumentTypeError(msg)
    return numbers


def _size(name: str, size: Any, what: str, whole: int | None = None) -> Any:
    """A length; ``whole`` is a number that stands for that of the axis."""
    found = size if getattr(size, "is_symbolic_dim", False) else index_of(size, name, what)
    if _is_below(found, 1) and found != whole:
        msg = f"{name}: {what} has size {found}, expected sizes of at least 1"
        raise ArgumentValueError(msg)
    return found


def fft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Discrete Fourier transform along one axis.

    Args:
        a: real or complex array; integers and halves are transformed in single precision.
        n: number of samples; ``a`` is cut or gets zeros behind (default: its size along ``axis``).
        axis: axis in ``[-ndim, ndim)``.
        norm: what is scaled by the number of samples: "backward" (or ``None``) the inverse
            transform, "forward" the forward one, "ortho" each by its square root.

    Returns:
        Complex array, with ``n`` coefficients along ``axis``.

    Raises:
        AxisError: no such axis.
        ArgumentValueError: ``n`` is less than 1, or there is no such ``norm``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.fft.fft(tnp.array([1.0, 0.0, 0.0])).real.tolist()
    [1.0, 1.0, 1.0]
    """
    return _one("fft", FftType.FFT, a, n, axis, norm)


def ifft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Inverse of ``fft``; arguments as there.

    >>> import tracebridge.numpy as tnp
    >>> tnp.fft.ifft(tnp.array([4.0, 0.0, 0.0, 0.0])).real.tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    return _one("ifft", FftType.IFFT, a, n, axis, norm)


def rfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Transform of a real array, without the half of the result that is redundant.

    Arguments as of ``fft``; the result has ``n // 2 + 1`` coefficients along ``axis``.

    Raises:
        UnsupportedDtypeError: ``a`` is complex.

    >>> import tracebridge.numpy as tnp
    >>> tnp.fft.rfft(tnp.array([1.0, 2.0, 3.0, 2.0])).real.tolist()
    [8.0, -2.0, 0.0]
    """
    return _one("rfft", FftType.RFFT, a, n, axis, norm)


def irfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Inverse of ``rfft``: real, from the coefficients that are not redundant.

    Arguments as of ``fft``; ``n`` is the number of samples of the result (default:
    ``2 * (size - 1)``).

    >>> import tracebridge.numpy as tnp
    >>> tnp.fft.irfft(tnp.array([3.0, 0.0]), n=3).tolist()
    [1.0, 1.0, 1.0]
    """
    return _one("irfft", FftType.IRFFT, a, n, axis, norm)


def hfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Transform of a signal with Hermitian symmetry, of which ``a`` is the first half: real.

    Arguments as of ``irfft``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.fft.hfft(tnp.array([1.0, 0.0]), n=3).tolist()
    [1.0, 1.0, 1.0]
    """
    opposite = _OPPOSITE[_norm_of("hfft", norm)]
    return _one("hfft", FftType.IRFFT, _conjugate((a,)), n, axis, opposite)


def ihfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Inverse of ``hfft``: the first half of a signal with Hermitian symmetry.

    Arguments as of ``rfft``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.fft.ihfft(tnp.array([3.0, 3.0, 3.0])).real.tolist()
    [3.0, 0.0]
    """
    opposite = _OPPOSITE[_norm_of("ihfft", norm)]
    return _conjugate((_one("ihfft", FftType.RFFT, a, n, axis, opposite),))


def _conj(x: Value) -> Any:
    return lax.conj(x) if x.aval.dtype.kind == "c" else x


_conjugate = StagedFunction(_conj, "conjugate")


def fft2(
    a: ArrayLike,
    s: Sequence[SupportsIndex] | None = None,
    axes: Sequence[SupportsIndex] = (-2, -1),
    norm: str | None = None,
) -> Array:
    """Transform along two axes; arguments as of ``fftn``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.fft.fft2(tnp.ones((2, 2))).real.tolist()
    [[4.0, 0.0], [0.0, 0.0]]
    """
    return _several("fft2", FftType.FFT, a, s, axes, norm, 2)


def ifft2(
    a: ArrayLike,
    s: Sequence[SupportsIndex] | None = None,
    axes: Sequence[SupportsIndex] = (-2, -1),
    norm: str | None = None,
) -> Array:
    """Inverse of ``fft2``; arguments as of ``fftn``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.fft.ifft2(tnp.ones((2, 2))).real.tolist()
    [[1.0, 0.0], [0.0, 0.0]]
    """
    return _several("ifft2", FftType.IFFT, a, s, axes, norm, 2)


def rfft2(
    a: ArrayLike,
    s: Sequence[SupportsIndex] | None = None,
    axes: Sequence[SupportsIndex] = (-2, -1),
    norm: str | None = None,
) -> Array:
    """``rfft`` along the second of two axes, ``fft`` along the first; arguments as of ``fftn``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.fft.rfft2(tnp.ones((2, 3))).real.tolist()
    [[6.0, 0.0], [0.0, 0.0]]
    """
    return _several("rfft2", FftType.RFFT, a, s, axes, norm, 2)


def irfft2(
    a: ArrayLike,
    s: Sequence[SupportsIndex] | None = None,
    axes: Sequence[SupportsIndex] = (-2, -1),
    norm: str | None = None,
) -> Array:
    """Inverse of ``rfft2``; arguments as of ``irfftn``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.fft.irfft2(tnp.array([[4.0, 0.0], [0.0, 0.0]])).tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    return _several("irfft2", FftType.IRFFT, a, s, axes, norm, 2)


def fftn(
    a: ArrayLike,
    s: Sequence[SupportsIndex] | None = None,
    axes: Sequence[SupportsIndex] | None = None,
    norm: str | None = None,
) -> Array:
    """Discrete Fourier transform along several axes.

    Args:
        a: array, as of ``fft``.
        s: number of samples along each axis; ``a`` is cut or gets zeros behind.
        axes: which axes, without repetition (default: all; the last ones if ``s`` is given).
        norm: as of ``fft``.

    Returns:
        Complex array.

    Raises:
        AxisError: no such axis.
        ShapeMismatchError: ``s`` and ``axes`` have different lengths.
        RankError: ``s`` has more sizes than ``a`` has axes.
        ArgumentTypeError: ``s`` or ``axes`` is no sequence.
        ArgumentValueError: a size is less than 1, or an axis is named twice.

    >>> import tracebridge.numpy as tnp
    >>> tnp.fft.fftn(tnp.ones((2, 1, 2))).real.ravel().tolist()
    [4.0, 0.0, 0.0, 0.0]
    """
    return _several("fftn", FftType.FFT, a, s, axes, norm)


def ifftn(
    a: ArrayLike,
    s: Sequence[SupportsIndex] | None = None,
    axes: Sequence[SupportsIndex] | None = None,
    norm: str | None = None,
) -> Array:
    """Inverse of ``fftn``; arguments as there.

    >>> import tracebridge.numpy as tnp
    >>> tnp.fft.ifftn(tnp.ones((2, 2))).real.tolist()
    [[1.0, 0.0], [0.0, 0.0]]
    """
    return _several("ifftn", FftType.IFFT, a, s, axes, norm)


def rfftn(
    a: ArrayLike,
    s: Sequence[SupportsIndex] | None = None,
    axes: Sequence[SupportsIndex] | None = None,
    norm: str | None = None,
) -> Array:
    """``rfft`` along the last of ``axes``, ``fft`` along the others; arguments as of ``fftn``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.fft.rfftn(tnp.ones((2, 2, 3))).shape
    (2, 2, 2)
    """
    return _several("rfftn", FftType.RFFT, a, s, axes, norm)


def irfftn(
    a: ArrayLike,
    s: Sequence[SupportsIndex] | None = None,
    axes: Sequence[SupportsIndex] | None = None,
    norm: str | None = None,
) -> Array:
    """Inverse of ``rfftn``: real.

    Arguments as of ``fftn``; ``s`` are the sizes of the result (default along the last of
    ``axes``: ``2 * (size - 1)``).

    >>> import tracebridge.numpy as tnp
    >>> tnp.fft.irfftn(tnp.array([[4.0, 0.0], [0.0, 0.0]])).tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    return _several("irfftn", FftType.IRFFT, a, s, axes, norm)


shield(globals(), __name__)
