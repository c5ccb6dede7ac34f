"""Loops over arrays that are made for a few steps at a time, shortly before these steps need them.

What a loop alone reads, slice by slice, need not stand in memory for all steps at once: factors of
a backward loop that are computed from what the forward loop has kept, say. They are vectorised over
a block of steps as over all of them, and a block stays in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tracebridge.core.control.scan.lowering import Loop, gains_by_two
from tracebridge.core.control.scan.params import groups
from tracebridge.core.ir.aval import ShapedArray, batched_aval, stored
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.mlir.attrs import i64_array

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.application import Application, Params
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.ir.rule_contexts import LoweringContext

_I32 = ShapedArray((), np.dtype(np.int32))
_BOOL = ShapedArray((), np.dtype(np.bool_))


@final
class ScanByBlocks(Primitive):
    """A scan of which some xs are made within the loop.

    Operands are consts, carries, the other xs, and what ``program`` takes: numbers, and arrays with
    the axis of steps. It makes ``block`` steps of the xs at the positions ``made`` of so many steps
    of these arrays. The other parameters are those of scan. It is made while programs are lowered:
    nobody transforms it.
    """

    name = "scan_by_blocks"
    cost = Cost.OTHER
    multiple_results = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> Sequence[ShapedArray]:
        outs, n_carry = params["jaxpr"].out_avals, params["num_carry"]
        ys = [batched_aval(a, params["length"]) for a in outs[n_carry:]]
        return [*outs[:n_carry], *ys]

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        return _BlockLoop(ctx, operands, params).results()


class _BlockLoop(Loop):
    """A round for each block, and in it one for each step."""

    def __init__(self, ctx: LoweringContext, operands: Sequence[Any], params: Params) -> None:
        body, length, made = params["jaxpr"], params["length"], params["made"]
        fixed = params["num_consts"] + params["num_carry"]
        n_there = body.n_in - len(made)
        self.sources, self.source_avals = operands[n_there:], ctx.avals_in[n_there:]
        there = iter(operands[fixed:n_there])
        xs = [None if i in made else next(there) for i in range(body.n_in - fixed)]
        x_avals = [batched_aval(a, length) for a in groups(params, body.in_avals)[2]]
        super().__init__(ctx, [*operands[:fixed], *xs], params, x_avals)
        self.program: Jaxpr = params["program"]
        self.made, self.block = made, params["block"]
        self.blocks: dict[int, Any] = {}
        self.base: Any = None

    def results(self) -> list[Any]:
        """Last carries, stacked ys."""
        ctx = self.ctx
        state, avals = self.start()

        def run_block(state: Sequence[Any]) -> list[Any]:
            end = self._arith("add", state[0], ctx.splat(self.block, _I32))
            end = self._arith("minimum", end, ctx.dim(self.length))
            self.make(state[0])

            def is_inside(state: Sequence[Any]) -> Any:
                return ctx.compare(state[0], end, _BOOL, "LT", "SIGNED")

            return ctx.while_loop(state, avals, is_inside, self.round)

        def more(state: Sequence[Any]) -> Any:
            return ctx.compare(state[0], ctx.dim(self.length), _BOOL, "LT", "SIGNED")

        return list(ctx.while_loop(state, avals, more, run_block))[1:]

    def round(self, state: Sequence[Any]) -> list[Any]:
        """One step."""
        count, *carried = state
        carried = self.steps(carried, count, 1)
        return [self._arith("add", count, self.ctx.splat(1, _I32)), *carried]

    def make(self, count: Any) -> None:
        """The slices of the block whose first step is number ``count`` of those to take.

        The last block begins where it has all its slices: some of them have been used already.
        """
        ctx, block = self.ctx, self.block
        if self.reverse:
            before = self._arith("subtract", ctx.dim(self.length), ctx.splat(block, _I32))
            base = self._arith("subtract", before, count)
            self.base = self._arith("maximum", base, ctx.splat(0, _I32))
        else:
            last = ctx.splat(self.length - block, _I32)
            self.base = self._arith("minimum", count, last)
        parts = [self.part(x, a) for x, a in zip(self.sources, self.source_avals, strict=True)]
        made = ctx.inline_jaxpr(self.program, parts)
        self.blocks = dict(zip(self.made, made, strict=True))

    def part(self, x: Any, aval: ShapedArray) -> Any:
        """A block of an array; numbers are the same in each."""
        if not aval.ndim:
            return x
        aval = stored(aval)  # keys have an axis more
        part = aval.update(shape=(self.block, *aval.shape[1:]))
        operands = [x, *self._starts(self.base, aval.ndim - 1)]
        sizes = {"slice_sizes": i64_array(part.shape)}
        return self.ctx.op1("stablehlo.dynamic_slice", operands, part, sizes)

    def source(self, n: int, number: Any) -> tuple[Any, Any]:
        if n not in self.blocks:
            return super().source(n, number)
        return self.blocks[n], self._arith("subtract", number, self.base)


scan_by_blocks_p = ScanByBlocks()

Replace = Callable[["Jaxpr", Sequence[int], int], "tuple[Primitive, dict[str, Any]]"]


def by_blocks(app: Application) -> tuple[int, int, Replace] | None:
    """Of a scan: the position of its first xs, its length, and what makes the loop by blocks.

    That takes the program of the blocks, which xs it makes, and the size of the blocks. None: the
    loop has to stay as it is.
    """
    params, body = app.params, app.params["jaxpr"]
    length, n_carry = params["length"], params["num_carry"]
    if type(length) is not int or params["unroll"] != 1 or app.effects:
        return None
    if gains_by_two(body, n_carry):
        return None

    def replace(
        program: Jaxpr, made: Sequence[int], block: int
    ) -> tuple[Primitive, dict[str, Any]]:
        more = {"program": program, "made": tuple(made), "block": block}
        return scan_by_blocks_p, {**params, **more}

    return params["num_consts"] + n_carry, length, replace
