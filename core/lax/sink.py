"""dce_sink: a use of values that dead code elimination does not drop."""

from __future__ import annotations

__all__ = ["dce_sink", "dce_sink_p"]

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, final

from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.effects import Effect, Effects
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.tree import tree

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Value


class Sink(Primitive):
    """Takes values and gives none; an effect keeps it from being dropped as dead code."""

    cost = Cost.OTHER
    multiple_results: ClassVar[bool] = True

    def abstract_eval(self, *avals: ShapedArray, **params: object) -> list[ShapedArray]:
        return []

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        return self.bind(*primals, **params), []

    def transpose(self, ct: Value, *args: Value, **params: Any) -> list[Any]:
        return [None] * len(args)

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        return self.bind(*args, **params), []


@final
class SinkEffect(Effect):
    """A value is to be computed although nobody uses it."""

    __slots__ = ()
    in_checkpoint = True
    in_batched_choice = True


_EFFECTS: Effects = frozenset({SinkEffect()})


@final
class DceSink(Sink):
    """Takes an operand and has no results; an effect keeps the equation.

    ``prevent_mlir_dce``: the operations before it stay in lowered modules. They always do here:
    modules are compiled as they are lowered.
    """

    name = "dce_sink"

    def effects(self, *avals: ShapedArray, **params: object) -> Effects:
        del avals, params
        return _EFFECTS

    def evaluate(self, arrays: Sequence[object], **params: object) -> list[Any]:
        """Eagerly: nothing, the value is there."""
        del arrays, params
        return []

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: object) -> Any:
        del ctx, operands, params
        return []


dce_sink_p = DceSink()


def dce_sink(val: object, *, prevent_mlir_dce: bool = False) -> None:
    """Compute ``val`` in programs, although nothing uses it.

    Args:
        val: array, number, or tree of them.
        prevent_mlir_dce: keep the operations in lowered modules; they are kept in any case.

    >>> import tracebridge as tb
    >>> def f(x):
    ...     tb.lax.dce_sink(tb.lax.sin(x))
    ...     return x
    >>> [str(eqn.primitive) for eqn in tb.make_jaxpr(f)(1.0).eqns]
    ['sin', 'dce_sink']
    """
    for leaf in tree.checked_flatten(val)[0]:
        dce_sink_p.bind(as_value(leaf), prevent_mlir_dce=bool(prevent_mlir_dce))
