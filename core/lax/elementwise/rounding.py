"""Rounding and the grid of floats: floor, ceil, round, nextafter, is_finite."""

from __future__ import annotations

__all__ = [
    "RoundingMethod", "ceil", "ceil_p", "floor", "floor_p", "is_finite", "is_finite_p",
    "nextafter", "nextafter_p", "round", "round_p",
]  # fmt: skip

import enum
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tracebridge.core.dtypes.dtypes import is_float
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.families import BinaryElementwise, FloatUnary, operands
from tracebridge.core.util.public_path import public_path

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.ir.value import Operand, Value


@public_path("tracebridge.lax")
class RoundingMethod(enum.IntEnum):
    """Where ``round`` takes numbers that lie halfway between two integers.

    >>> import tracebridge as tb
    >>> tb.lax.RoundingMethod.TO_NEAREST_EVEN.value
    1
    """

    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


class Step(FloatUnary):
    """Piecewise constant: the derivative is zero wherever it exists."""

    cost = Cost.CHEAP
    differentiable = False


@final
class Floor(Step):
    name = "floor"
    hlo = "stablehlo.floor"


@final
class Ceil(Step):
    name = "ceil"
    hlo = "stablehlo.ceil"


@final
class Round(Step):
    """``rounding_method``: a RoundingMethod."""

    name = "round"

    def recipe(self, *avals: ShapedArray, **params: Any) -> Any:
        """One of two operations."""
        if params["rounding_method"] is RoundingMethod.TO_NEAREST_EVEN:
            return "stablehlo.round_nearest_even", None
        return "stablehlo.round_nearest_afz", None

    def lower_full(self, ctx: LoweringContext, *xs: IrValue, **params: Any) -> Any:
        name, _ = self.recipe(*ctx.avals_in, **params)
        return ctx.op1(name, xs, ctx.aval_out)


@final
class IsFinite(Step):
    name = "is_finite"
    hlo = "stablehlo.is_finite"

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        return super().abstract_eval(*avals, **params).update(dtype=np.bool_)


@final
class NextAfter(BinaryElementwise):
    """The float after x in the direction of y: for derivatives it is x."""

    name = "nextafter"
    cost = Cost.CHEAP
    hlo = "chlo.next_after"
    accepts = staticmethod(is_float)
    accepts_text = "floats"

    def partial(self, i: int, t: Value, ans: Value, x: Value, y: Value, **params: object) -> Any:
        return t if i == 0 else None


floor_p = Floor()
ceil_p = Ceil()
round_p = Round()
is_finite_p = IsFinite()
nextafter_p = NextAfter()


def floor(x: Operand) -> Any:
    """The largest integer not above ``x``, elementwise; the dtype stays.

    >>> import tracebridge as tb
    >>> float(tb.lax.floor(-1.5))
    -2.0
    """
    return floor_p.bind(as_value(x, "floor"))


def ceil(x: Operand) -> Any:
    """The smallest integer not below ``x``, elementwise; the dtype stays.

    >>> import tracebridge as tb
    >>> float(tb.lax.ceil(1.5))
    2.0
    """
    return ceil_p.bind(as_value(x, "ceil"))


def round(x: Operand, rounding_method: RoundingMethod = RoundingMethod.AWAY_FROM_ZERO) -> Any:
    """The nearest integer, elementwise; the dtype stays.

    Args:
        x: float array.
        rounding_method: where halves go.

    Raises:
        ArgumentValueError: ``rounding_method`` is no ``RoundingMethod``.

    >>> import tracebridge as tb
    >>> float(tb.lax.round(2.5)), float(tb.lax.round(2.5, tb.lax.RoundingMethod.TO_NEAREST_EVEN))
    (3.0, 2.0)
    """
    if type(rounding_method) is not RoundingMethod:
        if rounding_method not in (0, 1):
            msg = f"round: rounding_method={rounding_method!r}, expected a RoundingMethod"
            raise ArgumentValueError(msg)
        rounding_method = RoundingMethod(rounding_method)
    return round_p.bind(as_value(x, "round"), rounding_method=rounding_method)


def is_finite(x: Operand) -> Any:
    """Whether ``x`` is neither infinite nor NaN, elementwise, of floats.

    >>> import tracebridge as tb
    >>> bool(tb.lax.is_finite(float("inf")))
    False
    """
    return is_finite_p.bind(as_value(x, "is_finite"))


def nextafter(x1: object, x2: object) -> Any:
    """The float next to ``x1`` in the direction of ``x2``, elementwise.

    >>> import tracebridge as tb
    >>> float(tb.lax.nextafter(1.0, 2.0)) - 1.0
    1.1920929e-07
    """
    return nextafter_p.bind(*operands("nextafter", x1, x2))
