"""The error function and its kin: erf, erfc, erf_inv."""

from __future__ import annotations

__all__ = ["erf", "erf_inv", "erf_inv_p", "erf_p", "erfc", "erfc_p"]

import math
from typing import TYPE_CHECKING, Any, final

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.families import FloatUnary, scalar_like

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Operand, Value


_2_OVER_SQRT_PI = 2.0 / math.sqrt(math.pi)
_STEPS = 2.0**20


def bell(x: Value, scale: float, factor: float = 1.0) -> Any:
    """``scale * exp(-factor * x * x)``, the factor a power of two.

    Where it is 0 in any dtype, so are its derivatives.
    """
    end = 30.0 / math.sqrt(factor)
    near = lax.select_n(lax.gt(lax.abs(x), end), x, scalar_like(x, end))
    if x.aval.dtype != np.float64:
        return lax.mul(lax.exp(lax.mul(lax.square(near), -factor)), scale)
    # The rounding of a square of 700 is an error of 400 units of its exponential. Behind the
    # minimum the square is rounded: a compiler may take a product into a sum as it is.
    square = lax.min(lax.square(near), 2e3)
    head = lax.mul(lax.round(lax.mul(near, _STEPS)), 1.0 / _STEPS)
    rest = lax.mul(lax.sub(near, head), lax.add(near, head))
    lost = lax.mul(lax.add(lax.sub(lax.square(head), square), rest), factor)
    bell = lax.exp(lax.mul(square, -factor))
    # No derivative: slopes of the exponential have those of the whole.
    return lax.mul(lax.sub(bell, lax.mul(bell, lax.stop_gradient(lost))), scale)


@final
class Erf(FloatUnary):
    name = "erf"
    cost = Cost.EXPENSIVE
    hlo = "chlo.erf"

    def derivative(self, x: Value, ans: Value, **params: object) -> Any:
        return bell(x, _2_OVER_SQRT_PI)


@final
class Erfc(FloatUnary):
    name = "erfc"
    cost = Cost.EXPENSIVE
    hlo = "chlo.erfc"

    def derivative(self, x: Value, ans: Value, **params: object) -> Any:
        return bell(x, -_2_OVER_SQRT_PI)


@final
class ErfInv(FloatUnary):
    """Parameter ``plain=True``, if given, asks for XLA's own operation on every platform.

    Normal numbers are made of it: their streams have the same bits wherever they are drawn.
    """

    name = "erf_inv"
    cost = Cost.EXPENSIVE
    hlo = "chlo.erf_inv"

    def derivative(self, x: Value, ans: Value, **params: object) -> Any:
        return lax.mul(lax.exp(lax.square(ans)), 1.0 / _2_OVER_SQRT_PI)


erf_p = Erf()
erfc_p = Erfc()
erf_inv_p = ErfInv()


def erf(x: Operand) -> Any:
    """The error function, elementwise, of floats.

    >>> import tracebridge as tb
    >>> float(tb.lax.erf(1.0))
    0.8427008
    """
    return erf_p.bind(as_value(x, "erf"))


def erfc(x: Operand) -> Any:
    """``1 - erf(x)``, elementwise, accurate for large ``x``.

    >>> import tracebridge as tb
    >>> float(tb.lax.erfc(1.0))
    0.1572992
    """
    return erfc_p.bind(as_value(x, "erfc"))


def erf_inv(x: Operand) -> Any:
    """The inverse of ``erf``, elementwise; NaN outside [-1, 1].

    >>> import tracebridge as tb
    >>> float(tb.lax.erf_inv(0.5))
    0.4769363
    """
    return erf_inv_p.bind(as_value(x, "erf_inv"))
