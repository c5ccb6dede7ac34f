"""Elementwise mathematics: functions of one or two arrays, computed in their promoted dtype.

Each public function is the fast entry of a planned function (core/runtime/planned.py): the Python
code of its implementation runs once per kind of argument.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.canonicalize import to_inexact
from tracebridge.core.dtypes.dtypes import (
    is_bool,
    is_complex,
    is_inexact,
    is_integer,
    is_unsigned,
)
from tracebridge.core.runtime.planned import Planned, binary, unary
from tracebridge.numpy._promote import (
    as_dtype,
    broadcast_operands,
    promote_dtypes,
    promote_inexact,
    promote_numeric,
)


def _unary(implementation: Callable[[Any], Any], name: str, doc: str) -> Callable[[Any], Any]:
    function = unary(Planned(implementation, name))
    function.__name__ = function.__qualname__ = name
    function.__module__ = "tracebridge.numpy"
    function.__doc__ = doc
    return function


def _binary(implementation: Callable[..., Any], name: str, doc: str) -> Callable[[Any, Any], Any]:
    function = binary(Planned(implementation, name))
    function.__name__ = function.__qualname__ = name
    function.__module__ = "tracebridge.numpy"
    function.__doc__ = doc
    return function


def _inexact(operation: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Integers become floats, then ``operation``."""

    def run(x: Any) -> Any:
        return operation(*promote_inexact(x))

    return run


