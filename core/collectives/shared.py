"""Gradients of values that all elements of a named axis share: option ``reduce_axes``.

Whether a value is shared shows when the axis is batched: the value then has no batch axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core import lax
from tracebridge.core.collectives.axes import Collective, size_of_axis
from tracebridge.core.collectives.psum import psum_p
from tracebridge.core.errors.transform_errors import AxisSpecError
from tracebridge.core.ir.aval import ShapedArray

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Value


class _BesideValue(Collective):
    """Operands ``x`` and ``value``: linear in ``x``; ``value`` only tells what is shared.

    Parameter ``axes`` holds one name.
    """

    joins = False

    def vary_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: object
    ) -> Sequence[frozenset[Any]]:
        return [avals[0].vma]

    def abstract_eval(self, *avals: ShapedArray, **params: object) -> ShapedArray:
        return avals[0]

    def varying(self, app: Application, ins: Sequence[Any], walk: Any) -> Sequence[Any]:
        return walk.by_default(app, ins)

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        (x, value), (d, shared) = args, dims
        if not self.names_axis(ctx.axis_name, params):
            return self.bind(x, value, **params), d
        return self.resolve(x, d, ctx, shared=shared is None, **params)

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        (x, value), (t, _) = primals, tangents
        out = self.bind(x, value, **params)
        return out, None if t is None else self.bind(t, value, **params)

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        _, value = args
        return [psum_shared_p.bind(ct, value, **params), None]


@final
class MarkShared(_BesideValue):
    """``x`` itself, whose cotangent is summed over the axis if ``value`` is shared."""

    name = "mark_shared"

    def resolve(
        self, x: object, d: int | None, ctx: BatchContext, **params: object
    ) -> tuple[Any, Any]:
        return x, d

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: object) -> Any:
        """No batching needs it any more."""
        return operands[0]


@final
class PsumShared(_BesideValue):
    """The sum of ``x`` over the axis if ``value`` is shared, else ``x``."""

    name = "psum_shared"

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        """Replicas do not tell which values they share."""
        raise AxisSpecError(
            f"reduce_axes names the axis {params['axes'][0]!r}, which is no axis of vmap",
            hint="sum the gradient with lax.psum over axes of pmap",
        )

    def resolve(self, x: Any, d: int | None, ctx: BatchContext, **params: Any) -> tuple[Any, Any]:
        if not params["shared"]:
            return x, d
        if d is None:
            return psum_p.of_equal(x, ctx.size), None
        return lax.reduce_sum(x, (d,)), None


mark_shared_p = MarkShared()
psum_shared_p = PsumShared()


def mark_shared(x: Any, value: Any, axes: Sequence[Any]) -> Any:
    """``x``, whose cotangent is summed over those of the named ``axes`` that share ``value``."""
    for name in axes:
        x = mark_shared_p.bind(x, value, axes=(name,))
    return x


def psum_shared(x: Any, value: Any, axes: Sequence[Any]) -> Any:
    """The sum of ``x`` over those of the named ``axes`` whose elements share ``value``."""
    for name in axes:
        x = psum_shared_p.bind(x, value, axes=(name,))
    return x


def reduced_axes(call: str, reduce_axes: object) -> tuple[Any, ...]:
    """Option ``reduce_axes`` as a tuple of names, each of them bound.

    Raises:
        UnboundAxisNameError: no surrounding transformation binds a name.
    """
    names = tuple(reduce_axes) if isinstance(reduce_axes, tuple | list) else (reduce_axes,)
    for name in names:
        size_of_axis(call, name)
    return names
