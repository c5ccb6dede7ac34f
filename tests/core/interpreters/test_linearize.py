"""Linearization: the primal runs once, residuals are what the linear part needs."""

from __future__ import annotations

from typing import Any

import numpy as np

import tracebridge as tb
import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tests.equations import equations_of
from tests.strategies import run_jaxpr
from tracebridge.core.interpreters.linearize import linearize_flat, linearize_jaxpr
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.ir.typeof import as_value

F32 = np.dtype("float32")
VECTOR = ShapedArray((3,), F32)


def count(jaxpr: Any, name: str) -> int:
    """How many equations of a primitive a Jaxpr has."""
    return len(equations_of(jaxpr, name))


def numbers() -> Any:
    """An argument."""
    return as_value(np.linspace(0.5, 1.5, 3, dtype=F32))


def test_function_is_called_once() -> None:
    """Linearizing calls the function once, and pushing tangents never calls it again."""
    calls: list[int] = []

    def f(x: Any) -> Any:
        calls.append(1)
        return tnp.exp(tnp.sin(x))

    _, push = tb.linearize(f, numbers())
    for _ in range(3):
        push(numbers())
    assert 1 == len(calls)


def test_primal_is_computed_once() -> None:
    """The traced gradient has one exp, though value and derivative both need it."""
    jaxpr = tb.make_jaxpr(tb.value_and_grad(lambda x: tnp.sum(tnp.exp(tnp.sin(x)))))(numbers())
    assert 1 == count(jaxpr.jaxpr, "exp")
    assert 1 == count(jaxpr.jaxpr, "sin")


def test_tape_holds_linear_equations_only() -> None:
    """The tape of sin(x) * y + z has no sin: that ran when it was recorded."""
    x = numbers()
    outs, linear = linearize_flat(lambda x, y, z: [lax.add(lax.mul(lax.sin(x), y), z)], [x, x, x])
    assert "sin" not in {app.primitive.name for app, *_ in linear.tape}
    (tangent,) = linear.forward(current_trace().process, [x, x, x])
    expected = np.cos(x) * x * x + np.sin(x) * x + x
    np.testing.assert_allclose(tangent, expected, rtol=1e-6)
    np.testing.assert_allclose(outs[0], np.sin(x) * x + x, rtol=1e-6)


def test_inactive_arguments_have_no_tangent() -> None:
    """Results that depend on inactive arguments alone have a symbolic zero."""
    x = numbers()
    _, linear = linearize_flat(lambda x, y: [lax.sin(x), lax.sin(y)], [x, x], [True, False])
    assert [VECTOR] == linear.in_avals
    given, zero = linear.forward(current_trace().process, [x])
    np.testing.assert_allclose(given, np.cos(x) * x, rtol=1e-6)
    assert zero is None


def test_residuals_of_a_jaxpr() -> None:
    """An input that is a residual is forwarded; sin(x) * y keeps x's cosine, y and the sine."""
    jaxpr = stage(lambda x, y: [lax.mul(lax.sin(x), y)], [VECTOR, VECTOR])
    split = linearize_jaxpr(jaxpr, (True, True))
    assert (1,) == split.forwarded
    assert 2 == split.n_residuals
    assert (True,) == split.nonzero_out
    assert 1 == count(split.primal, "sin")
    assert 0 == count(split.linear, "sin") + count(split.linear, "cos")


def test_no_residual_for_what_is_linear() -> None:
    """A linear function needs no residual at all."""
    split = linearize_jaxpr(stage(lambda x: [lax.neg(lax.add(x, x))], [VECTOR]), (True,))
    assert 0 == split.n_residuals
    assert () == split.forwarded


def test_residuals_of_dead_results_are_not_kept() -> None:
    """A result without a tangent costs no residual; instantiate gives it a zero one."""
    jaxpr = stage(lambda x, y: [lax.sin(x), lax.exp(y)], [VECTOR, VECTOR])
    split = linearize_jaxpr(jaxpr, (True, False))
    assert (True, False) == split.nonzero_out
    assert 1 == split.n_residuals + len(split.forwarded)
    full = linearize_jaxpr(jaxpr, (True, False), instantiate=True)
    assert (True, True) == full.nonzero_out
    out = run_jaxpr(full.primal, numbers(), numbers())
    _, zero = run_jaxpr(full.linear, *out[2:], numbers())
    assert [0.0, 0.0, 0.0] == np.asarray(zero).tolist()


def test_linearization_is_remembered() -> None:
    """Asking twice gives the same object; it lives with the Jaxpr."""
    jaxpr = stage(lambda x: [lax.sin(x)], [VECTOR])
    assert linearize_jaxpr(jaxpr, (True,)) is linearize_jaxpr(jaxpr, (True,))
