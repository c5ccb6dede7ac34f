"""Convolution, trends and spectra of signals, as in ``scipy.signal``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.config.inner_steps import inner_steps
from tracebridge.core.dtypes.dtypes import complex_of, is_complex
from tracebridge.core.errors.argument_errors import ArgumentValueError, index_of
from tracebridge.core.errors.filtering import shield
from tracebridge.core.errors.shape_errors import BroadcastError, RankError, ShapeMismatchError
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.contract.precision import PrecisionLike
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import hashable_axis, normalize_axis
from tracebridge.scipy._convolve import by_fft, check_mode, check_operands, direct, ordered
from tracebridge.scipy._spectral import (
    average_of,
    inexact,
    overlap_add,
    segments_of,
    spectra,
)
from tracebridge.scipy._trends import detrend, detrender

__all__ = [
    "convolve",
    "convolve2d",
    "correlate",
    "correlate2d",
    "csd",
    "detrend",
    "fftconvolve",
    "istft",
    "stft",
    "welch",
]

_BOUNDARIES = {"fill": "constant", "wrap": "wrap", "symm": "symmetric"}


def _convolve(name: str, a: Any, b: Any, mode: str, method: str) -> Any:
    check_mode(name, mode)
    if method not in ("auto", "direct", "fft"):
        msg = f"{name}: method is {method!r}, expected 'auto', 'direct' or 'fft'"
        raise ArgumentValueError(msg)
    a, b = tnp.asarray(a), tnp.asarray(b)
    check_operands(name, a, b)
    if 0 in a.shape or 0 in b.shape:
        msg = f"{name}: got shapes {a.shape} and {b.shape}, expected arrays with elements"
        raise ShapeMismatchError(msg)
    axes = tuple(range(a.ndim))
    a, b = ordered(name, a, b, mode, axes)
    if method == "fft":
        return by_fft((a, b), (mode, axes))
    return direct((a, b), (mode,))


def convolve(
    in1: ArrayLike,
    in2: ArrayLike,
    mode: str = "full",
    method: str = "auto",
    precision: PrecisionLike = None,
) -> Array:
    """Convolution of two arrays along all their axes.

    Args:
        in1: array.
        in2: array with as many axes.
        mode: "full" for all overlaps, "same" for the middle part of the size of ``in1``, "valid"
            for full overlaps only.
        method: "direct" (and "auto") for sums of products, "fft" for Fourier transforms.
        precision: accepted; products are not rounded to fewer bits.

    Returns:
        Array of the floating or complex dtype that both promote to.

    Raises:
        RankError: different numbers of axes.
        ShapeMismatchError: no elements, or in mode "valid" none is the larger one.
        ArgumentValueError: no such mode or method.

    >>> import tracebridge as tb
    >>> tb.scipy.signal.convolve(tb.numpy.array([1.0, 2.0]), tb.numpy.array([1.0, 3.0])).tolist()
    [1.0, 5.0, 6.0]
    """
    del precision
    return _convolve("convolve", in1, in2, mode, method)


def correlate(
    in1: ArrayLike,
    in2: ArrayLike,
    mode: str = "full",
    method: str = "auto",
    precision: PrecisionLike = None,
) -> Array:
    """Cross-correlation of two arrays along all their axes; arguments as of ``convolve``.

    >>> import tracebridge as tb
    >>> tb.scipy.signal.correlate(tb.numpy.array([1.0, 2.0]), tb.numpy.array([1.0, 3.0])).tolist()
    [3.0, 7.0, 2.0]
    """
    del precision
    check_mode("correlate", mode)
    return _convolve("correlate", in1, _mirrored((in2,)), mode, method)


def _mirror(x: Value) -> Any:
    return lax.rev(lax.conj(x) if is_complex(x.aval.dtype) else x, tuple(range(x.aval.ndim)))


_mirrored = StagedFunction(_mirror, "correlate")


def _convolve_2d(name: str, a: Any, b: Any, mode: str, boundary: str, fill: Any) -> Any:
    check_mode(name, mode)
    a, b = tnp.asarray(a), tnp.asarray(b)
    if boundary not in _BOUNDARIES:
        msg = f"{name}: boundary is {boundary!r}, expected one of {list(_BOUNDARIES)}"
        raise ArgumentValueError(msg)
    if a.ndim != 2 or b.ndim != 2:
        msg = f"{name}: got arrays of {a.ndim} and of {b.ndim} axes, expected two matrices"
        raise RankError(msg)
    is_zero = isinstance(fill, int | float | complex) and fill == 0
    if mode == "valid" or (boundary == "fill" and is_zero):
        return _convolve(name, a, b, mode, "direct")
    pads = [(k - 1, k - 1) if mode == "full" else (k // 2, (k - 1) // 2) for k in b.shape]
    values = {"constant_values": fill} if boundary == "fill" else {}
    return direct((tnp.pad(a, pads, mode=_BOUNDARIES[boundary], **values), b), ("valid",))


def convolve2d(
    in1: ArrayLike,
    in2: ArrayLike,
    mode: str = "full",
    boundary: str = "fill",
    fillvalue: ArrayLike = 0,
    precision: PrecisionLike = None,
) -> Array:
    """Convolution of two matrices.

    Args:
        in1: matrix.
        in2: matrix.
        mode: as of ``convolve``.
        boundary: how ``in1`` continues: "fill" (``fillvalue``), "wrap" (periodic) or "symm"
            (reflected about its edges).
        fillvalue: value outside for "fill".
        precision: accepted; products are not rounded to fewer bits.

    Raises:
        RankError: one is no matrix.
        ArgumentValueError: no such mode or boundary.

    >>> import tracebridge as tb
    >>> x = tb.numpy.array([[1.0, 2.0], [3.0, 4.0]])
    >>> tb.scipy.signal.convolve2d(x, x, mode="valid").tolist()
    [[20.0]]
    """
    del precision
    return _convolve_2d("convolve2d", in1, in2, mode, boundary, fillvalue)


def correlate2d(
    in1: ArrayLike,
    in2: ArrayLike,
    mode: str = "full",
    boundary: str = "fill",
    fillvalue: ArrayLike = 0,
    precision: PrecisionLike = None,
) -> Array:
    """Cross-correlation of two matrices; arguments as of ``convolve2d``.

    >>> import tracebridge as tb
    >>> x = tb.numpy.array([[1.0, 2.0], [3.0, 4.0]])
    >>> tb.scipy.signal.correlate2d(x, x, mode="valid").tolist()
    [[30.0]]
    """
    del precision
    kernel = _mirrored((in2,))
    if mode == "same" and kernel.ndim == 2:
        # The middle of an even kernel is the first of two places for a convolution, and the last
        # one for a correlation.
        kernel = tnp.pad(kernel, [(0, 1 - k % 2) for k in kernel.shape])
    return _convolve_2d("correlate2d", in1, kernel, mode, boundary, fillvalue)


def fftconvolve(
    in1: ArrayLike,
    in2: ArrayLike,
    mode: str = "full",
    axes: int | Sequence[int] | None = None,
) -> Array:
    """Convolution by Fourier transforms, along some axes.

    Args:
        in1: array.
        in2: array with as many axes, and the same size along axes that are not convolved.
        mode: as of ``convolve``.
        axes: which axes (default: all).

    Raises:
        RankError: different numbers of axes.
        ShapeMismatchError: different sizes along other axes, or none is the larger one in mode
            "valid".
        ArgumentValueError: no such mode, or an axis is named twice.

    >>> import tracebridge as tb
    >>> x = tb.numpy.array([1.0, 2.0])
    >>> [round(v, 4) for v in tb.scipy.signal.fftconvolve(x, x).tolist()]
    [1.0, 4.0, 4.0]
    """
    check_mode("fftconvolve", mode)
    a, b = tnp.asarray(in1), tnp.asarray(in2)
    check_operands("fftconvolve", a, b)
    if a.size == 0 or b.size == 0:
        return tnp.zeros(0, tnp.result_type(a, b, 1.0))
    wanted = hashable_axis(axes, "fftconvolve")
    wanted = (wanted,) if isinstance(wanted, int) else wanted
    n = a.ndim
    chosen = tuple(range(n)) if wanted is None else wanted
    chosen = tuple([normalize_axis(i, n, "fftconvolve") for i in chosen])
    if len(set(chosen)) != len(chosen):
        msg = f"fftconvolve: axes={axes} names an axis twice"
        raise ArgumentValueError(msg)
    if any([a.shape[i] != b.shape[i] for i in range(n) if i not in chosen]):
        msg = f"fftconvolve: shapes {a.shape} and {b.shape} differ along axes outside {chosen}"
        raise ShapeMismatchError(msg)
    a, b = ordered("fftconvolve", a, b, mode, chosen)
    return by_fft((a, b), (mode, chosen))


# spectra -----------------------------------------------------------------------------------------


@inner_steps()
def csd(
    x: ArrayLike,
    y: ArrayLike | None,
    fs: ArrayLike = 1.0,
    window: Any = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Any = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple[Array, Array]:
    """Cross power spectral density by Welch's method: averages over segments.

    Args:
        x: signal.
        y: another one; ``x`` if it is None.
        fs: sampling frequency.
        window: array of ``nperseg`` points, or the name of one (other names than "hann" are
            those of ``scipy.signal.get_window``).
        nperseg: length of segments (default: 256, or that of the window).
        noverlap: how many samples neighbours share (default: half of them).
        nfft: length of the transforms (default: ``nperseg``).
        detrend: "constant", "linear", False, or a function of segments.
        return_onesided: for real signals only frequencies that are not negative.
        scaling: "density" or "spectrum".
        axis: axis of time.
        average: "mean" or "median".

    Returns:
        ``(frequencies, density)``.

    Raises:
        ArgumentValueError: lengths or options that are not possible.
        BroadcastError: the other axes of the signals do not go together.

    >>> import tracebridge as tb
    >>> f, p = tb.scipy.signal.csd(tb.numpy.ones(8), tb.numpy.ones(8), nperseg=4)
    >>> f.tolist(), p.shape
    ([0.0, 0.25, 0.5], (3,))
    """
    a = inexact(x)
    b = a if y is None else inexact(y)
    axis = index_of(axis, "csd", "axis")
    if y is not None:
        if a.ndim != b.ndim:
            msg = f"csd: got signals of {a.ndim} and of {b.ndim} axes"
            raise BroadcastError(msg)
        dtype = tnp.result_type(a, b)
        a, b = a.astype(dtype), b.astype(dtype)
    if a.size == 0 or b.size == 0:
        shape = list(a.shape)
        shape[axis] = min(a.shape[axis], b.shape[axis])
        return tnp.zeros(shape, tnp.real(a).dtype), tnp.zeros(shape, a.dtype)
    if y is not None:
        a, b = _same_length(a, b, axis)
    length = a.shape[axis]
    cut = segments_of("csd", window, nperseg, noverlap, nfft, length, a.dtype)
    freqs, _, result = spectra(
        "csd", a, b, fs, cut, detrender("csd", detrend, axis), return_onesided, scaling, axis,
        psd=True,
    )  # fmt: skip
    if y is None:
        result = result.real
    return freqs, average_of("csd", result, average)


def _same_length(a: Value, b: Value, axis: int) -> tuple[Any, Any]:
    size = max(a.shape[axis], b.shape[axis])

    def longer(x: Any) -> Any:
        pads = [(0, 0)] * x.ndim
        pads[axis] = (0, size - x.shape[axis])
        return tnp.pad(x, pads)

    return longer(a), longer(b)


@inner_steps()
def welch(
    x: ArrayLike,
    fs: ArrayLike = 1.0,
    window: Any = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Any = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple[Array, Array]:
    """Power spectral density by Welch's method; arguments as of ``csd``.

    >>> import tracebridge as tb
    >>> f, p = tb.scipy.signal.welch(tb.numpy.ones(8), nperseg=4)
    >>> p.tolist()
    [0.0, 0.0, 0.0]
    """
    return csd(
        x, None, fs=fs, window=window, nperseg=nperseg, noverlap=noverlap, nfft=nfft,
        detrend=detrend, return_onesided=return_onesided, scaling=scaling, axis=axis,
        average=average,
    )  # fmt: skip


@inner_steps()
def stft(
    x: ArrayLike,
    fs: ArrayLike = 1.0,
    window: Any = "hann",
    nperseg: int = 256,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Any = False,
    return_onesided: bool = True,
    boundary: str | None = "zeros",
    padded: bool = True,
    axis: int = -1,
) -> tuple[Array, Array, Array]:
    """Spectra of windowed segments of a signal.

    Args:
        x: signal.
        fs: sampling frequency.
        window: as of ``csd``.
        nperseg: length of segments.
        noverlap: as of ``csd``.
        nfft: as of ``csd``.
        detrend: as of ``csd``.
        return_onesided: as of ``csd``.
        boundary: how the signal continues at both ends, half a segment: "zeros", "even", "odd",
            "constant", or None for not at all.
        padded: fill the last segment with zeros.
        axis: axis of time.

    Returns:
        ``(frequencies, times, spectra)``: frequencies stand where time was, times on the last
        axis.

    Raises:
        ArgumentValueError: lengths or options that are not possible.

    >>> import tracebridge as tb
    >>> f, t, z = tb.scipy.signal.stft(tb.numpy.ones(8), nperseg=4)
    >>> z.shape
    (3, 5)
    """
    a = inexact(x)
    axis = index_of(axis, "stft", "axis")
    length = a.shape[normalize_axis(axis, a.ndim, "stft")]
    cut = segments_of("stft", window, nperseg, noverlap, nfft, length, a.dtype)
    return spectra(
        "stft", a, a, fs, cut, detrender("stft", detrend, axis), return_onesided, "spectrum",
        axis, psd=False, boundary=boundary, padded=padded,
    )  # fmt: skip


@inner_steps()
def istft(
    Zxx: ArrayLike,
    fs: ArrayLike = 1.0,
    window: Any = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    input_onesided: bool = True,
    boundary: bool = True,
    time_axis: int = -1,
    freq_axis: int = -2,
) -> tuple[Array, Array]:
    """The signal of which ``stft`` gave these spectra.

    Args:
        Zxx: spectra.
        fs: sampling frequency.
        window: as given to ``stft``.
        nperseg: length of segments (default: as follows from the number of frequencies).
        noverlap: as given to ``stft``.
        nfft: length of the transforms (default: ``nperseg``).
        input_onesided: whether negative frequencies were left out.
        boundary: whether the signal had been continued at both ends.
        time_axis: axis of the segments.
        freq_axis: axis of the frequencies.

    Returns:
        ``(times, signal)``. As in SciPy, the times are as many as the first axis of the signal has
        entries: of several signals they count samples only where that axis is time.

    Raises:
        RankError: less than two axes.
        ArgumentValueError: lengths or axes that are not possible.

    >>> import tracebridge as tb
    >>> x = tb.numpy.array([1.0, 2.0, 3.0, 4.0])
    >>> _, _, z = tb.scipy.signal.stft(x, nperseg=4)
    >>> [round(v, 4) for v in tb.scipy.signal.istft(z)[1].tolist()]
    [1.0, 2.0, 3.0, 4.0]
    """
    z = inexact(Zxx)
    z = z if is_complex(z.dtype) else z.astype(complex_of(z.dtype))
    if z.ndim < 2:
        msg = f"istft: got an array of {z.ndim} axes, expected frequencies and times"
        raise RankError(msg)
    times = normalize_axis(time_axis, z.ndim, "istft")
    freqs = normalize_axis(freq_axis, z.ndim, "istft")
    if times == freqs:
        msg = f"istft: time_axis and freq_axis are both {times}"
        raise ArgumentValueError(msg)
    z = tnp.moveaxis(z, (times, freqs), (-2, -1))
    default = 2 * (z.shape[-1] - 1) if input_onesided else z.shape[-1]
    size = default if nperseg is None else index_of(nperseg, "istft", "nperseg")
    if nfft is None:
        nfft = size if input_onesided and size == default + 1 else default
    cut = segments_of("istft", window, size, noverlap, nfft, max(size, 1), z.dtype)
    inverse = tnp.fft.irfft if input_onesided else tnp.fft.ifft
    win = cut.window.astype(tnp.real(z).dtype)
    frames = inverse(z, n=cut.nfft)[..., : cut.size] * win * win.sum()
    step = cut.size - cut.overlap
    total = overlap_add(frames, step)
    weight = overlap_add(tnp.broadcast_to(win * win, (z.shape[-2], cut.size)), step)
    if boundary:
        margin = cut.size // 2
        total, weight = [v[..., margin : v.shape[-1] - margin] for v in (total, weight)]
    signal = total / tnp.where(weight > 1e-10, weight, 1.0)
    if signal.ndim > 1:
        at = times - (freqs < times)
        signal = tnp.moveaxis(signal, -1, at)
    return tnp.arange(signal.shape[0], dtype=weight.dtype) / fs, signal


shield(globals(), __name__)