def _binary_inexact(name: str, operation: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def run(x: Any, y: Any) -> Any:
        return operation(*broadcast_operands(name, *promote_inexact(x, y)))

    return run


def _binary_promoted(name: str, operation: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def run(x: Any, y: Any) -> Any:
        return operation(*broadcast_operands(name, *promote_dtypes(x, y)))

    return run


def _binary_numeric(name: str, operation: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def run(x: Any, y: Any) -> Any:
        return operation(*broadcast_operands(name, *promote_numeric(x, y)))

    return run


# functions of one array --------------------------------------------------------------------------

sin = _unary(
    _inexact(lambda x: lax.sin(x)),
    "sin",
    """Sine, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.sin(0.0))
    0.0
    """,
)
cos = _unary(
    _inexact(lambda x: lax.cos(x)),
    "cos",
    """Cosine, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.cos(0.0))
    1.0
    """,
)
tan = _unary(
    _inexact(lambda x: lax.tan(x)),
    "tan",
    """Tangent, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.tan(0.0))
    0.0
    """,
)
sinh = _unary(
    _inexact(lambda x: lax.sinh(x)),
    "sinh",
    """Hyperbolic sine, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.sinh(0.0))
    0.0
    """,
)
cosh = _unary(
    _inexact(lambda x: lax.cosh(x)),
    "cosh",
    """Hyperbolic cosine, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.cosh(0.0))
    1.0
    """,
)
tanh = _unary(
    _inexact(lambda x: lax.tanh(x)),
    "tanh",
    """Hyperbolic tangent, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.tanh(0.0))
    0.0
    """,
)
exp = _unary(
    _inexact(lambda x: lax.exp(x)),
    "exp",
    """Exponential, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.exp(0.0))
    1.0
    """,
)
expm1 = _unary(
    _inexact(lambda x: lax.expm1(x)),
    "expm1",
    """``exp(x) - 1``, exact for small ``x``, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.expm1(0.0))
    0.0
    """,
)
exp2 = _unary(
    _inexact(lambda x: lax.exp2(x)),
    "exp2",
    """``2 ** x``, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.exp2(3.0))
    8.0
    """,
)
log = _unary(
    _inexact(lambda x: lax.log(x)),
    "log",
    """Natural logarithm, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.log(1.0))
    0.0
    """,
)
log1p = _unary(
    _inexact(lambda x: lax.log1p(x)),
    "log1p",
    """``log(1 + x)``, exact for small ``x``, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.log1p(0.0))
    0.0
    """,
)
sqrt = _unary(
    _inexact(lambda x: lax.sqrt(x)),
    "sqrt",
    """Square root, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.sqrt(4.0))
    2.0
    """,
)
cbrt = _unary(
    _inexact(lambda x: lax.cbrt(x)),
    "cbrt",
    """Cube root, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.cbrt(8.0))
    2.0
    """,
)
arcsin = _unary(
    _inexact(lambda x: lax.asin(x)),
    "arcsin",
    """Inverse sine, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.arcsin(0.0))
    0.0
    """,
)
asin = arcsin
arccos = _unary(
    _inexact(lambda x: lax.acos(x)),
    "arccos",
    """Inverse cosine, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.arccos(1.0))
    0.0
    """,
)
acos = arccos
arctan = _unary(
    _inexact(lambda x: lax.atan(x)),
    "arctan",
    """Inverse tangent, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.arctan(0.0))
    0.0
    """,
)
atan = arctan
arcsinh = _unary(
    _inexact(lambda x: lax.asinh(x)),
    "arcsinh",
    """Inverse hyperbolic sine, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.arcsinh(0.0))
    0.0
    """,
)
asinh = arcsinh
arccosh = _unary(
    _inexact(lambda x: lax.acosh(x)),
    "arccosh",
    """Inverse hyperbolic cosine, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.arccosh(1.0))
    0.0
    """,
)
acosh = arccosh
arctanh = _unary(
    _inexact(lambda x: lax.atanh(x)),
    "arctanh",
    """Inverse hyperbolic tangent, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.arctanh(0.0))
    0.0
    """,
)
atanh = arctanh
log2 = _unary(
    _inexact(lambda x: lax.mul(lax.log(x), 1.0 / np.log(2.0))),
    "log2",
    """Logarithm to base 2, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.log2(8.0))
    3.0
    """,
)
log10 = _unary(
    _inexact(lambda x: lax.mul(lax.log(x), 1.0 / np.log(10.0))),
    "log10",
    """Logarithm to base 10, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> round(float(tnp.log10(1000.0)), 5)
    3.0
    """,
)
deg2rad = _unary(
    _inexact(lambda x: lax.mul(x, np.pi / 180.0)),
    "deg2rad",
    """Degrees to radians, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> round(float(tnp.deg2rad(180.0)), 4)
    3.1416
    """,
)
radians = deg2rad
rad2deg = _unary(
    _inexact(lambda x: lax.mul(x, 180.0 / np.pi)),
    "rad2deg",
    """Radians to degrees, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.rad2deg(0.0))
    0.0
    """,
)
degrees = rad2deg


def _negative(x: Any) -> Any:
    return lax.neg(x)


def _absolute(x: Any) -> Any:
    if is_bool(x.aval.dtype) or is_unsigned(x.aval.dtype):
        return x
    return lax.abs(x)


def _square(x: Any) -> Any:
    return lax.integer_pow(x, 2) if not is_bool(x.aval.dtype) else x


def _sign(x: Any) -> Any:
    return lax.sign(x)


def _reciprocal(x: Any) -> Any:
    (x,) = promote_inexact(x)
    return lax.div(1.0, x)


negative = _unary(
    _negative,
    "negative",
    """``-x``, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> tnp.negative(tnp.array([1, -2])).tolist()
    [-1, 2]
    """,
)
positive = _unary(
    lambda x: x,
    "positive",
    """``+x``: the array itself.

    >>> import tracebridge.numpy as tnp
    >>> int(tnp.positive(3))
    3
    """,
)
absolute = _unary(
    _absolute,
    "absolute",
    """Absolute value (complex: modulus), elementwise.

    >>> import tracebridge.numpy as tnp
    >>> tnp.absolute(tnp.array([-1.5, 2.0])).tolist()
    [1.5, 2.0]
    """,
)
abs = absolute  # noqa: A001 (NumPy's name)
fabs = _unary(
    _inexact(lambda x: lax.abs(x)),
    "fabs",
    """Absolute value as a float, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.fabs(-2))
    2.0
    """,
)
square = _unary(
    _square,
    "square",
    """``x * x``, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> tnp.square(tnp.array([2, 3])).tolist()
    [4, 9]
    """,
)
sign = _unary(
    _sign,
    "sign",
    """-1, 0 or 1 by the sign (complex: ``x / abs(x)``), elementwise.

    >>> import tracebridge.numpy as tnp
    >>> tnp.sign(tnp.array([-2.0, 0.0, 5.0])).tolist()
    [-1.0, 0.0, 1.0]
    """,
)
reciprocal = _unary(
    _reciprocal,
    "reciprocal",
    """``1 / x``, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.reciprocal(4.0))
    0.25
    """,
)


def _conjugate(x: Any) -> Any:
    return lax.conj(x) if is_complex(x.aval.dtype) else x


def _real(x: Any) -> Any:
    return lax.real(x) if is_complex(x.aval.dtype) else x


def _imag(x: Any) -> Any:
    return lax.imag(x) if is_complex(x.aval.dtype) else lax.zeros_of(x.aval)


conjugate = _unary(
    _conjugate,
    "conjugate",
    """Complex conjugate, elementwise; real arrays are unchanged.

    >>> import tracebridge.numpy as tnp
    >>> complex(tnp.conjugate(1 + 2j))
    (1-2j)
    """,
)
conj = conjugate
real = _unary(
    _real,
    "real",
    """Real part, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.real(1 + 2j))
    1.0
    """,
)
imag = _unary(
    _imag,
    "imag",
    """Imaginary part, elementwise; zeros for real arrays.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.imag(1 + 2j))
    2.0
    """,
)


# functions of two arrays -------------------------------------------------------------------------

add = _binary(
    _binary_promoted("add", lambda x, y: lax.add(x, y)),
    "add",
    """``x + y``, elementwise with broadcasting.

    >>> import tracebridge.numpy as tnp
    >>> tnp.add(tnp.array([1, 2]), 0.5).tolist()
    [1.5, 2.5]
    """,
)
subtract = _binary(
    _binary_promoted("subtract", lambda x, y: lax.sub(x, y)),
    "subtract",
    """``x - y``, elementwise with broadcasting.

    >>> import tracebridge.numpy as tnp
    >>> tnp.subtract(tnp.array([1, 2]), 1).tolist()
    [0, 1]
    """,
)
multiply = _binary(
    _binary_promoted("multiply", lambda x, y: lax.mul(x, y)),
    "multiply",
    """``x * y``, elementwise with broadcasting.

    >>> import tracebridge.numpy as tnp
    >>> tnp.multiply(tnp.array([1, 2]), tnp.array([[3], [4]])).tolist()
    [[3, 6], [4, 8]]
    """,
)
true_divide = _binary(
    _binary_inexact("divide", lambda x, y: lax.div(x, y)),
    "divide",
    """``x / y``, elementwise with broadcasting; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.divide(1, 2))
    0.5
    """,
)
divide = true_divide


def _floor_divide(x: Any, y: Any) -> Any:
    x, y = broadcast_operands("floor_divide", *promote_numeric(x, y))
    dtype = x.aval.dtype
    if is_unsigned(dtype):
        return lax.div(x, y)
    if is_integer(dtype):
        quotient = lax.div(x, y)
        inexact = lax.ne(lax.rem(x, y), 0)
        below = lax.bitwise_and(lax.ne(lax.sign(x), lax.sign(y)), inexact)
        return lax.select_n(below, quotient, lax.sub(quotient, 1))
    return _float_divmod(x, y)[0]


def _float_divmod(x: Any, y: Any) -> tuple[Any, Any]:
    """Floor and remainder with the sign of ``y``, as Python's ``divmod`` of floats."""
    remainder = lax.rem(x, y)
    quotient = lax.div(lax.sub(x, remainder), y)
    wrong = lax.bitwise_and(lax.ne(remainder, 0.0), lax.ne(lax.sign(y), lax.sign(remainder)))
    quotient = lax.select_n(wrong, quotient, lax.sub(quotient, 1.0))
    remainder = lax.select_n(wrong, remainder, lax.add(remainder, y))
    return lax.round(quotient), remainder


def _remainder(x: Any, y: Any) -> Any:
    x, y = broadcast_operands("remainder", *promote_numeric(x, y))
    remainder = lax.rem(x, y)
    if is_unsigned(x.aval.dtype):
        return remainder
    zero = lax.zeros_of(y.aval.update(shape=()))
    wrong = lax.bitwise_and(
        lax.ne(lax.lt(remainder, zero), lax.lt(y, zero)), lax.ne(remainder, zero)
    )
    return lax.select_n(wrong, remainder, lax.add(remainder, y))


def _divmod(x: Any, y: Any) -> list[Any]:
    return [_floor_divide(x, y), _remainder(x, y)]


floor_divide = _binary(
    _floor_divide,
    "floor_divide",
    """``x // y``: the quotient rounded down, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> int(tnp.floor_divide(-7, 2))
    -4
    """,
)
remainder = _binary(
    _remainder,
    "remainder",
    """``x % y``: the remainder with the sign of ``y``, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> int(tnp.remainder(-7, 2))
    1
    """,
)
mod = remainder
fmod = _binary(
    _binary_numeric("fmod", lambda x, y: lax.rem(x, y)),
    "fmod",
    """The remainder with the sign of ``x``, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> int(tnp.fmod(-7, 2))
    -1
    """,
)
_divmod_list = binary(Planned(_divmod, "divmod"))


def divmod(x1: Any, x2: Any, /) -> tuple[Any, Any]:  # noqa: A001 (NumPy's name)
    """``(x // y, x % y)``, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> q, r = tnp.divmod(7, 2)
    >>> int(q), int(r)
    (3, 1)
    """
    quotient, rest = _divmod_list(x1, x2)
    return quotient, rest


def _power(x: Any, y: Any) -> Any:
    x, y = broadcast_operands("power", *promote_numeric(x, y))
    if is_integer(x.aval.dtype):
        return _int_power(x, y)
    return lax.pow(x, y)


def _int_power(x: Any, y: Any) -> Any:
    """Integer power by squaring over the bits of the exponent; negative exponents give 0 or +-1."""
    one = lax.full_of(x.aval.update(shape=()), 1)
    result: Any = one
    base, exponent = x, y
    bits = x.aval.dtype.itemsize * 8
    for _ in range(min(bits, 6)):
        odd = lax.eq(lax.bitwise_and(exponent, one), one)
        result = lax.select_n(odd, _full_like(result, odd), lax.mul(result, base))
        base = lax.mul(base, base)
        exponent = lax.shift_right_logical(exponent, one)
    return result


def _full_like(x: Any, like: Any) -> Any:
    if x.aval.shape == like.aval.shape:
        return x
    return lax.broadcast_in_dim(x, like.aval.shape, ())


_power_planned = binary(Planned(_power, "power"))
_integer_power = Planned(lambda x, n: lax.integer_pow(x, n), "power")


def power(x1: Any, x2: Any, /) -> Any:
    """``x1 ** x2``, elementwise with broadcasting.

    A Python integer exponent is applied by repeated multiplication; negative integer powers of
    integers are an error for a Python exponent.

    >>> import tracebridge.numpy as tnp
    >>> tnp.power(tnp.array([1.0, 2.0]), 3).tolist()
    [1.0, 8.0]
    """
    if type(x2) is int and hasattr(x1, "aval") and not is_bool(x1.aval.dtype):
        if x2 < 0 and is_integer(x1.aval.dtype):
            msg = f"power: integers to the negative power {x2}; convert the array to float first"
            raise ValueError(msg)
        return _integer_power((x1,), (x2,))
    return _power_planned(x1, x2)


pow = power  # noqa: A001 (NumPy's name)
float_power = _binary(
    _binary_inexact("float_power", lambda x, y: lax.pow(x, y)),
    "float_power",
    """``x ** y`` in floats, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.float_power(2, -1))
    0.5
    """,
)
arctan2 = _binary(
    _binary_inexact("arctan2", lambda x, y: lax.atan2(x, y)),
    "arctan2",
    """Angle of the point ``(y, x)`` in ``(-pi, pi]``; the first argument is ``y``.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.arctan2(0.0, 1.0))
    0.0
    """,
)
atan2 = arctan2
maximum = _binary(
    _binary_promoted("maximum", lambda x, y: lax.max(x, y)),
    "maximum",
    """The larger, elementwise; NaN if either is.

    >>> import tracebridge.numpy as tnp
    >>> tnp.maximum(tnp.array([1, 5]), 3).tolist()
    [3, 5]
    """,
)
minimum = _binary(
    _binary_promoted("minimum", lambda x, y: lax.min(x, y)),
    "minimum",
    """The smaller, elementwise; NaN if either is.

    >>> import tracebridge.numpy as tnp
    >>> tnp.minimum(tnp.array([1, 5]), 3).tolist()
    [1, 3]
    """,
)


def _hypot(x: Any, y: Any) -> Any:
    x, y = broadcast_operands("hypot", *promote_inexact(x, y))
    x, y = lax.abs(x), lax.abs(y)
    big, small = lax.max(x, y), lax.min(x, y)
    zero = lax.eq(big, 0.0)
    ratio = lax.div(small, lax.select_n(zero, big, _full_like(lax.full_of(big.aval, 1), big)))
    return lax.mul(big, lax.sqrt(lax.add(1.0, lax.mul(ratio, ratio))))


hypot = _binary(
    _hypot,
    "hypot",
    """``sqrt(x*x + y*y)`` without overflow, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.hypot(3.0, 4.0))
    5.0
    """,
)


def _logaddexp(x: Any, y: Any) -> Any:
    x, y = broadcast_operands("logaddexp", *promote_inexact(x, y))
    big = lax.max(x, y)
    delta = lax.sub(x, y)
    # NaN where both are the same infinity: the sum is that infinity.
    same = lax.ne(delta, delta)
    total = lax.add(big, lax.log1p(lax.exp(lax.neg(lax.abs(delta)))))
    return lax.select_n(same, total, lax.add(x, y))


logaddexp = _binary(
    _logaddexp,
    "logaddexp",
    """``log(exp(x) + exp(y))`` without overflow, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> round(float(tnp.logaddexp(0.0, 0.0)), 4)
    0.6931
    """,
)


def float_dtype_of(dtype: Any) -> Any:
    """The float dtype in which integers of ``dtype`` are computed; inexact dtypes as they are."""
    return dtype if is_inexact(dtype) else to_inexact(dtype)


def cast(x: Any, dtype: Any) -> Any:
    """``x`` in ``dtype`` (while planning)."""
    return as_dtype(x, dtype)
