"""Spectra of windowed segments of signals, and signals from them."""

from __future__ import annotations

import importlib
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import tracebridge.numpy as tnp
from tracebridge.core.dtypes.canonicalize import to_inexact
from tracebridge.core.dtypes.dtypes import float32, float64, is_complex, real_of
from tracebridge.core.errors.argument_errors import ArgumentValueError, index_of
from tracebridge.core.errors.filtering import user_stacklevel
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value

_BOUNDARIES = ("even", "odd", "constant", "zeros", None)


class Segments(NamedTuple):
    """How a signal is cut: window, its length, overlap, and length of the transforms."""

    window: Any
    size: int
    overlap: int
    nfft: int


def inexact(x: Any) -> Any:
    """``x`` in a dtype that is transformed."""
    x = tnp.asarray(x)
    dtype = to_inexact(x.dtype)
    return x.astype(dtype if dtype == float64 or is_complex(dtype) else float32)


def segments_of(
    name: str, window: Any, nperseg: Any, noverlap: Any, nfft: Any, length: int, dtype: Any
) -> Segments:
    """Window and lengths, checked."""
    size = None if nperseg is None else index_of(nperseg, name, "nperseg")
    if size is not None and size < 1:
        msg = f"{name}: nperseg is {size}, expected at least 1"
        raise ArgumentValueError(msg)
    if isinstance(window, str | tuple):
        size = 256 if size is None else size
        if size > length:
            msg = f"{name}: nperseg={size} is more than the {length} samples, which are used"
            warnings.warn(msg, stacklevel=user_stacklevel())
            size = length
        win: Any = tnp.asarray(_named_window(window, size).astype(real_of(dtype)))
    else:
        win = tnp.asarray(window)
        # The signal decides the dtype.
        win = win if is_complex(win.dtype) else win.astype(real_of(dtype))
        if win.ndim != 1:
            msg = f"{name}: window has {win.ndim} axes, expected one"
            raise RankError(msg)
        if size is None:
            size = win.shape[0]
        if win.shape[0] != size or size > length:
            msg = f"{name}: window of {win.shape[0]} points, nperseg={size}, {length} samples"
            raise ShapeMismatchError(msg, expected="a window of nperseg points within the signal")
    overlap = size // 2 if noverlap is None else index_of(noverlap, name, "noverlap")
    points = size if nfft is None else index_of(nfft, name, "nfft")
    _check_lengths(name, size, overlap, points)
    return Segments(win, size, overlap, points)


def _check_lengths(name: str, size: int, overlap: int, points: int) -> None:
    if points < size:
        msg = f"{name}: nfft is {points}, expected at least nperseg={size}"
        raise ArgumentValueError(msg)
    if overlap >= size:
        msg = f"{name}: noverlap is {overlap}, expected less than nperseg={size}"
        raise ArgumentValueError(msg)


def _named_window(window: Any, size: int) -> np.ndarray[Any, Any]:
    if window == "hann":
        return np.ones(1) if size == 1 else np.sin(np.pi * np.arange(size) / size) ** 2
    return importlib.import_module("scipy.signal").get_window(window, size)


def _extended(x: Value, how: Any, n: int) -> Any:
    """``x`` with ``n`` more samples at both ends of its last axis."""
    pads = [(0, 0)] * (x.ndim - 1) + [(n, n)]
    if how == "zeros":
        return tnp.pad(x, pads)
    if how == "constant":
        return tnp.pad(x, pads, mode="edge")
    return tnp.pad(x, pads, mode="reflect", reflect_type="even" if how == "even" else "odd")


def _frames(x: Value, cut: Segments) -> Any:
    step = cut.size - cut.overlap
    starts = np.arange(0, x.shape[-1] - cut.size + 1, step)
    return x[..., starts[:, None] + np.arange(cut.size)]


def spectra(
    name: str, x: Any, y: Any, fs: Any, cut: Segments, detrended: Any, onesided: bool,
    scaling: str, axis: int, *, psd: bool, boundary: Any = None, padded: bool = False,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Frequencies, times, and the spectra (or densities) of segments, times on the last axis."""
    if boundary not in _BOUNDARIES:
        msg = f"{name}: boundary is {boundary!r}, expected one of {list(_BOUNDARIES)}"
        raise ArgumentValueError(msg)
    win = cut.window
    onesided = onesided and not (is_complex(x.dtype) or is_complex(y.dtype))
    signals = [x] if y is x else [x, y]
    transforms: list[Any] = []
    transform = tnp.fft.rfft if onesided else tnp.fft.fft
    for signal in signals:
        s = tnp.moveaxis(signal, axis, -1)
        s = s if boundary is None else _extended(s, boundary, cut.size // 2)
        if padded:
            lacking = -(s.shape[-1] - cut.size) % (cut.size - cut.overlap)
            s = tnp.pad(s, [(0, 0)] * (s.ndim - 1) + [(0, lacking)])
        transforms.append(transform(detrended(_frames(s, cut)) * win, n=cut.nfft))
    if scaling == "density":
        scale = 1.0 / (fs * (win * win).sum())
    elif scaling == "spectrum":
        scale = 1.0 / win.sum() ** 2
    else:
        msg = f"{name}: scaling is {scaling!r}, expected 'density' or 'spectrum'"
        raise ArgumentValueError(msg)
    result = transforms[0]
    if psd:
        result = tnp.conj(result) * transforms[-1] * scale
        if onesided:
            last = None if cut.nfft % 2 else -1
            result = result.at[..., 1:last].multiply(2)
    else:
        result = result * tnp.sqrt(scale)
    make = tnp.fft.rfftfreq if onesided else tnp.fft.fftfreq
    real = real_of(result.dtype)
    freqs = make(cut.nfft, 1.0 / fs, dtype=real)
    count = result.shape[-2]
    first = cut.size / 2 - (cut.size / 2 if boundary is not None else 0)
    times = (tnp.arange(count, dtype=real) * (cut.size - cut.overlap) + first) / fs
    # Frequencies stand where the signal's axis was, times behind all axes.
    result = tnp.moveaxis(result, -1, axis - 1 if axis < 0 else axis)
    return freqs, times.astype(real), result


def average_of(name: str, pxy: Any, average: str) -> Any:
    """The mean or the median of densities over their last axis."""
    if average == "mean":
        return pxy.mean(-1)
    if average != "median":
        msg = f"{name}: average is {average!r}, expected 'mean' or 'median'"
        raise ArgumentValueError(msg)
    n = pxy.shape[-1]
    even = 2.0 * np.arange(1, (n - 1) // 2 + 1)
    bias = 1.0 + float(np.sum(1.0 / (even + 1) - 1.0 / even))
    if is_complex(pxy.dtype):
        return (tnp.median(pxy.real, -1) + 1j * tnp.median(pxy.imag, -1)) / bias
    return tnp.median(pxy, -1) / bias


def overlap_add(frames: Any, step: int) -> Any:
    """The sum of segments (the last axis but one), each ``step`` after the one before."""
    count, size = frames.shape[-2:]
    where = np.arange(count)[:, None] * step + np.arange(size)
    total = tnp.zeros((*frames.shape[:-2], size + (count - 1) * step), frames.dtype)
    return total.at[..., where].add(frames)
