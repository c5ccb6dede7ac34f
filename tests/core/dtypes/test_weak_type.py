"""What Python scalars, NumPy values and arrays bring into promotion."""

from __future__ import annotations

import enum

import numpy as np
import pytest

from tracebridge.core.config import option_scopes
from tracebridge.core.dtypes import dtypes as d
from tracebridge.core.dtypes import weak_type as w


class Color(enum.IntEnum):
    """An int that is no int."""

    RED = 1


class Aval:
    """What a traced value knows."""

    def __init__(self, dtype, weak_type):
        self.dtype = dtype
        self.weak_type = weak_type


class Traced:
    """A value with an aval."""

    __slots__ = ("aval",)

    def __init__(self, dtype, weak_type):
        self.aval = Aval(dtype, weak_type)


class Foreign:
    """An array of another library: a dtype and nothing else."""

    dtype = d.float64


@pytest.mark.parametrize(
    ("scalar", "x32", "x64"),
    [
        (bool, (d.bool_, False), (d.bool_, False)),
        (int, (d.int32, True), (d.int64, True)),
        (float, (d.float32, True), (d.float64, True)),
        (complex, (d.complex64, True), (d.complex128, True)),
        (Color, (d.int32, True), (d.int64, True)),
    ],
)
def test_scalar_dtype(scalar, x32, x64):
    """Numbers are weak, booleans are not."""
    with option_scopes.enable_x64(False):
        assert x32 == w.scalar_dtype(scalar)
    with option_scopes.enable_x64(True):
        assert x64 == w.scalar_dtype(scalar)


def test_scalar_dtype_of_other_classes():
    """Only Python's scalar classes and their subclasses have one."""
    with pytest.raises(TypeError, match="str is no Python scalar class"):
        w.scalar_dtype(str)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, (d.bool_, False)),
        (3, (d.int32, True)),
        (Color.RED, (d.int32, True)),
        (2.5, (d.float32, True)),
        (1j, (d.complex64, True)),
        (np.float64(1), (d.float32, False)),
        (np.int8(1), (d.int8, False)),
        (np.ones(2), (d.float32, False)),
        (np.zeros(2, d.float0), (d.float0, False)),
        (Traced(d.float64, False), (d.float64, False)),
        (Traced(d.float32, True), (d.float32, True)),
        (Foreign(), (d.float64, False)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_pair_of(value, expected):
    """NumPy values follow the 64-bit rule, arrays of the engine and others keep their dtype."""
    with option_scopes.enable_x64(False):
        assert expected == w.pair_of(value)
        assert expected[0] == w.dtype_of(value)
        assert expected[1] == w.is_weak(value)


@pytest.mark.parametrize("value", [[1, 2], "text", None])
def test_pair_of_no_value(value):
    """Containers are not arrays; the message names the class."""
    with pytest.raises(TypeError, match=type(value).__name__):
        w.pair_of(value)


def test_is_python_scalar():
    """NumPy's float64 is a Python float by inheritance only."""
    assert w.is_python_scalar(1.5)
    assert not w.is_python_scalar(np.float64(1.5))
    assert not w.is_python_scalar(np.ones(()))
