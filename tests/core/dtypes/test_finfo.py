"""Limits of floating and integer dtypes."""

from __future__ import annotations

import numpy as np
import pytest

from tracebridge.core.dtypes import dtypes as d
from tracebridge.core.dtypes.finfo import finfo, iinfo


@pytest.mark.parametrize("dtype", sorted(d.floats, key=str), ids=str)
def test_finfo(dtype):
    """The greatest number is finite, and eps is the step after 1."""
    info = finfo(dtype)

    assert d.itemsize_bits(dtype) == info.bits
    assert np.isfinite(np.asarray(info.max, dtype).astype(np.float64))
    if dtype != d.float8_e8m0fnu:  # it has powers of two only: no number lies next to 1
        one = np.asarray(1, dtype)
        assert float(np.nextafter(one, np.asarray(2, dtype)) - one) == float(info.eps)


def test_finfo_of_complex():
    """A complex dtype has the limits of its real part."""
    assert np.finfo(np.float32).max == finfo("complex64").max


@pytest.mark.parametrize("dtype", sorted(d.integers, key=str), ids=str)
def test_iinfo(dtype):
    """The limits are those of two's complement."""
    bits = d.itemsize_bits(dtype)
    expected = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if d.is_signed(dtype) else (0, 2**bits - 1)

    assert expected == (int(iinfo(dtype).min), int(iinfo(dtype).max))


def test_an_int_has_the_limits_of_64_bits():
    """As in NumPy, whatever the default integer is."""
    assert iinfo("int64").max == iinfo(3).max


def test_wrong_kind():
    """Each function points to the other."""
    with pytest.raises(ValueError, match="call iinfo"):
        finfo("int8")
    with pytest.raises(ValueError, match="call finfo"):
        iinfo("float32")


def test_limits_are_instances():
    """What the classes make is an instance of them, and of no other; they stay NumPy's objects."""
    floats = [finfo(name) for name in ("float32", "bfloat16", "float8_e5m2")]
    integers = [iinfo(name) for name in ("int8", "int4", "uint64")]

    assert all(isinstance(made, finfo) and not isinstance(made, iinfo) for made in floats)
    assert all(isinstance(made, iinfo) and not isinstance(made, finfo) for made in integers)
    assert issubclass(np.finfo, finfo)
    assert isinstance(finfo("float64"), np.finfo)
