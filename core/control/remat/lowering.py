"""How checkpointed calls are lowered: what keeps the compiler from merging two computations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracebridge.core.dtypes.dtypes import is_complex, is_inexact, is_integer
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.jaxpr import Jaxpr

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import LoweringContext


FIRST, AGAIN = "checkpoint", "computed_again"
"""Names of the functions, which profiles show."""

_INDEX = ShapedArray((), np.int32)


def lower_with_barrier(ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
    """Marked operands pass an optimization barrier; accelerators keep it to the end."""
    jaxpr: Jaxpr = params["jaxpr"]
    if not params["differentiated"]:
        return ctx.call_jaxpr(jaxpr, operands, FIRST)
    values = list(operands)
    marked = [i for i, flag in enumerate(params["prevent_cse"]) if flag]
    if marked:
        avals = [jaxpr.in_avals[i] for i in marked]
        given = [values[i] for i in marked]
        apart = ctx.op("stablehlo.optimization_barrier", given, avals).results
        for i, value in zip(marked, apart, strict=True):
            values[i] = value
    return ctx.call_jaxpr(jaxpr, values, AGAIN)


def lower_with_choice(ctx: LoweringContext, *operands: Any, **params: Any) -> Any:
    """The second computation is a branch of a conditional, whose other branch is never taken.

    XLA on CPU drops barriers before it looks for common subexpressions, but merges nothing across
    branches. Which branch is taken depends on an operand, in a way that no rewriting sees through:
    the second lowest bit of a square is 0.
    """
    jaxpr: Jaxpr = params["jaxpr"]
    marked = [i for i, flag in enumerate(params["prevent_cse"]) if flag]
    # The last operands are cotangents: the choice waits for them.
    # A choice by a number that XLA knows would be no choice.
    known = [
        i for i in reversed(marked) if _has_element(jaxpr.in_avals[i]) and not _folds(operands[i])
    ]
    if not params["differentiated"] or not known or jaxpr.effects:
        return lower_with_barrier(ctx, *operands, **params)
    avals = jaxpr.out_avals
    number = _first_element(ctx, operands[known[0]], jaxpr.in_avals[known[0]])
    square = ctx.op1("stablehlo.multiply", [number, number], _INDEX)
    bit = ctx.op1("stablehlo.and", [square, ctx.splat(2, _INDEX)], _INDEX)

    choice = ctx.op("stablehlo.case", [bit], avals, regions=2)
    with ctx.block(choice.regions[0], ()):
        ctx.finish(ctx.call_jaxpr(jaxpr, operands, AGAIN))
    with ctx.block(choice.regions[1], ()):
        ctx.finish([ctx.splat(False if a.dtype.kind == "b" else 0, a) for a in avals])
    return choice.results


def _folds(x: Any, depth: int = 4) -> bool:
    """Whether XLA computes ``x`` while it compiles: a constant, or made of constants alone."""
    owner = x.owner
    name = getattr(owner, "name", None)
    if name is None:
        return False
    if name in ("stablehlo.constant", "stablehlo.iota"):
        return True
    operands = list(owner.operands)
    return depth > 0 and bool(operands) and all([_folds(o, depth - 1) for o in operands])


def _has_element(aval: ShapedArray) -> bool:
    is_number = is_inexact(aval.dtype) or is_integer(aval.dtype)
    return is_number and all([type(d) is int and d > 0 for d in aval.shape])


def _first_element(ctx: LoweringContext, x: Any, aval: ShapedArray) -> Any:
    """The first element of an operand as an integer; which one does not matter."""
    ones = [1] * aval.ndim
    if aval.ndim:
        x = ctx.slice(x, aval.update(shape=tuple(ones)), [0] * aval.ndim, ones, ones)
        x = ctx.reshape(x, aval.update(shape=()))
    if is_complex(aval.dtype):
        part = np.float32 if aval.dtype == np.complex64 else np.float64
        x = ctx.op1("stablehlo.real", [x], aval.update(shape=(), dtype=part))
    return ctx.convert(x, _INDEX)
