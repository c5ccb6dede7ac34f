"""lax.dtype: what an operand is."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
from tracebridge.errors import ExplicitX64Warning, UnsupportedDtypeError


def test_dtype():
    """Numbers have the default dtypes, arrays their own, 64 bits only on request."""
    values = [True, 1, 1.0, 1j, np.float64(1), np.int8(1), tb.numpy.ones(2, "bfloat16")]
    expected = ["bool", "int32", "float32", "complex64", "float32", "int8", "bfloat16"]
    assert expected == [tb.lax.dtype(v).name for v in values]
    with tb.enable_x64():
        assert "float64" == tb.lax.dtype(1.0).name
    assert "float32" == tb.jit(lambda x: x.astype(tb.lax.dtype(x)))(1.0).dtype.name
    with pytest.raises(UnsupportedDtypeError):
        tb.lax.dtype("text")


@pytest.mark.parametrize("of", ["int8", np.int8, np.dtype("int8"), tb.numpy.int8])
def test_dtype_of_what_names_one(of):
    """A dtype, its name and its class stand for themselves; so does the type of an array."""
    assert np.dtype("int8") == tb.lax.dtype(of)
    x = tb.numpy.zeros(3, of)
    assert np.dtype("int8") == tb.lax.dtype(tb.lax.dtype(x))
    assert np.dtype("int8") == tb.lax.dtype(tb.typeof(x))


def test_dtype_of_python_classes():
    """Python's classes have the dtypes of their numbers; 64 bits are narrowed with a warning."""
    classes = [bool, int, float, complex]
    assert [tb.lax.dtype(c(1)) for c in classes] == [tb.lax.dtype(c) for c in classes]
    with pytest.warns(ExplicitX64Warning):
        assert "float32" == tb.lax.dtype(np.float64).name
    with tb.enable_x64():
        assert "float64" == tb.lax.dtype(float).name
        assert "float64" == tb.lax.dtype("float64").name
    for wrong in (object, None, "foo", [1]):
        with pytest.raises(UnsupportedDtypeError):
            tb.lax.dtype(wrong)
