"""Exponentials and logarithms: exp, exp2, expm1, log, log1p, logistic."""

from __future__ import annotations

__all__ = [
    "exp", "exp2", "exp2_p", "exp_p", "expm1", "expm1_p", "log", "log1p", "log1p_p", "log_p",
    "logistic", "logistic_p",
]  # fmt: skip

import math
from typing import TYPE_CHECKING, Any, final

import tracebridge.core.lax as lax
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.elementwise.accuracy import accuracy_params
from tracebridge.core.lax.families import InexactUnary, is_narrow, logistic_slope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.ir.value import Operand, Value


_LOG_2 = math.log(2.0)


@final
class Exp(InexactUnary):
    name = "exp"
    hlo = "stablehlo.exponential"

    def derivative(self, x: Value, ans: Value, **params: object) -> Any:
        return ans


@final
class Exp2(InexactUnary):
    name = "exp2"
    hlo = "stablehlo.exponential"
    # The product's rounding is an error of the result as large as the exponent.
    by_float32 = True

    def recipe(self, *avals: ShapedArray, **params: Any) -> None:
        return None

    def lower_wide(
        self, ctx: LoweringContext, xs: Sequence[IrValue], aval: ShapedArray, **params: Any
    ) -> Any:
        scaled = ctx.op1("stablehlo.multiply", [xs[0], ctx.splat(_LOG_2, aval)], aval)
        return super().lower_wide(ctx, [scaled], aval, **params)

    def derivative(self, x: Value, ans: Value, **params: object) -> Any:
        return lax.mul(ans, _LOG_2)


@final
class Expm1(InexactUnary):
    name = "expm1"
    hlo = "stablehlo.exponential_minus_one"
    by_float32 = True

    def derivative(self, x: Value, ans: Value, **params: object) -> Any:
        # Far below 0 nothing of the slope is left in the value.
        return lax.exp(x)


@final
class Log(InexactUnary):
    name = "log"
    hlo = "stablehlo.log"

    def tangent(self, t: Any, x: Value, ans: Value, **params: object) -> Any:
        return lax.div(t, x)


@final
class Log1p(InexactUnary):
    name = "log1p"
    hlo = "stablehlo.log_plus_one"

    def tangent(self, t: Any, x: Value, ans: Value, **params: object) -> Any:
        return lax.div(t, lax.add(x, 1.0))


@final
class Logistic(InexactUnary):
    name = "logistic"
    hlo = "stablehlo.logistic"
    # Of float16 the exponential, by which it is computed, overflows before the result is 0.
    by_float32 = True

    def derivative(self, x: Value, ans: Value, **params: object) -> Any:
        if is_narrow(x.aval.dtype):
            return logistic_slope(x)
        return lax.mul(ans, lax.sub(1.0, ans))


exp_p = Exp()
exp2_p = Exp2()
expm1_p = Expm1()
log_p = Log()
log1p_p = Log1p()
logistic_p = Logistic()


def exp(x: Operand, *, accuracy: object = None) -> Any:
    """Exponential, elementwise.

    >>> import tracebridge as tb
    >>> float(tb.lax.exp(1.0))
    2.718282
    """
    return exp_p.bind(as_value(x, "exp"), **accuracy_params("exp", accuracy))


def exp2(x: Operand, *, accuracy: object = None) -> Any:
    """``2 ** x``, elementwise.

    >>> import tracebridge as tb
    >>> float(tb.lax.exp2(3.0))
    8.0
    """
    return exp2_p.bind(as_value(x, "exp2"), **accuracy_params("exp2", accuracy))


def expm1(x: Operand, *, accuracy: object = None) -> Any:
    """``exp(x) - 1``, elementwise, accurate near 0.

    >>> import tracebridge as tb
    >>> float(tb.lax.expm1(1e-5))
    1.000005e-05
    """
    return expm1_p.bind(as_value(x, "expm1"), **accuracy_params("expm1", accuracy))


def log(x: Operand, *, accuracy: object = None) -> Any:
    """Natural logarithm, elementwise; NaN for negative floats.

    >>> import tracebridge as tb
    >>> float(tb.lax.log(2.0))
    0.6931472
    """
    return log_p.bind(as_value(x, "log"), **accuracy_params("log", accuracy))


def log1p(x: Operand, *, accuracy: object = None) -> Any:
    """``log(1 + x)``, elementwise, accurate near 0.

    >>> import tracebridge as tb
    >>> float(tb.lax.log1p(1e-5))
    9.99995e-06
    """
    return log1p_p.bind(as_value(x, "log1p"), **accuracy_params("log1p", accuracy))


def logistic(x: Operand, *, accuracy: object = None) -> Any:
    """``1 / (1 + exp(-x))``, elementwise.

    >>> import tracebridge as tb
    >>> float(tb.lax.logistic(0.0))
    0.5
    """
    return logistic_p.bind(as_value(x, "logistic"), **accuracy_params("logistic", accuracy))
