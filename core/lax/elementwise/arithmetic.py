"""Arithmetic: neg, sign, abs, square, add, sub, mul, mulhi, div, rem, max, min."""

from __future__ import annotations

__all__ = [
    "abs", "abs_p", "add", "add_p", "div", "div_p", "max", "max_p", "min", "min_p", "mul",
    "mul_p", "mulhi", "mulhi_p", "neg", "neg_p", "reciprocal", "rem", "rem_p", "sign", "sign_p",
    "square", "square_p", "sub", "sub_p",
]  # fmt: skip

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.canonicalize import canonicalize_explicit
from tracebridge.core.dtypes.dtypes import (
    is_complex,
    is_integer,
    is_unsigned,
    real_of,
)
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.linear_input import is_linear_input
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.accepted_dtypes import is_numeric, is_ordinary
from tracebridge.core.lax.families import (
    BinaryElementwise,
    UnaryElementwise,
    operands,
    scalar_like,
    unbroadcast,
)

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.dtypes.dtypes import DTypeLike
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.ir.value import Operand, Value


_NUMBERS = "integers, floats and complex numbers"


class NumericUnary(UnaryElementwise):
    """One operand of any dtype but bool."""

    cost = Cost.CHEAP
    accepts = staticmethod(is_numeric)
    accepts_text = _NUMBERS


class NumericBinary(BinaryElementwise):
    """Two operands of any dtype but bool."""

    cost = Cost.CHEAP
    accepts = staticmethod(is_numeric)
    accepts_text = _NUMBERS


# One operand -------------------------------------------------------------------------------------


@final
class Neg(NumericUnary):
    name = "neg"
    hlo = "stablehlo.negate"

    def tangent(self, t: Any, x: Value, ans: Value, **params: object) -> Any:
        return self.bind(t)

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        return [self.bind(ct)]


@final
class Sign(NumericUnary):
    """-1, 0 or 1; ``x / abs(x)`` of complex numbers. Keeps -0.0 and NaN."""

    name = "sign"
    hlo = "stablehlo.sign"

    def recipe(self, *avals: ShapedArray, **params: Any) -> Any:
        """One operation, but StableHLO has no sign of unsigned integers."""
        return None if is_unsigned(avals[0].dtype) else super().recipe(*avals, **params)

    def lower_full(self, ctx: LoweringContext, *xs: IrValue, **params: Any) -> Any:
        aval = ctx.aval_out
        if not is_unsigned(aval.dtype):
            return super().lower_full(ctx, *xs, **params)
        return ctx.op1("stablehlo.minimum", [xs[0], ctx.splat(1, aval)], aval)

    def tangent(self, t: Any, x: Value, ans: Value, **params: object) -> Any:
        """Zero, but on the complex unit circle the direction turns with ``x``."""
        if not is_complex(x.aval.dtype):
            return None
        size = lax.abs(x)
        size = lax.select_n(lax.eq(size, 0.0), size, scalar_like(size, 1))
        # d(x/|x|) = i ans Im(conj(ans) t) / |x|
        turn = lax.div(lax.imag(lax.mul(t, lax.conj(ans))), size)
        return lax.mul(lax.complex(scalar_like(turn, 0), turn), ans)


@final
class Abs(NumericUnary):
    name = "abs"
    hlo = "stablehlo.abs"
    accepts_text = "signed integers, floats and complex numbers"

    @staticmethod
    def accepts(dtype: DTypeLike) -> bool:
        """Signed integers, floats and complex numbers."""
        return is_numeric(dtype) and not is_unsigned(dtype)

    def result_dtype(self, *avals: ShapedArray, **params: object) -> Any:
        return real_of(avals[0].dtype)

    def tangent(self, t: Any, x: Value, ans: Value, **params: object) -> Any:
        if not is_complex(x.aval.dtype):
            minus, plus = scalar_like(x, -1), scalar_like(x, 1)
            return lax.mul(t, lax.select_n(lax.ge(x, 0.0), minus, plus))
        a, b = _direction(x, ans)
        return lax.real(lax.mul(t, lax.complex(a, lax.neg(b))))


