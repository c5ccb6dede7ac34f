"""Control flow of Python on values that are differentiated: they are known outside of jit."""

from __future__ import annotations

import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.errors import (
    ConcretizationTypeError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
)


def powers(x):
    """x to the power of its integer part, doubled unless x is 0."""
    y = 1.0
    for _ in range(int(x)):
        y = y * x
    return 2.0 * y if x else y


def test_truth_and_integer_part():
    """Each derivative is that of the branch and the loop that Python took."""
    assert float(tb.grad(powers)(3.5)) == 2 * 3 * 3.5**2
    assert tb.jvp(powers, (3.5,), (1.0,))[1] == 2 * 3 * 3.5**2
    assert float(tb.grad(tb.grad(powers))(3.5)) == 2 * 3 * 2 * 3.5
    assert float(tb.jacfwd(tb.grad(powers))(0.0)) == 0.0
    assert float(tb.vjp(powers, 2.5)[1](1.0)[0]) == 2 * 2 * 2.5


def test_no_conversions_that_lose_derivatives():
    """A float made of a value would be a constant of differentiation."""
    for convert in (float, complex, lambda x: x.tolist()):
        with pytest.raises(ConcretizationTypeError):
            tb.grad(lambda x, convert=convert: abs(x * convert(x)))(3.0)


def test_unknown_under_jit_and_vmap():
    """There the values are not known, also where they are differentiated inside."""
    inside = lambda x: tb.vjp(lambda y: 2.0 * y if y else y, x)[0]
    for around in (lambda: tb.jit(inside)(1.0), lambda: tb.vmap(inside)(tnp.ones(2))):
        with pytest.raises(TracerBoolConversionError):
            around()
    with pytest.raises(ConcretizationTypeError, match=r"int\(\) was called"):
        tb.grad(tb.jit(lambda x: x * int(x)))(2.0)
    with pytest.raises(TracerIntegerConversionError):
        tb.jit(lambda x: range(x))(3)
