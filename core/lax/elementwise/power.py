"""Powers and roots: pow, integer_pow, sqrt, rsqrt, cbrt."""

from __future__ import annotations

__all__ = [
    "cbrt", "cbrt_p", "integer_pow", "integer_pow_p", "pow", "pow_p", "rsqrt", "rsqrt_p",
    "sqrt", "sqrt_p",
]  # fmt: skip

import math
from typing import TYPE_CHECKING, Any, final

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import is_complex, is_float, is_inexact, is_integer
from tracebridge.core.dtypes.finfo import finfo
from tracebridge.core.errors.argument_errors import index_of
from tracebridge.core.errors.dtype_errors import DtypeMismatchError, UnsupportedDtypeError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.values import Literal
from tracebridge.core.lax.accepted_dtypes import is_numeric
from tracebridge.core.lax.elementwise.accuracy import accuracy_params
from tracebridge.core.lax.families import (
    CONVERT_HINT,
    BinaryElementwise,
    InexactUnary,
    UnaryElementwise,
    operands,
    scalar_like,
)

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.ir.value import Operand, Value


@final
class Pow(BinaryElementwise):
    """The base is floating or complex; the exponent has its dtype, or is an integer."""

    name = "pow"
    cost = Cost.EXPENSIVE

    def check_dtypes(self, *avals: ShapedArray) -> None:
        x, y = avals
        if not is_inexact(x.dtype):
            msg = f"pow works on bases that are floats or complex numbers, got {x.dtype.name}"
            raise UnsupportedDtypeError(msg, hint=f"use integer_pow, or {CONVERT_HINT}")
        if y.dtype != x.dtype and not is_integer(y.dtype):
            msg = (
                f"pow: the exponent must be an integer or have the base's dtype {x.dtype.name}, "
                f"got {y.dtype.name}"
            )
            raise DtypeMismatchError(msg, hint=CONVERT_HINT)

    def abstract_eval(self, *avals: ShapedArray, **params: object) -> ShapedArray:
        out = super().abstract_eval(*avals)
        # The exponents of a weak base count for the kind of result: an array of them decides.
        weak = avals[0].weak_type and avals[1].weak_type
        return out.update(weak_type=weak) if is_integer(avals[1].dtype) else out

    def lower_full(self, ctx: LoweringContext, *xs: IrValue, **params: object) -> Any:
        x, y = xs
        if is_integer(ctx.avals_in[1].dtype):
            y = ctx.convert(y, ctx.aval_out)
        return ctx.op1("stablehlo.power", [x, y], ctx.aval_out)

    def partial(self, i: int, t: Any, ans: Any, x: Any, y: Any, **params: object) -> Any:
        if i == 1:
            return lax.mul(t, _slope_in_exponent(x, ans))
        if not is_integer(y.aval.dtype):
            return lax.mul(t, _slope_in_base(x, y))
        # An integer exponent 0 gives 0, and no 0 * inf at x = 0.
        is_zero = lax.eq(y, 0)
        less = lax.sub(lax.select_n(is_zero, y, scalar_like(y, 1)), 1)
        slope = lax.mul(lax.convert_dtype(y, x.aval.dtype), lax.pow(x, less))
        return lax.mul(t, lax.select_n(is_zero, slope, scalar_like(slope, 0)))


def _slope_in_exponent(x: Value, ans: Value) -> Any:
    """``log(x) ans``; at 0 and infinity, where it may be ``0 * inf``, what bases beside them have.

    At ``0**0`` it is 0, as for positive exponents.
    """
    bottom = lax.eq(x, 0.0)
    inside = lax.mul(lax.log(lax.select_n(bottom, x, scalar_like(x, 1))), ans)
    if is_complex(x.aval.dtype):
        return inside
    zero = scalar_like(ans, 0)
    infinite = lax.eq(lax.abs(ans), math.inf)
    inside = lax.select_n(bottom, inside, lax.select_n(infinite, zero, lax.neg(ans)))
    return lax.select_n(lax.eq(ans, 0.0), inside, zero)


def _slope_in_base(x: Value, y: Value) -> Any:
    """``y * x**(y - 1)``, without ``0 * inf`` at ``0**0`` and ``0.5**inf``: 0 there.

    Subnormal bases count as 0: their inverse overflows.
    """
    lost, factor = None, y
    if not is_complex(y.aval.dtype):
        lost = _lost_below(y)
        limit = float(finfo(y.aval.dtype).max)
        y = lax.clamp(scalar_like(y, -limit), y, scalar_like(y, limit))
    constant = lax.bitwise_and(lax.lt(lax.abs(x), _tiny(x)), lax.eq(y, 0.0))
    like = y if y.aval.ndim else x
    less = lax.sub(lax.select_n(constant, y, scalar_like(like, 1)), 1.0)
    power = lax.pow(x, less)
    if lost is not None:
        # An infinite exponent counts as one but where the power has vanished.
        factor = lax.select_n(lax.eq(power, 0.0), factor, y)
    slope = lax.mul(factor, power)
    return slope if lost is None else lax.mul(slope, _power_of_lost(x, lost))


def _tiny(x: Value) -> float:
    return float(finfo(x.aval.dtype).smallest_normal)


def _lost_below(y: Value) -> Any:
    """What the rounding of ``y - 1`` loses."""
    # A one that XLA does not know: it would turn (y - 1) + 1 into y.
    one = lax.select_n(lax.ne(y, y), scalar_like(y, 1), scalar_like(y, 2))
    lost = lax.sub(y, lax.add(lax.sub(y, 1.0), one))
    return lax.select_n(lax.eq(lax.abs(y), math.inf), lost, scalar_like(y, 0))


