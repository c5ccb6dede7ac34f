"""row_kernel: a program over the rows of arrays that is one kernel on the CPU.

Lowering writes its text; LLVM compiles it when XLA compiles the program that calls it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.ir.content import content_of
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.kernels.call import kernel_call, name_of
from tracebridge.core.kernels.costs import remember_costs
from tracebridge.core.kernels.equations import REDUCTIONS
from tracebridge.core.kernels.machine import machine
from tracebridge.core.kernels.rows.across import Across
from tracebridge.core.kernels.rows.emitter import Writer
from tracebridge.core.kernels.rows.handler import Interface, module_text, shares
from tracebridge.core.kernels.rows.program import RowProgram, kind_of_sum
from tracebridge.core.util.caching import BoundedCache

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.kernels.rows.frame import Frame
    from tracebridge.core.kernels.rows.program import Views

    _Given = tuple[Jaxpr, Frame, Views]

_NAMES: BoundedCache[str] = BoundedCache("names of row kernels", 256)


@final
class RowKernel(Primitive):
    """``program`` over ``frame``, of parts of the operands that ``views`` tell.

    It is made while programs are lowered: nobody transforms it.
    """

    name = "row_kernel"
    cost = Cost.OTHER
    multiple_results = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> Sequence[ShapedArray]:
        return params["program"].out_avals

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        given: _Given = params["program"], params["frame"], params["views"]
        return kernel_call(ctx, operands, _target(given), {"shares": _shares(given)})


row_kernel_p = RowKernel()


def _shares(given: _Given) -> Sequence[int]:
    """What a call says of its work: units of rows, those in a block, blocks."""
    program, frame, _ = given
    if frame.is_across:
        across = Across(RowProgram(*given), machine().lanes)
        return shares(across.n_units, frame.length * across.width, 0)
    sums = [app for app, _ in program.equations if app.primitive in REDUCTIONS]
    columns = [app for app in sums if kind_of_sum(app, frame) == "columns"]
    return shares(frame.n_rows, frame.length, len(columns))


def _text(rows: RowProgram) -> str:
    writer = Across if rows.frame.is_across else Writer
    return module_text(Interface.of(rows), writer(rows, machine().lanes).text())


def _target(given: _Given) -> str:
    """The name by which XLA calls the kernel: the same one for the same text and processor."""
    program, frame, views = given
    key = content_of(program), frame, views
    name = _NAMES.get(key)
    if name is None:
        rows = RowProgram(*given)
        name = name_of(rows.described(), partial(_text, rows))
        together = Across(rows, machine().lanes).width if frame.is_across else 1
        remember_costs(name, *[together * n for n in rows.operations()])
        _NAMES.set(key, name)
    return name