def _direction(x: Value, size: Value) -> tuple[Any, Any]:
    """Both parts of a complex number over its size; 0 at 0, and of infinities those that count."""
    none = lax.eq(size, 0.0)
    far = lax.eq(size, math.inf)
    parts = [lax.real(x), lax.imag(x)]
    # Infinite parts as 1, others as 0.
    ends = [lax.eq(lax.abs(p), math.inf) for p in parts]
    both = lax.bitwise_and(*ends)
    length = lax.select_n(both, lax.full_like(size, 1), scalar_like(size, math.sqrt(0.5)))
    safe = lax.select_n(lax.bitwise_or(none, far), size, scalar_like(size, 1))
    found = []
    for p, end in zip(parts, ends, strict=True):
        inside = lax.div(lax.select_n(far, p, scalar_like(p, 0)), safe)
        outside = lax.mul(lax.select_n(end, scalar_like(p, 0), lax.sign(p)), length)
        found.append(lax.select_n(far, inside, outside))
    return found[0], found[1]


@final
class Square(NumericUnary):
    name = "square"

    def lower_full(self, ctx: LoweringContext, *xs: IrValue, **params: object) -> Any:
        return ctx.op1("stablehlo.multiply", [xs[0], xs[0]], ctx.aval_out)

    def derivative(self, x: Value, ans: Value, **params: object) -> Any:
        return lax.mul(x, 2.0)


# Two operands ------------------------------------------------------------------------------------


@final
class Add(NumericBinary):
    name = "add"
    hlo = "stablehlo.add"

    def partial(self, i: int, t: Value, ans: Value, x: Value, y: Value, **params: object) -> Any:
        return t

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        return [unbroadcast(ct, a.aval) if is_linear_input(a) else None for a in args]


@final
class Sub(NumericBinary):
    name = "sub"
    hlo = "stablehlo.subtract"

    def partial(self, i: int, t: Operand, ans: Value, x: Value, y: Value, **params: object) -> Any:
        return t if i == 0 else lax.neg(t)

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        x, y = args
        return [
            unbroadcast(ct, x.aval) if is_linear_input(x) else None,
            unbroadcast(lax.neg(ct), y.aval) if is_linear_input(y) else None,
        ]


@final
class Mul(NumericBinary):
    name = "mul"
    hlo = "stablehlo.multiply"

    def partial(self, i: int, t: Any, ans: Value, x: Any, y: Any, **params: object) -> Any:
        return lax.mul(t, y) if i == 0 else lax.mul(x, t)

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        x, y = args
        if is_linear_input(x):
            return [unbroadcast(lax.mul(ct, y), x.aval), None]
        return [None, unbroadcast(lax.mul(x, ct), y.aval)]


@final
class MulHi(BinaryElementwise):
    """The upper half of the bits of an integer product."""

    name = "mulhi"
    cost = Cost.CHEAP
    hlo = "chlo.mulhi"
    accepts = staticmethod(is_integer)
    accepts_text = "integers"
    differentiable = False


@final
class Div(NumericBinary):
    """Integer division rounds towards zero."""

    name = "div"
    hlo = "stablehlo.divide"

    def partial(self, i: int, t: Any, ans: Any, x: Value, y: Any, **params: object) -> Any:
        if i == 0:
            return lax.div(t, y)
        # XLA divides a quotient by y once, by a square that underflows: a product is left alone.
        return lax.mul(t, lax.neg(lax.mul(ans, lax.div(scalar_like(y, 1), y))))

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        x, y = args
        return [unbroadcast(lax.div(ct, y), x.aval), None]


