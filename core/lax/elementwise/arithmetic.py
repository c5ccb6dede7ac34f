"""Arithmetic: neg, add, sub, mul, div."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import is_bool
from tracebridge.core.ir.primitive import is_linear_input
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.families import (
    BinaryElementwise,
    UnaryElementwise,
    operands,
    unbroadcast,
)


def is_numeric(dtype: Any) -> bool:
    """Every dtype but bool."""
    return not is_bool(dtype)


@final
class Neg(UnaryElementwise):
    name = "neg"
    hlo = "stablehlo.negate"
    accepts = staticmethod(is_numeric)
    accepts_text = "numbers"

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        return self.bind(primals[0]), self.bind(tangents[0])

    def transpose(self, ct: Any, *args: Any, **params: Any) -> Sequence[Any]:
        return [self.bind(ct)]


@final
class Add(BinaryElementwise):
    name = "add"
    hlo = "stablehlo.add"

    def partial(self, i: int, t: Any, ans: Any, x: Any, y: Any, **params: Any) -> Any:
        return t

    def transpose(self, ct: Any, *args: Any, **params: Any) -> Sequence[Any]:
        return [unbroadcast(ct, a.aval) if is_linear_input(a) else None for a in args]


@final
class Sub(BinaryElementwise):
    name = "sub"
    hlo = "stablehlo.subtract"
    accepts = staticmethod(is_numeric)
    accepts_text = "numbers"

    def partial(self, i: int, t: Any, ans: Any, x: Any, y: Any, **params: Any) -> Any:
        return t if i == 0 else lax.neg(t)

    def transpose(self, ct: Any, *args: Any, **params: Any) -> Sequence[Any]:
        x, y = args
        return [
            unbroadcast(ct, x.aval) if is_linear_input(x) else None,
            unbroadcast(lax.neg(ct), y.aval) if is_linear_input(y) else None,
        ]


@final
class Mul(BinaryElementwise):
    name = "mul"
    hlo = "stablehlo.multiply"

    def partial(self, i: int, t: Any, ans: Any, x: Any, y: Any, **params: Any) -> Any:
        return lax.mul(t, y) if i == 0 else lax.mul(x, t)

    def transpose(self, ct: Any, *args: Any, **params: Any) -> Sequence[Any]:
        x, y = args
        if is_linear_input(x):
            return [unbroadcast(lax.mul(ct, y), x.aval), None]
        return [None, unbroadcast(lax.mul(x, ct), y.aval)]


@final
class Div(BinaryElementwise):
    """Integer division rounds towards zero."""

    name = "div"
    hlo = "stablehlo.divide"
    accepts = staticmethod(is_numeric)
    accepts_text = "numbers"

    def partial(self, i: int, t: Any, ans: Any, x: Any, y: Any, **params: Any) -> Any:
        if i == 0:
            return lax.div(t, y)
        return lax.mul(t, lax.neg(lax.div(ans, y)))

    def transpose(self, ct: Any, *args: Any, **params: Any) -> Sequence[Any]:
        x, y = args
        return [unbroadcast(lax.div(ct, y), x.aval), None]


neg_p = Neg()
add_p = Add()
sub_p = Sub()
mul_p = Mul()
div_p = Div()


def neg(x: Any) -> Any:
    """Negation, elementwise.

    >>> import tracebridge as tb
    >>> float(tb.lax.neg(2.0))
    -2.0
    """
    return neg_p.bind(as_value(x))


def add(x: Any, y: Any) -> Any:
    """Sum, elementwise, of operands of one dtype and shape (or scalars).

    >>> import tracebridge as tb
    >>> float(tb.lax.add(2.0, 3.0))
    5.0
    """
    return add_p.bind(*operands("add", x, y))


def sub(x: Any, y: Any) -> Any:
    """Difference, elementwise, of operands of one dtype and shape (or scalars).

    >>> import tracebridge as tb
    >>> float(tb.lax.sub(2.0, 3.0))
    -1.0
    """
    return sub_p.bind(*operands("sub", x, y))


def mul(x: Any, y: Any) -> Any:
    """Product, elementwise, of operands of one dtype and shape (or scalars).

    >>> import tracebridge as tb
    >>> float(tb.lax.mul(2.0, 3.0))
    6.0
    """
    return mul_p.bind(*operands("mul", x, y))


def div(x: Any, y: Any) -> Any:
    """Quotient, elementwise; integers are divided towards zero.

    >>> import tracebridge as tb
    >>> float(tb.lax.div(1.0, 4.0)), int(tb.lax.div(-7, 2))
    (0.25, -3)
    """
    return div_p.bind(*operands("div", x, y))
