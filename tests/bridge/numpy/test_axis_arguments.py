"""Axis and shape arguments may be any collection of integers, as in NumPy and beyond."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    RankError,
    TracerIntegerConversionError,
)

COLLECTIONS: dict[str, Callable[[], Any]] = {
    "range": lambda: range(2),
    "list": lambda: [0, 1],
    "set": lambda: {0, 1},
    "keys": lambda: {0: "a", 1: "b"}.keys(),
    "iterator": lambda: iter((0, 1)),
    "numpy": lambda: np.array([0, 1]),
    "array": lambda: tnp.array([0, 1]),
    "numpy integers": lambda: (np.int64(0), np.int8(1)),
}
X = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)


@pytest.mark.parametrize("axes", COLLECTIONS.values(), ids=COLLECTIONS)
@pytest.mark.parametrize("name", ["sum", "max", "mean", "var", "all", "count_nonzero", "flip"])
def test_reductions_take_collections_of_axes(name, axes):
    """A reduction over a collection of axes is that over the tuple of them."""
    expected = getattr(np, name)(X, axis=(0, 1))

    assert np.allclose(expected, getattr(tnp, name)(X, axis=axes()))
    assert np.allclose(expected, tb.jit(lambda x: getattr(tnp, name)(x, axis=axes()))(X))


@pytest.mark.parametrize("axes", COLLECTIONS.values(), ids=COLLECTIONS)
def test_shape_functions_take_collections(axes):
    """New, moved and dropped axes, shapes and repetitions come in any collection."""
    empty = np.zeros((0,), np.float32)

    assert (1, 1, 2, 3, 4) == tnp.expand_dims(X, axes()).shape
    assert (4,) == tnp.squeeze(np.zeros((1, 1, 4)), axes()).shape
    assert (2, 3, 4) == tnp.moveaxis(X, axes(), axes()).shape
    assert (2, 3) == tnp.transpose(X[..., 0], axes()).shape
    assert (2, 3) == tnp.asarray(X[..., 0]).transpose(axes()).shape
    assert (0, 1) == tnp.reshape(empty, axes()).shape
    assert (0, 1) == tnp.asarray(empty).reshape(axes()).shape
    assert (0, 1) == tnp.zeros(axes()).shape
    assert (2, 0, 4) == tnp.tile(X, axes()).shape
    assert np.array_equal(np.roll(X, (1, 2), (0, 1)), tnp.roll(X, (1, 2), axes()))
    assert 6 == tnp.size(X, axes())
    assert np.array_equal(np.gradient(X, axis=(0, 1)), tnp.gradient(X, axis=axes()))


def test_gradient_through_a_collection_of_axes():
    """Derivatives and batches of a reduction do not depend on the form of its axes."""
    found = tb.vmap(tb.grad(lambda x: tnp.sum(tnp.prod(x, axis=range(2)))))(tnp.ones((5, 2, 3)))

    assert np.array_equal(np.ones((5, 2, 3)), found)


def test_single_axes():
    """Arrays without axes are single integers; strings, floats and traced axes are none."""
    assert (2, 4) == tnp.sum(X, np.array(1)).shape
    assert (2, 4) == tnp.sum(X, tnp.array(1)).shape
    with pytest.raises(ArgumentTypeError, match="axis is '01'"):
        tnp.sum(X, "01")
    with pytest.raises(ArgumentTypeError, match=r"an axis is .*0\.0"):
        tnp.sum(X, np.array([0.0, 1.0]))
    with pytest.raises(TracerIntegerConversionError, match="sum"):
        tb.jit(lambda axes: tnp.sum(X, axes))(tnp.array([0, 1]))


@pytest.mark.parametrize("axis", [None, 0, (1,), (0, 1), (-1, -1)])
@pytest.mark.parametrize("shift", [2, (3,), (1, 2), ()])
def test_shifts_in_arrays_pair_with_axes_as_those_in_tuples(shift: Any, axis: Any) -> None:
    """Several shifts of one axis add up; as many of them as of several axes."""
    x = np.arange(12).reshape(4, 3)
    in_array = np.asarray(shift, np.int32)
    if shift == () and isinstance(axis, tuple) and len(axis) == 2:
        for s in (shift, in_array):
            with pytest.raises(ValueError, match="roll"):
                tnp.roll(x, s, axis)
        return
    for s in (shift, in_array):
        np.testing.assert_array_equal(tnp.roll(x, s, axis), np.roll(x, shift, axis))


def test_norms_and_initializers_take_numbers_of_numpy() -> None:
    """Any integer is an axis, or a shape of one axis."""
    for axis in (np.int32(1), np.array(1), [1]):
        assert np.allclose(np.linalg.norm(X, axis=1), tnp.linalg.norm(X, axis=axis))
        assert np.allclose(np.linalg.norm(X, axis=1), tnp.linalg.vector_norm(X, axis=axis))
    assert (3,) == tb.nn.initializers.zeros(tb.random.key(0), np.int32(3)).shape


def test_numbers_that_are_no_integers_are_no_axes_and_no_digits() -> None:
    """They are refused, not cut off."""
    for call in (tb.scipy.stats.mode, tb.scipy.stats.sem):
        with pytest.raises(ArgumentTypeError):
            call(X, axis=1.0)
    with pytest.raises(ArgumentTypeError):
        tnp.round(X, 1.5)


def test_what_is_no_pair_of_axes_is_refused() -> None:
    """And so are matrices of positions in a flattened array, and ways that do not exist."""
    with pytest.raises(ArgumentTypeError):
        tnp.tensordot(X, X, axes=())
    with pytest.raises(ArgumentValueError):
        tnp.rot90(X, axes=())
    with pytest.raises(RankError):
        tnp.take_along_axis(X, np.array([[0]]), None)
    with pytest.raises(ArgumentValueError):
        tnp.isin(1, 1, method="linear")


def test_traces_can_be_truth_values() -> None:
    """Whether any element of the diagonal is not zero."""
    assert tnp.trace(tnp.eye(3), dtype=bool)
    assert not tnp.trace(tnp.zeros((3, 3)), dtype=bool)
