"""Powers of integers by integers are those of NumPy, which wrap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint8", "uint32"])
@pytest.mark.parametrize("exponent", [0, 1, 5, 63, 64, 101, 127])
def test_exponents_of_any_number_of_bits(dtype: str, exponent: int) -> None:
    """Those that are written out and those that take a loop."""
    base = np.arange(-5, 6).astype(dtype)
    exponents = np.full(base.shape, exponent, dtype)

    found = np.asarray(tnp.power(tnp.asarray(base), tnp.asarray(exponents)))

    assert found.dtype == base.dtype
    assert found.tolist() == np.power(base, exponents).tolist()


def test_few_and_many_bits_in_one_call() -> None:
    """The largest exponent decides for all, under vmap for each."""
    base, exponents = np.array([2, 3, -1, 5], "int32"), np.array([3, 65, 99, 0], "int32")
    expected = np.power(base, exponents).tolist()
    x, y = tnp.asarray(base), tnp.asarray(exponents)

    assert tnp.power(x, y).tolist() == expected
    assert tb.vmap(tnp.power)(x, y).tolist() == expected
    assert tnp.power(x[:0], y[:0]).shape == (0,)


def test_negative_exponents() -> None:
    """The inverse of 1 and of -1 is one; of all others nothing is left."""
    x, y = tnp.asarray([2, 1, -1, -1, 3]), tnp.asarray([-1, -2, -3, -4, 70])

    assert tnp.power(x, y).tolist()[:4] == [0, 1, -1, 1]


@pytest.mark.parametrize("kind", [np.asarray, tnp.asarray])
def test_whole_powers_of_numpy_arrays_are_products_too(kind: Any) -> None:
    """A complex power by logarithms is exact in neither part, and NaN in both at 0."""
    x = np.array([2j, 1 + 2j, -3j], np.complex64)
    inverse = np.asarray(tnp.power(kind(x), -1))
    at_zero = np.asarray(tnp.power(kind(np.complex64(0)), -1))

    np.testing.assert_array_equal(np.array([-0.5j, 0.2 - 0.4j, 1j / 3], np.complex64), inverse)
    assert np.isinf(at_zero.real)
    assert [-8j, 27j] == np.asarray(tnp.power(kind(x[::2]), np.int32(3))).tolist()
    with pytest.raises(TypeError, match="no negative powers"):
        tnp.power(kind(np.arange(3)), -1)
