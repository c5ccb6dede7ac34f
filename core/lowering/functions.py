"""Private functions of a module, which its programs call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracebridge.core._jaxlib import mlir
from tracebridge.core.ir.effects import ordered_effects
from tracebridge.core.lowering.tokens import token_type
from tracebridge.core.mlir.attrs import string
from tracebridge.core.mlir.types import tensor_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.lowering.context import LoweringContext


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
