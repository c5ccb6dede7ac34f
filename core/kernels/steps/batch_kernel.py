"""batch_kernel: a program of small matrices, for each element of a batch, that is one kernel.

As `scan_kernel`, but that no step needs another one: threads share them.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.ir.content import content_of, has_arrays
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.kernels.call import Text, kernel_call, last_call, name_of
from tracebridge.core.kernels.content import digest, program_text
from tracebridge.core.kernels.machine import machine
from tracebridge.core.kernels.steps.arrays import Arrays
from tracebridge.core.kernels.steps.description import described, lines_of
from tracebridge.core.kernels.steps.handler import handler_of_blocks
from tracebridge.core.kernels.steps.outlook import outlook
from tracebridge.core.kernels.steps.plan import Plan
from tracebridge.core.kernels.steps.scan_kernel import Written, operations
from tracebridge.core.kernels.steps.values import NotWritten
from tracebridge.core.kernels.steps.work import work
from tracebridge.core.kernels.steps.writer import places_of_parts, steps_function
from tracebridge.core.util.caching import BoundedCache, Hashed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.kernels.numbers import Numbers

_NONE = Written("", lambda: Text("", 0, 0), 0, 0, 0)
_WRITTEN: BoundedCache[Written] = BoundedCache("batch kernels by program", 256)
_BLOCK = 10_000  # ns of work
_LEAST_SHARED = 50_000  # ns: to wake a thread takes 30,000
_MOST_BLOCKS = 64


@final
class BatchKernel(Primitive):
    """``program`` for each part of ``arrays``. It is made while programs are lowered.

    The first ``num_consts`` operands are not cut. ``numbers``: those in the places of the program.
    """

    name = "batch_kernel"
    cost = Cost.OTHER
    multiple_results = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> Sequence[ShapedArray]:
        return params["arrays"].out_avals

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        program, n_consts, arrays = params["program"], params["num_consts"], params["arrays"]
        numbers: Numbers = params["numbers"]
        name, steps = last_call(
            program, [n_consts, arrays, numbers], lambda: _call(program, n_consts, arrays, numbers)
        )
        return kernel_call(ctx, operands, name, {"steps": steps})


batch_kernel_p = BatchKernel()


def _call(
    program: Jaxpr, n_consts: int, arrays: Arrays, numbers: Numbers
) -> tuple[str, tuple[int, int, int]]:
    """The name of a kernel, and what a call of it tells."""
    kernel = batch_kernel(program, n_consts, arrays)
    assert kernel is not None  # as when the rewrite has looked
    name = name_of(kernel.content, kernel.write, numbers)
    # Results that are sums over rows are one thread's.
    together = arrays.counts[-1] if arrays.totals else 1
    return name, _shares(math.prod(arrays.counts), together, program)


def batch_kernel(program: Jaxpr, n_consts: int, arrays: Arrays) -> Written | None:
    """The kernel of a program of one part of ``arrays``; None if it cannot have one."""
    key = Hashed((content_of(program), n_consts, arrays))
    found = _WRITTEN.get(key)
    if found is None:
        found = None if has_arrays(program) else _written(program, n_consts, arrays)
        _WRITTEN.set(key, found or _NONE)
    return None if found is _NONE else found


def _written(program: Jaxpr, n_consts: int, arrays: Arrays) -> Written | None:
    """The kernel, planned later if what matters is known before."""
    foreseen = None if arrays.totals else outlook(program)
    text = None if foreseen is None else program_text(program)
    if foreseen is None or text is None:
        return _now(program, n_consts, arrays)
    # How many parts there are along the first axis is no part of it.
    given = [(arrays.operand(i, ""), arrays.operand_steps(i)) for i in range(len(arrays.ins))]
    made = [(arrays.result(k, ""), arrays.result_steps(k)) for k in range(len(arrays.outs))]
    cut = arrays.counts[1:], arrays.ins, arrays.outs, arrays.by_rows
    content = digest(f"batch {n_consts} {given} {made} {cut} {text}")

    def write() -> Text:
        return _text(Plan(program, n_consts, 0, arrays))

    return Written(content, write, foreseen.lines, foreseen.scratch, 1)


def _now(program: Jaxpr, n_consts: int, arrays: Arrays) -> Written | None:
    """The kernel, planned to find out whether there is one."""
    try:
        plan = Plan(program, n_consts, 0, arrays)
    except NotWritten:
        return None
    content, lines = described(plan, by_steps=False), lines_of(plan, machine().lanes)
    return Written(digest(content), partial(_text, plan), lines, plan.scratch, 1)


def _text(plan: Plan) -> Text:
    function = steps_function(plan, places_of_parts(plan), machine().lanes)
    return Text(f"{function}\n{handler_of_blocks(plan.arrays)}", *operations(plan))


def _shares(n: int, together: int, program: Jaxpr) -> tuple[int, int, int]:
    """Numbers of steps, of steps in a block, of blocks; so many steps stay together."""
    total = n * sum([work(app) for app, _ in program.equations])
    n_blocks = 1
    if total >= _LEAST_SHARED:
        n_blocks = max(1, min(n, _MOST_BLOCKS, int(total / _BLOCK)))
    per_block = together * -(-n // (n_blocks * together))
    return n, per_block, -(-n // per_block)
