"""Tokens: values without elements, which order computations by what depends on what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tracebridge.core.errors.argument_errors import ArgumentTypeError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.batch_util import to_one_axis

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Value

_TOKEN = ShapedArray((0,), np.dtype(np.bool_))


@final
class CreateToken(Primitive):
    """A token, an array without elements, from nothing."""

    name = "create_token"
    cost = Cost.FREE
    makes_nan = False

    def abstract_eval(self, *avals: ShapedArray, **params: object) -> ShapedArray:
        return _TOKEN

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: object) -> Any:
        return ctx.constant(False, _TOKEN)


@final
class AfterAll(Primitive):
    """A token that is there when all operands are; a mapped one has an axis more."""

    name = "after_all"
    cost = Cost.OTHER
    makes_nan = False

    def abstract_eval(self, *avals: ShapedArray, **params: object) -> ShapedArray:
        for i, aval in enumerate(avals):
            if aval.dtype != _TOKEN.dtype or aval.shape[-1:] != (0,) or aval != avals[0]:
                msg = f"after_all: operand {i} is {aval.str_short()}, expected a token"
                raise ArgumentTypeError(msg, hint="create_token() and after_all(...) give tokens")
        return avals[0] if avals else _TOKEN

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: object) -> Any:
        if not operands:
            return ctx.constant(False, _TOKEN)
        return ctx.op("stablehlo.optimization_barrier", operands, ctx.avals_in).results[0]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: object
    ) -> tuple[Any, Any]:
        moved, at = to_one_axis(args, dims, ctx.size)
        return self.bind(*moved), at


create_token_p = CreateToken()
after_all_p = AfterAll()


def create_token(_: object = None) -> Any:
    """A token that waits for nothing: an array without elements.

    >>> import tracebridge as tb
    >>> tb.lax.create_token().size
    0
    """
    return create_token_p.bind()


def after_all(*operands: object) -> Any:
    """A token that waits for other tokens.

    Args:
        *operands: tokens.

    Raises:
        ArgumentTypeError: an operand is no token.

    >>> import tracebridge as tb
    >>> tb.lax.after_all(tb.lax.create_token(), tb.lax.create_token()).size
    0
    """
    return after_all_p.bind(*[as_value(o) for o in operands])
