"""Staged functions: one body per kind of argument, one executable per signature."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.runtime.calls.staged_functions import StagedFunction, binary


def counting():
    """A staged function that counts how often its Python code runs."""
    runs: list[int] = []

    def body(x, y):
        runs.append(1)
        return lax.add(lax.mul(x, x), lax.convert_dtype(y, x.aval.dtype))

    return binary(StagedFunction(body, "counted")), runs


def test_a_body_is_staged_once_per_kind_of_argument():
    """New values and new Python scalars run no Python code of the function."""
    f, runs = counting()
    x = tnp.arange(3.0)
    for value in (1.0, 2.0, -0.0, math.nan):
        f(x, value)
        f(x + value, value)

    assert len(runs) == 1


def test_scalars_keep_their_values_apart():
    """0.0 and -0.0, 1 and True and 1.0 are different operands of one body or of their own."""
    one = tnp.ones(2)

    assert np.signbit(np.asarray(one * 0.0)).tolist() == [False, False]
    assert np.signbit(np.asarray(one * -0.0)).tolist() == [True, True]
    assert np.signbit(np.asarray(one * 0.0)).tolist() == [False, False]
    assert np.dtype("int32") == (tnp.arange(2) + True).dtype
    assert np.dtype("int32") == (tnp.arange(2) + 1).dtype
    assert np.dtype("float32") == (tnp.arange(2) + 1.0).dtype


def test_a_python_scalar_costs_no_conversion_in_the_program():
    """The literal stands in the equation in the dtype of the array."""
    text = str(tb.make_jaxpr(lambda x: x * 2)(tnp.arange(2.0)))

    assert "convert_element_type" not in text
    assert "2.0:f32[]" in text


def test_integers_that_do_not_fit_are_refused():
    """A Python integer is never wrapped silently."""
    with pytest.raises(OverflowError, match="int32"):
        tnp.arange(3) + 2**40
    with pytest.raises(OverflowError, match="int32"):
        tb.jit(lambda x: x + 2**40)(tnp.arange(3))


def test_thread_scoped_options_have_bodies_of_their_own():
    """A body made with 64-bit types is not used without them."""
    with tb.enable_x64(True):
        assert np.dtype("float64") == tnp.sqrt(tnp.arange(3)).dtype
    assert np.dtype("float32") == tnp.sqrt(tnp.arange(3)).dtype
