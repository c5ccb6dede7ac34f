"""Symbolic dimensions of a program's inputs: their values at run time, and the checks on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.mlir.attrs import boolean, i32, i64, string
from tracebridge.core.mlir.builders import DimArithmetic
from tracebridge.core.symbolic.dims import is_static
from tracebridge.core.symbolic.evaluate import dims_evaluate
from tracebridge.core.symbolic.solve import ShapeAssertion, size_name, solve_dim_variables

if TYPE_CHECKING:
    from tracebridge.core.lowering.context import LoweringContext

_SIZE = ShapedArray((), np.int32)
_FLAG = ShapedArray((), np.bool_)
# Registered by the consumers of such modules (XLA's refinement of shapes).
_ASSERTION_TARGET = "shape_assertion"
MODULE_ATTRIBUTE = "jax.uses_shape_polymorphism"
"""What consumers ask before they refine the shapes of a module."""


def has_symbolic_dims(avals: Sequence[ShapedArray]) -> bool:
    """Whether some dimension is an expression."""
    return not all([is_static(a.shape) for a in avals])


def define_dims(
    ctx: LoweringContext,
    avals: Sequence[ShapedArray],
    operands: Sequence[Any],
    names: Sequence[str] = (),
) -> None:
    """Compute the dimension variables of ``avals`` from the sizes of ``operands``; check the rest.

    ``names`` are what messages call the operands, ``args[i]`` where there are none. The checks
    come first in the program. An operation that verifies its operand sizes itself may still be
    the one that reports sizes that do not agree: verification runs before the checks.

    Raises:
        ValueError: a variable cannot be computed from the sizes.
    """
    ctx.module.operation.attributes[MODULE_ATTRIBUTE] = boolean(True)
    solution = solve_dim_variables([a.shape for a in avals])
    sizes = {
        size_name(i, axis): ctx.op1(
            "stablehlo.get_dimension_size", [operands[i]], _SIZE, {"dimension": i64(axis)}
        )
        for i, aval in enumerate(avals)
        for axis, dim in enumerate(aval.shape)
        if type(dim) is not int
    }
    arithmetic = DimArithmetic(ctx)
    env = solution.bind(sizes, arithmetic)
    rename = renaming(names)
    for assertion in solution.assertions:
        _emit_assertion(ctx, assertion, rename, env, arithmetic)
    for name in solution.sources:
        ctx.define_dim(name, env[name])


def renaming(names: Sequence[str]) -> Callable[[str], str]:
    """What puts names of arguments into messages of assertions."""

    def rename(message: str) -> str:
        for i, name in enumerate(names):
            message = message.replace(f"args[{i}].shape", f"{name}.shape")
        return message

    return rename


def _emit_assertion(
    ctx: LoweringContext,
    assertion: ShapeAssertion,
    rename: Callable[[str], str],
    env: dict[str, Any],
    arithmetic: DimArithmetic,
) -> None:
    left = dims_evaluate(assertion.left, env, arithmetic)
    right = dims_evaluate(assertion.right, env, arithmetic)
    direction = "EQ" if assertion.relation == "==" else "GE"
    holds = ctx.compare(left, right, _FLAG, direction, "SIGNED")
    # {0} and {1} are the places of the operands behind the condition.
    message = rename(assertion.message).replace("{left}", "{0}").replace("{right}", "{1}")
    ctx.op(
        "stablehlo.custom_call",
        [holds, left, right],
        [],
        {
            "call_target_name": string(_ASSERTION_TARGET),
            "has_side_effect": boolean(True),
            "api_version": i32(2),
            "error_message": string(message),
        },
    )
