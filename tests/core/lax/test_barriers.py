"""optimization_barrier is the identity with a barrier in every derived program."""

from __future__ import annotations

from typing import Any

import numpy as np

import tracebridge as tb
from tests.equations import equations_of
from tracebridge import lax
from tracebridge.testing import assert_allclose, check_rules

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def barriers(f: Any, *args: Any) -> int:
    """Number of barriers in the program of ``f``."""
    return len(equations_of(tb.make_jaxpr(f)(*args), "optimization_barrier"))


def test_all_rules_agree() -> None:
    """Value, derivatives, batching."""
    check_rules(
        lambda x, y: lax.optimization_barrier((x, y)),
        X,
        X[0],
        reference=lambda x, y: [x, y],
    )


def test_trees_and_dtypes() -> None:
    """Any pytree of arrays and numbers, integers too; nothing at all is allowed."""
    tree = {"a": (X, np.arange(3)), "b": 2.0}

    assert_allclose(lax.optimization_barrier(tree), tree)
    assert () == lax.optimization_barrier(())
    assert () == tb.jit(lambda: lax.optimization_barrier(()))()


def test_partial_derivatives() -> None:
    """Operands without tangent, and results without cotangent, are zeros and stay symbolic."""

    def f(x: Any, y: Any) -> Any:
        a, b = lax.optimization_barrier((x, y))
        return lax.reduce_sum(lax.mul(a, a), (0,)) + 0 * lax.reduce_sum(lax.stop_gradient(b), (0,))

    x, y = X[0], X[1]

    assert_allclose(tb.grad(f)(x, y), 2 * x)
    assert_allclose(tb.grad(f, argnums=1)(x, y), 0 * y)
    assert_allclose(tb.jvp(lambda x: f(x, y), (x,), (y,))[1], 2 * (x * y).sum())


def test_tangents_have_a_barrier_of_their_own() -> None:
    """Primals do not wait for tangents."""
    assert 1 == barriers(lax.optimization_barrier, X)
    assert 2 == barriers(lambda x: tb.jvp(lax.optimization_barrier, (x,), (x,)), X)


def test_it_reaches_the_compiler() -> None:
    """The lowered program holds the operation."""
    text = tb.jit(lax.optimization_barrier).lower(X).as_text()

    assert "stablehlo.optimization_barrier" in text
