"""row_kernel: a program over the rows of arrays that is one kernel on the CPU.

Lowering names it; it is planned, written and compiled when XLA compiles the program that calls it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, final

from tracebridge.core.ir.content import content_of
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.kernels.call import Text, kernel_call, last_call, name_of
from tracebridge.core.kernels.content import (
    avals_text,
    digest,
    program_text,
    shape_text,
    without_size,
)
from tracebridge.core.kernels.equations import REDUCTIONS
from tracebridge.core.kernels.machine import machine
from tracebridge.core.kernels.rows.across import Across
from tracebridge.core.kernels.rows.emitter import Writer
from tracebridge.core.kernels.rows.handler import Interface, module_text, shares
from tracebridge.core.kernels.rows.program import RowProgram, kind_of_sum
from tracebridge.core.util.caching import BoundedCache, Hashed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.kernels.numbers import Numbers
    from tracebridge.core.kernels.rows.frame import Frame
    from tracebridge.core.kernels.rows.program import Views, Written

    _Given = tuple[Jaxpr, Frame, Views, Written]

_TARGETS: BoundedCache[_Target] = BoundedCache("row kernels by program", 256)


class _Target(NamedTuple):
    """What the text depends on and what writes it.

    ``units``: how many of rows there are, elements of one, results that are sums of columns.
    """

    content: str
    write: Callable[[], Text]
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
    numbers: Numbers = params["numbers"]
    return last_call(given[0], [*given[1:], numbers], lambda: _call(given, numbers))


def _call(given: _Given, numbers: Numbers) -> tuple[str, tuple[int, int, int]]:
    target = _target(given)
    return name_of(target.content, target.write, numbers), shares(*target.units)


def _target(given: _Given) -> _Target:
    """The kernel of a program, whatever numbers are in its places."""
    program, frame, views, written = given
    key = Hashed((content_of(program), frame, views, written))
    return _TARGETS.get_or_make(key, lambda: _made(given))


def _made(given: _Given) -> _Target:
    """The kernel, planned later if its program has a text and its units are known without."""
    program, frame, views, written = given
    text = None if frame.is_across else program_text(program)
    if text is None:
        rows = RowProgram(*given)
        return _Target(digest(rows.described()), partial(_text, rows), _units(rows))
    shapes = " ".join([shape_text(shape) for shape in sorted(frame.shapes)])
    whole = f"{frame.along} {views} {written.targets} {shapes} {avals_text(written.avals)}"
    content = f"rows {frame.real} {shape_text(frame.sizes)} {whole} {text}"
    if _counts_rows(frame):
        content = without_size(content, frame.sizes[0])
    units = frame.n_rows, _work(frame, frame.length), _n_columns(program, frame)
    return _Target(digest(content), lambda: _text(RowProgram(*given)), units)


def _counts_rows(frame: Frame) -> bool:
    """Whether a size in a shape that is the frame's first one is so many rows, and nothing else.

    Kernels do not depend on it: batches of all sizes share one.
    """
    first, *others = frame.sizes
    joined = [math.prod(others[i:j]) for j in range(1, len(others) + 1) for i in range(j)]
    return not frame.along[0] and first not in joined


def _text(rows: RowProgram) -> Text:
    kind = Across if rows.frame.is_across else Writer
    writer = kind(rows, machine().lanes)
    text = module_text(Interface.of(rows, writer.streamed, writer.moved), writer.text())
    cheap, dear = rows.operations()
    together = writer.width if rows.frame.is_across else 1
    return Text(text, together * cheap, together * dear)


def _units(rows: RowProgram) -> tuple[int, int, int]:
    """Those of rows that vectors go across: neighbours are done together."""
    if not rows.frame.is_across:
        return rows.frame.n_rows, _work(rows.frame, rows.length), len(Interface.of(rows).columns)
    across = Across(rows, machine().lanes)
    return across.n_units, _work(rows.frame, rows.length * across.width), 0


def _work(frame: Frame, elements: int) -> int:
    """So many elements as float32 that take as much time and memory."""
    return elements * frame.dtype.itemsize // 4


def _n_columns(program: Jaxpr, frame: Frame) -> int:
    """How many results are sums over all rows."""
    made: set[int] = set()
    v = program.n_in + len(program.consts)
    for app, _ in program.equations:
        if app.primitive in REDUCTIONS and kind_of_sum(app, frame) == "columns":
            made.add(v)
        v += len(app.outs)
    return len([out for out in program.outs if out in made])
