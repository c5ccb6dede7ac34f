"""Transposition of linear Jaxprs."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.core.lax as lax
from tests.strategies import array, run_jaxpr
from tracebridge.core.control.calls.closed_call import closed_call
from tracebridge.core.errors.base import TracebridgeError
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.interpreters.transpose import transpose_jaxpr
from tracebridge.core.ir.aval import ShapedArray

F32 = np.dtype("float32")
VECTOR = ShapedArray((3,), F32)


def test_nonlinear_inputs_come_first() -> None:
    """(nonlinear, cotangents) -> cotangents, with nonlinear equations run forward."""
    jaxpr = stage(lambda a, t: [lax.mul(lax.sin(a), t)], [VECTOR, VECTOR])
    backward, present = transpose_jaxpr(jaxpr, (False, True))
    a, ct = array((3,), 1, "float32"), array((3,), 2, "float32")
    assert (True,) == present
    (got,) = run_jaxpr(backward, a, ct)
    np.testing.assert_allclose(got, np.sin(a) * ct, rtol=1e-6)


def test_cotangents_of_a_value_used_twice_add_up() -> None:
    """t + 2 t, and t as a result itself, give the sum of what comes back."""
    jaxpr = stage(lambda t: [lax.add(t, lax.mul(t, 2.0)), t], [VECTOR])
    backward, _ = transpose_jaxpr(jaxpr, (True,))
    one, two = array((3,), 1, "float32"), array((3,), 2, "float32")
    np.testing.assert_allclose(run_jaxpr(backward, one, two)[0], 3 * one + two, rtol=1e-6)


def test_inputs_without_cotangent() -> None:
    """An unused input gets zeros, or nothing without instantiate."""
    jaxpr = stage(lambda t, u: [lax.neg(t)], [VECTOR, VECTOR])
    ct = array((3,), 1, "float32")
    full, present = transpose_jaxpr(jaxpr, (True, True))
    assert (True, True) == present
    first, second = run_jaxpr(full, ct)
    np.testing.assert_array_equal(np.asarray(first), -ct)
    np.testing.assert_array_equal(np.asarray(second), np.zeros(3))
    small, present = transpose_jaxpr(jaxpr, (True, True), instantiate=False)
    assert (True, False) == present
    assert 1 == len(small.outs)


def test_results_without_cotangent() -> None:
    """A symbolic zero for a result drops all of its work."""
    jaxpr = stage(lambda t: [lax.mul(t, 2.0), lax.mul(t, 3.0)], [VECTOR])
    backward, _ = transpose_jaxpr(jaxpr, (True,), (False, True))
    assert 1 == backward.n_in
    assert 1 == len(backward.equations)
    ct = array((3,), 1, "float32")
    np.testing.assert_allclose(run_jaxpr(backward, ct)[0], 3 * ct, rtol=1e-6)


def test_transposing_twice_is_the_function() -> None:
    """The transpose of the transpose is the linear function."""

    def f(t: object) -> list[object]:
        return [lax.reduce_sum(lax.mul(lax.broadcast_in_dim(t, (2, 3), (1,)), 0.5), (1,))]

    jaxpr = stage(f, [VECTOR])
    back, _ = transpose_jaxpr(jaxpr, (True,))
    again, _ = transpose_jaxpr(back, (True,))
    t = array((3,), 1, "float32")
    np.testing.assert_allclose(run_jaxpr(again, t)[0], run_jaxpr(jaxpr, t)[0], rtol=1e-6)


def test_nonlinear_use_is_an_error() -> None:
    """A function that is not linear in the input is refused, with the name of the operation."""
    jaxpr = stage(lambda t: [lax.sin(t)], [VECTOR])
    with pytest.raises(TracebridgeError, match="sin"):
        transpose_jaxpr(jaxpr, (True,))


def test_equations_that_mix_are_taken_apart_once() -> None:
    """A call with linear and nonlinear results: its effects happen once in the transpose."""

    def both(a: object, t: object) -> list[object]:
        return [lax.sin(a), lax.mul(t, a)]

    inner = stage(both, [VECTOR, VECTOR])

    def outer(a: object, t: object) -> list[object]:
        tb.debug.print("{}", a)
        nonlinear, linear = closed_call(inner, a, t)
        return [lax.mul(nonlinear, linear)]

    backward, present = transpose_jaxpr(stage(outer, [VECTOR, VECTOR]), (False, True))
    a, ct = array((3,), 1, "float32"), array((3,), 2, "float32")
    assert (True,) == present
    assert 1 == len(backward.effects)
    assert 1 == sum([bool(app.effects) for app, _ in backward.equations])
    np.testing.assert_allclose(run_jaxpr(backward, a, ct)[0], np.sin(a) * a * ct, rtol=1e-5)
