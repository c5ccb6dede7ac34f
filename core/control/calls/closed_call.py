"""Calls of a Jaxpr: the rules that jit and closed_call share, and closed_call itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.interpreters.batching import batch_jaxpr
from tracebridge.core.interpreters.dce import dce_jaxpr
from tracebridge.core.interpreters.jvp import jvp_jaxpr
from tracebridge.core.interpreters.linearize import linearize_jaxpr
from tracebridge.core.interpreters.low import call_low
from tracebridge.core.interpreters.partial_eval import partial_eval_jaxpr
from tracebridge.core.interpreters.split_by_known import unknown_outs
from tracebridge.core.interpreters.transpose import transpose_jaxpr
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.higher_order import HigherOrderPrimitive
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.linear_input import is_linear_input
from tracebridge.core.lax.batch_util import mapped_to_front
from tracebridge.core.util.public_path import public_path

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.application import Application, Params
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Value


@public_path("tracebridge.extend.core")
class CallPrimitive(HigherOrderPrimitive):
    """Calls parameter ``jaxpr``; other parameters say how. One equation, one function."""

    inlinable = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> list[ShapedArray]:
        del avals
        return list(params["jaxpr"].out_avals)

    def with_jaxpr(self, params: Params, jaxpr: Jaxpr, suffix: str) -> dict[str, Any]:
        """The parameters of a call of a derived Jaxpr; ``suffix`` says what it was derived by."""
        del suffix
        return {**params, "jaxpr": jaxpr}

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        name = str(params.get("name") or self.name)
        return ctx.call_jaxpr(params["jaxpr"], operands, name)

    def low(self, args: Sequence[Any], outs: Sequence[Any], **params: Any) -> list[Any]:
        def bind(arrays: list[Any], jaxpr: Jaxpr) -> list[Any]:
            return self.bind(*arrays, **self.with_jaxpr(params, jaxpr, "low"))

        return call_low(bind, params["jaxpr"], args, outs)

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        nonzero = tuple([t is not None for t in tangents])
        jaxpr, nonzero_out = jvp_jaxpr(params["jaxpr"], nonzero)
        given = [t for t in tangents if t is not None]
        results = self.bind(*primals, *given, **self.with_jaxpr(params, jaxpr, "jvp"))
        n = len(nonzero_out)
        rest = iter(results[n:])
        return results[:n], [next(rest) if nz else None for nz in nonzero_out]

    def linearize(
        self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any
    ) -> Any:
        """Two calls: the primal with residuals as further results, and the linear part."""
        nonzero = tuple([t is not None for t in tangents])
        split = linearize_jaxpr(params["jaxpr"], nonzero)
        results = self.bind(*primals, **self.with_jaxpr(params, split.primal, "fwd"))
        n = len(split.nonzero_out)
        residuals = [*[primals[i] for i in split.forwarded], *results[n:]]
        given = [t for t in tangents if t is not None]
        linear = self.with_jaxpr(params, split.linear, "lin")
        out = iter(self.bind(*residuals, *given, **linear) if any(split.nonzero_out) else ())
        return results[:n], [next(out) if nz else None for nz in split.nonzero_out]

    def transpose(self, ct: Sequence[Value | None], *args: Value, **params: Any) -> Sequence[Any]:
        linear = tuple([is_linear_input(a) for a in args])
        ct_in = tuple([c is not None for c in ct])
        jaxpr, present = transpose_jaxpr(params["jaxpr"], linear, ct_in, instantiate=False)
        if not any(present):
            return [None] * len(args)
        values = [a for a, is_linear in zip(args, linear, strict=True) if not is_linear]
        cts = [c for c in ct if c is not None]
        results = iter(self.bind(*values, *cts, **self.with_jaxpr(params, jaxpr, "transpose")))
        given = iter([next(results) if p else None for p in present])
        return [next(given) if is_linear else None for is_linear in linear]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        moved, in_dims = mapped_to_front(args, dims)
        jaxpr, out_dims = batch_jaxpr(params["jaxpr"], ctx.size, ctx.axis, in_dims)
        return self.bind(*moved, **self.with_jaxpr(params, jaxpr, "vmap")), list(out_dims)

    def unknown_outs(self, unknown: tuple[bool, ...], **params: Any) -> Sequence[bool]:
        """Which results depend on unknown arguments."""
        return unknown_outs(params["jaxpr"], unknown)

    def split_by_known(
        self, unknown: tuple[bool, ...], args: Sequence[Value], **params: Any
    ) -> list[Any]:
        """Two calls: of the part that needs known arguments only, and of the rest."""
        split = partial_eval_jaxpr(params["jaxpr"], unknown)
        known_args = [a for a, u in zip(args, unknown, strict=True) if not u]
        known = self.bind(*known_args, **self.with_jaxpr(params, split.known, "known"))
        n_known = len(known) - split.n_residuals
        rest = [*known[n_known:], *[a for a, u in zip(args, unknown, strict=True) if u]]
        others = iter(self.bind(*rest, **self.with_jaxpr(params, split.unknown, "unknown")))
        given = iter(known[:n_known])
        return [next(others) if u else next(given) for u in split.unknown_out]

    def dce(
        self, used_outs: tuple[bool, ...], app: Application
    ) -> tuple[Any, list[bool], list[bool]]:
        """The call without unused results and the inputs that only they need."""
        jaxpr, used_in = dce_jaxpr(app.params["jaxpr"], used_outs)
        avals = tuple([a for a, u in zip(app.avals, used_in, strict=True) if u])
        params = self.with_jaxpr(app.params, jaxpr, "dce")
        return self.application(avals, params), list(used_in), list(used_outs)


@final
class ClosedCall(CallPrimitive):
    """A call without properties of its own."""

    name = "closed_call"


closed_call_p = ClosedCall()


def closed_call(jaxpr: Jaxpr, *args: Any) -> list[Any]:
    """Call ``jaxpr`` as one equation."""
    return closed_call_p.bind(*args, jaxpr=jaxpr)
