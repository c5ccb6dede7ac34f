"""Staging: what a traced program keeps, drops and closes over."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tests.core.interpreters.effectful import noisy_p
from tests.equations import primitives_in
from tests.strategies import run_jaxpr
from tracebridge.core.errors.tracer_errors import UnexpectedTracerError
from tracebridge.core.interpreters.staging import close_jaxpr, stage
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.values import Literal

F32 = np.dtype("float32")
VECTOR = ShapedArray((3,), F32)


def test_dead_equations_are_dropped() -> None:
    """Equations that no result needs are not part of the program."""

    def f(x: Any) -> list[Any]:
        lax.exp(lax.cos(x))
        return [lax.sin(x)]

    assert ["sin"] == primitives_in(stage(f, [VECTOR]))


def test_equations_with_effects_stay() -> None:
    """An effect keeps an equation that gives nothing to the results."""

    def f(x: Any) -> list[Any]:
        noisy_p.bind(lax.exp(x))
        return [x]

    jaxpr = stage(f, [VECTOR])
    assert ["exp", noisy_p.name] == primitives_in(jaxpr)
    assert 1 == len(jaxpr.effects)


def test_equations_keep_their_order_and_sharing() -> None:
    """A value used twice is computed once; slots refer back to inputs, constants and results."""

    def f(x: Any, y: Any) -> list[Any]:
        s = lax.sin(x)
        return [lax.mul(s, s), lax.add(s, y), y]

    jaxpr = stage(f, [VECTOR, VECTOR])
    assert ["sin", "mul", "add"] == primitives_in(jaxpr)
    assert [(0,), (2, 2), (2, 1)] == [variables for _, variables in jaxpr.equations]
    assert (3, 4, 1) == jaxpr.outs


def test_constants_are_shared_and_literals_are_told_apart() -> None:
    """One array is one constant however often it is used; numbers are Literals."""
    table = tnp.arange(3.0)

    def f(x: Any) -> list[Any]:
        return [lax.mul(lax.add(x, table), table), lax.mul(x, 2.0)]

    jaxpr = stage(f, [VECTOR])
    arrays = [c for c in jaxpr.consts if type(c) is not Literal]
    assert 1 == len(arrays)
    assert table is arrays[0]
    assert [2.0] == [c.value for c in jaxpr.consts if type(c) is Literal]


def test_close_jaxpr_makes_arrays_leading_inputs() -> None:
    """Array constants become inputs in front, Literals stay; the results are the same."""
    one, two = tnp.arange(3.0), tnp.ones(3)

    def f(x: Any, y: Any) -> list[Any]:
        return [lax.add(lax.mul(lax.mul(x, 3.0), one), lax.sub(y, two)), two, y]

    jaxpr = stage(f, [VECTOR, VECTOR])
    closed, hoisted = close_jaxpr(jaxpr)
    assert {id(one), id(two)} == {id(h) for h in hoisted}
    assert 4 == closed.n_in
    assert all(type(c) is Literal for c in closed.consts)
    x, y = np.full(3, 2.0, F32), np.full(3, 5.0, F32)
    expected = run_jaxpr(jaxpr, x, y)
    for a, b in zip(expected, run_jaxpr(closed, *hoisted, x, y), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_close_jaxpr_without_arrays_is_the_jaxpr() -> None:
    """There is nothing to do for a program whose constants are numbers."""
    jaxpr = stage(lambda x: [lax.mul(x, 2.0)], [VECTOR])
    closed, hoisted = close_jaxpr(jaxpr)
    assert jaxpr is closed
    assert [] == hoisted


def test_values_of_an_enclosing_trace_are_constants() -> None:
    """An inner program closes over outer tracers; close_jaxpr hands them back."""
    inner: list[Any] = []

    def outer(x: Any) -> list[Any]:
        jaxpr = stage(lambda y: [lax.mul(x, y)], [VECTOR])
        inner.append(close_jaxpr(jaxpr))
        return [inner[0][1][0]]

    jaxpr = stage(outer, [VECTOR])
    closed, _ = inner[0]
    assert 2 == closed.n_in
    assert () == closed.consts
    assert (0,) == jaxpr.outs


def test_an_input_or_constant_can_be_a_result() -> None:
    """Results need no equation."""
    table = tnp.ones(2)
    jaxpr = stage(lambda x: [x, table, 1.5, x], [VECTOR])
    assert () == jaxpr.equations
    assert 4 == len(jaxpr.outs)
    got = run_jaxpr(jaxpr, np.arange(3, dtype=F32))
    assert [0.0, 1.0, 2.0] == np.asarray(got[0]).tolist()
    assert [1.0, 1.0] == np.asarray(got[1]).tolist()


def test_a_failed_trace_leaves_nothing_behind() -> None:
    """After an error the thread evaluates at once again, and the tracer is dead."""
    kept: list[Any] = []

    def f(x: Any) -> list[Any]:
        kept.append(x)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        stage(f, [VECTOR])
    assert 2.0 == float(tnp.add(1.0, 1.0))
    with pytest.raises(UnexpectedTracerError):
        kept[0] + 1.0
