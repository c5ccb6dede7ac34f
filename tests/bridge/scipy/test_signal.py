"""tracebridge.scipy.signal against SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.signal

import tracebridge as tb
from tests.quick_compiles import check_grads
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.shape_errors import (
    BroadcastError,
    RankError,
    ShapeMismatchError,
)
from tracebridge.scipy import signal
from tracebridge.testing import assert_allclose

Host = np.ndarray[Any, Any]
SHAPES = [
    ((5,), (3,)), ((3,), (6,)), ((4, 5), (2, 3)), ((4, 5), (3, 2)), ((2, 3), (4, 5)),
    ((3, 4, 5), (2, 2, 2)), ((8, 9), (7, 6)), ((), ()),
]  # fmt: skip
X = np.random.default_rng(1).normal(size=(3, 50))
Z = X + 1j * np.random.default_rng(2).normal(size=X.shape)


def pair(shapes: tuple[tuple[int, ...], tuple[int, ...]], kind: str) -> list[Host]:
    """Two arrays, real or complex."""
    random = np.random.default_rng(0)
    found = [random.normal(size=s) for s in shapes]
    return [x + 1j * random.normal(size=x.shape) for x in found] if kind == "c" else found


def same(found: Any, expected: Any) -> None:
    """Equal up to single precision; sequences element by element."""
    if isinstance(expected, tuple):
        for a, b in zip(found, expected, strict=True):
            same(a, b)
        return
    assert_allclose(found, expected, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("kind", ["f", "c"])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_convolutions(shapes: Any, kind: str, mode: str) -> None:
    """By products and by transforms, of any rank."""
    a, b = pair(shapes, kind)
    for method in ("direct", "fft"):
        for name in ("convolve", "correlate"):
            if shapes[0] or mode != "valid":
                ours, theirs = getattr(signal, name), getattr(scipy.signal, name)
                same(ours(a, b, mode, method), theirs(a, b, mode, method))
    same(signal.fftconvolve(a, b, mode), scipy.signal.fftconvolve(a, b, mode))


@pytest.mark.parametrize("boundary", ["fill", "wrap", "symm"])
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("shapes", [s for s in SHAPES if len(s[0]) == 2], ids=str)
def test_matrices(shapes: Any, mode: str, boundary: str) -> None:
    """Every boundary, also with a value outside."""
    a, b = pair(shapes, "f")
    for name in ("convolve2d", "correlate2d"):
        for fill in (0, 1.5):
            ours, theirs = getattr(signal, name), getattr(scipy.signal, name)
            same(ours(a, b, mode, boundary, fill), theirs(a, b, mode, boundary, fill))


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_some_axes(mode: str) -> None:
    """Transforms along one axis."""
    a, b = pair(((3, 8), (3, 4)), "f")

    same(signal.fftconvolve(a, b, mode, 1), scipy.signal.fftconvolve(a, b, mode, axes=1))
    assert (0,) == signal.fftconvolve(a, b[:, :0]).shape


@pytest.mark.parametrize("method", ["direct", "fft"])
@pytest.mark.parametrize("shapes", [((5,), (3,)), ((4, 5), (2, 3)), ((7, 7), (6, 6))], ids=str)
def test_derivatives_of_convolutions(shapes: Any, method: str) -> None:
    """Of both operands, and over a batch, inside a program."""
    with tb.enable_x64(True):
        a, b = pair(shapes, "f")
        check_grads(lambda a, b: signal.convolve(a, b, "same", method), (a, b), order=1)
        run = tb.jit(tb.vmap(lambda a: signal.convolve(a, b, method=method)))
        expected = scipy.signal.convolve(a, b)

        assert_allclose(run(np.stack([a, 2 * a]))[1], 2 * expected, rtol=1e-10, atol=1e-10)


def test_dtypes() -> None:
    """Integers are convolved as floats."""
    assert "float32" == signal.convolve(np.arange(3), np.arange(2)).dtype
    assert "complex64" == signal.convolve(np.arange(3), np.ones(2, np.complex64)).dtype
    assert "float16" == signal.convolve(np.ones(3, np.int8), np.ones(2, np.float16)).dtype


TRENDS: list[dict[str, Any]] = [
    {}, {"type": "constant"}, {"bp": 20}, {"bp": [10, 30]}, {"axis": 0},
    {"bp": np.array([5]), "axis": 1},
]  # fmt: skip


@pytest.mark.parametrize("kwargs", TRENDS, ids=str)
def test_detrend(kwargs: dict[str, Any]) -> None:
    """Means and lines, also piece by piece."""
    same(signal.detrend(X, **kwargs), scipy.signal.detrend(X, **kwargs))


DENSITIES: list[dict[str, Any]] = [
    {"nperseg": 16}, {"nperseg": 16, "noverlap": 4, "nfft": 32},
    {"window": "hamming", "nperseg": 10}, {"window": np.hanning(12)},
    {"window": ("kaiser", 4.0), "nperseg": 8}, {"scaling": "spectrum", "nperseg": 9},
    {"return_onesided": False, "nperseg": 8}, {"average": "median", "nperseg": 8},
    {"detrend": "linear", "nperseg": 8}, {"detrend": False, "nperseg": 8},
    {"fs": 10.0, "nperseg": 8}, {"nperseg": 1, "noverlap": 0},
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kwargs", DENSITIES, ids=str)
def test_densities(kwargs: dict[str, Any]) -> None:
    """Of real and of complex signals, and of two of different lengths."""
    for x in (X, Z):
        same(signal.welch(x, **kwargs), scipy.signal.welch(x, **kwargs))
        found = signal.csd(x, x[::-1, :40], **kwargs)
        same(found, scipy.signal.csd(x, x[::-1, :40], **kwargs))


def test_densities_along_the_first_axis() -> None:
    """Time may be anywhere; a function may take out trends."""
    same(signal.welch(X.T, nperseg=8, axis=0), scipy.signal.welch(X.T, nperseg=8, axis=0))
    found = signal.welch(X.T, nperseg=8, axis=0, detrend=lambda x: x * 2)
    expected = scipy.signal.welch(X.T, nperseg=8, axis=0, detrend=lambda x: x * 2)
    same(found, expected)


SEGMENTS: list[dict[str, Any]] = [
    {"nperseg": 16}, {"nperseg": 16, "noverlap": 12}, {"nperseg": 9, "nfft": 20},
    {"nperseg": 8, "boundary": None}, {"nperseg": 8, "boundary": "even"},
    {"nperseg": 8, "boundary": "odd"}, {"nperseg": 8, "boundary": "constant"},
    {"nperseg": 8, "padded": False}, {"nperseg": 8, "return_onesided": False},
    {"nperseg": 8, "fs": 5.0}, {"nperseg": 8, "detrend": "constant"},
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:NOLA:UserWarning")
@pytest.mark.parametrize("kwargs", SEGMENTS, ids=str)
def test_spectra_and_back(kwargs: dict[str, Any]) -> None:
    """Spectra of segments, and the signal from them."""
    expected = scipy.signal.stft(X, **kwargs)
    same(signal.stft(X, **kwargs), expected)
    back = {k: v for k, v in kwargs.items() if k in {"nperseg", "noverlap", "nfft", "fs"}}
    back["input_onesided"] = kwargs.get("return_onesided", True)
    back["boundary"] = kwargs.get("boundary", "zeros") is not None

    same(signal.istft(expected[2][0], **back), scipy.signal.istft(expected[2][0], **back))
    same(signal.istft(expected[2], **back), scipy.signal.istft(expected[2], **back))


def test_axes_of_spectra() -> None:
    """Frequencies stand where time was; the way back takes any order."""
    expected = scipy.signal.stft(X.T, nperseg=8, axis=0)
    same(signal.stft(X.T, nperseg=8, axis=0), expected)
    z = expected[2].transpose(1, 2, 0)

    found = signal.istft(z, time_axis=1, freq_axis=2)
    same(found, scipy.signal.istft(z, time_axis=1, freq_axis=2))


def test_derivatives_of_spectra() -> None:
    """Through segments, windows and averages; in a program and over a batch."""
    with tb.enable_x64(True):
        x = X[0, :20]
        check_grads(lambda x: signal.welch(x, nperseg=8)[1], (x,), order=1)
        check_grads(lambda x: signal.istft(signal.stft(x, nperseg=8)[2])[1], (x,), order=1)
        run = tb.jit(tb.vmap(lambda x: signal.stft(x, nperseg=8)[2]))
        assert_allclose(run(X), scipy.signal.stft(X, nperseg=8)[2], rtol=1e-10, atol=1e-12)


BAD = [
    (RankError, "arrays of 1 and of 2 axes", lambda: signal.convolve(X[0], X)),
    (ArgumentValueError, "mode is 'all'", lambda: signal.convolve(X, X, "all")),
    (ArgumentValueError, "method is 'slow'", lambda: signal.convolve(X, X, "full", "slow")),
    (ShapeMismatchError, "arrays with elements", lambda: signal.convolve(X, X[:, :0])),
    (ShapeMismatchError, "in mode 'valid'", lambda: signal.convolve(X, X.T, "valid")),
    (RankError, "expected two matrices", lambda: signal.convolve2d(X[0], X[0])),
    (ArgumentValueError, "boundary is 'x'", lambda: signal.convolve2d(X, X, boundary="x")),
    (ShapeMismatchError, "outside", lambda: signal.fftconvolve(X, X[:2], axes=1)),
    (ArgumentValueError, "names an axis twice", lambda: signal.fftconvolve(X, X, axes=(1, -1))),
    (ArgumentValueError, "type is 'cubic'", lambda: signal.detrend(X, type="cubic")),
    (ArgumentValueError, "bp=", lambda: signal.detrend(X, bp=60)),
    (ArgumentValueError, "nperseg is 0", lambda: signal.welch(X, nperseg=0)),
    (ArgumentValueError, "nfft is 4", lambda: signal.welch(X, nperseg=8, nfft=4)),
    (ArgumentValueError, "noverlap is 8", lambda: signal.welch(X, nperseg=8, noverlap=8)),
    (ArgumentValueError, "scaling is 'x'", lambda: signal.welch(X, nperseg=8, scaling="x")),
    (ArgumentValueError, "average is 'x'", lambda: signal.welch(X, nperseg=8, average="x")),
    (ArgumentValueError, "detrend is 3", lambda: signal.welch(X, nperseg=8, detrend=3)),
    (RankError, "window has 2 axes", lambda: signal.welch(X, window=X)),
    (ShapeMismatchError, "window of 3", lambda: signal.welch(X, window=X[0, :3], nperseg=4)),
    (BroadcastError, "signals of 2 and of 1", lambda: signal.csd(X, X[0], nperseg=8)),
    (ArgumentValueError, "boundary is 'x'", lambda: signal.stft(X, nperseg=8, boundary="x")),
    (RankError, "expected frequencies and times", lambda: signal.istft(X[0])),
    (ArgumentValueError, "are both 0", lambda: signal.istft(X, time_axis=0, freq_axis=0)),
]


@pytest.mark.parametrize("i", range(len(BAD)))
def test_bad_arguments(i: int) -> None:
    """Errors say what was expected."""
    kind, text, call = BAD[i]
    with pytest.raises(kind, match=text):
        call()


def test_long_segments_are_shortened() -> None:
    """With a warning, as SciPy does."""
    with pytest.warns(UserWarning, match="nperseg=256 is more than the 50 samples"):
        assert (3, 26) == signal.welch(X)[1].shape


def test_signals_without_samples_have_no_spectra_with_others() -> None:
    """The shorter signal says how many: none, along the axis."""
    for one, other in ((np.zeros((2, 0)), X[:2, :6]), (X[:2, :6], np.zeros((2, 0)))):
        freqs, result = signal.csd(one, other)
        assert ((2, 0), (2, 0)) == (freqs.shape, result.shape)
