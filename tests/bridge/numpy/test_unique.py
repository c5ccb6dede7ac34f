"""unique with a size, and NaNs along an axis."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp

X = np.array([1, 2, 1, 3, 2, 2])


@pytest.mark.parametrize("wrap", [lambda f: f, tb.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("dtype", ["int32", "float32"])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_counts_of_values_that_are_left_out(size, dtype, wrap):
    """The last value counts its own elements alone, however many values follow."""
    expected, counts = np.unique(X, return_counts=True)
    padding = max(0, size - expected.size)

    def unique(x):
        return tnp.unique(x, return_counts=True, size=size, fill_value=-1)

    values, found = wrap(unique)(X.astype(dtype))
    assert [*expected[:size], *[-1] * padding] == values.tolist()
    assert [*counts[:size], *[0] * padding] == found.tolist()


@pytest.mark.parametrize("axis", [None, 0])
@pytest.mark.parametrize(("equal_nan", "counts"), [(True, [1, 2]), (False, [1, 1, 1])])
def test_nans_of_a_vector(axis, equal_nan, counts):
    """They are one value or not, also where the axis is given."""
    x = tnp.array([np.nan, 2.0, np.nan])

    assert counts == tnp.unique(x, return_counts=True, axis=axis, equal_nan=equal_nan)[1].tolist()
