"""row_kernel: a program over the rows of arrays that is one kernel on the CPU.

Lowering writes its text; LLVM compiles it when XLA compiles the program that calls it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, final

from tracebridge.core.ir.content import content_of
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.kernels.call import digest, kernel_call, name_of
from tracebridge.core.kernels.costs import remember_costs
from tracebridge.core.kernels.machine import machine
from tracebridge.core.kernels.rows.across import Across
from tracebridge.core.kernels.rows.emitter import Writer
from tracebridge.core.kernels.rows.handler import Interface, module_text, shares
from tracebridge.core.kernels.rows.program import RowProgram
from tracebridge.core.util.caching import BoundedCache

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.kernels.rows.frame import Frame
    from tracebridge.core.kernels.rows.program import Views, Written

    _Given = tuple[Jaxpr, Frame, Views, Written]

_TARGETS: BoundedCache[_Target] = BoundedCache("row kernels by program", 256)


class _Target(NamedTuple):
    """What the text depends on and what writes it, operations of a unit: cheap ones and others.

    ``units``: how many of rows there are, elements of one, results that are sums of columns.
    """

    content: str
    write: Callable[[], str]
    operations: tuple[int, int]
    units: tuple[int, int, int]


@final
class RowKernel(Primitive):
    """``program`` over ``frame``, of parts of the operands that ``views`` tell, into ``written``.

    ``numbers``: those in its places. It is made while programs are lowered: nobody transforms it.
    """

    name = "row_kernel"
    cost = Cost.OTHER
    multiple_results = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> Sequence[ShapedArray]:
        return params["written"].avals

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        name, numbers = named_call(params)
        return kernel_call(ctx, operands, name, {"shares": numbers})


row_kernel_p = RowKernel()


def named_call(params: Mapping[str, Any]) -> tuple[str, tuple[int, int, int]]:
    """The kernel of an equation with these parameters, and what a call of it tells."""
    given: _Given = params["program"], params["frame"], params["views"], params["written"]
    target = _target(given)
    name = name_of(target.content, target.write, params["numbers"])
    remember_costs(name, *target.operations)
    return name, shares(*target.units)


def _text(rows: RowProgram) -> str:
    kind = Across if rows.frame.is_across else Writer
    writer = kind(rows, machine().lanes)
    return module_text(Interface.of(rows, writer.streamed, writer.moved), writer.text())


def _target(given: _Given) -> _Target:
    """The kernel of a program, whatever numbers are in its places."""
    program, frame, views, written = given
    key = content_of(program), frame, views, written
    return _TARGETS.get_or_make(key, lambda: _planned(given))


def _planned(given: _Given) -> _Target:
    rows, frame = RowProgram(*given), given[1]
    n_columns = len(Interface.of(rows).columns)
    units, together = (frame.n_rows, frame.length, n_columns), 1
    if frame.is_across:
        across = Across(rows, machine().lanes)
        together = across.width
        units = across.n_units, frame.length * together, 0
    cheap, dear = rows.operations()
    operations = together * cheap, together * dear
    return _Target(digest(rows.described()), partial(_text, rows), operations, units)
