"""Dimension variables in modules: where their values come from, and the checks on sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.core.lax.symbolic import run_symbolic
from tracebridge.core import lax
from tracebridge.core.control.jit.cached_call import make_jit
from tracebridge.core.control.jit.jit import JitOptions
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.lowering.module import lower_module
from tracebridge.core.symbolic.dims import max_dim, min_dim
from tracebridge.core.symbolic.scope import SymbolicScope, symbolic_shape


def lowered_text(fun: Any, *specs: str, constraints: Any = (), names: Any = ()) -> str:
    """The module of ``fun`` at symbolic shapes."""
    scope = SymbolicScope(constraints)
    avals = [ShapedArray(symbolic_shape(s, scope=scope), np.float32) for s in specs]
    return lower_module(stage(fun, avals), "f", "portable", names=names).as_text()


def test_module_says_that_its_shapes_are_polymorphic() -> None:
    """Consumers refine only modules with the attribute; static ones have none."""
    attribute = "jax.uses_shape_polymorphism = true"

    assert attribute in lowered_text(lambda x: [lax.sin(x)], "b, 3")
    assert attribute not in lowered_text(lambda x: [lax.sin(x)], "2, 3")


def test_checks_come_before_every_other_operation() -> None:
    """An operation never meets sizes that the program was not traced for."""
    text = lowered_text(lambda x, y: [lax.sin(x), y], "b, 2*b", "b, 3", names=("left", "right"))
    checks = [line for line in text.splitlines() if "shape_assertion" in line]

    assert text.rindex("shape_assertion") < text.index(" = stablehlo.sine")
    assert len(checks) == 3
    assert "the dimension variable b, computed from left.shape[0], is {0}" in checks[0]
    assert any("right.shape[0] is {0}, expected {1}, the value of b" in line for line in checks)


def test_unused_inputs_stay_because_sizes_may_come_from_them() -> None:
    """A symbolic program keeps all inputs; a static one drops those without use."""
    assert "@main(%arg0: tensor<?xf32>, %arg1: tensor<3xf32>)" in lowered_text(
        lambda x, y: [lax.sin(y)], "b", "3"
    )
    assert "%arg1" not in lowered_text(lambda x, y: [lax.sin(y)], "4", "3")


def test_constraints_become_checks() -> None:
    """What was assumed while tracing is checked when the program runs."""
    text = lowered_text(lambda x: [lax.sin(x)], "b", constraints=["b >= 4"])

    assert "the constraint b >= 4 does not hold" in text


def test_variable_without_a_linear_size_is_an_error() -> None:
    """A variable must be computable from some size."""
    with pytest.raises(ValueError, match="cannot be computed"):
        lowered_text(lambda x: [lax.sin(x)], "b*b")


@pytest.mark.parametrize("size", [1, 2, 3, 6, 7, 8, 11])
def test_expressions_have_the_values_of_python(size: int) -> None:
    """Sums, products, divisions (rounded down, also below zero), max and min."""

    def expressions(b: Any) -> list[Any]:
        return [b * b - 3 * b, (b - 7) // 3, (b - 7) % 3, max_dim(b, 5), min_dim(b, 5) + 2]

    def fun(x: Any) -> list[Any]:
        return [lax.dimension_size(d, np.dtype("int32")) for d in expressions(x.shape[0])]

    got = run_symbolic(fun, "b", np.zeros(size, np.float32))

    assert expressions(size) == [int(v) for v in got]


def test_functions_get_the_dimension_values() -> None:
    """A jitted function inside of a symbolic program computes with the sizes of the caller."""
    inner, _ = make_jit(lambda x: lax.mul(lax.full((x.shape[0], 2), 1.5), x), JitOptions())
    x = np.arange(6, dtype=np.float32).reshape(3, 2)

    (got,) = run_symbolic(lambda x: inner(lax.sin(x)), "b, 2", x)

    np.testing.assert_allclose(got, 1.5 * np.sin(x), rtol=1e-6)


def test_a_size_is_an_operand() -> None:
    """A symbolic size stands where a number may."""
    x = np.arange(4, dtype=np.float32)

    (got,) = run_symbolic(lambda x: lax.mul(x, lax.dimension_size(x.shape[0], x)), "b", x)

    np.testing.assert_array_equal(got, 4 * x)
