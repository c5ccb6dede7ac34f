"""The logarithm of the gamma function and its derivative."""

from __future__ import annotations

__all__ = ["digamma", "digamma_p", "lgamma", "lgamma_p"]

from typing import TYPE_CHECKING, Any, final

import tracebridge.core.lax as lax
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.families import FloatUnary

if TYPE_CHECKING:
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
        return lax.polygamma(1.0, x)


lgamma_p = Lgamma()
digamma_p = Digamma()


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
