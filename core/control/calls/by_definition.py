"""Primitives that are what a function of other operations says, under a name of their own."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracebridge.core.config.values import tracing_key
from tracebridge.core.control.calls.closed_call import closed_call_p
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.util.caching import BoundedCache

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Value

Program = tuple[Jaxpr, list[Any]]

_PROGRAMS: BoundedCache[Program] = BoundedCache("programs of primitives by definition", 512)


class ByDefinition(Primitive):
    """Programs show its name; what is derived from it is derived from its definition.

    It is for operations that programs look for by their primitive, though their derivatives and
    their batching are no better than what their parts give.
    """

    @abc.abstractmethod
    def define(self, *operands: Any, **params: Any) -> Any:
        """The result, a sequence where there are several, by other operations."""

    def _program(self, avals: Sequence[ShapedArray], params: dict[str, Any]) -> Program:
        """The Jaxpr of the definition, and the arrays that it takes before its operands."""
        types = tuple([a.with_split(None) for a in avals])
        key = self, types, *params.items(), tracing_key()
        found = _PROGRAMS.get(key)
        if found is None:
            hoisted: list[Any] = []

            def flat(*operands: Value) -> Sequence[Any]:
                out = self.define(*operands, **params)
                return out if self.multiple_results else [out]

            found = stage(flat, types, locate=False, hoisted=hoisted), hoisted
            _PROGRAMS.set(key, found)
        return found

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> Any:
        outs = self._program(avals, params)[0].out_avals
        return list(outs) if self.multiple_results else outs[0]

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        outs = ctx.lower_fun(self.define, *operands, **params)
        return outs if self.multiple_results else outs[0]

    def _given(self, results: Any) -> Any:
        """Results and what belongs to each, as lists, the way that this primitive has them."""
        outs, others = results
        return (outs, others) if self.multiple_results else (outs[0], others[0])

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        jaxpr, first = self._program([v.aval for v in primals], params)
        tangents = [*[None] * len(first), *tangents]
        return self._given(closed_call_p.jvp([*first, *primals], tangents, jaxpr=jaxpr))

    def linearize(
        self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any
    ) -> Any:
        """As the call of its definition."""
        jaxpr, first = self._program([v.aval for v in primals], params)
        tangents = [*[None] * len(first), *tangents]
        return self._given(closed_call_p.linearize([*first, *primals], tangents, jaxpr=jaxpr))

    def transpose(self, ct: Any, *args: Value, **params: Any) -> Sequence[Any]:
        avals = [a.aval for a in args]
        jaxpr, first = self._program(avals, params)
        cts = ct if self.multiple_results else [ct]
        return closed_call_p.transpose(cts, *first, *args, jaxpr=jaxpr)[len(first) :]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        avals = [
            a.aval if d is None else a.aval.update(_without(a.aval.shape, d))
            for a, d in zip(args, dims, strict=True)
        ]
        jaxpr, first = self._program(avals, params)
        dims = [*[None] * len(first), *dims]
        return self._given(closed_call_p.batch(ctx, [*first, *args], dims, jaxpr=jaxpr))


def _without(shape: Sequence[Any], axis: int) -> tuple[Any, ...]:
    return tuple([n for a, n in enumerate(shape) if a != axis])
