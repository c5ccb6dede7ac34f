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
from tracebridge.core.kernels.machine import machine
from tracebridge.core.kernels.rows.across import Across
from tracebridge.core.kernels.rows.emitter import Writer
from tracebridge.core.kernels.rows.handler import Interface, module_text, shares
from tracebridge.core.kernels.rows.program import RowProgram
from tracebridge.core.util.caching import BoundedCache

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.kernels.rows.frame import Frame
    from tracebridge.core.kernels.rows.program import Views, Written

    _Given = tuple[Jaxpr, Frame, Views, Written]

_Units = tuple[int, int, int]
"""How many units of rows there are, elements of one, results that are sums of columns."""

_TARGETS: BoundedCache[tuple[str, _Units]] = BoundedCache("names of row kernels", 256)


@final
class RowKernel(Primitive):
    """``program`` over ``frame``, of parts of the operands that ``views`` tell, into ``written``.

    It is made while programs are lowered: nobody transforms it.
    """

    name = "row_kernel"
    cost = Cost.OTHER
    multiple_results = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> Sequence[ShapedArray]:
        return params["written"].avals

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        given: _Given = params["program"], params["frame"], params["views"], params["written"]
        name, units = _target(given)
        return kernel_call(ctx, operands, name, {"shares": shares(*units)})


row_kernel_p = RowKernel()


def _text(rows: RowProgram) -> str:
    kind = Across if rows.frame.is_across else Writer
    writer = kind(rows, machine().lanes)
    return module_text(Interface.of(rows, writer.streamed, writer.moved), writer.text())


def _target(given: _Given) -> tuple[str, _Units]:
    """The name by which XLA calls the kernel, and its units of work.

    The name is the same one for the same text and processor.
    """
    program, frame, views, written = given
    key = content_of(program), frame, views, written
    found = _TARGETS.get(key)
    if found is None:
        rows = RowProgram(*given)
        name = name_of(rows.described(), partial(_text, rows))
        n_columns = len(Interface.of(rows).columns)
        units, together = (frame.n_rows, frame.length, n_columns), 1
        if frame.is_across:
            across = Across(rows, machine().lanes)
            together = across.width
            units = across.n_units, frame.length * together, 0
        remember_costs(name, *[together * n for n in rows.operations()])
        found = name, units
        _TARGETS.set(key, found)
    return found
