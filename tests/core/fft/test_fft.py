"""fft: values, derivatives and batching of the four kinds of transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tests.core.lax.symbolic import run_symbolic
from tracebridge import lax
from tracebridge.core.config.option_scopes import enable_x64
from tracebridge.core.errors.argument_errors import (
    ArgumentTypeError,
    ArgumentValueError,
    UnsupportedArgumentError,
)
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.testing import assert_allclose, check_rules

Host = np.ndarray[Any, Any]

REFERENCES = {
    "FFT": np.fft.fftn,
    "IFFT": np.fft.ifftn,
    "RFFT": np.fft.rfftn,
    "IRFFT": np.fft.irfftn,
}
SIZES = ((1,), (5,), (6,), (3, 4), (2, 1), (3, 2, 5), (2, 1, 3, 2))


def sample(kind: str, lengths: tuple[int, ...], batch: tuple[int, ...] = ()) -> Host:
    """What a transform of this kind takes, without any symmetry."""
    random = np.random.default_rng(0)
    sizes = (*lengths[:-1], lengths[-1] // 2 + 1) if kind == "IRFFT" else lengths
    x = random.normal(size=(*batch, *sizes))
    return x if kind == "RFFT" else x + 1j * random.normal(size=x.shape)


def expected(kind: str, x: Host, lengths: tuple[int, ...]) -> Host:
    """The transform of the last axes by NumPy."""
    axes = tuple(range(-len(lengths), 0))
    return REFERENCES[kind](x, s=lengths, axes=axes)


@pytest.mark.parametrize("lengths", SIZES, ids=str)
@pytest.mark.parametrize("kind", REFERENCES)
def test_all_rules_agree(kind: str, lengths: tuple[int, ...]) -> None:
    """Value, staging, jit, first and second derivatives of both modes, and batching."""
    check_rules(
        lambda x: lax.fft(x, kind, lengths),
        sample(kind, lengths, (2,) if len(lengths) < 3 else ()),
        reference=lambda x: expected(kind, x, lengths),
        order=1 if len(lengths) > 1 else 2,
        rtol=1e-12,
        atol=1e-12,
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", REFERENCES)
@pytest.mark.parametrize("length", [3, 64, 127, 1000, 1009])
def test_accuracy(length: int, kind: str, dtype: Any) -> None:
    """Errors are a few units in the last place of the norm of the signal, at primes too."""
    x = sample(kind, (length,))
    given = x.astype(np.result_type(dtype, np.complex64) if kind != "RFFT" else dtype)
    with enable_x64():
        found = np.asarray(lax.fft(given, kind, (length,)))
    want = expected(kind, given.astype(x.dtype), (length,))

    assert np.linalg.norm(found - want) <= 4 * np.finfo(dtype).eps * np.linalg.norm(want)


@pytest.mark.parametrize("kind", REFERENCES)
def test_five_and_seven_axes(kind: str) -> None:
    """XLA transforms three axes at a time; programs for many are made of parts."""
    for lengths in ((2, 3, 2, 1, 4), (2, 1, 2, 3, 1, 2, 3)):
        x = sample(kind, lengths)
        found = tb.jit(lambda x, k=kind, n=lengths: lax.fft(x, k, n))(x)

        assert_allclose(found, expected(kind, x, lengths), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("kind", REFERENCES)
def test_batched_along_every_axis(kind: str, axis: int) -> None:
    """A mapped axis may be anywhere, also after those that are transformed."""
    x = np.stack([sample(kind, (3, 4)) * (1 + i) for i in range(5)], axis)
    found = tb.vmap(lambda x: lax.fft(x, kind, (3, 4)), in_axes=axis)(x)

    assert_allclose(found, expected(kind, np.moveaxis(x, axis, 0), (3, 4)), rtol=1e-5, atol=1e-5)


def test_two_mapped_axes_before_and_after_a_batch_axis() -> None:
    """Axes that stay where they are do not disturb those that move."""
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 5)) + 0j
    inner = tb.vmap(lambda x: lax.fft(x, "FFT", (4,)), in_axes=1, out_axes=1)
    found = tb.vmap(inner, in_axes=3, out_axes=3)(x)

    assert_allclose(found, np.fft.fft(x, axis=2), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", REFERENCES)
def test_empty_arrays(kind: str) -> None:
    """An empty batch gives an empty batch; so does its derivative."""
    x = sample(kind, (4,), (0, 3))
    out = lax.fft(x, kind, (4,))
    (back,) = tb.vjp(lambda x: lax.fft(x, kind, (4,)), x)[1](out)

    assert expected(kind, x, (4,)).shape == out.shape
    assert x.shape == back.shape


def test_a_signal_of_no_samples() -> None:
    """It has no spectrum but that of the sum, which is 0; so do its derivatives."""
    assert (2, 0) == lax.fft(np.zeros((2, 0)), "FFT", (0,)).shape
    assert [[0.0], [0.0]] == lax.fft(np.zeros((2, 0)), "RFFT", (0,)).real.tolist()
    assert (2, 0) == lax.fft(np.zeros((2, 1)), "IRFFT", (0,)).shape

    _, back = tb.vjp(lambda x: lax.fft(x, "RFFT", (0,)), tb.numpy.zeros((2, 0)))
    assert (2, 0) == back(np.ones((2, 1), np.complex64))[0].shape
    _, back = tb.vjp(lambda x: lax.fft(x, "IRFFT", (0,)), np.ones((2, 1), np.complex64))
    assert [[0j], [0j]] == back(np.ones((2, 0), np.float32))[0].tolist()


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint32", "int32", "float16", "bfloat16"])
def test_other_dtypes_become_single_precision(dtype: str) -> None:
    """Integers, booleans and halves are transformed in float32."""
    x = tb.numpy.array([1, 0, 1, 1, 0], dtype)

    assert "complex64" == lax.fft(x, "RFFT", (5,)).dtype == lax.fft(x, "FFT", (5,)).dtype
    assert_allclose(lax.fft(x, "RFFT", (5,)), np.fft.rfft([1, 0, 1, 1, 0]), rtol=1e-6)


def test_doubles() -> None:
    """64-bit integers and floats are transformed in float64 where 64 bits are enabled."""
    with enable_x64():
        for x in (np.arange(4), np.arange(4.0)):
            assert "complex128" == lax.fft(x, "FFT", (4,)).dtype


def test_kinds_by_name() -> None:
    """A kind is a member of FftType or its name, in either case."""
    x = np.arange(4.0)
    by_member = lax.fft(x, lax.FftType.RFFT, [4])

    assert by_member.tolist() == lax.fft(x, "rfft", [4]).tolist()
    assert by_member.tolist() == lax.fft(x, "RFFT", (np.int64(4),)).tolist()
    assert "IRFFT" == str(lax.FftType.IRFFT)


def test_no_axes() -> None:
    """A transform over no axes changes the dtype only."""
    assert 3 + 0j == lax.fft(3.0, "FFT", ()).item()


def test_results_that_are_not_row_major() -> None:
    """Operands and results in any memory order are the same numbers."""
    x = np.random.default_rng(0).normal(size=(3, 4, 5))
    found = tb.jit(lambda x: lax.fft(x.transpose(2, 0, 1), "RFFT", (3, 4)).T)(x)

    assert_allclose(found, np.fft.rfftn(x.transpose(2, 0, 1), axes=(1, 2)).T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", REFERENCES)
@pytest.mark.parametrize("spec", ["n, m, 3, 4", "n, 3, 3, 4", "3, n, 3, 4"])
def test_symbolic_batch(kind: str, spec: str) -> None:
    """Axes that are not transformed may have sizes that nobody knows yet."""
    lengths = (3, 6 if kind == "IRFFT" else 4)
    x = sample(kind, lengths, (3, 5) if "m" in spec else (3, 3))
    want = expected(kind, x, lengths)

    def run(re: Any, im: Any) -> Any:
        y = lax.fft(re if kind == "RFFT" else lax.complex(re, im), kind, lengths)
        return y if kind == "IRFFT" else [lax.real(y), lax.imag(y)]

    parts = [np.float32(x.real), np.float32(x.imag)]
    found = run_symbolic(run, f"{spec}; {spec}", *parts)

    assert_allclose(found[0], want.real, rtol=1e-4, atol=1e-5)
    assert_allclose(found[-1], want if kind == "IRFFT" else want.imag, rtol=1e-4, atol=1e-5)


def test_symbolic_lengths() -> None:
    """XLA wants the sizes of the axes that are transformed."""
    x = np.zeros((3, 4), np.complex64)
    with pytest.raises(UnsupportedArgumentError, match=r"lengths .* are not constants"):
        run_symbolic(lambda x: lax.fft(x, "FFT", x.shape[1:]), "3, n", x)


def test_several_axes_on_cuda_take_the_last_one_alone() -> None:
    """cuFFT assumes more symmetry than others do in an inverse real transform."""
    x = np.zeros((2, 3, 3), np.complex64)
    traced = tb.jit(lambda x: lax.fft(x, "IRFFT", (3, 4))).trace(x)

    assert "IRFFT, length = [3, 4]" in squeezed(traced.lower().as_text())
    assert "IRFFT, length = [4]" in squeezed(traced.lower(lowering_platforms=("cuda",)).as_text())


def squeezed(text: str) -> str:
    """A module's text with single spaces."""
    return " ".join(text.split()).replace("type = ", "")


def test_bad_arguments() -> None:
    """Errors say which kinds, dtypes and lengths there are."""
    x = np.zeros((2, 4))
    with pytest.raises(ArgumentValueError, match=r"fft_type is 'dft', expected one of \['FFT'"):
        lax.fft(x, "dft", (4,))
    with pytest.raises(ArgumentTypeError, match="fft_type is 0, expected an FftType"):
        lax.fft(x, 0, (4,))
    with pytest.raises(UnsupportedDtypeError, match=r"RFFT works on .*, got c64\[2,4\]"):
        lax.fft(x + 0j, "RFFT", (4,))
    with pytest.raises(ShapeMismatchError, match=r"\(5,\) do not go with .*expected sizes \(5,\)"):
        lax.fft(x, "FFT", (5,))
    with pytest.raises(ShapeMismatchError, match=r"expected sizes \(2, 5\)"):
        lax.fft(x, "IRFFT", (2, 8))
    with pytest.raises(RankError, match=r"got 3 lengths .* expected 1 to 2"):
        lax.fft(x, "FFT", (1, 2, 4))
