"""Lowering of scan to ``stablehlo.while``.

The loop carries a counter, the carries and one array per y; constants and xs are used from outside.
Loops of at most one round are written out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracebridge.core import lax
from tracebridge.core.config.values import option
from tracebridge.core.control.scan.orientation import turned
from tracebridge.core.control.scan.params import groups
from tracebridge.core.ir.aval import ShapedArray, batched_aval, element_aval, stored
from tracebridge.core.ir.cost import Cost
from tracebridge.core.lowering import tokens
from tracebridge.core.mlir.attrs import i64, i64_array
from tracebridge.core.mlir.types import is_static
from tracebridge.core.symbolic.compare import at_least

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.application import Params
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.ir.rule_contexts import LoweringContext


_I32 = ShapedArray((), np.dtype(np.int32))
_BOOL = ShapedArray((), np.dtype(np.bool_))
# What reads neighbours in the steps of a stencil. Not slices and pads, which were slower for it.
_NEIGHBOURS = frozenset({lax.roll_p, lax.rev_p})
_ELEMENTWISE = (Cost.FREE, Cost.CHEAP, Cost.EXPENSIVE, Cost.COMPOSED)
# Elements from which a copy of the carry counts, and how many equations may be written twice.
_MIN_STENCIL = 1 << 14
_MAX_STENCIL = 100


def lower_scan(ctx: LoweringContext, operands: Sequence[IrValue], params: Params) -> list[Any]:
    """The results: last carries, stacked ys."""
    loop = Loop(ctx, operands, params, groups(params, ctx.avals_in)[2])
    length, unroll = params["length"], params["unroll"]
    if type(length) is int and length <= unroll:
        return loop.written_out(length)
    by_two = unroll == 1 and type(length) is int and ctx.platform == "cpu"
    if by_two and option("platform_rules") and gains_by_two(params["jaxpr"], params["num_carry"]):
        loop.many = loop.is_split = True
        return loop.compiled(2)
    return loop.compiled(unroll)


def gains_by_two(body: Jaxpr, n_carry: int) -> bool:
    """Whether two steps per round are faster: those of a stencil on a CPU.

    A step that reads neighbours cannot write its result where it reads, so each round of one step
    ends with a copy of the carry. Two steps hand it to and fro between two arrays.
    """
    if len(body.equations) > _MAX_STENCIL:
        return False
    sizes = [a.size for a in body.out_avals[:n_carry]]
    if not any([type(size) is int and size >= _MIN_STENCIL for size in sizes]):
        return False
    kinds = {app.primitive for app, _ in body.equations}
    others = kinds - _NEIGHBOURS
    return len(others) < len(kinds) and all([p.cost in _ELEMENTWISE for p in others])


class Loop:
    """One scan while it is lowered."""

    def __init__(
        self,
        ctx: LoweringContext,
        operands: Sequence[Any],
        params: Params,
        avals_of_xs: Sequence[ShapedArray],
    ) -> None:
        self.ctx = ctx
        self.length = params["length"]
        self.reverse = params["reverse"]
        self.n_carry = params["num_carry"]
        consts, self.init, xs = groups(params, operands)
        self.jaxpr, self.consts = turned(ctx, params["jaxpr"], consts, self.length)
        x_avals = [stored(a) for a in avals_of_xs]
        self.y_avals = [stored(a) for a in ctx.avals_out[self.n_carry :]]
        if type(self.length) is not int:
            # A loop without steps is not run, but has to fit.
            rows = at_least(self.length, 1)
            pairs = [ctx.resized(x, a, 0, rows) for x, a in zip(xs, x_avals, strict=True)]
            xs, x_avals = [x for x, _ in pairs], [a for _, a in pairs]
            self.y_avals = [a.update(shape=(rows, *a.shape[1:])) for a in self.y_avals]
        self.xs, self.x_avals = xs, x_avals
        self.many = params["unroll"] > 1
        # Whether the steps of a round are kept apart.
        self.is_split = False

    def step(self, carry: Sequence[Any], slices: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """One call of the body: new carries, ys."""
        args = [*self.consts, *carry, *slices]
        if self.many:
            out = self.ctx.call_jaxpr(self.jaxpr, args, "scan_body")
        else:
            out = self.ctx.inline_jaxpr(self.jaxpr, args, "body")
        return out[: self.n_carry], out[self.n_carry :]

    def apart(self, carry: Sequence[Any], slices: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """A step whose results stand in memory before others are computed from them.

        XLA would fuse it with the next one and compute what that reads several times as often.
        """
        ctx = self.ctx
        # A carry that is also among the ys is one result.
        outs = {number: i for i, number in reversed(list(enumerate(self.jaxpr.outs)))}
        avals = [stored(self.jaxpr.out_avals[i]) for i in outs.values()]
        never = ctx.op1("stablehlo.optimization_barrier", [ctx.constant(False, _BOOL)], _BOOL)
        choice = ctx.op("stablehlo.if", [never], avals, regions=2)
        with ctx.block(choice.regions[0], []):
            ctx.finish([ctx.splat(_zero(a), a) for a in avals])
        with ctx.block(choice.regions[1], []):
            made = [v for part in self.step(carry, slices) for v in part]
            ctx.finish([made[i] for i in outs.values()])
        by_number = dict(zip(outs, choice.results, strict=True))
        results = [by_number[number] for number in self.jaxpr.outs]
        return results[: self.n_carry], results[self.n_carry :]

    # a few steps, one after the other ------------------------------------------------------------

    def written_out(self, length: int) -> list[Any]:
        """All steps without a loop."""
        carry = list(self.init)
        rows: dict[int, list[Any]] = {}
        for k in range(length):
            i = length - 1 - k if self.reverse else k
            carry, rows[i] = self.step(carry, [self.row(x, i) for x in range(len(self.xs))])
        ys = [self.joined(n, [rows[i][n] for i in range(length)]) for n in range(len(self.y_avals))]
        return [*carry, *ys]

    def row(self, n: int, i: int) -> Any:
        """Slice ``i`` of the n-th xs, for a static ``i``."""
        aval = self.x_avals[n]
        inner = element_aval(aval)
        one = batched_aval(inner, 1)
        shape = inner.shape
        starts = (i, *[0] * len(shape))
        part = self.ctx.slice(self.xs[n], one, starts, (i + 1, *shape), (1,) * aval.ndim)
        return self.ctx.reshape(part, inner)

    def joined(self, n: int, rows: list[Any]) -> Any:
        """The n-th ys of its rows."""
        ctx, aval = self.ctx, self.y_avals[n]
        if not rows:
            return ctx.splat(_zero(aval), aval)
        one = aval.update(shape=(1, *aval.shape[1:]))
        parts = [ctx.reshape(r, one) for r in rows]
        if len(parts) == 1:
            return parts[0]
        return ctx.op1("stablehlo.concatenate", parts, aval, {"dimension": i64(0)})

    # the loop ------------------------------------------------------------------------------------

    def compiled(self, unroll: int) -> list[Any]:
        """A while loop with ``unroll`` steps per round, and the remaining steps after it."""
        ctx = self.ctx
        rounds = self.length // unroll
        start, avals = self.start()

        def more(state: Sequence[Any]) -> Any:
            return ctx.compare(state[0], ctx.dim(rounds), _BOOL, "LT", "SIGNED")

        def body(state: Sequence[object]) -> list[Any]:
            count, *carried = state
            base = count if unroll == 1 else self._arith("multiply", count, ctx.splat(unroll, _I32))
            carried = self.steps(carried, base, unroll)
            return [self._arith("add", count, ctx.splat(1, _I32)), *carried]

        state = tokens.while_loop(
            ctx,
            self.jaxpr.effects,
            start,
            avals,
            more,
            body,
        )
        carried = list(state)[1:]
        if type(self.length) is int and self.length % unroll:
            done = ctx.splat(rounds * unroll, _I32)
            carried = self.steps(carried, done, self.length % unroll)
        ys = zip(carried[self.n_carry :], self.y_avals, strict=True)
        return [*carried[: self.n_carry], *[ctx.resized(y, a, 0, self.length)[0] for y, a in ys]]

    def start(self) -> tuple[list[Any], list[ShapedArray]]:
        """The first state of the loop and its avals: a counter, carries, ys."""
        ctx = self.ctx
        ys = [ctx.splat(_zero(a), a) for a in self.y_avals]
        carry_avals = [stored(a) for a in self.jaxpr.out_avals[: self.n_carry]]
        return [ctx.splat(0, _I32), *self.init, *ys], [_I32, *carry_avals, *self.y_avals]

    def steps(self, state: Sequence[object], base: object, count: int) -> list[Any]:
        """``count`` steps from step number ``base`` on."""
        ctx = self.ctx
        carry, ys = list(state[: self.n_carry]), list(state[self.n_carry :])
        for k in range(count):
            number = base if k == 0 else self._arith("add", base, ctx.splat(k, _I32))
            if self.reverse:
                number = self._arith("subtract", self.last(), number)
            slices = [self.read(n, number) for n in range(len(self.xs))]
            step = self.apart if self.is_split and k + 1 < count else self.step
            carry, rows = step(carry, slices)
            ys = [
                self.write(n, y, row, number)
                for n, (y, row) in enumerate(zip(ys, rows, strict=True))
            ]
        return [*carry, *ys]

    def last(self) -> Any:
        """The number of the last slice."""
        ctx = self.ctx
        return self._arith("subtract", ctx.dim(self.length), ctx.splat(1, _I32))

    def read(self, n: int, number: object) -> Any:
        """Slice ``number`` of the n-th xs."""
        ctx, aval = self.ctx, self.x_avals[n]
        inner = element_aval(aval)
        one = batched_aval(inner, 1)
        part = self._dynamic_slice(*self.source(n, number), one)
        return ctx.reshape(part, inner)

    def source(self, n: int, number: Any) -> tuple[Any, Any]:
        """Where slice ``number`` of the n-th xs stands: an array, and which slice of it."""
        return self.xs[n], number

    def write(self, n: int, y: Any, row: Any, number: Any) -> Any:
        """The n-th ys with slice ``number`` replaced."""
        ctx, aval = self.ctx, self.y_avals[n]
        one = aval.update(shape=(1, *aval.shape[1:]))
        operands = [y, ctx.reshape(row, one), *self._starts(number, aval.ndim - 1)]
        return ctx.op1("stablehlo.dynamic_update_slice", operands, aval)

    def _dynamic_slice(self, x: Any, number: object, one: ShapedArray) -> Any:
        """Slice ``number`` of ``x`` with its leading axis of size 1."""
        ctx = self.ctx
        if is_static(one):
            operands = [x, *self._starts(number, one.ndim - 1)]
            sizes = {"slice_sizes": i64_array(one.shape)}
            return ctx.op1("stablehlo.dynamic_slice", operands, one, sizes)
        # A size that is known at run time only: the slice is given by its bounds.
        single, vector = _I32.update(shape=(1,)), _I32.update(shape=(one.ndim,))
        parts = [ctx.reshape(s, single) for s in self._starts(number, one.ndim - 1)]
        starts = ctx.op1("stablehlo.concatenate", parts, vector, {"dimension": i64(0)})
        limits = ctx.op1("stablehlo.add", [starts, ctx.shape_tensor(one.shape)], vector)
        strides = ctx.dense(np.ones(one.ndim, np.int32))
        return ctx.op1("stablehlo.real_dynamic_slice", [x, starts, limits, strides], one)

    def _starts(self, number: object, n_rest: int) -> list[Any]:
        zero = self.ctx.splat(0, _I32)
        return [number, *[zero] * n_rest]

    def _arith(self, name: str, a: Any, b: Any) -> Any:
        return self.ctx.op1(f"stablehlo.{name}", [a, b], _I32)


def _zero(aval: ShapedArray) -> Any:
    return False if aval.dtype.kind == "b" else 0
