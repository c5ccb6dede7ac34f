"""Staged functions: one body per kind of argument, one executable per signature."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.runtime.calls.staged_functions import (
    StagedFunction,
    binary,
    unary_with_statics,
)


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


def test_exact_statics_are_told_apart_on_the_short_path() -> None:
    """1, 1.0 and True are equal, 0.0 and -0.0 too; each has a program of its own, kept."""

    def add_zeros(x, static):
        return lax.add(x, lax.full(x.aval.shape, repr(static).count("0"), x.aval.dtype))

    function = StagedFunction(add_zeros, exact=True)
    x = tnp.zeros(2, np.int32)
    for _ in range(2):
        for static, zeros in ((1, 0), (1.0, 1), (True, 0), (0.0, 2), (-0.0, 2)):
            assert [zeros] * 2 == function((x,), (static,)).tolist()
    assert 5 == len(function.runs)
    call = unary_with_statics(function)
    assert [1, 1] == call(x, (1.0,)).tolist()
    assert 5 == len(function.runs)


def test_numbers_and_ndarrays_find_their_program_again() -> None:
    """Also among several operands; numbers of one type share it."""

    def add_three(x, y, z):
        shape, dtype = x.aval.shape, x.aval.dtype
        y, z = [
            v if v.aval.ndim else lax.broadcast_in_dim(lax.convert_dtype(v, dtype), shape, ())
            for v in (y, z)
        ]
        return lax.add(lax.add(x, y), z)

    function = StagedFunction(add_three)
    x = tnp.ones(3)
    for y in (1.0, 2.0, np.ones(3, np.float32), x):
        assert [y + 4.0 if isinstance(y, float) else 5.0] * 3 == function((x, y, 3.0)).tolist()
    assert 2 == len(function.runs)
