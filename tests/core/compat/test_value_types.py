"""Types of users whose objects are operands."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.errors import UnsupportedDtypeError
from tracebridge.interpreters import xla


class Box:
    """Holds an array, which NumPy can see."""

    def __init__(self, x):
        self.x = np.asarray(x, np.float32)

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.x, dtype)


class Celsius:
    """A temperature."""

    def __init__(self, degrees):
        self.degrees = degrees


@pytest.fixture
def boxes():
    xla.canonicalize_dtype_handlers[Box] = xla.canonicalize_dtype_handlers[np.ndarray]
    tb.core.pytype_aval_mappings[Box] = tb.core.pytype_aval_mappings[np.ndarray]
    yield
    del tb.core.pytype_aval_mappings[Box]
    del xla.canonicalize_dtype_handlers[Box]


@pytest.mark.usefixtures("boxes")
def test_objects_like_arrays():
    """They can be operands of operations, functions and transformations."""
    box = Box([1.0, 2.0])
    for f in (tb.lax.neg, tnp.negative, tb.jit(lambda x: -x), tb.vmap(lambda x: -x)):
        np.testing.assert_array_equal([-1, -2], f(box))
    np.testing.assert_array_equal([2, 4], tb.grad(lambda x: tnp.sum(x * x))(box))
    np.testing.assert_array_equal([2, 3], tb.jit(lambda x: x + 1)(box))
    assert tb.typeof(box) == tb.core.pytype_aval_mappings[Box](box)
    assert (2,) == tb.eval_shape(lambda x: x, box).shape


@pytest.mark.usefixtures("boxes")
def test_programs_are_those_of_arrays():
    """No object of the user is kept: the next one finds the same program."""
    calls = []
    f = tb.jit(lambda x: calls.append(x.shape) or x * 2)
    for x in (Box([1.0, 2.0]), np.ones(2, np.float32), Box([3.0, 4.0])):
        np.testing.assert_array_equal(2 * np.asarray(x), f(x))
    assert [(2,)] == calls


def test_conversions_of_ones_own():
    """The function makes a number, an array, or something else that is an operand."""
    for make in (float, np.float32, tnp.float32):
        xla.canonicalize_dtype_handlers[Celsius] = lambda x, make=make: make(x.degrees + 273)
        try:
            assert Celsius in xla.canonicalize_dtype_handlers
            assert 600.0 == tb.jit(lambda x: 2 * x)(Celsius(27))
        finally:
            del xla.canonicalize_dtype_handlers[Celsius]


def test_types_that_end():
    """Without an entry objects are refused as ever."""
    assert Celsius not in xla.canonicalize_dtype_handlers
    with pytest.raises(KeyError):
        xla.canonicalize_dtype_handlers[Celsius]
    with pytest.raises(UnsupportedDtypeError):
        tnp.sin(Celsius(1))
    assert {int, float, np.ndarray} <= set(xla.canonicalize_dtype_handlers)
    assert len(list(tb.core.pytype_aval_mappings)) == len(tb.core.pytype_aval_mappings)
