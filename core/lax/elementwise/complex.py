"""Parts of complex numbers: real, imag, complex, conj.

Derivatives follow the convention that a cotangent pairs with a tangent by the real part of their
plain product: transposes do not conjugate.
"""

from __future__ import annotations

__all__ = ["complex", "complex_p", "conj", "conj_p", "imag", "imag_p", "real", "real_p"]

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import complex_of, is_complex, real_of
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.linear_input import is_linear_input
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.families import (
    Elementwise,
    UnaryElementwise,
    fit_tangent,
    operands,
    scalar_like,
    unbroadcast,
)

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.dtypes.dtypes import DTypeLike
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.ir.value import Operand, Value


_WITH_COMPLEX = (np.dtype(np.float32), np.dtype(np.float64))


class ComplexUnary(UnaryElementwise):
    """One complex operand, linear over the real numbers."""

    cost = Cost.CHEAP
    accepts = staticmethod(is_complex)
    accepts_text = "complex numbers"

    def tangent(self, t: Any, x: Value, ans: Value, **params: object) -> Any:
        return self.bind(t)


@final
class Real(ComplexUnary):
    name = "real"
    makes_nan = False
    hlo = "stablehlo.real"

    def result_dtype(self, *avals: ShapedArray, **params: object) -> Any:
        return real_of(avals[0].dtype)

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        return [lax.complex(ct, scalar_like(ct, 0))]


@final
class Imag(ComplexUnary):
    name = "imag"
    makes_nan = False
    hlo = "stablehlo.imag"

    def result_dtype(self, *avals: ShapedArray, **params: object) -> Any:
        return real_of(avals[0].dtype)

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        return [lax.complex(scalar_like(ct, 0), lax.neg(ct))]


@final
class Conj(ComplexUnary):
    name = "conj"

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: object) -> Any:
        (x,), aval = operands, ctx.aval_out
        part = aval.update(dtype=real_of(aval.dtype))
        real = ctx.op1("stablehlo.real", [x], part)
        imag = ctx.op1("stablehlo.imag", [x], part)
        return ctx.op1("stablehlo.complex", [real, ctx.op1("stablehlo.negate", [imag], part)], aval)

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        return [self.bind(ct)]


@final
class Complex(Elementwise):
    """``x + i y`` of two float arrays."""

    name = "complex"
    cost = Cost.CHEAP
    makes_nan = False
    hlo = "stablehlo.complex"
    accepts_text = "float32 and float64"

    @staticmethod
    def accepts(dtype: DTypeLike) -> bool:
        """Floats whose complex numbers have a dtype."""
        return dtype in _WITH_COMPLEX

    def result_dtype(self, *avals: ShapedArray, **params: object) -> Any:
        return complex_of(avals[0].dtype)

    def jvp(
        self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: object
    ) -> Any:
        ans = self.bind(*primals)
        zero = scalar_like(primals[0], 0)
        parts = [zero if t is None else t for t in tangents]
        return ans, fit_tangent(self.bind(*parts), ans.aval)

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        x, y = args
        return [
            unbroadcast(lax.real(ct), x.aval) if is_linear_input(x) else None,
            unbroadcast(lax.neg(lax.imag(ct)), y.aval) if is_linear_input(y) else None,
        ]


real_p = Real()
imag_p = Imag()
conj_p = Conj()
complex_p = Complex()


def real(x: Any) -> Any:
    """The real part, elementwise, of complex numbers.

    >>> import tracebridge as tb
    >>> float(tb.lax.real(1 + 2j))
    1.0
    """
    return real_p.bind(as_value(x, "real"))


def imag(x: Any) -> Any:
    """The imaginary part, elementwise, of complex numbers.

    >>> import tracebridge as tb
    >>> float(tb.lax.imag(1 + 2j))
    2.0
    """
    return imag_p.bind(as_value(x, "imag"))


def conj(x: Operand) -> Any:
    """The complex conjugate, elementwise; float32 and float64 become complex.

    >>> import tracebridge as tb
    >>> complex(tb.lax.conj(1 + 2j))
    (1-2j)
    """
    value = as_value(x, "conj")
    if value.aval.dtype in _WITH_COMPLEX:
        value = lax.complex(value, scalar_like(value, 0))
    return conj_p.bind(value)


def complex(x: Operand, y: Operand) -> Any:
    """``x + i y``, elementwise, of two arrays of float32 or of float64.

    >>> import tracebridge as tb
    >>> tb.lax.complex(1.0, 2.0).item()
    (1+2j)
    """
    return complex_p.bind(*operands("complex", x, y))
