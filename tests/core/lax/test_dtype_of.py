"""lax.dtype: what an operand is."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
from tracebridge.errors import UnsupportedDtypeError


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
