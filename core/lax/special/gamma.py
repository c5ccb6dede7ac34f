"""The gamma function and its kin: lgamma, digamma, polygamma; the Hurwitz zeta function."""

from __future__ import annotations

__all__ = [
    "digamma", "digamma_p", "lgamma", "lgamma_p", "polygamma", "polygamma_p", "zeta", "zeta_p",
]  # fmt: skip

import math
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import is_float
from tracebridge.core.errors.transform_errors import MissingRuleError
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.families import BinaryElementwise, FloatUnary, operands

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.ir.value import Operand, Value


@final
class Lgamma(FloatUnary):
    name = "lgamma"
    cost = Cost.EXPENSIVE
    hlo = "chlo.lgamma"

    def derivative(self, x: Value, ans: Value, **params: object) -> Any:
        return lax.digamma(x)


@final
class Digamma(FloatUnary):
    name = "digamma"
    cost = Cost.EXPENSIVE
    hlo = "chlo.digamma"

    def derivative(self, x: Value, ans: Value, **params: object) -> Any:
        return _trigamma(x)


def _trigamma(x: Value) -> Any:
    """``polygamma(1, x)``, also below -9, where CHLO's sum has not come to its tail."""
    zero = lax.full_like(x, 0)
    is_below = lax.lt(x, zero)
    above = lax.polygamma(1.0, lax.select(is_below, lax.sub(lax.full_like(x, 1), x), x))
    # The period is cut off first: far from 0 a product with pi has lost it.
    fraction = lax.select(is_below, lax.sub(x, lax.round(x)), lax.full_like(x, 0.5))
    waves = lax.div(math.pi, lax.sin(lax.mul(fraction, math.pi)))
    return lax.select(is_below, lax.sub(lax.mul(waves, waves), above), above)


class OfSecond(BinaryElementwise):
    """Two float operands; differentiable in the second one only."""

    cost = Cost.EXPENSIVE
    accepts = staticmethod(is_float)
    accepts_text = "floats"
    # Above this first operand the function goes to 0 at infinity, where CHLO's is NaN.
    vanishes_above: ClassVar[float]

    def recipe(self, *avals: ShapedArray, **params: Any) -> tuple[str, Any] | None:
        return None

    def lower_full(self, ctx: LoweringContext, *xs: IrValue, **params: Any) -> Any:
        aval = ctx.aval_out
        flags = aval.update(dtype=np.dtype(np.bool_), weak_type=False)
        inside = super().lower_full(ctx, *xs, **params)
        order = ctx.compare(xs[0], ctx.splat(self.vanishes_above, aval), flags, "GT")
        is_end = ctx.compare(xs[1], ctx.splat(math.inf, aval), flags, "EQ")
        is_zero = ctx.op1("stablehlo.and", [order, is_end], flags)
        return ctx.select(is_zero, ctx.splat(0.0, aval), inside, aval)

    def partial(self, i: int, t: Any, ans: Value, x: Operand, y: Operand, **params: object) -> Any:
        if i == 0:
            msg = f"{self.name} has no derivative in its first argument"
            raise MissingRuleError(self.name, "jvp", message=msg)
        return lax.mul(t, self.slope(x, y))

    def slope(self, x: object, y: object) -> Any:
        """The derivative in the second operand."""
        raise MissingRuleError(self.name, "jvp")


@final
class Polygamma(OfSecond):
    """The derivative of order m (the first operand) of digamma."""

    name = "polygamma"
    hlo = "chlo.polygamma"
    vanishes_above = 0.0

    def slope(self, x: Any, y: Any) -> Any:
        return lax.polygamma(lax.add(x, 1.0), y)


@final
class Zeta(OfSecond):
    """The sum of (q + n)**(-x)."""

    name = "zeta"
    hlo = "chlo.zeta"
    vanishes_above = 1.0

    def slope(self, x: Any, y: Any) -> Any:
        return lax.mul(lax.neg(x), lax.zeta(lax.add(x, 1.0), y))


lgamma_p = Lgamma()
digamma_p = Digamma()
polygamma_p = Polygamma()
zeta_p = Zeta()


def lgamma(x: Operand) -> Any:
    """Logarithm of the absolute value of the gamma function, elementwise, of floats.

    >>> import tracebridge as tb
    >>> float(tb.lax.lgamma(5.0))
    3.178054
    """
    return lgamma_p.bind(as_value(x, "lgamma"))


def digamma(x: Operand) -> Any:
    """Derivative of ``lgamma``, elementwise.

    >>> import tracebridge as tb
    >>> float(tb.lax.digamma(1.0))
    -0.5772157
    """
    return digamma_p.bind(as_value(x, "digamma"))


def polygamma(m: object, x: Operand) -> Any:
    """Derivative of order ``m`` of ``digamma`` at ``x``, elementwise.

    Args:
        m: order, a float that holds an integer; 0 gives ``digamma``.
        x: float array. Differentiable.

    >>> import tracebridge as tb
    >>> float(tb.lax.polygamma(1.0, 1.0))
    1.644934
    """
    return polygamma_p.bind(*operands("polygamma", m, x))


def zeta(x: Operand, q: object) -> Any:
    """Hurwitz zeta function, the sum of ``(q + n) ** -x`` over ``n = 0, 1, ...``, elementwise.

    Args:
        x: exponent, above 1.
        q: shift. Differentiable.

    >>> import tracebridge as tb
    >>> float(tb.lax.zeta(2.0, 1.0))
    1.644934
    """
    return zeta_p.bind(*operands("zeta", x, q))
