"""A loop as rounds of some steps, each of them one call of a kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.mlir.attrs import i64_array

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.application import Params
    from tracebridge.core.ir.rule_contexts import LoweringContext

_I32 = ShapedArray((), np.dtype(np.int32))
_BOOL = ShapedArray((), np.dtype(np.bool_))

Call = Callable[[Sequence[Any], Sequence[ShapedArray], Sequence[ShapedArray], int], list[Any]]
"""(operands, their avals, avals of results, number of steps) -> results"""


@final
class Rounds:
    """A scan of ``length`` steps, ``steps`` of them in a round."""

    def __init__(
        self,
        ctx: LoweringContext,
        operands: Sequence[IrValue],
        params: Params,
        steps: int,
        call: Call,
    ) -> None:
        self.ctx, self.steps, self.call = ctx, steps, call
        self.length, self.reverse = params["length"], params["reverse"]
        self.n_carry = params["num_carry"]
        n_consts, n_fixed = params["num_consts"], params["num_consts"] + self.n_carry
        self.consts, self.const_avals = operands[:n_consts], ctx.avals_in[:n_consts]
        self.init, self.carry_avals = operands[n_consts:n_fixed], ctx.avals_in[n_consts:n_fixed]
        self.xs, self.x_avals = operands[n_fixed:], ctx.avals_in[n_fixed:]
        self.y_avals = ctx.avals_out[self.n_carry :]

    def results(self) -> list[Any]:
        """Last carries, stacked ys.

        Two rounds are one of XLA's loop: a kernel cannot write where it reads, and after one call
        the carry would be copied. Two hand it to and fro.
        """
        ctx, n_rounds = self.ctx, self.length // self.steps
        ys = [ctx.splat(False if a.dtype.kind == "b" else 0, a) for a in self.y_avals]
        start = [ctx.splat(0, _I32), *self.init, *ys]

        def more(state: Sequence[Any]) -> Any:
            return ctx.compare(state[0], ctx.splat(n_rounds // 2, _I32), _BOOL, "LT", "SIGNED")

        def body(state: Sequence[Any]) -> list[Any]:
            done = self._arith("multiply", state[0], ctx.splat(2 * self.steps, _I32))
            made = self._round(state[1:], done, self.steps)
            done = self._arith("add", done, ctx.splat(self.steps, _I32))
            made = self._round(made, done, self.steps)
            return [self._arith("add", state[0], ctx.splat(1, _I32)), *made]

        avals = [_I32, *self.carry_avals, *self.y_avals]
        _, *made = ctx.while_loop(start, avals, more, body) if n_rounds > 1 else start
        done = n_rounds // 2 * 2 * self.steps
        while done < self.length:
            steps = min(self.steps, self.length - done)
            made = self._round(made, ctx.splat(done, _I32), steps)
            done += steps
        return list(made)

    def _round(self, state: Sequence[Any], done: Any, steps: int) -> list[Any]:
        """So many steps after those that are done."""
        ctx = self.ctx
        start = done
        if self.reverse:
            start = self._arith("subtract", ctx.splat(self.length - steps, _I32), done)
        carry, ys = list(state[: self.n_carry]), state[self.n_carry :]
        x_avals, y_avals = [
            [a.update(shape=(steps, *a.shape[1:])) for a in avals]
            for avals in (self.x_avals, self.y_avals)
        ]
        xs = [self._part(x, start, a) for x, a in zip(self.xs, x_avals, strict=True)]
        made = self.call(
            [*self.consts, *carry, *xs],
            [*self.const_avals, *self.carry_avals, *x_avals],
            [*self.carry_avals, *y_avals],
            steps,
        )
        parts = zip(ys, made[self.n_carry :], self.y_avals, strict=True)
        return [*made[: self.n_carry], *[self._with_part(y, p, start, a) for y, p, a in parts]]

    def _part(self, x: Any, start: Any, aval: ShapedArray) -> Any:
        sizes = {"slice_sizes": i64_array(aval.shape)}
        return self.ctx.op1("stablehlo.dynamic_slice", [x, *self._at(start, aval)], aval, sizes)

    def _with_part(self, y: Any, part: Any, start: Any, aval: ShapedArray) -> Any:
        operands = [y, part, *self._at(start, aval)]
        return self.ctx.op1("stablehlo.dynamic_update_slice", operands, aval)

    def _at(self, start: Any, aval: ShapedArray) -> list[Any]:
        return [start, *[self.ctx.splat(0, _I32)] * (aval.ndim - 1)]

    def _arith(self, name: str, a: Any, b: Any) -> Any:
        return self.ctx.op1(f"stablehlo.{name}", [a, b], _I32)
