"""Laws of reshaping, transposing, broadcasting, joining and splitting, for random shapes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.lax.symbolic import run_symbolic
from tracebridge.testing import assert_allclose

shapes = st.sampled_from([(), (3,), (0, 2), (2, 3), (1, 3, 1), (2, 1, 3), (2, 3, 2, 1)])


def numbers(shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


@given(shapes, st.data())
def test_transposing_back(shape, data):
    """A permutation and its inverse; moveaxis there and back; two flips; NumPy's values."""
    x = numbers(shape)
    order = data.draw(st.permutations(range(len(shape))))
    inverse = tuple(int(i) for i in np.argsort(order))

    np.testing.assert_array_equal(x.transpose(order), tnp.transpose(x, order))
    np.testing.assert_array_equal(x, tnp.transpose(tnp.transpose(x, order), inverse))
    np.testing.assert_array_equal(x, tnp.flip(tnp.flip(x)))
    if shape:
        axis = data.draw(st.integers(-len(shape), len(shape) - 1))
        np.testing.assert_array_equal(x, tnp.moveaxis(tnp.moveaxis(x, axis, 0), 0, axis))
        np.testing.assert_array_equal(np.roll(x, 5, axis), tnp.roll(x, 5, axis))
        np.testing.assert_array_equal(x, tnp.concatenate(tnp.split(x, [1], axis), axis))
        np.testing.assert_array_equal(x, tnp.stack(tnp.unstack(x, axis=axis), axis)
                                      if x.shape[axis] else x)  # fmt: skip


@given(shapes, st.sampled_from("CF"))
def test_reshaping_back(shape, order):
    """Flat and back is the identity, in both orders; the order of elements is NumPy's."""
    x = numbers(shape)
    flat = tnp.reshape(x, (x.size,), order)

    np.testing.assert_array_equal(x.reshape(-1, order=order), flat)
    np.testing.assert_array_equal(x, tnp.reshape(flat, shape, order))
    np.testing.assert_array_equal(x, tnp.squeeze(tnp.expand_dims(x, (0, -1)), (0, -1)))


@given(shapes, shapes)
def test_broadcasting_is_numpy_s(left, right):
    """Both give the same shape, or both refuse."""
    try:
        expected = np.broadcast_shapes(left, right)
    except ValueError:
        with pytest.raises(ValueError, match="broadcast"):
            tnp.add(numbers(left), numbers(right))
        return
    assert expected == tnp.broadcast_shapes(left, right)
    assert expected == tnp.add(numbers(left), numbers(right)).shape
    np.testing.assert_array_equal(
        np.broadcast_to(numbers(left), expected), tnp.broadcast_to(numbers(left), expected)
    )


@given(shapes)
def test_the_adjoint_of_broadcasting_is_summing(shape):
    """Each element is counted as often as it was repeated."""
    x = numbers(shape)
    gradient = tb.grad(lambda v: tnp.broadcast_to(v, (2, *shape)).sum())(x)

    np.testing.assert_array_equal(np.full(shape, 2.0), gradient)


def test_symbolic_sizes_become_arrays():
    """asarray, array and full take a size that is not known yet."""
    x = np.ones((5, 2), np.float32)

    (size, pair, full) = run_symbolic(
        lambda v: [tnp.asarray(v.shape[0]), tnp.array([v.shape[0], 2]), tnp.full(2, v.shape[0])],
        "n, 2",
        x,
    )
    assert 5 == size
    assert [5, 2] == pair.tolist()
    assert [5, 5] == full.tolist()


def test_products_over_symbolic_axes_have_gradients():
    """No division: zeros among the elements do no harm."""
    x = np.array([[1.0, 2.0], [0.0, 3.0], [4.0, 5.0]], np.float32)

    (found,) = run_symbolic(tb.grad(lambda v: tnp.prod(v, 0).sum()), "n, 2", x)
    assert_allclose(found, np.array([[0, 15], [4, 10], [0, 6]]))