@final
class Rem(NumericBinary):
    """The remainder of the division towards zero: it has the sign of the dividend."""

    name = "rem"
    cost = Cost.EXPENSIVE
    hlo = "stablehlo.remainder"
    accepts_text = "integers and floats"

    @staticmethod
    def accepts(dtype: DTypeLike) -> bool:
        """Integers and floats."""
        return is_numeric(dtype) and not is_complex(dtype)

    def partial(
        self, i: int, t: Any, ans: Operand, x: Operand, y: Operand, **params: object
    ) -> Any:
        if i == 0:
            return t
        # x - ans is a multiple of y up to rounding; the quotient x / y may round to the next one.
        quotient = lax.round(lax.div(lax.sub(x, ans), y), lax.RoundingMethod.TO_NEAREST_EVEN)
        return lax.mul(t, lax.neg(quotient))


class Extremum(BinaryElementwise):
    """max or min; complex numbers are ordered by their real, then by their imaginary parts.

    Where the operands are equal each gets half of the tangent. NaN wins, but equals nothing: both
    derivatives are 0 then, so that NaNs which the user masks afterwards spoil no gradient.
    """

    accepts = staticmethod(is_ordinary)
    accepts_text = "numbers and booleans"
    cost = Cost.CHEAP
    makes_nan = False
    direction: str

    def recipe(self, *avals: ShapedArray, **params: Any) -> Any:
        """One operation, unless the operands are complex."""
        return None if is_complex(avals[0].dtype) else super().recipe(*avals, **params)

    def lower_full(self, ctx: LoweringContext, *xs: IrValue, **params: Any) -> Any:
        x, y = xs
        aval = ctx.aval_out
        if not is_complex(aval.dtype):
            return super().lower_full(ctx, *xs, **params)
        part = aval.update(dtype=real_of(aval.dtype))
        flag = aval.update(dtype=bool)
        (rx, ry), (ix, iy) = (
            [ctx.op1(f"stablehlo.{name}", [v], part) for v in (x, y)] for name in ("real", "imag")
        )
        equal = ctx.compare(rx, ry, flag, "EQ", "FLOAT")
        by_real = ctx.compare(rx, ry, flag, self.direction, "FLOAT")
        by_imag = ctx.compare(ix, iy, flag, self.direction, "FLOAT")
        first = ctx.select(equal, by_imag, by_real, flag)
        # A NaN may be in one part alone.
        first = ctx.op1("stablehlo.and", [first, ctx.compare(y, y, flag, "EQ", "FLOAT")], flag)
        nan = ctx.compare(x, x, flag, "NE", "FLOAT")
        return ctx.select(ctx.op1("stablehlo.or", [first, nan], flag), x, y, aval)

    def partial(self, i: int, t: Any, ans: Any, x: Value, y: Value, **params: object) -> Any:
        mine, other = (x, y) if i == 0 else (y, x)
        none, half, whole = (scalar_like(ans, v) for v in (0, 0.5, 1))
        share = lax.select_n(lax.eq(other, ans), whole, half)
        return lax.mul(t, lax.select_n(lax.eq(mine, ans), none, share))


@final
class Max(Extremum):
    name = "max"
    hlo = "stablehlo.maximum"
    direction = "GT"


@final
class Min(Extremum):
    name = "min"
    hlo = "stablehlo.minimum"
    direction = "LT"


neg_p = Neg()
sign_p = Sign()
abs_p = Abs()
square_p = Square()
add_p = Add()
sub_p = Sub()
mul_p = Mul()
mulhi_p = MulHi()
div_p = Div()
rem_p = Rem()
max_p = Max()
min_p = Min()


def neg(x: Operand) -> Any:
    """Negation, elementwise.

    >>> import tracebridge as tb
    >>> float(tb.lax.neg(2.0))
    -2.0
    """
    return neg_p.bind(as_value(x, "neg"))


def sign(x: Operand) -> Any:
    """-1, 0 or 1 by the sign of ``x``, elementwise; ``x / abs(x)`` of complex numbers.

    >>> import tracebridge as tb
    >>> float(tb.lax.sign(-2.5)), int(tb.lax.sign(0))
    (-1.0, 0)
    """
    return sign_p.bind(as_value(x, "sign"))


