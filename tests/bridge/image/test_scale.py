"""Images of other sizes agree with PyTorch's, and are differentiable in all arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import image
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.testing import check_rules

X = np.random.default_rng(0).normal(size=(7, 6)).astype(np.float32)
METHODS = ("linear", "cubic", "lanczos3", "lanczos5", "cubic-pytorch", "area")


@pytest.mark.torch
@pytest.mark.parametrize("shape", [(3, 9), (14, 2), (7, 12)], ids=str)
@pytest.mark.parametrize(
    ("ours", "theirs", "antialias"),
    [
        ("linear", "bilinear", True),
        ("linear", "bilinear", False),
        ("cubic", "bicubic", True),
        ("cubic-pytorch", "bicubic", False),
        ("nearest", "nearest-exact", False),
    ],
)
def test_against_torch(ours: str, theirs: str, antialias: bool, shape: tuple[int, int]) -> None:
    """Smaller, larger and both, with and without smoothing."""
    torch = pytest.importorskip("torch")
    options: Any = {"align_corners": False} if "nearest" not in theirs else {}
    if antialias:
        options["antialias"] = True
    expected = torch.nn.functional.interpolate(
        torch.tensor(X)[None, None], size=shape, mode=theirs, **options
    )[0, 0].numpy()

    actual = np.asarray(image.resize(X, shape, ours, antialias))

    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_resize_rules(method: str) -> None:
    """Linear in the image; a constant stays constant."""
    check_rules(lambda x: image.resize(x, (4, 9), method), X, order=1)
    ones = np.ones((7, 6), np.float32)
    np.testing.assert_allclose(np.asarray(image.resize(ones, (4, 9), method)), 1, rtol=1e-5)


def test_area_takes_means() -> None:
    """A divisor of the size gives the means of blocks."""
    x = X[:6]
    expected = x.reshape(3, 2, 2, 3).mean((1, 3))

    np.testing.assert_allclose(np.asarray(image.resize(x, (3, 2), "area")), expected, rtol=1e-5)


@pytest.mark.parametrize("method", ["linear", "cubic", "lanczos3"])
def test_scale_and_translate(method: str) -> None:
    """Equal to resize where it is one; differentiable in scale and translation."""
    scale, none = np.array([4 / 7, 1.5], np.float32), np.zeros(2, np.float32)
    expected = image.resize(X, (4, 9), method)
    actual = image.scale_and_translate(X, (4, 9), (0, 1), scale, none, method)

    np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), rtol=1e-4, atol=1e-5)
    check_rules(
        lambda x, s, t: image.scale_and_translate(x, (5, 6), (0,), s, t, method, False),
        X, np.array([0.83], np.float32), np.array([0.31], np.float32), order=1,
        grad_rtol=1e-3, grad_atol=1e-4,
    )  # fmt: skip
    moved = image.scale_and_translate(X, (9, 6), (0,), np.ones(1), np.array([2.0]), method)
    np.testing.assert_allclose(np.asarray(moved), np.pad(X, ((2, 0), (0, 0))), atol=1e-5)


def test_dtypes_and_names() -> None:
    """Integers stay integers for the nearest element only; methods have several names."""
    ints = np.arange(4)

    assert image.resize(ints, (2,), "nearest").dtype == np.int32
    assert image.resize(ints, (2,), "linear").dtype == np.float32
    assert image.resize(tnp.ones(4, "bfloat16"), (2,), "cubic").dtype == "bfloat16"
    assert image.ResizeMethod.from_string("tricubic") is image.ResizeMethod.CUBIC
    assert image.resize(X, (7, 6), image.ResizeMethod.LINEAR).tolist() == X.tolist()
    assert tb.jit(lambda x: image.resize(x, (3, 6), "linear"))(X).shape == (3, 6)


def test_errors() -> None:
    """Shapes, scales and methods that do not fit."""
    with pytest.raises(ShapeMismatchError, match="resize"):
        image.resize(X, (3,), "linear")
    for method in ("linear", "nearest"):
        with pytest.raises(ShapeMismatchError, match=r"resize: .*no elements along axis 1"):
            image.resize(X[:, :0], (3, 2), method)
    with pytest.raises(ArgumentValueError, match="no method"):
        image.resize(X, (3, 3), "sharp")
    with pytest.raises(NotImplementedError, match="nearest"):
        image.scale_and_translate(X, (3, 3), (0,), np.ones(1), np.ones(1), "nearest")
    with pytest.raises(ArgumentValueError, match="edges"):
        image.scale_and_translate(X, (3, 3), (0,), np.ones(1), np.ones(1), "cubic-pytorch")
    with pytest.raises(ShapeMismatchError, match="scale"):
        image.scale_and_translate(X, (3, 3), (0,), np.ones(2), np.ones(1), "linear")


@pytest.mark.parametrize(
    ("shape", "method", "error", "words"),
    [
        ((2.5, 3), "linear", ArgumentTypeError, "resize: a size of the shape is 2.5 of type float"),
        ((-1, 3), "nearest", ShapeMismatchError, "resize: a size of the shape is -1"),
        ((2, 3), 1, ArgumentTypeError, "resize: method is 1 of type int"),
    ],
)
def test_sizes_and_methods_that_are_none(
    shape: Any, method: Any, error: type[Exception], words: str
) -> None:
    """No image comes out of half a row or of a method without a name."""
    with pytest.raises(error, match=words):
        image.resize(np.ones((4, 4), np.float32), shape, method)
