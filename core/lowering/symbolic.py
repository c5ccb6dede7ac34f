"""Symbolic dimensions of a program's inputs: their values at run time, and the checks on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracebridge.core.dtypes.dtypes import float0, is_extended
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.mlir.attrs import boolean, i32, i64, string
from tracebridge.core.mlir.builders import DimArithmetic
from tracebridge.core.symbolic.dims import DimExpr, is_static
from tracebridge.core.symbolic.evaluate import dims_evaluate
from tracebridge.core.symbolic.solve import ShapeAssertion, size_name, solve_dim_variables

if TYPE_CHECKING:
    from collections.abc import Mapping

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
) -> list[Any]:
    """Compute the dimension variables of ``avals`` from the sizes of ``operands``; check the rest.

    ``names`` are what messages call the operands, ``args[i]`` where there are none. The checks
    come first in the program.

    Returns:
        The operands with the sizes that the checks demand. Consumers refine the shapes of the whole
        program before they run the checks: without that an operation that verifies its sizes
        would report those that do not fit, in its own words.

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
    if not solution.assertions:
        return list(operands)
    return _fitting(ctx, avals, operands, sizes, list(solution.sources))


def _fitting(
    ctx: LoweringContext,
    avals: Sequence[ShapedArray],
    operands: Sequence[object],
    sizes: Mapping[str, object],
    variables: Sequence[str],
) -> list[Any]:
    """The operands, padded or cut where their ``sizes`` are not those of ``avals``."""
    scope: Any = next(d.scope for a in avals for d in a.shape if isinstance(d, DimExpr))
    arithmetic = DimArithmetic(ctx)
    least_sizes = getattr(scope, "least_sizes", dict)()
    values = ctx.dims_by_name()  # beside the sizes it has the number of the platform
    for name in variables:
        value = values[name]
        least = least_sizes.get(name, getattr(scope, "least", 1))
        ctx.define_dim(name, arithmetic.max(value, arithmetic.constant(least)))
    fitting: list[Any] = []
    for i, (aval, operand) in enumerate(zip(avals, operands, strict=True)):
        if is_static(aval.shape) or aval.dtype == float0 or is_extended(aval.dtype):
            fitting.append(operand)
            continue
        one, vector = ShapedArray((1,), np.int32), ShapedArray((aval.ndim,), np.int32)
        missing: list[Any] = []
        for axis, dim in enumerate(aval.shape):
            size = ctx.splat(0, _SIZE)
            if type(dim) is not int:
                pair = [ctx.dim(dim), sizes[size_name(i, axis)]]
                size = ctx.op1("stablehlo.subtract", pair, _SIZE)
            missing.append(ctx.reshape(size, one))
        along = {"dimension": i64(0)}
        high = ctx.op1("stablehlo.concatenate", missing, vector, along)
        zeros = ctx.shape_tensor((0,) * aval.ndim)
        zero = ctx.splat(False if aval.dtype.kind == "b" else 0, aval.update(shape=()))
        fitting.append(ctx.op1("stablehlo.dynamic_pad", [operand, zero, zeros, high, zeros], aval))
    return fitting


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
    env: Mapping[str, object],
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
