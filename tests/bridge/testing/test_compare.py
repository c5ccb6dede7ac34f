"""assert_allclose compares structures, shapes, dtypes and elements."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tracebridge.core.ir.typeof import as_value
from tracebridge.testing import assert_allclose, default_tolerance


def test_tolerances_grow_with_the_rounding_error() -> None:
    """Coarser dtypes forgive more; integers nothing."""
    found = [default_tolerance(t) for t in ("int8", "float64", "float32", "float16", "bfloat16")]

    assert found == sorted(found)
    assert found[0] == 0.0


def test_engine_arrays_and_trees_are_compared() -> None:
    """Leaves may be engine arrays, NumPy arrays and scalars."""
    x = as_value(np.array([1.0, 2.0], np.float32))

    assert_allclose({"a": x, "b": [x]}, {"a": np.array([1.0, 2.0]), "b": [x]})


@pytest.mark.parametrize(
    ("actual", "expected", "text"),
    [
        ([1, 2], [1], "structures differ"),
        (np.zeros(2), np.zeros((2, 1)), "shapes differ"),
        (np.float32(1.0), np.float32(1.001), "Not equal to tolerance"),
        (np.int32(1), np.int32(2), "Not equal to tolerance"),
        (np.float64(np.nan), np.float64(1.0), "nan"),
    ],
)
def test_differences_fail(actual: object, expected: object, text: str) -> None:
    """Each kind of difference is an AssertionError that names it."""
    with pytest.raises(AssertionError, match=text):
        assert_allclose(actual, expected)


def test_dtypes_are_compared_on_request() -> None:
    """check_dtype makes float32 differ from float64."""
    assert_allclose(np.float32(1), np.float64(1))
    with pytest.raises(AssertionError, match="dtypes differ"):
        assert_allclose(np.float32(1), np.float64(1), check_dtype=True)


def test_narrow_dtypes_are_compared() -> None:
    """bfloat16, float8 and int4, which NumPy cannot compare itself, are widened."""
    for dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.int4):
        x, y = np.array([1, 2]).astype(dtype), np.array([1, -2]).astype(dtype)
        assert_allclose(x, x)
        with pytest.raises(AssertionError, match="Not equal"):
            assert_allclose(x, y)


def test_tolerances_may_differ_by_dtype() -> None:
    """Of a dict the larger one of those of the two dtypes counts; others have their own."""
    tolerances = {"float32": 1e-2, np.float64: 1e-4}
    one, near = np.float32(1), np.float32(1.005)

    assert_allclose({"a": one}, {"a": np.float64(1.005)}, rtol=tolerances, atol=0.0)
    assert_allclose(one, near, rtol=0.0, atol=tolerances)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_allclose(np.float64(1), np.float64(1.005), rtol=tolerances, atol=tolerances)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_allclose(np.int32(1), np.int32(2), rtol=tolerances, atol=tolerances)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_allclose(one, near, rtol={"int8": 1.0}, atol={})