def abs(x: Operand) -> Any:
    """Absolute value, elementwise; real for complex numbers.

    >>> import tracebridge as tb
    >>> int(tb.lax.abs(-3)), float(tb.lax.abs(3 + 4j))
    (3, 5.0)
    """
    return abs_p.bind(as_value(x, "abs"))


def square(x: Operand) -> Any:
    """``x * x``, elementwise.

    >>> import tracebridge as tb
    >>> float(tb.lax.square(3.0))
    9.0
    """
    return square_p.bind(as_value(x, "square"))


def reciprocal(x: Operand) -> Any:
    """``1 / x``, elementwise, of floats or complex numbers.

    >>> import tracebridge as tb
    >>> float(tb.lax.reciprocal(4.0))
    0.25
    """
    return lax.integer_pow(as_value(x, "reciprocal"), -1)


def add(x: Operand, y: Any) -> Any:
    """Sum, elementwise, of operands of one dtype and shape (or scalars).

    >>> import tracebridge as tb
    >>> float(tb.lax.add(2.0, 3.0))
    5.0
    """
    return add_p.bind(*operands("add", x, y))


def sub(x: Operand, y: Operand) -> Any:
    """Difference, elementwise, of operands of one dtype and shape (or scalars).

    >>> import tracebridge as tb
    >>> float(tb.lax.sub(2.0, 3.0))
    -1.0
    """
    return sub_p.bind(*operands("sub", x, y))


def mul(x: Any, y: Any, *, out_dtype: Any = None) -> Any:
    """Product, elementwise, of operands of one dtype and shape (or scalars).

    Args:
        x: first factor.
        y: second factor.
        out_dtype: dtype of the result. The operands are converted to it first if it is the wider
            one, so that the product of two int8 does not overflow int32.

    >>> import tracebridge as tb
    >>> float(tb.lax.mul(2.0, 3.0))
    6.0
    """
    x, y = operands("mul", x, y)
    if out_dtype is None:
        return mul_p.bind(x, y)
    dtype = canonicalize_explicit(out_dtype, "mul")
    if dtype.itemsize > x.aval.dtype.itemsize:
        x, y = lax.convert_dtype(x, dtype), lax.convert_dtype(y, dtype)
    return lax.convert_dtype(mul_p.bind(x, y), dtype)


def mulhi(x: Operand, y: Operand, /) -> Any:
    """The upper half of the bits of the product of integers, elementwise.

    >>> import tracebridge as tb
    >>> int(tb.lax.mulhi(2**20, 2**20))
    256
    """
    return mulhi_p.bind(*operands("mulhi", x, y))


def div(x: Any, y: Operand) -> Any:
    """Quotient, elementwise; integers are divided towards zero.

    >>> import tracebridge as tb
    >>> float(tb.lax.div(1.0, 4.0)), int(tb.lax.div(-7, 2))
    (0.25, -3)
    """
    return div_p.bind(*operands("div", x, y))


def rem(x: Operand, y: Operand) -> Any:
    """Remainder of the division towards zero, elementwise: it has the sign of ``x``.

    >>> import tracebridge as tb
    >>> int(tb.lax.rem(-7, 3)), float(tb.lax.rem(7.5, 2.0))
    (-1, 1.5)
    """
    return rem_p.bind(*operands("rem", x, y))


def max(x: Operand, y: Operand) -> Any:
    """The larger operand, elementwise; NaN if one is NaN.

    >>> import tracebridge as tb
    >>> float(tb.lax.max(2.0, 3.0))
    3.0
    """
    return max_p.bind(*operands("max", x, y))


def min(x: Operand, y: Operand) -> Any:
    """The smaller operand, elementwise; NaN if one is NaN.

    >>> import tracebridge as tb
    >>> float(tb.lax.min(2.0, 3.0))
    2.0
    """
    return min_p.bind(*operands("min", x, y))
