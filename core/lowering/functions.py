"""Private functions of a module, which its programs call.

Functions of lowering rules (a sine by its polynomials) are the same in each module that has them.
Emitted operation by operation, one takes up to 0.8 ms; a copy of one in memory takes 0.03 to 0.1.
So the second module that needs a function leaves a copy of it behind, for all modules after that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracebridge.core._jaxlib import mlir
from tracebridge.core.config.values import tracing_key
from tracebridge.core.ir.effects import ordered_effects
from tracebridge.core.lowering.tokens import token_type
from tracebridge.core.mlir.attrs import string
from tracebridge.core.mlir.types import tensor_type
from tracebridge.core.util.caching import BoundedCache

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.lowering.context import LoweringContext

# Modules with one function each; None where the function was emitted once, False where it cannot
# be in other modules.
_COPIES: BoundedCache[Any] = BoundedCache("functions that modules share", 256)
_RULES = [0]  # how often rules have changed
_REFERS = frozenset({"func.call", "stablehlo.custom_call", "stablehlo.composite"})


def forget_copies() -> None:
    """Emit all functions anew: there are other rules."""
    _RULES[0] += 1  # a thread that is at it may leave a copy of the old ones behind
    _COPIES.clear()


def shared_function(ctx: LoweringContext, jaxpr: Jaxpr, name: str) -> str | None:
    """The symbol of a function of lowering rules that is the same in all modules.

    None where it may be another one here: its rules may ask for axes, sizes and places of calls.
    """
    if ctx.locations is not None or ctx.mesh is not None or ctx.axis_env or ctx.platforms:
        return None
    if ctx.attributes:
        return None
    ir = mlir.ir
    if jaxpr.effects or ctx.dims_by_name() or ir.Location.current != ir.Location.unknown():
        return None
    key: Hashable = jaxpr, ctx.platform, tracing_key(), _RULES[0]
    known = _COPIES.get(key, ...)
    if known is ...:
        _COPIES.set(key, None)
        return None
    if known is False:
        return None
    if known is None:
        symbol = emit_function(ctx, jaxpr, name, ())
        _COPIES.set(key, _copy_of(_named(ctx.module, symbol)))
        return symbol
    symbol = ctx.unique_name(name)
    with ir.InsertionPoint(ctx.module.body):
        copy = known.body.operations[0].operation.clone()
    copy.attributes["sym_name"] = string(symbol)
    return symbol


def _named(module: Any, symbol: str) -> Any:
    return next(
        op
        for op in module.body.operations
        if "sym_name" in op.attributes and op.attributes["sym_name"].value == symbol
    ).operation


def _copy_of(function: Any) -> Any:
    """A module with a copy of a function; False if it refers to others."""
    ir, refers = mlir.ir, list[str]()

    def look(op: Any) -> Any:
        if op.name in _REFERS:
            refers.append(op.name)
        return ir.WalkResult.ADVANCE

    function.walk(look)
    if refers:
        return False
    module = ir.Module.create()
    with ir.InsertionPoint(module.body):
        function.clone()
    return module


def emit_function(
    ctx: LoweringContext, jaxpr: Jaxpr, name: str, dims: Sequence[tuple[str, Any]]
) -> str:
    """Emit ``jaxpr`` as a function of dimensions, tokens and its inputs; its symbol.

    ``dims``: names and values of the dimension variables.
    """
    ir = mlir.ir
    symbol = ctx.unique_name(name)
    tokens = [token_type() for _ in ordered_effects(jaxpr.effects)]
    in_types = [*[v.type for _, v in dims], *tokens, *[tensor_type(a) for a in jaxpr.in_avals]]
    out_types = [*tokens, *[tensor_type(a) for a in jaxpr.out_avals]]
    with ir.InsertionPoint(ctx.module.body):
        function = ctx.create(
            "func.func",
            attributes={
                "sym_name": string(symbol),
                "sym_visibility": string("private"),
                "function_type": ir.TypeAttr.get(ir.FunctionType.get(in_types, out_types)),
            },
            regions=1,
        )
    ctx.fill_function(function, in_types, jaxpr, [n for n, _ in dims])
    return symbol