def _power_of_lost(x: Value, lost: Value) -> Any:
    """``x**lost``, which is 1 but for the last digits."""
    size = lax.abs(x)
    # Of subnormal numbers the logarithm of XLA's CPU compiler is infinite.
    inside = lax.bitwise_and(lax.ge(size, _tiny(x)), lax.lt(size, math.inf))
    log = lax.log(lax.select_n(inside, scalar_like(x, 1), size))
    return lax.add(lax.mul(log, lost), 1.0)


@final
class IntegerPow(UnaryElementwise):
    """``x ** y`` for a static int ``y``, by repeated multiplication."""

    name = "integer_pow"
    cost = Cost.CHEAP
    accepts = staticmethod(is_numeric)
    accepts_text = "integers, floats and complex numbers"

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        if params["y"] < 0 and not is_inexact(avals[0].dtype):
            msg = f"integer_pow: {avals[0].dtype.name} has no negative powers, got {params['y']}"
            raise UnsupportedDtypeError(msg, hint="convert to a float with convert_element_type")
        return super().abstract_eval(*avals, **params)

    def lower_full(self, ctx: LoweringContext, *xs: IrValue, **params: Any) -> Any:
        (x,), aval, y = xs, ctx.aval_out, params["y"]
        result, n = None, y if y >= 0 else -y
        while n:
            if n & 1:
                result = x if result is None else ctx.op1("stablehlo.multiply", [result, x], aval)
            n >>= 1
            if n:
                x = ctx.op1("stablehlo.multiply", [x, x], aval)
        one = ctx.splat(1, aval) if y <= 0 else None
        if result is None:
            return one
        return result if one is None else ctx.op1("stablehlo.divide", [one, result], aval)

    def tangent(self, t: Any, x: Value, ans: Value, **params: Any) -> Any:
        y = params["y"]
        if y == 0:
            return None
        return lax.mul(t, lax.mul(lax.integer_pow(x, y - 1), float(y)))


@final
class Sqrt(InexactUnary):
    name = "sqrt"
    cost = Cost.CHEAP
    hlo = "stablehlo.sqrt"

    def derivative(self, x: Value, ans: Value, **params: object) -> Any:
        return lax.div(0.5, ans)


@final
class Rsqrt(InexactUnary):
    name = "rsqrt"
    cost = Cost.CHEAP
    hlo = "stablehlo.rsqrt"

    def derivative(self, x: Value, ans: Value, **params: object) -> Any:
        # The product first: of float16 the quotient overflows before the slope does.
        return lax.div(lax.mul(ans, -0.5), x)


@final
class Cbrt(InexactUnary):
    name = "cbrt"
    hlo = "stablehlo.cbrt"
    accepts = staticmethod(is_float)
    accepts_text = "floats"

    def derivative(self, x: Value, ans: Value, **params: object) -> Any:
        return lax.mul(lax.integer_pow(ans, -2), 1 / 3)


pow_p = Pow()
integer_pow_p = IntegerPow()
sqrt_p = Sqrt()
rsqrt_p = Rsqrt()
cbrt_p = Cbrt()


def pow(x: Operand, y: Operand) -> Any:
    """``x ** y``, elementwise.

    Args:
        x: floating or complex base.
        y: exponent of the same dtype, or an integer.

    >>> import tracebridge as tb
    >>> float(tb.lax.pow(2.0, 0.5)), float(tb.lax.pow(-2.0, 3))
    (1.414214, -8.0)
    """
    base, exponent = as_value(x, "pow"), as_value(y, "pow")
    numbers = type(exponent) is Literal or (type(base) is Literal and is_inexact(base.aval.dtype))
    if numbers and is_integer(exponent.aval.dtype):
        return pow_p.bind(base, exponent)
    return pow_p.bind(*operands("pow", x, y))


def integer_pow(x: Operand, y: int) -> Any:
    """``x ** y`` for a Python int ``y``, elementwise, by repeated multiplication.

    Args:
        x: array of numbers; integers only with ``y >= 0``.
        y: exponent.

    >>> import tracebridge as tb
    >>> int(tb.lax.integer_pow(3, 4)), float(tb.lax.integer_pow(2.0, -2))
    (81, 0.25)
    """
    base, exponent = as_value(x, "integer_pow"), index_of(y, "integer_pow", "y")
    if exponent == 1 and is_numeric(base.aval.dtype):
        return base
    return integer_pow_p.bind(base, y=exponent)


def sqrt(x: Operand, *, accuracy: object = None) -> Any:
    """Square root, elementwise; NaN for negative floats, the principal root of complex numbers.

    >>> import tracebridge as tb
    >>> float(tb.lax.sqrt(2.25))
    1.5
    """
    return sqrt_p.bind(as_value(x, "sqrt"), **accuracy_params("sqrt", accuracy))


def rsqrt(x: Operand, *, accuracy: object = None) -> Any:
    """``1 / sqrt(x)``, elementwise.

    >>> import tracebridge as tb
    >>> float(tb.lax.rsqrt(4.0))
    0.5
    """
    return rsqrt_p.bind(as_value(x, "rsqrt"), **accuracy_params("rsqrt", accuracy))


def cbrt(x: Operand, *, accuracy: object = None) -> Any:
    """Cube root, elementwise; real also for negative floats.

    >>> import tracebridge as tb
    >>> float(tb.lax.cbrt(-8.0))
    -2.0
    """
    return cbrt_p.bind(as_value(x, "cbrt"), **accuracy_params("cbrt", accuracy))
