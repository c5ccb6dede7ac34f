"""running_kernel: a reduction that runs along rows, as a cumulative sum, is a kernel on the CPU."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tracebridge.core import lax
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.kernels.call import Text, kernel_call, name_of
from tracebridge.core.kernels.machine import is_there, machine
from tracebridge.core.kernels.rows.handler import Interface, module_text, shares
from tracebridge.core.kernels.rows.running import rows_function

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.rule_contexts import LoweringContext

RUNNING: dict[Primitive, str] = {
    lax.cumsum_p: "add",
    lax.cumprod_p: "mul",
    lax.cummax_p: "max",
    lax.cummin_p: "min",
}
"""By primitive what combines two elements."""

_LEAST = 1 << 13  # elements of an array
_SHORTEST = 32  # elements of a row


def can_run(app: Application) -> bool:
    """Whether an equation is such a reduction, of large enough rows of float32."""
    (aval,) = app.avals
    shape, axis = aval.shape, app.params["axis"]
    if aval.dtype != np.float32 or not all([type(n) is int for n in shape]) or aval.vma:
        return False
    rows = shape[axis] == math.prod(shape[axis:])
    if not rows or shape[axis] < _SHORTEST or math.prod(shape) < _LEAST:
        return False
    return is_there()


@final
class RunningKernel(Primitive):
    """Parameters: ``kind`` as in ``RUNNING``, ``reverse`` and ``axis`` of the equation.

    It is made while programs are lowered: nobody transforms it.
    """

    name = "running_kernel"
    cost = Cost.OTHER

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        return avals[0]

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        name, numbers = running_call(ctx.aval_out.shape, params)
        (out,) = kernel_call(ctx, operands, name, {"shares": numbers})
        return out


def running_call(
    shape: Sequence[int], params: Mapping[str, Any]
) -> tuple[str, tuple[int, int, int]]:
    """The kernel of an equation with these parameters, and what a call of it tells."""
    length = shape[params["axis"]]
    given = params["kind"], length, params["reverse"]
    name = name_of(f"running {given}", partial(_text, *given))
    return name, shares(math.prod(shape) // length, length, 0)


def _text(kind: str, length: int, reverse: bool) -> Text:
    rows = rows_function(kind, length, reverse, machine().lanes)
    return Text(module_text(Interface(1, 1, length), rows), length, 0)


running_kernel_p = RunningKernel()
