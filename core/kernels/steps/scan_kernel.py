"""scan_kernel: a loop of small steps that is one kernel on the CPU.

Lowering writes its text; LLVM compiles it when XLA compiles the program that calls it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, final

from tracebridge.core.ir.aval import batched_aval
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.kernels.call import digest, kernel_call, name_of
from tracebridge.core.kernels.costs import remember_costs
from tracebridge.core.kernels.functions import TRANSCENDENTAL
from tracebridge.core.kernels.machine import machine, n_threads
from tracebridge.core.kernels.steps.arrays import not_cut
from tracebridge.core.kernels.steps.description import described, lines_of
from tracebridge.core.kernels.steps.dots import Dots
from tracebridge.core.kernels.steps.elementwise import Group
from tracebridge.core.kernels.steps.handler import handler, handler_of_parts, handler_of_tiles
from tracebridge.core.kernels.steps.parts import parts_of
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
from tracebridge.core.kernels.steps.parts import Parts


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
        remember_costs(name, *kernel.operations)
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

    Further operations of a step, bytes of memory of its own, parts for threads. ``steps``: how many
    at a time, if they are not all.
    """

    content: str
    write: Callable[[], str]
    lines: int
    operations: tuple[int, int]
    scratch: int
    parts: int
    steps: int | None = None


def written(params: Any) -> Written | None:
    """The kernel of a loop, whose body has no calls; None if it cannot have one."""
    body, reverse, length = params["jaxpr"], params["reverse"], params["length"]
    n_consts, n_carry = params["num_consts"], params["num_carry"]
    threads = n_threads()
    key = "parts", n_consts, n_carry, length, threads
    if key not in body.cache:  # asked for by the rewrite, then by the lowering
        tiled = tiles_of(body, n_consts, n_carry, length, threads)
        parts = None if tiled else parts_of(body, n_consts, n_carry, length, threads)
        body.cache[key] = tiled, parts
    tiled, parts = body.cache[key]
    found = None
    if tiled is not None:
        found = _tiled(body, n_consts, n_carry, reverse, tiled)
    elif parts is not None:
        found = _written(body, n_consts, n_carry, reverse, parts)
    return found or _written(body, n_consts, n_carry, reverse, None)


def _tiled(body: Jaxpr, n_consts: int, n_carry: int, reverse: bool, tiled: Tiled) -> Written | None:
    """The kernel that does tiles by themselves."""
    tiles = tiled.tiles
    key = "tiles", n_consts, n_carry, reverse, tiles
    if key not in body.cache:
        try:
            arrays = not_cut(tiled.body.in_avals, tiled.body.out_avals)
            plan = Plan(tiled.body, n_consts, n_carry, arrays)
        except NotWritten:
            body.cache[key] = None
        else:
            cheap, dear = operations(plan)
            body.cache[key] = Written(
                digest(described(plan, reverse, tiles, by_steps=True)),
                partial(_text_of_tile, plan, tiles, reverse),
                lines_of(plan, machine().lanes),
                (tiles.number * cheap, tiles.number * dear),
                plan.scratch + bytes_of_copies(plan, tiles),
                tiles.number,
                tiles.steps,
            )
    return body.cache[key]


def _written(
    body: Jaxpr, n_consts: int, n_carry: int, reverse: bool, parts: Parts | None
) -> Written | None:
    arrays = not_cut(body.in_avals, body.out_avals) if parts is None else parts.arrays
    key = "kernel", n_consts, n_carry, reverse, arrays
    if key not in body.cache:
        try:
            plan = Plan(body if parts is None else parts.body, n_consts, n_carry, arrays)
        except NotWritten:
            body.cache[key] = None
        else:
            lanes, count = machine().lanes, math.prod(arrays.counts)
            content = digest(described(plan, reverse, parts is None, by_steps=True))
            cheap, dear = operations(plan)
            body.cache[key] = Written(
                content,
                partial(_text, plan, reverse, parts is not None),
                lines_of(plan, lanes),
                (count * cheap, count * dear),
                plan.scratch,
                count,
            )
    return body.cache[key]


def _text(plan: Plan, reverse: bool, is_shared: bool) -> str:
    function = steps_function(plan, places_of_steps(plan, reverse), machine().lanes)
    return f"{function}\n{(handler_of_parts if is_shared else handler)(plan.arrays)}"


def _text_of_tile(plan: Plan, tiles: Tiles, reverse: bool) -> str:
    function = tile_function(plan, tiles, reverse, machine().lanes)
    return f"{function}\n{handler_of_tiles(plan.arrays)}"


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
