"""tracebridge.numpy.fft against NumPy and PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.quick_compiles import check_grads
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import AxisError, RankError, ShapeMismatchError
from tracebridge.testing import assert_allclose

ONE = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"]
TWO = ["fft2", "ifft2", "rfft2", "irfft2"]
MANY = ["fftn", "ifftn", "rfftn", "irfftn"]
NORMS = [None, "backward", "ortho", "forward"]


def sample(name: str, *shape: int) -> np.ndarray[Any, Any]:
    """Real where the transform takes nothing else."""
    random = np.random.default_rng(0)
    x = random.normal(size=shape)
    real = name.startswith("rfft") or name == "ihfft"
    return np.float32(x) if real else np.complex64(x + 1j * random.normal(size=shape))


def same(name: str, x: Any, **kwargs: Any) -> None:
    """The same as NumPy, also as one program."""
    want = getattr(np.fft, name)(wide(x), **kwargs)

    def run(x: Any) -> Any:
        return getattr(tnp.fft, name)(x, **kwargs)

    assert_allclose(run(x), want, rtol=1e-4, atol=2e-5)
    assert_allclose(tb.jit(run)(x), want, rtol=1e-4, atol=2e-5)


def wide(x: Any) -> Any:
    """Without the roundings of single precision."""
    return np.asarray(x).astype(np.result_type(np.asarray(x).dtype, np.float64))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ONE)
def test_one_axis(name: str, norm: Any) -> None:
    """Sizes that cut and that pad, even and odd, along any axis."""
    x = sample(name, 4, 5)
    for kwargs in ({}, {"n": 3}, {"n": 6, "axis": 0}, {"axis": -2}, {"n": 1}):
        same(name, x, norm=norm, **kwargs)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", TWO)
def test_two_axes(name: str, norm: Any) -> None:
    """The last two axes, or others in another order."""
    x = sample(name, 4, 3, 5)
    for kwargs in ({}, {"s": (3, 6)}, {"axes": (1, 0)}, {"s": (2, 5), "axes": (-1, 0)}):
        same(name, x, norm=norm, **kwargs)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", MANY)
def test_many_axes(name: str, norm: Any) -> None:
    """All axes, some of them, and four of them."""
    x = sample(name, 2, 3, 2, 4)
    for kwargs in ({}, {"axes": (2, 0, 1)}, {"s": (3, 2), "axes": (3, 1)}, {"axes": (-1,)}):
        same(name, x, norm=norm, **kwargs)


@pytest.mark.parametrize("name", ONE + TWO + MANY)
def test_derivatives(name: str) -> None:
    """Of both modes, against finite differences; cut and padded."""
    with tb.enable_x64(True):
        x = wide(sample(name, 3, 4))
        size = {"n": 5} if name in ONE else {"s": (2, 5), "axes": (0, 1)}
        check_grads(lambda x: getattr(tnp.fft, name)(x, norm="ortho", **size), (x,), order=1)


@pytest.mark.parametrize("name", ONE + TWO + MANY)
def test_gradients_are_those_of_torch(name: str) -> None:
    """PyTorch's gradients of complex arguments are the conjugate ones."""
    torch = pytest.importorskip("torch")
    x = sample(name, 3, 4)
    weight = np.asarray(getattr(np.fft, name)(wide(x))).real.astype(np.float32)

    def loss(x: Any) -> Any:
        y = getattr(tnp.fft, name)(x)
        return (tnp.abs(y) ** 2 * weight).sum()

    t = torch.tensor(x, requires_grad=True)
    (getattr(torch.fft, name)(t).abs() ** 2 * torch.tensor(weight)).sum().backward()

    (found,) = tb.vjp(loss, x)[1](np.float32(1))

    assert_allclose(found, t.grad.conj().resolve_conj().numpy(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["fft", "rfft", "irfft", "hfft", "fft2", "irfft2", "rfftn"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_mapped(name: str, axis: int) -> None:
    """A mapped axis is not transformed."""
    x = sample(name, 3, 3, 3)
    found = tb.vmap(getattr(tnp.fft, name), in_axes=axis)(x)
    parts = [getattr(np.fft, name)(p) for p in np.moveaxis(wide(x), axis, 0)]

    assert_allclose(found, np.stack(parts), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("dtype", ["int32", "int8", "uint16", "bool", "float16", "bfloat16"])
def test_other_dtypes(dtype: str) -> None:
    """Integers, booleans and halves give single precision."""
    x = tnp.array([[1, 0, 1], [1, 1, 0]], dtype)

    assert "complex64" == tnp.fft.fft(x).dtype == tnp.fft.rfft(x, 5).dtype
    assert "float32" == tnp.fft.irfft(x).dtype
    assert_allclose(tnp.fft.rfft(x, 5), np.fft.rfft([[1, 0, 1], [1, 1, 0]], 5), rtol=1e-5)


def test_scalars_and_empty_arrays() -> None:
    """No axes to transform change the dtype only; an empty batch stays one."""
    assert 2 + 0j == tnp.fft.fftn(2.0).item()
    assert (0, 3) == tnp.fft.fft(np.zeros((0, 3))).shape
    assert (0, 4) == tnp.fft.irfft(np.zeros((0, 3))).shape
    assert (3, 0) == tnp.fft.fft(np.zeros((3, 0))).shape
    assert (3, 4) == tnp.fft.fftn(np.ones((3, 4)), axes=()).shape


@pytest.mark.parametrize("n", [0, 1, 2, 5, 8])
@pytest.mark.parametrize("d", [1.0, 0.1, 3])
def test_frequencies(n: int, d: float) -> None:
    """As NumPy's, in single precision."""
    if n:
        assert_allclose(tnp.fft.fftfreq(n, d), np.fft.fftfreq(n, d), rtol=1e-6)
        assert_allclose(tnp.fft.rfftfreq(n, d), np.fft.rfftfreq(n, d), rtol=1e-6)
    assert (n,) == tnp.fft.fftfreq(n, d).shape


def test_frequencies_of_other_dtypes() -> None:
    """The default float, or what is asked for; the spacing may be traced."""
    assert "float32" == tnp.fft.fftfreq(4).dtype
    assert "float16" == tnp.fft.fftfreq(4, dtype="float16").dtype
    assert "complex64" == tnp.fft.rfftfreq(4, dtype="complex64").dtype
    assert tb.devices()[0] in tnp.fft.fftfreq(4, device=tb.devices()[0]).devices()
    slope = tb.grad(lambda d: tnp.fft.fftfreq(4, d)[1])(0.5)
    assert_allclose(slope, -1.0, rtol=1e-6)
    with tb.enable_x64(True):
        assert np.fft.fftfreq(7, 0.3).tolist() == pytest.approx(tnp.fft.fftfreq(7, 0.3).tolist())
        assert "float64" == tnp.fft.rfftfreq(4).dtype


@pytest.mark.parametrize("axes", [None, 0, -1, (0, 1), (1,), ()])
@pytest.mark.parametrize("name", ["fftshift", "ifftshift"])
def test_shifts(name: str, axes: Any) -> None:
    """Halves exchanged, as NumPy does; the one is the inverse of the other."""
    x = np.arange(12).reshape(3, 4)
    expected = x if axes == () else getattr(np.fft, name)(x, axes)

    assert expected.tolist() == getattr(tnp.fft, name)(x, axes).tolist()
    assert x.tolist() == tnp.fft.ifftshift(tnp.fft.fftshift(x, axes), axes).tolist()


@pytest.mark.parametrize("name", ["fftn", "rfftn", "irfftn", "ifft2"])
def test_a_size_of_minus_one_is_that_of_the_input(name: str) -> None:
    """As NumPy's, also where a real signal has another size by default."""
    x = np.random.default_rng(5).normal(size=(2, 4, 5)).astype(np.float32)
    for s in ((3, -1), (-1, -1)):
        expected = getattr(np.fft, name)(x, s, (1, 2))
        np.testing.assert_allclose(getattr(tnp.fft, name)(x, s, (1, 2)), expected, 1e-4, 1e-5)


BAD = [
    (ArgumentValueError, "norm is 'x', expected one of", lambda f, x: f.fft(x, norm="x")),
    (ArgumentValueError, "n has size 0, expected", lambda f, x: f.fft(x, 0)),
    (ArgumentValueError, "s has size -2, expected", lambda f, x: f.fftn(x, (3, -2))),
    (ArgumentValueError, "names an axis twice", lambda f, x: f.fftn(x, axes=(0, -2))),
    (ArgumentValueError, "expected one axis", lambda f, x: f.fft(x, axis=(0, 1))),
    (ArgumentValueError, "transforms 2 axes, got", lambda f, x: f.rfft2(x, axes=(0,))),
    (ArgumentValueError, "no transform", lambda f, x: f.irfft(x[:, :1])),
    (ArgumentValueError, "no transform", lambda f, x: f.rfft(x[:, :0])),
    (ShapeMismatchError, "different lengths", lambda f, x: f.fftn(x, (2,), (0, 1))),
    (RankError, "has 3 sizes for an array of 2", lambda f, x: f.fftn(x, (2, 3, 4))),
    (RankError, "expected a scalar", lambda f, x: f.fftfreq(4, x)),
    (ArgumentValueError, "only takes an int", lambda f, x: f.fftfreq([0, 1, 2])),
    (ArgumentValueError, "only takes an int", lambda f, x: f.rfftfreq(n=[0, 1, 2])),
    (ArgumentTypeError, "expected a sequence", lambda f, x: f.fftn(x, axes=0)),
    (ArgumentTypeError, "expected a sequence", lambda f, x: f.fftn(x, 3)),
    (TypeError, "n", lambda f, x: f.fft(x, 2.5)),
    (AxisError, "axis 5", lambda f, x: f.fft(x, axis=5)),
    (AxisError, "axis 2", lambda f, x: f.fftshift(x, 2)),
    (AxisError, "axis -1", lambda f, x: f.fft(1.0)),
    (UnsupportedDtypeError, "RFFT works on float32", lambda f, x: f.rfft(x + 0j)),
    (UnsupportedDtypeError, "RFFT works on float32", lambda f, x: f.ihfft(x + 0j)),
]


@pytest.mark.parametrize("i", range(len(BAD)))
def test_bad_arguments(i: int) -> None:
    """Errors of the same kinds as NumPy's, which say what was expected."""
    kind, text, call = BAD[i]
    with pytest.raises(kind, match=text):
        call(tnp.fft, np.ones((3, 4), np.float32))
