"""tracebridge.scipy.fft against SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.fft

import tracebridge as tb
from tests.quick_compiles import check_grads
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.shape_errors import AxisError, RankError, ShapeMismatchError
from tracebridge.testing import assert_allclose

ONE, MANY = ["dct", "idct"], ["dctn", "idctn"]
X = np.random.default_rng(0).normal(size=(3, 4, 5))


@pytest.mark.parametrize("norm", [None, "backward", "ortho", "forward"])
@pytest.mark.parametrize("type_", [1, 2, 3, 4])
@pytest.mark.parametrize("name", ONE)
def test_one_axis(name: str, type_: int, norm: Any) -> None:
    """All types and norms, at even and odd sizes, cut and padded."""
    ours, theirs = getattr(tb.scipy.fft, name), getattr(scipy.fft, name)
    for kwargs in ({}, {"n": 8}, {"n": 3, "axis": 1}, {"axis": 0}, {"n": 2}):
        found = tb.jit(lambda x, k=kwargs: ours(x, type_, norm=norm, **k))(np.float32(X))

        assert_allclose(found, theirs(X, type_, norm=norm, **kwargs), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("norm", [None, "ortho"])
@pytest.mark.parametrize("name", MANY)
def test_many_axes(name: str, norm: Any) -> None:
    """All axes, some, and the last ones if only sizes are given."""
    ours, theirs = getattr(tb.scipy.fft, name), getattr(scipy.fft, name)
    for kwargs in ({}, {"axes": (0, 2)}, {"s": (2, 6)}, {"s": 3}, {"s": 4, "axes": 0}):
        found = ours(np.float32(X), norm=norm, **kwargs)

        assert_allclose(found, theirs(X, norm=norm, **kwargs), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("type_", [1, 2, 3, 4])
@pytest.mark.parametrize("name", ONE)
def test_derivatives_and_batches(name: str, type_: int) -> None:
    """Linear maps: derivatives against differences; a mapped axis is not transformed."""
    ours, theirs = getattr(tb.scipy.fft, name), getattr(scipy.fft, name)
    with tb.enable_x64(True):
        check_grads(lambda x: ours(x, type_), (X[0],), order=1)
        found = tb.vmap(lambda x: ours(x, type_), in_axes=1)(X)

        assert_allclose(found, theirs(X.transpose(1, 0, 2), type_), rtol=1e-12, atol=1e-12)


def test_other_dtypes() -> None:
    """Integers and halves in single precision; parts of complex numbers alone."""
    z = np.complex64(X[0] + 1j * X[1])

    assert "float32" == tb.scipy.fft.dct(np.arange(4, dtype=np.int8)).dtype
    assert "float32" == tb.scipy.fft.dct(np.arange(4, dtype=np.float16)).dtype
    assert_allclose(tb.scipy.fft.dct(z), scipy.fft.dct(z), rtol=1e-4, atol=1e-5)


def test_one_sample() -> None:
    """The shortest signals."""
    for type_ in (2, 3, 4):
        expected = scipy.fft.dct([3.0], type_)
        assert_allclose(tb.scipy.fft.dct(np.float32([3.0]), type_), expected, rtol=1e-6)


def test_bad_arguments() -> None:
    """Errors say what was expected."""
    dct, dctn = tb.scipy.fft.dct, tb.scipy.fft.dctn
    with pytest.raises(ArgumentValueError, match="type is 5, expected 1, 2, 3 or 4"):
        dct(X, 5)
    with pytest.raises(ArgumentValueError, match="norm is 'x', expected one of"):
        dct(X, norm="x")
    with pytest.raises(ArgumentValueError, match="type 1 of 1 samples"):
        dct(X, 1, 1)
    with pytest.raises(ArgumentValueError, match="names an axis twice"):
        dctn(X, axes=(0, -3))
    with pytest.raises(AxisError, match="axis 3"):
        dct(X, axis=3)
    with pytest.raises(ShapeMismatchError, match="different lengths"):
        dctn(X, s=(1, 2), axes=(0,))
    with pytest.raises(RankError, match="has 4 sizes for an array of 3 axes"):
        dctn(X, s=(1, 2, 3, 4))
