"""The position of an element along named axes: axis_index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tracebridge.core import lax
from tracebridge.core.collectives.axes import Collective, axis_names, size_of_axis, size_value
from tracebridge.core.collectives.replicas import axis_position
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.varied import typed_axes, varied

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Value


_I32 = np.dtype(np.int32)


@final
class AxisIndex(Collective):
    """No operands; parameter ``axes`` holds one name."""

    name = "axis_index"

    def abstract_eval(self, *avals: ShapedArray, **params: object) -> ShapedArray:
        return ShapedArray((), _I32)

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: object
    ) -> tuple[Any, Any]:
        return lax.broadcasted_iota(_I32, (ctx.size,), 0), 0

    def varying(self, app: Application, ins: Sequence[Any], walk: Any) -> Sequence[Any]:
        return [walk.names.intersection(app.params["axes"])]

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        del operands
        (name,) = params["axes"]
        return axis_position(ctx, name)


axis_index_p = AxisIndex()


def axis_index(axis_name: object) -> Any:
    """Position of the current element along a named axis, an int32 scalar.

    Args:
        axis_name: a bound axis name, or a tuple of them, of which the last runs fastest.

    Raises:
        UnboundAxisNameError: no surrounding transformation binds a name.

    >>> import tracebridge as tb
    >>> tb.vmap(lambda x: x + tb.lax.axis_index("i"), axis_name="i")(tb.numpy.ones(3)).tolist()
    [1.0, 2.0, 3.0]
    """
    position = None
    for name in axis_names(axis_name):
        size = size_of_axis("axis_index", name)
        index = varied(axis_index_p.bind(axes=(name,)), typed_axes().intersection((name,)))
        if position is None:
            position = index
        else:
            position = lax.add(lax.mul(position, size_value(size, _I32)), index)
    return lax.full((), 0, _I32) if position is None else position
