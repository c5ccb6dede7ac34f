"""Inlining of calls."""

from __future__ import annotations

import numpy as np

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.equations import primitives_in
from tests.strategies import array, run_jaxpr
from tracebridge.core.interpreters.inline import inline_calls


def test_nested_calls_disappear() -> None:
    """Calls in calls become the equations of the innermost ones, in order."""
    inner = tb.jit(lambda x: tnp.sin(x) * 2.0)
    outer = tb.jit(lambda x, y: inner(inner(x)) + y)
    x, y = array((3,), 1, "float32"), array((3,), 2, "float32")
    jaxpr = tb.make_jaxpr(lambda x, y: (outer(x, y), x))(x, y).jaxpr
    flat = inline_calls(jaxpr)
    assert ["jit"] == primitives_in(jaxpr)
    assert ["sin", "mul", "sin", "mul", "add"] == primitives_in(flat)
    total, same = run_jaxpr(flat, x, y)
    np.testing.assert_allclose(total, 2 * np.sin(2 * np.sin(x)) + y, rtol=1e-6)
    np.testing.assert_array_equal(np.asarray(same), x)


def test_closed_over_arrays_survive() -> None:
    """Constants of inner programs are constants of the flat one."""
    table = tnp.arange(3.0)
    call = tb.jit(lambda x: x * table)
    x = array((3,), 1, "float32")
    flat = inline_calls(tb.make_jaxpr(lambda x: call(x) + table)(x).jaxpr)
    np.testing.assert_allclose(run_jaxpr(flat, x)[0], (x + 1) * np.arange(3), rtol=1e-6)


def test_results_that_nobody_needs_are_dropped() -> None:
    """Inlining stages anew, so the dead part of a call goes."""
    call = tb.jit(lambda x: (tnp.sin(x), tnp.exp(x)))
    flat = inline_calls(tb.make_jaxpr(lambda x: call(x)[0])(1.0).jaxpr)
    assert ["sin"] == primitives_in(flat)


def test_loops_stay() -> None:
    """Only calls are inlined; a loop is one equation still."""
    jaxpr = tb.make_jaxpr(lambda x: tb.lax.fori_loop(0, 3, lambda _, c: tnp.sin(c), x))(1.0).jaxpr
    assert primitives_in(jaxpr) == primitives_in(inline_calls(jaxpr))


def test_result_is_remembered() -> None:
    """The flat program is made once."""
    jaxpr = tb.make_jaxpr(tb.jit(tnp.sin))(1.0).jaxpr
    assert inline_calls(jaxpr) is inline_calls(jaxpr)
