"""Elementwise arithmetic: functions of one or two arrays, computed in their promoted dtype.

Each public function is the fast entry of a staged function (runtime/calls/staged_functions.py): the
Python code of its implementation runs once per kind of argument.
"""

from __future__ import annotations

__all__ = [
    "abs", "absolute", "add", "divide", "divmod", "fabs", "floor_divide", "fmod", "heaviside",
    "mod", "multiply", "negative", "positive", "reciprocal", "remainder", "sign", "square",
    "subtract", "true_divide",
]  # fmt: skip

from typing import Any

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import is_bool, is_complex, is_integer, is_unsigned
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import zeros_of
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.staged_functions import StagedFunction, binary
from tracebridge.numpy._promote import (
    broadcast_operands,
    broadcast_to,
    inexact_operands,
    numeric_operands,
    promote_inexact,
    promote_numeric,
    promoted_operands,
    select,
    strong_array,
)
from tracebridge.numpy._staging import binary_function, unary_function
from tracebridge.numpy._universal import universal_binary, universal_unary

# functions of one array --------------------------------------------------------------------------


def _fabs(x: Value) -> Any:
    (x,) = promote_inexact(x)
    if is_complex(x.aval.dtype):
        msg = f"fabs works on real numbers, got {x.aval.str_short()}"
        raise UnsupportedDtypeError(msg, hint="use absolute")
    return lax.abs(x)


def _negative(x: Value) -> Any:
    return lax.neg(x)


def _absolute(x: Value) -> Any:
    if is_bool(x.aval.dtype) or is_unsigned(x.aval.dtype):
        return x
    return lax.abs(x)


def _square(x: Any) -> Any:
    return lax.integer_pow(promote_numeric(x)[0], 2)


def _sign(x: Value) -> Any:
    return lax.sign(x)


def _reciprocal(x: Value) -> Any:
    (x,) = promote_inexact(x)
    return lax.reciprocal(x) if is_complex(x.aval.dtype) else lax.div(1.0, x)


negative = universal_unary(
    _negative,
    "negative",
    """``-x``, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> tnp.negative(tnp.array([1, -2])).tolist()
    [-1, 2]
    """,
)
positive = unary_function(
    lambda x: x,
    "positive",
    """``+x``: the array itself.

    >>> import tracebridge.numpy as tnp
    >>> int(tnp.positive(3))
    3
    """,
)
absolute = unary_function(
    _absolute,
    "absolute",
    """Absolute value (complex: modulus), elementwise.

    >>> import tracebridge.numpy as tnp
    >>> tnp.absolute(tnp.array([-1.5, 2.0])).tolist()
    [1.5, 2.0]
    """,
)
abs = absolute
fabs = unary_function(
    lambda x: _fabs(x),
    "fabs",
    """Absolute value as a float, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.fabs(-2))
    2.0
    """,
)
square = unary_function(
    _square,
    "square",
    """``x * x``, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> tnp.square(tnp.array([2, 3])).tolist()
    [4, 9]
    """,
)
sign = unary_function(
    _sign,
    "sign",
    """-1, 0 or 1 by the sign (complex: ``x / abs(x)``), elementwise.

    >>> import tracebridge.numpy as tnp
    >>> tnp.sign(tnp.array([-2.0, 0.0, 5.0])).tolist()
    [-1.0, 0.0, 1.0]
    """,
)
reciprocal = unary_function(
    _reciprocal,
    "reciprocal",
    """``1 / x``, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.reciprocal(4.0))
    0.25
    """,
)


# functions of two arrays -------------------------------------------------------------------------


def _add(x: Value, y: Value) -> Any:
    """The sum; of bools: whether either is true."""
    return lax.bitwise_or(x, y) if is_bool(x.aval.dtype) else lax.add(x, y)


def _multiply(x: Value, y: Value) -> Any:
    """The product; of bools: whether both are true."""
    return lax.bitwise_and(x, y) if is_bool(x.aval.dtype) else lax.mul(x, y)


add = universal_binary(
    promoted_operands("add", _add),
    "add",
    """``x1 + x2``, elementwise with broadcasting.

    >>> import tracebridge.numpy as tnp
    >>> tnp.add(tnp.array([1, 2]), 0.5).tolist()
    [1.5, 2.5]
    """,
    modular=True,
)
subtract = universal_binary(
    promoted_operands("subtract", lambda x, y: lax.sub(x, y)),
    "subtract",
    """``x1 - x2``, elementwise with broadcasting.

    >>> import tracebridge.numpy as tnp
    >>> tnp.subtract(tnp.array([1, 2]), 1).tolist()
    [0, 1]
    """,
    modular=True,
)
multiply = universal_binary(
    promoted_operands("multiply", _multiply),
    "multiply",
    """``x1 * x2``, elementwise with broadcasting.

    >>> import tracebridge.numpy as tnp
    >>> tnp.multiply(tnp.array([1, 2]), tnp.array([[3], [4]])).tolist()
    [[3, 6], [4, 8]]
    """,
    modular=True,
)
true_divide = binary_function(
    inexact_operands("divide", lambda x, y: lax.div(x, y)),
    "divide",
    """``x1 / x2``, elementwise with broadcasting; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.divide(1, 2))
    0.5
    """,
)
divide = true_divide


