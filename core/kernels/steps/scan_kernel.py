"""scan_kernel: a loop of small steps that is one kernel on the CPU.

Lowering names it; it is planned, written and compiled when XLA compiles the program that calls it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, final

from tracebridge.core.ir.aval import batched_aval
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.kernels.call import Text, kernel_call, name_of
from tracebridge.core.kernels.content import digest, program_text
from tracebridge.core.kernels.functions import TRANSCENDENTAL
from tracebridge.core.kernels.machine import machine, n_threads
from tracebridge.core.kernels.steps.arrays import not_cut
from tracebridge.core.kernels.steps.description import described, lines_of
from tracebridge.core.kernels.steps.dots import Dots
from tracebridge.core.kernels.steps.elementwise import Group
from tracebridge.core.kernels.steps.handler import handler, handler_of_parts, handler_of_tiles
from tracebridge.core.kernels.steps.outlook import Outlook, outlook
from tracebridge.core.kernels.steps.parts import most_parts, parts_of, work_of
from tracebridge.core.kernels.steps.plan import Plan
from tracebridge.core.kernels.steps.products import Product
from tracebridge.core.kernels.steps.rounds import Rounds
from tracebridge.core.kernels.steps.tile_writer import bytes_of_copies, tile_function
from tracebridge.core.kernels.steps.tiles import Tiled, Tiles, tiles_of
from tracebridge.core.kernels.steps.values import NotWritten
from tracebridge.core.kernels.steps.writer import places_of_steps, steps_function

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.ir.rule_contexts import LoweringContext


@final
class ScanKernel(Primitive):
    """As scan: (consts, carry, xs) -> (carry, ys). It is made while programs are lowered.

    ``numbers``: those in the places of its body.
    """

    name = "scan_kernel"
    cost = Cost.OTHER
    multiple_results = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> Sequence[ShapedArray]:
        outs, n_carry = params["jaxpr"].out_avals, params["num_carry"]
        ys = [batched_aval(a, params["length"]) for a in outs[n_carry:]]
        return [*outs[:n_carry], *ys]

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        kernel = written(params)
        assert kernel is not None  # as when the rewrite has looked
        name = name_of(kernel.content, kernel.write, params["numbers"])
        length = params["length"]

        def call(operands: Sequence[Any], ins: Any, outs: Any, steps: int) -> list[Any]:
            numbers = {"steps": (steps, 1, kernel.parts)}
            return kernel_call(ctx, operands, name, numbers, ins, outs)

        if kernel.steps is None or kernel.steps >= length:
            return call(operands, ctx.avals_in, ctx.avals_out, length)
        return Rounds(ctx, operands, params, kernel.steps, call).results()


scan_kernel_p = ScanKernel()


class Written(NamedTuple):
    """A kernel: what its text depends on and what writes it, about how many lines it has.

    Further bytes of memory of its own, and how many parts or tiles threads share, if that is known.
    ``steps``: how many at a time, if they are not all.
    """

    content: str
    write: Callable[[], Text]
    lines: int
    scratch: int
    parts: int
    steps: int | None = None


class _Loop(NamedTuple):
    """What a kernel depends on besides the body of its loop."""

    n_consts: int
    n_carry: int
    reverse: bool
    length: int
    threads: int


def written(params: Any) -> Written | None:
    """The kernel of a loop, whose body has no calls; None if it cannot have one."""
    body, n_consts, n_carry = params["jaxpr"], params["num_consts"], params["num_carry"]
    loop = _Loop(n_consts, n_carry, params["reverse"], params["length"], n_threads())
    if loop not in body.cache:  # asked for by the rewrite, then by the lowering
        body.cache[loop] = _written(body, loop)
    return body.cache[loop]


def _written(body: Jaxpr, loop: _Loop) -> Written | None:
    n_consts, n_carry, _, length, threads = loop
    tiled = tiles_of(body, n_consts, n_carry, length, threads)
    found = None if tiled is None else _tiled(tiled, loop)
    if found is not None:
        return found
    foreseen = outlook(body)
    most = 1
    if tiled is None:
        work = work_of(body) if foreseen is None else foreseen.work
        most = most_parts(work, length, threads)
    found = None if foreseen is None else _later(body, loop, most, foreseen)
    if found is None and most > 1:
        found = _now(body, loop, most)
    return found or _now(body, loop, 1)


def _tiled(tiled: Tiled, loop: _Loop) -> Written | None:
    """The kernel that does tiles by themselves."""
    body, tiles = tiled
    try:
        plan = Plan(body, loop.n_consts, loop.n_carry, not_cut(body.in_avals, body.out_avals))
    except NotWritten:
        return None
    return Written(
        digest(described(plan, loop.reverse, tiles, by_steps=True)),
        partial(_text_of_tile, plan, tiles, loop.reverse),
        lines_of(plan, machine().lanes),
        plan.scratch + bytes_of_copies(plan, tiles),
        tiles.number,
        tiles.steps,
    )


def _later(body: Jaxpr, loop: _Loop, most: int, foreseen: Outlook) -> Written | None:
    """The kernel, to be planned when it is written, if its program has a text."""
    text = program_text(body)
    if text is None:
        return None

    def write() -> Text:
        return _text(_plan(body, loop, most), loop.reverse)

    content = f"scan {loop[:3]} {most} {text}"
    return Written(content, write, foreseen.lines, foreseen.scratch, 1)


def _now(body: Jaxpr, loop: _Loop, most: int) -> Written | None:
    """The kernel, planned to find out whether there is one."""
    try:
        plan = _plan(body, loop, most)
    except NotWritten:
        return None
    counts = plan.arrays.counts
    content = digest(described(plan, loop.reverse, counts, by_steps=True))
    write = partial(_text, plan, loop.reverse)
    lines = lines_of(plan, machine().lanes)
    return Written(content, write, lines, plan.scratch, math.prod(counts))


def _plan(body: Jaxpr, loop: _Loop, most: int) -> Plan:
    """The plan of a step, or of one of the parts of it that threads share, at most so many."""
    n_consts, n_carry = loop[:2]
    parts = parts_of(body, n_consts, n_carry, most)
    if parts is None:
        return Plan(body, n_consts, n_carry, not_cut(body.in_avals, body.out_avals))
    return Plan(parts.part_of(body), n_consts, n_carry, parts.arrays)


def _text(plan: Plan, reverse: bool) -> Text:
    count = math.prod(plan.arrays.counts)
    cheap, dear = operations(plan)
    function = steps_function(plan, places_of_steps(plan, reverse), machine().lanes)
    shared = (handler_of_parts if plan.arrays.counts else handler)(plan.arrays)
    return Text(f"{function}\n{shared}", count * cheap, count * dear)


def _text_of_tile(plan: Plan, tiles: Tiles, reverse: bool) -> Text:
    cheap, dear = operations(plan)
    function = tile_function(plan, tiles, reverse, machine().lanes)
    lines = f"{function}\n{handler_of_tiles(plan.arrays)}"
    return Text(lines, tiles.number * cheap, tiles.number * dear)


def operations(plan: Plan) -> tuple[int, int]:
    """How many a step takes: cheap ones, and exponentials and their like."""
    cheap = dear = 0
    for statement in plan.step:
        if isinstance(statement, Group):
            kinds = [n.kind for n in statement.nodes if n.kind not in ("load", "number")]
            n_dear = len([kind for kind in kinds if kind in TRANSCENDENTAL])
            size = math.prod(statement.shape)
            cheap, dear = cheap + (len(kinds) - n_dear) * size, dear + n_dear * size
        elif isinstance(statement, Product):
            cheap += 2 * statement.out.size * statement.x.shape[-1]
        elif isinstance(statement, Dots):
            cheap += 2 * statement.matrix.size
        else:
            cheap += statement.x.size
    return cheap, dear
