"""scaled_dot: the product of what operands and scales of blocks stand for."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tracebridge as tb
from tracebridge import lax

RANDOM = np.random.default_rng(0)


def narrow(*shape: int) -> Any:
    """Elements of eight bits."""
    return RANDOM.normal(size=shape).astype(ml_dtypes.float8_e4m3fn)


def scales(*shape: int) -> Any:
    """Powers of 2."""
    return (2.0 ** RANDOM.integers(-2, 3, shape)).astype(ml_dtypes.float8_e8m0fnu)


def wide(x: Any, scale: Any, axis: int) -> Any:
    """The numbers that elements and scales stand for."""
    block = x.shape[axis] // scale.shape[axis]
    return x.astype(np.float64) * np.repeat(scale.astype(np.float64), block, axis)


def test_products_are_those_of_the_numbers() -> None:
    """With blocks of different sizes on the two sides; exact up to the sums."""
    x, y, s, t = narrow(2, 3, 64), narrow(2, 64, 4), scales(2, 3, 2), scales(2, 8, 4)
    expected = wide(x, s, 2) @ wide(y, t, 1)

    found = lax.scaled_dot(x, y, lhs_scale=s, rhs_scale=t, preferred_element_type="float32")

    np.testing.assert_allclose(np.asarray(found), expected, 1e-5, 1e-5)
    half = lax.scaled_dot(x, y, lhs_scale=s, rhs_scale=t)
    assert "bfloat16" == half.dtype
    np.testing.assert_allclose(np.asarray(half, np.float64), expected, 2e-2, 5e-2)


def test_axes_and_transformations() -> None:
    """Other axes, one scale alone, vmap, jit, and the derivative in a scale."""
    x, y, s = narrow(64, 3), narrow(64, 4), scales(4, 3)
    numbers = (((0,), (0,)), ((), ()))

    def product(x: Any, s: Any) -> Any:
        return lax.scaled_dot(
            x, y, lhs_scale=s, dimension_numbers=numbers, preferred_element_type="float32"
        )

    expected = wide(x, s, 0).T @ y.astype(np.float64)
    np.testing.assert_allclose(np.asarray(tb.jit(product)(x, s)), expected, 1e-5, 1e-5)
    rows = tb.vmap(product, (1, 1))(x[:, :, None], s[:, :, None])
    np.testing.assert_allclose(np.asarray(rows)[:, 0], expected, 1e-5, 1e-5)
    slopes = tb.grad(lambda s: product(x, s).sum())(s.astype(np.float32))
    sums = (x.astype(np.float64) * y.astype(np.float64).sum(1)[:, None]).reshape(4, 16, 3).sum(1)
    np.testing.assert_allclose(np.asarray(slopes), sums, 2e-2, 5e-2)


X, Y = np.ones((3, 8)), np.ones((8, 2))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: lax.scaled_dot(X[0], Y), "at least 2"),
        (lambda: lax.scaled_dot(X, Y, lhs_scale=np.ones((3, 3))), "divides 8 into blocks"),
        (lambda: lax.scaled_dot(X, Y, lhs_scale=np.ones((3, 8))), "divides 8 into blocks"),
        (lambda: lax.scaled_dot(X, Y, rhs_scale=np.ones((2, 1))), "axis 1 of the size 2"),
        (lambda: lax.scaled_dot(X, Y, rhs_scale=np.ones(2)), "as many axes"),
    ],
)
def test_errors(call: Any, words: str) -> None:
    """Scales have to be parts of the shape."""
    with pytest.raises(ValueError, match=words):
        call()
