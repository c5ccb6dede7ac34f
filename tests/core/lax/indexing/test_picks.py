"""Cotangents of one element per row, put back by comparison."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.equations import primitives_in
from tracebridge import lax

MODES = ["fill", "clip", "promise_in_bounds", "one_hot"]


def picked(mode: str, axis: int) -> Any:
    """Linear in what is picked: a NaN that fills has no say in the derivative."""

    def f(x: Any, i: Any) -> Any:
        taken = tnp.take_along_axis(x, i, axis, mode=mode)
        return (taken * tnp.arange(1.0, 1 + taken.size).reshape(taken.shape)).sum()

    return f


@pytest.mark.parametrize("mode", MODES)
def test_gradients_are_those_of_forward_mode(mode: str) -> None:
    """Three axes, indices of several dtypes, inside, negative and outside."""
    x = np.random.default_rng(0).standard_normal((3, 4, 5)).astype(np.float32)
    inside = [0, 2, 1, 2, 0]
    outside = inside if mode in ("promise_in_bounds", "one_hot") else [-1, -9, 1, 7, 99]
    for axis in range(3):
        for values, dtype in ((inside, np.int8), (inside, np.uint32), (outside, np.int32)):
            shape = tuple(1 if d == axis else n for d, n in enumerate(x.shape))
            i = np.resize(np.array(values, dtype), shape)
            found = tb.jit(tb.grad(picked(mode, axis)))(x, i)
            expected = tb.jit(tb.jacfwd(picked(mode, axis)))(x, i)
            np.testing.assert_array_equal(found, expected)


def test_one_element_of_a_vector_and_of_mapped_rows() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)

    one = tb.jit(tb.grad(lambda x, i: x.at[i].get(mode="fill") ** 2))(x[1], 2)
    mapped = tb.vmap(tb.grad(lambda x, i: x[i] ** 2))
    rows = mapped(x, np.array([1, 0]))
    batch = tb.grad(lambda x, i: (tb.vmap(lambda x, i: x[i])(x, i) ** 2).sum())
    second = tb.hessian(lambda x: (tnp.take_along_axis(x, np.array([[2], [0]]), 1) ** 3).sum())(x)

    np.testing.assert_array_equal(one, [0, 0, 10])
    np.testing.assert_array_equal(rows, [[0, 2, 0], [6, 0, 0]])
    np.testing.assert_array_equal(batch(x, np.array([1, 0])), rows)
    for f in (mapped, batch):
        assert "scatter_add" not in primitives_in(
            tb.make_jaxpr(f)(x, np.array([1, 0])), inside=True
        )
    np.testing.assert_array_equal(np.asarray(second).reshape(6, 6), np.diag([0, 0, 12, 18, 0, 0]))


def test_nan_cotangents_stay_in_their_place() -> None:
    x = np.ones((2, 3), np.float32)
    _, pull = tb.vjp(lambda x: tnp.take_along_axis(x, np.array([[1], [2]]), 1), x)

    (found,) = pull(np.array([[np.nan], [np.inf]], np.float32))

    np.testing.assert_array_equal(found, [[0, np.nan, 0], [0, 0, np.inf]])


def test_several_elements_of_a_row_are_scattered() -> None:
    """The same element may be picked twice."""
    x, i = np.ones((2, 3), np.float32), np.array([[1, 1], [2, 0]])
    gradient = tb.grad(lambda x: tnp.take_along_axis(x, i, 1).sum())

    np.testing.assert_array_equal(gradient(x), [[0, 2, 0], [1, 0, 1]])
    assert "scatter_add" in primitives_in(tb.make_jaxpr(gradient)(x), inside=True)
    one = tb.grad(lambda x: tnp.take_along_axis(x, i[:, :1], 1).sum())
    assert "scatter_add" not in primitives_in(tb.make_jaxpr(one)(x), inside=True)


def test_operands_of_no_elements() -> None:
    """Nothing to pick from, and nothing picked."""
    empty = tb.grad(lambda x: tnp.take_along_axis(x, np.zeros((0, 1), int), 1).sum())
    assert empty(np.zeros((0, 3), np.float32)).shape == (0, 3)
    filled = tb.grad(lambda x: lax.stop_gradient(1.0) * x[np.zeros((0,), int)].sum())
    np.testing.assert_array_equal(filled(np.ones(3, np.float32)), np.zeros(3))


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_wide_indices_go_back_where_64_bits_are_off(dtype: Any) -> None:
    """Also those that 32 bits cannot hold: they pick nothing, not what is left of them."""
    x = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    with tb.enable_x64(True):
        i = tnp.asarray(np.array([[1], [2**32 + 2], [3]], dtype))
        _, back = tb.vjp(lambda x: tnp.take_along_axis(x, i, 1, mode="fill"), x)

    (out,) = back(tnp.ones((3, 1), tnp.float32))
    np.testing.assert_array_equal(out, np.eye(4, dtype=np.float32)[[1, 0, 3]] * [[1], [0], [1]])
    with tb.enable_x64(True):
        _, clipped = tb.vjp(lambda x: tnp.take_along_axis(x, i, 1, mode="clip"), x)
    (out,) = clipped(tnp.ones((3, 1), tnp.float32))
    np.testing.assert_array_equal(out, np.eye(4, dtype=np.float32)[[1, 3, 3]])
