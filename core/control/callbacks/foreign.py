"""foreign_call: a function of another library, which knows how to derive and to batch itself."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.control.callbacks.base import CallbackPrimitive, in_sequence
from tracebridge.core.dtypes.dtypes import is_inexact
from tracebridge.core.ir.aval import ShapedArray, batched_aval
from tracebridge.core.ir.linear_input import is_linear_input
from tracebridge.core.lax.ad_util import zeros_of
from tracebridge.core.lax.batch_util import broadcast_batch, move_batch_axis
from tracebridge.core.lowering.embedding import Embedded, OfConsumer, call_embedded

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Value
    from tracebridge.core.runtime.arrays.array import Array


class ForeignFunction(abc.ABC):
    """A function on flat arrays that runs on the host, with the functions derived from it.

    Results are pure: derived functions compute again what they need.
    """

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """For messages: what was called with what."""

    @abc.abstractmethod
    def from_host(self, avals: Sequence[ShapedArray], *operands: Any) -> list[Any]:
        """Call with read-only ndarrays of a running program; gives ndarrays of types ``avals``."""

    @abc.abstractmethod
    def evaluate(self, avals: Sequence[ShapedArray], arrays: Sequence[Array]) -> list[Array]:
        """Call at once; the results are where the arguments are."""

    @abc.abstractmethod
    def jvp(self, wanted: tuple[int, ...]) -> ForeignFunction:
        """(arguments, tangents of the ``wanted`` ones) -> tangents of the inexact results."""

    @abc.abstractmethod
    def vjp(self, wanted: tuple[int, ...]) -> ForeignFunction:
        """(arguments, cotangents of inexact results) -> cotangents of the ``wanted`` arguments."""

    @abc.abstractmethod
    def batched(
        self, dims: tuple[int | None, ...], avals: Sequence[ShapedArray]
    ) -> ForeignFunction | None:
        """The function of arguments with a further axis at ``dims``, in front of every result.

        ``avals``: those of the batched arguments. None: it has to be called in turns.
        """

    def embedded(
        self, avals_in: Sequence[ShapedArray], avals_out: Sequence[ShapedArray]
    ) -> Embedded | OfConsumer | None:
        """The function as part of a program; None: programs call it on the host."""
        del avals_in, avals_out
        return None


class _ForeignPrimitive(CallbackPrimitive):
    """Calls ``callback``, a ForeignFunction, or has it as a part of the program."""

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        function: ForeignFunction = params["callback"]
        embedded = function.embedded(ctx.avals_in, ctx.avals_out)
        if embedded is not None:
            outs = call_embedded(ctx, embedded, operands, function.name)
            if outs is not None:
                return outs
        return super().lower(ctx, *operands, **params)


@final
class ForeignCall(_ForeignPrimitive):
    """``callback(*args)``, a ForeignFunction: it may be dropped, repeated or moved."""

    name = "foreign_call"

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        outs = self.bind(*primals, **params)
        return outs, _tangents(params["callback"], params["result_avals"], primals, tangents)

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        function: ForeignFunction = params["callback"]
        batched = _batched(function, args, dims)
        outs = [0] * len(params["result_avals"])
        if batched is None:
            return in_sequence(self, ctx.size, args, dims, params), outs
        avals = tuple([batched_aval(a, ctx.size) for a in params["result_avals"]])
        return self.bind(*args, callback=batched, result_avals=avals), outs


@final
class ForeignTangent(_ForeignPrimitive):
    """The tangents of the inexact results of ``of``: linear in the tangents of its arguments.

    Operands are the arguments of ``of``, then the tangents of the ``wanted`` ones; ``callback``
    is ``of.jvp(wanted)``.
    """

    name = "foreign_tangent"

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        outs = self.bind(*primals, **params)
        n = len(primals) - len(params["wanted"])
        if any([t is not None for t in tangents[:n]]):
            return outs, _tangents(params["callback"], params["result_avals"], primals, tangents)
        moved = [
            zeros_of(p.aval.tangent) if t is None else t
            for p, t in zip(primals[n:], tangents[n:], strict=True)
        ]
        return outs, self.bind(*primals[:n], *moved, **params)

    def transpose(self, ct: Sequence[Value | None], *args: Value, **params: Any) -> Sequence[Any]:
        wanted, of = params["wanted"], params["of"]
        n = len(args) - len(wanted)
        linear = [k for k in range(len(wanted)) if is_linear_input(args[n + k])]
        cts = [
            zeros_of(a) if c is None else c for c, a in zip(ct, params["result_avals"], strict=True)
        ]
        into = tuple([wanted[k] for k in linear])
        avals = tuple([args[n + k].aval for k in linear])
        results = foreign_call_p.bind(*args[:n], *cts, callback=of.vjp(into), result_avals=avals)
        found: list[Any] = [None] * len(args)
        for k, result in zip(linear, results, strict=True):
            found[n + k] = result
        return found

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        wanted, of = params["wanted"], params["of"]
        outs = [0] * len(params["result_avals"])
        n = len(args) - len(wanted)
        values, places = list(args), list(dims)
        # An argument and its tangent are batched alike: the tangents are those of the batched call.
        for k, i in enumerate(wanted):
            if places[i] is None and places[n + k] is None:
                continue
            for j in (i, n + k):
                d = places[j]
                values[j] = (
                    broadcast_batch(values[j], ctx.size, 0)
                    if d is None
                    else move_batch_axis(values[j], d, 0)
                )
                places[j] = 0
        batched = _batched(of, values[:n], places[:n])
        if batched is None:
            return in_sequence(self, ctx.size, args, dims, params), outs
        avals = tuple([batched_aval(a, ctx.size) for a in params["result_avals"]])
        # Unmapped tangents belong to unmapped arguments.
        results = self.bind(
            *values, callback=batched.jvp(wanted), of=batched, wanted=wanted, result_avals=avals
        )
        return results, outs


foreign_call_p = ForeignCall()
foreign_tangent_p = ForeignTangent()


def _tangents(
    function: ForeignFunction,
    result_avals: Sequence[ShapedArray],
    primals: Sequence[Value],
    tangents: Sequence[Value | None],
) -> list[Any]:
    """The tangents of the results; those of integers and bools are None."""
    inexact = [k for k, a in enumerate(result_avals) if is_inexact(a.dtype)]
    wanted = tuple([k for k, t in enumerate(tangents) if t is not None])
    outs: list[Any] = [None] * len(result_avals)
    if not inexact:
        return outs
    results = foreign_tangent_p.bind(
        *primals,
        *[tangents[k] for k in wanted],
        callback=function.jvp(wanted),
        of=function,
        wanted=wanted,
        result_avals=tuple([result_avals[k].tangent for k in inexact]),
    )
    for k, result in zip(inexact, results, strict=True):
        outs[k] = result
    return outs


def _batched(
    function: ForeignFunction, args: Sequence[Value], dims: Sequence[int | None]
) -> ForeignFunction | None:
    avals = [a.aval for a in args]
    sizes = {a.shape[d] for a, d in zip(avals, dims, strict=True) if d is not None}
    if 0 in sizes or not sizes:
        return None
    return function.batched(tuple(dims), avals)
