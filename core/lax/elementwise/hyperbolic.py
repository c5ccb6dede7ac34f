"""Hyperbolic functions and their inverses."""

from __future__ import annotations

__all__ = [
    "acosh", "acosh_p", "asinh", "asinh_p", "atanh", "atanh_p", "cosh", "cosh_p", "sinh",
    "sinh_p", "tanh", "tanh_p",
]  # fmt: skip

from typing import TYPE_CHECKING, Any, final

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import is_complex
from tracebridge.core.dtypes.finfo import finfo
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.elementwise.accuracy import accuracy_params
from tracebridge.core.lax.elementwise.trig import asin_slope
from tracebridge.core.lax.families import (
    InexactUnary,
    is_narrow,
    logistic_slope,
    one_less_square,
    scalar_like,
    shifted,
)

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Operand, Value


@final
class Sinh(InexactUnary):
    name = "sinh"
    hlo = "chlo.sinh"

    def derivative(self, x: Value, ans: Value, **params: object) -> Any:
        return lax.cosh(x)


@final
class Cosh(InexactUnary):
    name = "cosh"
    hlo = "chlo.cosh"

    def derivative(self, x: Value, ans: Value, **params: object) -> Any:
        return lax.sinh(x)


@final
class Tanh(InexactUnary):
    name = "tanh"
    hlo = "stablehlo.tanh"

    def derivative(self, x: Value, ans: Value, **params: object) -> Any:
        if is_narrow(x.aval.dtype):
            return lax.mul(logistic_slope(lax.add(x, x)), 4.0)
        # Keeps more digits near 1 than 1 - ans * ans.
        return lax.mul(lax.add(ans, 1.0), lax.sub(1.0, ans))


@final
class Asinh(InexactUnary):
    name = "asinh"
    hlo = "chlo.asinh"
    by_float32 = True

    def derivative(self, x: Value, ans: Value, **params: object) -> Any:
        if is_complex(x.aval.dtype):
            return asin_slope(lax.complex(lax.neg(lax.imag(x)), lax.real(x)))
        # The square overflows before the slope vanishes.
        size = lax.abs(x)
        far = lax.gt(size, float(finfo(x.aval.dtype).eps) ** -0.5)
        one = scalar_like(x, 1)
        near = lax.rsqrt(lax.add(lax.square(lax.select_n(far, x, one)), 1.0))
        return lax.select_n(far, near, lax.div(1.0, lax.select_n(far, one, size)))


@final
class Acosh(InexactUnary):
    name = "acosh"
    hlo = "chlo.acosh"
    by_float32 = True

    def derivative(self, x: Value, ans: Value, **params: object) -> Any:
        # One root of the product would be on the wrong branch in the left half plane, have a value
        # below -1, and vanish where only its square does.
        if is_complex(x.aval.dtype):
            return lax.mul(lax.rsqrt(shifted(x, -1.0)), lax.rsqrt(shifted(x, 1.0)))
        return lax.mul(lax.rsqrt(lax.sub(x, 1.0)), lax.rsqrt(lax.add(x, 1.0)))


@final
class Atanh(InexactUnary):
    name = "atanh"
    hlo = "chlo.atanh"
    by_float32 = True

    def tangent(self, t: Any, x: Value, ans: Value, **params: object) -> Any:
        return lax.div(t, one_less_square(x))


sinh_p = Sinh()
cosh_p = Cosh()
tanh_p = Tanh()
asinh_p = Asinh()
acosh_p = Acosh()
atanh_p = Atanh()


def sinh(x: Operand) -> Any:
    """Hyperbolic sine, elementwise.

    >>> import tracebridge as tb
    >>> float(tb.lax.sinh(1.0))
    1.175201
    """
    return sinh_p.bind(as_value(x, "sinh"))


def cosh(x: Operand) -> Any:
    """Hyperbolic cosine, elementwise.

    >>> import tracebridge as tb
    >>> float(tb.lax.cosh(1.0))
    1.543081
    """
    return cosh_p.bind(as_value(x, "cosh"))


def tanh(x: Operand, *, accuracy: object = None) -> Any:
    """Hyperbolic tangent, elementwise.

    >>> import tracebridge as tb
    >>> float(tb.lax.tanh(1.0))
    0.7615942
    """
    return tanh_p.bind(as_value(x, "tanh"), **accuracy_params("tanh", accuracy))


def asinh(x: Operand) -> Any:
    """Inverse hyperbolic sine, elementwise.

    >>> import tracebridge as tb
    >>> float(tb.lax.asinh(1.0))
    0.8813736
    """
    return asinh_p.bind(as_value(x, "asinh"))


def acosh(x: Operand) -> Any:
    """Inverse hyperbolic cosine, elementwise; NaN for floats below 1.

    >>> import tracebridge as tb
    >>> float(tb.lax.acosh(2.0))
    1.316958
    """
    return acosh_p.bind(as_value(x, "acosh"))


def atanh(x: Operand) -> Any:
    """Inverse hyperbolic tangent, elementwise; NaN for floats outside [-1, 1].

    >>> import tracebridge as tb
    >>> float(tb.lax.atanh(0.5))
    0.5493061
    """
    return atanh_p.bind(as_value(x, "atanh"))