def _floor_divide(x: Value, y: Value) -> Any:
    x, y = broadcast_operands("floor_divide", *promote_numeric(x, y))
    dtype = x.aval.dtype
    if is_unsigned(dtype):
        return lax.div(x, y)
    if is_integer(dtype):
        quotient = lax.div(x, y)
        inexact = lax.ne(lax.rem(x, y), 0)
        below = lax.bitwise_and(lax.ne(lax.sign(x), lax.sign(y)), inexact)
        return lax.select_n(below, quotient, lax.sub(quotient, 1))
    return _float_floor_divide(x, y)


def _float_floor_divide(x: Value, y: Value) -> Any:
    """The floor of the exact quotient, as Python's ``divmod`` of floats has it."""
    remainder = lax.rem(x, y)
    quotient = lax.div(lax.sub(x, remainder), y)
    wrong = lax.bitwise_and(lax.ne(remainder, 0.0), lax.ne(lax.sign(y), lax.sign(remainder)))
    quotient = lax.round(lax.select_n(wrong, quotient, lax.sub(quotient, 1.0)))
    plain = lax.stop_gradient(lax.div(x, y))
    # A zero has the sign of the quotient.
    quotient = lax.select_n(lax.eq(quotient, 0.0), quotient, lax.mul(plain, 0.0))
    # Divided by zero it is the quotient itself, an infinity with its sign.
    return lax.select_n(lax.eq(y, 0.0), quotient, plain)


def _rem(x: Value, y: Value) -> Any:
    """The remainder with the sign of ``x``; 0 for integers that are divided by 0."""
    rest = lax.rem(x, y)
    if not is_integer(x.aval.dtype):
        return rest
    by_zero = lax.eq(y, zeros_of(y.aval.update(shape=())))
    # A divisor of rank 0 may stand beside an array; select_n takes its predicate of rank 0 too.
    return lax.select_n(by_zero, rest, zeros_of(rest.aval))


def _remainder(x: Value, y: Value) -> Any:
    x, y = broadcast_operands("remainder", *promote_numeric(x, y))
    remainder = _rem(x, y)
    if is_unsigned(x.aval.dtype):
        return remainder
    zero = zeros_of(y.aval.update(shape=()))
    wrong = lax.bitwise_and(
        lax.ne(lax.lt(remainder, zero), lax.lt(y, zero)), lax.ne(remainder, zero)
    )
    remainder = lax.select_n(wrong, remainder, lax.add(remainder, y))
    return remainder if is_integer(x.aval.dtype) else _zeros_like_divisor(remainder, y)


def _zeros_like_divisor(remainder: Any, y: Value) -> Any:
    """``remainder``, its zeros with the signs of ``y``; tangents stay what they are."""
    value = lax.stop_gradient(remainder)
    zero, minus_zero = lax.sub(remainder, value), lax.neg(lax.sub(value, remainder))
    signed = lax.select_n(lax.lt(y, zeros_of(y.aval.update(shape=()))), zero, minus_zero)
    return lax.select_n(lax.eq(value, zeros_of(remainder.aval.update(shape=()))), remainder, signed)


def _divmod(x: Value, y: Value) -> list[Any]:
    return [_floor_divide(x, y), _remainder(x, y)]


floor_divide = binary_function(
    _floor_divide,
    "floor_divide",
    """``x1 // x2``: the quotient rounded down, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> int(tnp.floor_divide(-7, 2))
    -4
    """,
)
remainder = binary_function(
    _remainder,
    "remainder",
    """``x1 % x2``: the remainder with the sign of ``x2``, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> int(tnp.remainder(-7, 2))
    1
    """,
)
mod = remainder
fmod = binary_function(
    numeric_operands("fmod", lambda x, y: _rem(x, y)),
    "fmod",
    """The remainder with the sign of ``x1``, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> int(tnp.fmod(-7, 2))
    -1
    """,
)
_divmod_list = binary(StagedFunction(_divmod, "divmod"))


def divmod(x1: ArrayLike, x2: ArrayLike, /) -> tuple[Array, Array]:
    """``(x // y, x % y)``, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> q, r = tnp.divmod(7, 2)
    >>> int(q), int(r)
    (3, 1)
    """
    quotient, rest = _divmod_list(x1, x2)
    return quotient, rest


def _heaviside(x: Value, y: Value) -> Any:
    x, y = broadcast_operands("heaviside", *promote_inexact(x, y))
    zero = zeros_of(x.aval.update(shape=()))
    if y.aval.ndim:
        x = broadcast_to(x, y.aval.shape)
    step = lax.convert_dtype(lax.gt(x, zero), x.aval.dtype, x.aval.weak_type)
    step = select(lax.eq(x, zero), y, step)
    return strong_array(select(lax.ne(x, x), x, step))


heaviside = binary_function(
    _heaviside,
    "heaviside",
    """0 for negative ``x1``, 1 for positive ``x1``, ``x2`` where ``x1`` is zero; NaN stays.

    >>> import tracebridge.numpy as tnp
    >>> tnp.heaviside(tnp.array([-1.0, 0.0, 2.0]), 0.5).tolist()
    [0.0, 0.5, 1.0]
    """,
)
