"""Dead code elimination."""

from __future__ import annotations

from typing import Any

import numpy as np

import tracebridge as tb
import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tests.core.interpreters.effectful import noisy_p
from tests.equations import primitives_in
from tests.strategies import array, run_jaxpr
from tracebridge.core.interpreters.dce import dce_jaxpr
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import ShapedArray

F32 = np.dtype("float32")
VECTOR = ShapedArray((3,), F32)


def two_results(x: Any, y: Any) -> list[Any]:
    """One result per argument, and a shared constant."""
    return [lax.mul(lax.sin(x), 2.0), lax.add(lax.exp(y), 2.0)]


def test_unused_results_take_their_equations_inputs_and_constants() -> None:
    """Each result alone needs its own input."""
    jaxpr = stage(two_results, [VECTOR, VECTOR])
    first, used = dce_jaxpr(jaxpr, (True, False))
    assert ["sin", "mul"] == primitives_in(first)
    assert (True, False) == used
    assert 1 == first.n_in
    x = array((3,), 1, "float32")
    np.testing.assert_allclose(run_jaxpr(first, x)[0], 2 * np.sin(x), rtol=1e-6)
    second, used = dce_jaxpr(jaxpr, (False, True))
    assert ["exp", "add"] == primitives_in(second)
    assert (False, True) == used


def test_keep_in_keeps_inputs() -> None:
    """The inputs stay where the caller wants the same signature; the report says what is used."""
    smaller, used = dce_jaxpr(stage(two_results, [VECTOR, VECTOR]), (True, False), keep_in=True)
    assert 2 == smaller.n_in
    assert (True, False) == used


def test_nothing_used_is_the_empty_program() -> None:
    """No result, no equation, no input."""
    smaller, used = dce_jaxpr(stage(two_results, [VECTOR, VECTOR]), (False, False))
    assert () == smaller.equations + smaller.outs + smaller.consts
    assert (False, False) == used


def test_effects_stay() -> None:
    """An equation with an effect is never dead."""

    def f(x: Any) -> list[Any]:
        noisy_p.bind(lax.exp(x))
        return [lax.sin(x)]

    jaxpr = stage(f, [VECTOR])
    smaller, used = dce_jaxpr(jaxpr, (False,))
    assert ["exp", noisy_p.name] == primitives_in(smaller)
    assert jaxpr.effects == smaller.effects
    assert 1 == len(smaller.effects)
    assert (True,) == used


def test_calls_shrink_inside() -> None:
    """A call gives up the results, the operands and the equations that nobody needs."""
    inner = tb.jit(lambda x, y: (tnp.sin(x), tnp.exp(y)))
    jaxpr = tb.make_jaxpr(inner)(*[np.ones(3, F32)] * 2).jaxpr
    smaller, used = dce_jaxpr(jaxpr, (True, False))
    assert (True, False) == used
    ((call, variables),) = smaller.equations
    assert 1 == len(call.outs)
    assert (0,) == variables
    assert ["sin"] == primitives_in(call.params["jaxpr"])


def test_loops_shrink_their_carry() -> None:
    """A carry of scan that feeds no used result disappears from the loop."""

    def f(xs: Any) -> Any:
        def body(c: Any, x: Any) -> Any:
            a, b = c
            return (a + x, tnp.cos(b) * x), tnp.sin(a)

        (a, b), ys = tb.lax.scan(body, (0.0, 1.0), xs)
        return a, b, ys

    xs = array((4,), 1, "float32")
    jaxpr = tb.make_jaxpr(f)(xs).jaxpr
    smaller, _ = dce_jaxpr(jaxpr, (True, False, True))
    assert "cos" in str(jaxpr)
    assert "cos" not in str(smaller)
    total, ys = run_jaxpr(smaller, xs)
    np.testing.assert_allclose(total, np.sum(xs), rtol=1e-6)
    expected = np.sin(np.cumsum(np.concatenate([[0.0], xs[:-1]])))
    np.testing.assert_allclose(ys, expected, rtol=1e-5, atol=1e-6)


def test_effects_go_from_loops_of_programs_that_repeat_others() -> None:
    """Without ``keep_effects`` callbacks inside of a loop are dropped with those beside it."""

    def f(xs: Any) -> Any:
        def body(c: Any, x: Any) -> Any:
            tb.debug.callback(print, x)
            return c + x, None

        return tb.lax.scan(body, 0.0, xs)[0]

    xs = array((4,), 1, "float32")
    jaxpr = tb.make_jaxpr(f)(xs).jaxpr
    kept, _ = dce_jaxpr(jaxpr, (True,))
    quiet, _ = dce_jaxpr(jaxpr, (True,), keep_effects=False)
    assert kept.effects
    assert not quiet.effects
    np.testing.assert_allclose(run_jaxpr(quiet, xs), [np.sum(xs)], rtol=1e-6)
