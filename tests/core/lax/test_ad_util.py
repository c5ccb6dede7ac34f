"""stop_gradient is the identity and hides its operand from differentiation."""

from __future__ import annotations

import numpy as np

import tracebridge as tb
from tests.equations import primitives_in
from tracebridge import lax
from tracebridge.testing import check_rules


def test_value_and_batching() -> None:
    """The value, eager and compiled, mapped and not."""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)

    check_rules(lax.stop_gradient, x, reference=lambda x: x, order=0)
    array = tb.device_put(x)
    assert lax.stop_gradient(array) is array


def test_there_is_no_derivative() -> None:
    """Forward and reverse mode, first and second order, inside and outside jit."""
    x = np.float32(3.0)

    def f(x: object) -> object:
        return lax.mul(x, lax.stop_gradient(lax.mul(x, x)))

    for g in (f, tb.jit(f)):
        assert 9.0 == float(tb.grad(g)(x))
        assert 9.0 == float(tb.jvp(g, (x,), (np.float32(1),))[1])
        assert 0.0 == float(tb.grad(tb.grad(g))(x))
    assert 0.0 == float(tb.grad(lax.stop_gradient)(x))


def test_trees() -> None:
    """Leaves that have no derivative are left alone."""
    x = tb.device_put(np.float32(2.0))
    tree = {"a": (x, 3), "b": np.arange(2), "c": None}

    result = lax.stop_gradient(tree)

    assert result["a"] == (x, 3)
    assert result["b"] is tree["b"]
    assert result["c"] is None


def test_it_stays_in_the_program() -> None:
    """Jaxprs show it, so that transformations of the program see it too."""
    jaxpr = tb.make_jaxpr(lambda x: lax.stop_gradient(x) + 1)(np.float32(1))

    assert ["stop_gradient", "add"] == primitives_in(jaxpr)
