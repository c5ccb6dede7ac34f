"""Trigonometric functions and their inverses."""

from __future__ import annotations

__all__ = [
    "acos", "acos_p", "asin", "asin_p", "atan", "atan2", "atan2_p", "atan_p", "cos", "cos_p",
    "sin", "sin_p", "tan", "tan_p",
]  # fmt: skip

from typing import TYPE_CHECKING, Any, final

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import is_complex, is_inexact
from tracebridge.core.dtypes.finfo import finfo
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.elementwise.accuracy import accuracy_params
from tracebridge.core.lax.families import (
    BinaryElementwise,
    InexactUnary,
    one_less_square,
    operands,
    scalar_like,
    shifted,
)

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Operand, Value


@final
class Sin(InexactUnary):
    name = "sin"
    cost = Cost.COMPOSED
    hlo = "stablehlo.sine"

    def derivative(self, x: Value, ans: Value, **params: Any) -> Any:
        return cos_p.bind(x, **params)


@final
class Cos(InexactUnary):
    name = "cos"
    cost = Cost.COMPOSED
    hlo = "stablehlo.cosine"

    def derivative(self, x: Value, ans: Value, **params: Any) -> Any:
        return lax.neg(sin_p.bind(x, **params))


@final
class Tan(InexactUnary):
    name = "tan"
    cost = Cost.COMPOSED
    hlo = "stablehlo.tan"

    def derivative(self, x: Value, ans: Value, **params: object) -> Any:
        return lax.add(lax.square(ans), 1.0)


def asin_slope(z: Any) -> Any:
    """The derivative of the inverse sine of complex numbers.

    The root of the product would be that of the other side on the cuts, where a sum with 1 or a
    square loses the sign of zero, and infinite before the slope vanishes.
    """
    return lax.mul(lax.rsqrt(shifted(lax.neg(z), 1.0)), lax.rsqrt(shifted(z, 1.0)))


@final
class Asin(InexactUnary):
    name = "asin"
    cost = Cost.COMPOSED
    hlo = "chlo.asin"
    by_float32 = True

    def derivative(self, x: Value, ans: Value, **params: object) -> Any:
        if is_complex(x.aval.dtype):
            return asin_slope(x)
        return lax.rsqrt(one_less_square(x))


@final
class Acos(InexactUnary):
    name = "acos"
    cost = Cost.COMPOSED
    hlo = "chlo.acos"
    by_float32 = True

    def derivative(self, x: Value, ans: Value, **params: object) -> Any:
        if is_complex(x.aval.dtype):
            return lax.neg(asin_slope(x))
        return lax.neg(lax.rsqrt(one_less_square(x)))


@final
class Atan(InexactUnary):
    name = "atan"
    cost = Cost.COMPOSED
    hlo = "chlo.atan"

    def tangent(self, t: Any, x: Value, ans: Value, **params: object) -> Any:
        if is_complex(x.aval.dtype):
            # By factors, which keep their digits beside the poles.
            turned = lax.complex(lax.neg(lax.imag(x)), lax.real(x))
            return lax.div(t, lax.mul(shifted(turned, 1.0), shifted(lax.neg(turned), 1.0)))
        # The slope has vanished before the square, or its own slope, overflows.
        limit = scalar_like(x, float(finfo(x.aval.dtype).max) ** 0.5)
        x = lax.select_n(lax.gt(lax.abs(x), limit), x, lax.full_like(x, limit))
        return lax.div(t, lax.add(lax.square(x), 1.0))


@final
class Atan2(BinaryElementwise):
    """The angle of the point with ordinate x (the first operand) and abscissa y."""

    name = "atan2"
    cost = Cost.COMPOSED
    hlo = "stablehlo.atan2"

    accepts = staticmethod(is_inexact)
    accepts_text = "floats and complex numbers"

    def partial(self, i: int, t: Any, ans: Value, x: Any, y: Any, **params: object) -> Any:
        if is_complex(ans.aval.dtype):
            square = lax.add(lax.square(x), lax.square(y))
            return lax.mul(t, lax.div(y if i == 0 else lax.neg(x), square))
        # By the ratio of the smaller to the larger one, so that no square overflows or vanishes,
        # also where XLA makes of two divisions one by the product.
        limit = float(finfo(ans.aval.dtype).max) / 4
        x, y = (lax.clamp(scalar_like(v, -limit), v, scalar_like(v, limit)) for v in (x, y))
        size = lax.max(lax.abs(x), lax.abs(y))
        is_flat = lax.ge(lax.abs(y), lax.abs(x))
        large, small = lax.select_n(is_flat, x, y), lax.select_n(is_flat, y, x)
        ratio, one = lax.div(small, large), lax.full_like(size, 1)
        share = lax.select_n(is_flat, ratio, one) if i == 0 else lax.select_n(is_flat, one, ratio)
        slope = lax.div(share, lax.mul(large, lax.add(lax.square(ratio), 1.0)))
        # At infinity the limit, 0.
        outside = lax.ge(size, scalar_like(size, limit))
        slope = lax.select(outside, lax.full_like(size, 0), slope)
        return lax.mul(t, slope if i == 0 else lax.neg(slope))


sin_p = Sin()
cos_p = Cos()
tan_p = Tan()
asin_p = Asin()
acos_p = Acos()
atan_p = Atan()
atan2_p = Atan2()


def sin(x: Operand, *, accuracy: object = None) -> Any:
    """Sine, elementwise, of floats or complex numbers.

    >>> import tracebridge as tb
    >>> float(tb.lax.sin(0.0))
    0.0
    """
    return sin_p.bind(as_value(x, "sin"), **accuracy_params("sin", accuracy))


def cos(x: Operand, *, accuracy: object = None) -> Any:
    """Cosine, elementwise, of floats or complex numbers.

    >>> import tracebridge as tb
    >>> float(tb.lax.cos(0.0))
    1.0
    """
    return cos_p.bind(as_value(x, "cos"), **accuracy_params("cos", accuracy))


def tan(x: Operand, *, accuracy: object = None) -> Any:
    """Tangent, elementwise, of floats or complex numbers.

    >>> import tracebridge as tb
    >>> float(tb.lax.tan(1.0))
    1.557408
    """
    return tan_p.bind(as_value(x, "tan"), **accuracy_params("tan", accuracy))


def asin(x: Operand) -> Any:
    """Inverse sine, elementwise; NaN for floats outside [-1, 1].

    >>> import tracebridge as tb
    >>> float(tb.lax.asin(1.0))
    1.570796
    """
    return asin_p.bind(as_value(x, "asin"))


def acos(x: Operand) -> Any:
    """Inverse cosine, elementwise; NaN for floats outside [-1, 1].

    >>> import tracebridge as tb
    >>> float(tb.lax.acos(0.0))
    1.570796
    """
    return acos_p.bind(as_value(x, "acos"))


def atan(x: Operand) -> Any:
    """Inverse tangent, elementwise.

    >>> import tracebridge as tb
    >>> float(tb.lax.atan(1.0))
    0.7853982
    """
    return atan_p.bind(as_value(x, "atan"))


def atan2(x: Operand, y: Operand) -> Any:
    """The angle of the point with ordinate ``x`` and abscissa ``y``, in [-pi, pi], elementwise.

    >>> import tracebridge as tb
    >>> float(tb.lax.atan2(1.0, -1.0))
    2.356194
    """
    return atan2_p.bind(*operands("atan2", x, y))
