"""Trigonometric functions."""

from __future__ import annotations

from typing import Any, final

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import is_inexact
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.families import UnaryElementwise


@final
class Sin(UnaryElementwise):
    name = "sin"
    hlo = "stablehlo.sine"
    accepts = staticmethod(is_inexact)
    accepts_text = "floats and complex numbers"

    def derivative(self, x: Any, ans: Any, **params: Any) -> Any:
        return lax.cos(x)


@final
class Cos(UnaryElementwise):
    name = "cos"
    hlo = "stablehlo.cosine"
    accepts = staticmethod(is_inexact)
    accepts_text = "floats and complex numbers"

    def derivative(self, x: Any, ans: Any, **params: Any) -> Any:
        return lax.neg(lax.sin(x))


sin_p = Sin()
cos_p = Cos()


def sin(x: Any) -> Any:
    """Sine, elementwise, of floats or complex numbers.

    >>> import tracebridge as tb
    >>> float(tb.lax.sin(0.0))
    0.0
    """
    return sin_p.bind(as_value(x))


def cos(x: Any) -> Any:
    """Cosine, elementwise, of floats or complex numbers.

    >>> import tracebridge as tb
    >>> float(tb.lax.cos(0.0))
    1.0
    """
    return cos_p.bind(as_value(x))
