"""Elementwise arithmetic: functions of one or two arrays, computed in their promoted dtype.

Each public function is the fast entry of a planned function (core/runtime/planned.py): the Python
code of its implementation runs once per kind of argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tracebridge.core.lax as lax
from tracebridge.core.control.while_loop import while_loop
from tracebridge.core.dtypes.dtypes import (
    is_bool,
    is_complex,
    is_inexact,
    is_integer,
    is_unsigned,
)
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.filtering import hide_internal_frames
from tracebridge.core.runtime.planned import Planned, binary
from tracebridge.numpy._planning import binary_function, unary_function
from tracebridge.numpy._promote import (
    broadcast_operands,
    broadcast_to,
    promote_dtypes,
    promote_inexact,
    promote_numeric,
)


def inexact_operands(name: str, operation: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """``operation`` on operands promoted to a float or complex dtype and to one shape."""

    def run(x: Any, y: Any) -> Any:
        return operation(*broadcast_operands(name, *promote_inexact(x, y)))

    return run


def promoted_operands(name: str, operation: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """``operation`` on operands promoted to one dtype and shape."""

    def run(x: Any, y: Any) -> Any:
        return operation(*broadcast_operands(name, *promote_dtypes(x, y)))

    return run


def numeric_operands(name: str, operation: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """``operation`` on operands promoted to one dtype other than bool, and to one shape."""

    def run(x: Any, y: Any) -> Any:
        return operation(*broadcast_operands(name, *promote_numeric(x, y)))

    return run


# functions of one array --------------------------------------------------------------------------


def _fabs(x: Any) -> Any:
    (x,) = promote_inexact(x)
    if is_complex(x.aval.dtype):
        msg = f"fabs works on real numbers, got {x.aval.str_short()}"
        raise UnsupportedDtypeError(msg, hint="use absolute")
    return lax.abs(x)


def _negative(x: Any) -> Any:
    return lax.neg(x)


def _absolute(x: Any) -> Any:
    if is_bool(x.aval.dtype) or is_unsigned(x.aval.dtype):
        return x
    return lax.abs(x)


def _square(x: Any) -> Any:
    return lax.integer_pow(promote_numeric(x)[0], 2)


def _sign(x: Any) -> Any:
    return lax.sign(x)


def _reciprocal(x: Any) -> Any:
    (x,) = promote_inexact(x)
    return lax.div(1.0, x)


negative = unary_function(
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


def _conjugate(x: Any) -> Any:
    return lax.conj(x) if is_complex(x.aval.dtype) else x


def _real(x: Any) -> Any:
    return lax.real(x) if is_complex(x.aval.dtype) else x


def _imag(x: Any) -> Any:
    return lax.imag(x) if is_complex(x.aval.dtype) else lax.zeros_of(x.aval)


conjugate = unary_function(
    _conjugate,
    "conjugate",
    """Complex conjugate, elementwise; real arrays are unchanged.

    >>> import tracebridge.numpy as tnp
    >>> complex(tnp.conjugate(1 + 2j))
    (1-2j)
    """,
)
conj = conjugate
real = unary_function(
    _real,
    "real",
    """Real part, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.real(1 + 2j))
    1.0
    """,
)
imag = unary_function(
    _imag,
    "imag",
    """Imaginary part, elementwise; zeros for real arrays.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.imag(1 + 2j))
    2.0
    """,
)


# functions of two arrays -------------------------------------------------------------------------


def _add(x: Any, y: Any) -> Any:
    """The sum; of bools: whether either is true."""
    return lax.bitwise_or(x, y) if is_bool(x.aval.dtype) else lax.add(x, y)


def _multiply(x: Any, y: Any) -> Any:
    """The product; of bools: whether both are true."""
    return lax.bitwise_and(x, y) if is_bool(x.aval.dtype) else lax.mul(x, y)


add = binary_function(
    promoted_operands("add", _add),
    "add",
    """``x1 + x2``, elementwise with broadcasting.

    >>> import tracebridge.numpy as tnp
    >>> tnp.add(tnp.array([1, 2]), 0.5).tolist()
    [1.5, 2.5]
    """,
)
subtract = binary_function(
    promoted_operands("subtract", lambda x, y: lax.sub(x, y)),
    "subtract",
    """``x1 - x2``, elementwise with broadcasting.

    >>> import tracebridge.numpy as tnp
    >>> tnp.subtract(tnp.array([1, 2]), 1).tolist()
    [0, 1]
    """,
)
multiply = binary_function(
    promoted_operands("multiply", _multiply),
    "multiply",
    """``x1 * x2``, elementwise with broadcasting.

    >>> import tracebridge.numpy as tnp
    >>> tnp.multiply(tnp.array([1, 2]), tnp.array([[3], [4]])).tolist()
    [[3, 6], [4, 8]]
    """,
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
    # Divided by zero it is the quotient itself, an infinity with its sign.
    by_zero = lax.eq(y, 0.0)
    quotient = lax.select_n(by_zero, lax.round(quotient), lax.stop_gradient(lax.div(x, y)))
    return quotient, remainder


def _rem(x: Any, y: Any) -> Any:
    """The remainder with the sign of ``x``; 0 for integers that are divided by 0."""
    rest = lax.rem(x, y)
    if not is_integer(x.aval.dtype):
        return rest
    by_zero = lax.eq(y, lax.zeros_of(y.aval.update(shape=())))
    # A divisor of rank 0 may stand beside an array; select_n takes its predicate of rank 0 too.
    return lax.select_n(by_zero, rest, lax.zeros_of(rest.aval))


def _remainder(x: Any, y: Any) -> Any:
    x, y = broadcast_operands("remainder", *promote_numeric(x, y))
    remainder = _rem(x, y)
    if is_unsigned(x.aval.dtype):
        return remainder
    zero = lax.zeros_of(y.aval.update(shape=()))
    wrong = lax.bitwise_and(
        lax.ne(lax.lt(remainder, zero), lax.lt(y, zero)), lax.ne(remainder, zero)
    )
    return lax.select_n(wrong, remainder, lax.add(remainder, y))


def _divmod(x: Any, y: Any) -> list[Any]:
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
_divmod_list = binary(Planned(_divmod, "divmod"))


def divmod(x1: Any, x2: Any, /) -> tuple[Any, Any]:
    """``(x // y, x % y)``, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> q, r = tnp.divmod(7, 2)
    >>> int(q), int(r)
    (3, 1)
    """
    quotient, rest = _divmod_list(x1, x2)
    return quotient, rest


def _power(x: Any, y: Any) -> Any:
    if is_inexact(x.aval.dtype) and is_integer(y.aval.dtype):
        # The derivative at 0**0 is 0 for an integer exponent; as a float it would be 0 * inf.
        dtype = promote_numeric(x, y)[0].aval
        x, y = broadcast_operands("power", lax.convert_dtype(x, dtype.dtype, dtype.weak_type), y)
        return lax.pow(x, y)
    x, y = broadcast_operands("power", *promote_numeric(x, y))
    if is_integer(x.aval.dtype):
        return _int_power(x, y)
    return lax.pow(x, y)


def _int_power(x: Any, y: Any) -> Any:
    """Integer power by squaring, for as many bits as the largest exponent has."""
    shape = x.aval.shape if x.aval.ndim else y.aval.shape
    weak = x.aval.weak_type and y.aval.weak_type
    x, y = (lax.convert_dtype(broadcast_to(v, shape), x.aval.dtype, weak) for v in (x, y))
    one, zero = lax.full_of(x.aval, 1), lax.zeros_of(x.aval.update(shape=()))

    def unfinished(carry: Sequence[Any]) -> Any:
        left = lax.gt(carry[2], zero)
        return lax.reduce_or(left, tuple(range(left.aval.ndim)))

    def step(carry: Sequence[Any]) -> tuple[Any, Any, Any]:
        result, base, exponent = carry
        odd = lax.eq(lax.bitwise_and(exponent, one), one)
        result = lax.select_n(odd, result, lax.mul(result, base))
        return result, lax.mul(base, base), lax.shift_right_logical(exponent, one)

    if is_unsigned(x.aval.dtype):
        return while_loop(unfinished, step, (one, x, y))[0]
    result = while_loop(unfinished, step, (one, x, lax.max(y, zero)))[0]
    # The inverse of an integer is one only for 1 and -1; here all others give 0.
    odd = lax.eq(lax.bitwise_and(y, one), one)
    inverse = lax.select_n(odd, lax.mul(x, x), x)
    inverse = lax.select_n(lax.eq(lax.abs(x), one), lax.zeros_of(x.aval), inverse)
    return lax.select_n(lax.lt(y, zero), result, inverse)


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

    Raises:
        UnsupportedDtypeError: ``x1`` holds integers and ``x2`` is a negative integer.

    >>> import tracebridge.numpy as tnp
    >>> tnp.power(tnp.array([1.0, 2.0]), 3).tolist()
    [1.0, 8.0]
    """
    try:
        if type(x2) is int and hasattr(type(x1), "aval") and not is_bool(x1.aval.dtype):
            if x2 < 0 and is_integer(x1.aval.dtype):
                msg = f"power: integers have no negative powers, got {x2}"
                raise UnsupportedDtypeError(msg, hint="convert the array to float first")
            return _integer_power((x1,), (x2,))
        return _power_planned(x1, x2)
    except Exception as error:
        hide_internal_frames(error)
        raise


pow = power
float_power = binary_function(
    inexact_operands("float_power", lambda x, y: lax.pow(x, y)),
    "float_power",
    """``x1 ** x2`` in floats, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.float_power(2, -1))
    0.5
    """,
)
arctan2 = binary_function(
    inexact_operands("arctan2", lambda x, y: lax.atan2(x, y)),
    "arctan2",
    """Angle of the point with ordinate ``x1`` and abscissa ``x2``, in ``(-pi, pi]``.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.arctan2(0.0, 1.0))
    0.0
    """,
)
atan2 = arctan2
maximum = binary_function(
    promoted_operands("maximum", lambda x, y: lax.max(x, y)),
    "maximum",
    """The larger, elementwise; NaN if either is.

    >>> import tracebridge.numpy as tnp
    >>> tnp.maximum(tnp.array([1, 5]), 3).tolist()
    [3, 5]
    """,
)
minimum = binary_function(
    promoted_operands("minimum", lambda x, y: lax.min(x, y)),
    "minimum",
    """The smaller, elementwise; NaN if either is.

    >>> import tracebridge.numpy as tnp
    >>> tnp.minimum(tnp.array([1, 5]), 3).tolist()
    [1, 3]
    """,
)


def _hypot(x: Any, y: Any) -> Any:
    x, y = broadcast_operands("hypot", *promote_inexact(x, y))
    if is_complex(x.aval.dtype):
        msg = f"hypot: got {x.aval.str_short()} and {y.aval.str_short()}, expected real numbers"
        raise UnsupportedDtypeError(msg)
    x, y = lax.abs(x), lax.abs(y)
    big, small = lax.max(x, y), lax.min(x, y)
    zero = lax.eq(big, 0.0)
    ratio = lax.div(small, lax.select_n(zero, big, lax.full_of(big.aval, 1)))
    result = lax.mul(big, lax.sqrt(lax.add(1.0, lax.mul(ratio, ratio))))
    # Infinite if one side is, also beside NaN.
    infinity = lax.full_of(big.aval.update(shape=()), math.inf)
    infinite = lax.bitwise_or(lax.eq(x, infinity), lax.eq(y, infinity))
    return lax.select_n(infinite, result, lax.full_of(result.aval, math.inf))


hypot = binary_function(
    _hypot,
    "hypot",
    """``sqrt(x1*x1 + x2*x2)`` without overflow, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.hypot(3.0, 4.0))
    5.0
    """,
)


def _complex_logaddexp(x: Any, y: Any, exp: Callable[[Any], Any], scale: float) -> Any:
    """The sum in the logarithm, relative to the term of larger real part."""
    x, y = (_full_like(v, lax.ne(x, y)) for v in (x, y))
    first = lax.ge(lax.real(x), lax.real(y))
    big, small = lax.select_n(first, y, x), lax.select_n(first, x, y)
    return lax.add(big, lax.mul(lax.log1p(exp(lax.sub(small, big))), scale))


def _ordered(x: Any, y: Any) -> tuple[Any, Any]:
    """The larger and ``smaller - larger``, which is 0 between infinities of one sign.

    Chosen by one comparison, so that their derivatives at ties are those of the same operands.
    """
    less = lax.lt(x, y)
    big, small = lax.select_n(less, x, y), lax.select_n(less, y, x)
    infinity = lax.full_of(big.aval.update(shape=()), math.inf)
    same = lax.bitwise_and(lax.eq(x, y), lax.eq(lax.abs(x), infinity))
    zeros = lax.zeros_of(big.aval)
    return big, lax.sub(lax.select_n(same, small, zeros), lax.select_n(same, big, zeros))


def _logaddexp(x: Any, y: Any) -> Any:
    x, y = broadcast_operands("logaddexp", *promote_inexact(x, y))
    if is_complex(x.aval.dtype):
        return _complex_logaddexp(x, y, lambda v: lax.exp(v), 1.0)
    big, delta = _ordered(x, y)
    return lax.add(big, lax.log1p(lax.exp(delta)))


logaddexp = binary_function(
    _logaddexp,
    "logaddexp",
    """``log(exp(x1) + exp(x2))`` without overflow, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> round(float(tnp.logaddexp(0.0, 0.0)), 4)
    0.6931
    """,
)


def _logaddexp2(x: Any, y: Any) -> Any:
    x, y = broadcast_operands("logaddexp2", *promote_inexact(x, y))
    if is_complex(x.aval.dtype):
        return _complex_logaddexp(x, y, lambda v: lax.exp2(v), 1.0 / math.log(2.0))
    big, delta = _ordered(x, y)
    return lax.add(big, lax.mul(lax.log1p(lax.exp2(delta)), 1.0 / math.log(2.0)))


logaddexp2 = binary_function(
    _logaddexp2,
    "logaddexp2",
    """``log2(2**x1 + 2**x2)`` without overflow, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.logaddexp2(3.0, 3.0))
    4.0
    """,
)


def lexicographic(strict: str, x: Any, y: Any) -> Any:
    """A comparison; complex numbers are compared by real part, then by imaginary part."""
    compare = getattr(lax, strict)
    if not is_complex(x.aval.dtype):
        return compare(x, y)
    parts = lax.eq(lax.real(x), lax.real(y))
    first = getattr(lax, strict[0] + "t")(lax.real(x), lax.real(y))
    return lax.bitwise_or(first, lax.bitwise_and(parts, compare(lax.imag(x), lax.imag(y))))


def _fmax(x: Any, y: Any) -> Any:
    x, y = broadcast_operands("fmax", *promote_dtypes(x, y))
    return _select(lax.bitwise_or(lexicographic("gt", x, y), lax.ne(y, y)), x, y)


def _fmin(x: Any, y: Any) -> Any:
    x, y = broadcast_operands("fmin", *promote_dtypes(x, y))
    return _select(lax.bitwise_or(lexicographic("lt", x, y), lax.ne(y, y)), x, y)


def _select(which: Any, on_true: Any, on_false: Any) -> Any:
    """A select whose cases may be scalars beside an array."""
    return lax.select_n(which, *[_full_like(v, which) for v in (on_false, on_true)])


fmax = binary_function(
    _fmax,
    "fmax",
    """The larger, elementwise; NaN only if both are.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.fmax(1.0, tnp.nan))
    1.0
    """,
)
fmin = binary_function(
    _fmin,
    "fmin",
    """The smaller, elementwise; NaN only if both are.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.fmin(1.0, tnp.nan))
    1.0
    """,
)


def _heaviside(x: Any, y: Any) -> Any:
    x, y = broadcast_operands("heaviside", *promote_inexact(x, y))
    zero = lax.zeros_of(x.aval.update(shape=()))
    if y.aval.ndim:
        x = _full_like(x, y)
    step = lax.convert_dtype(lax.gt(x, zero), x.aval.dtype, x.aval.weak_type)
    step = _select(lax.eq(x, zero), y, step)
    return _select(lax.ne(x, x), x, step)


heaviside = binary_function(
    _heaviside,
    "heaviside",
    """0 for negative ``x1``, 1 for positive ``x1``, ``x2`` where ``x1`` is zero; NaN stays.

    >>> import tracebridge.numpy as tnp
    >>> tnp.heaviside(tnp.array([-1.0, 0.0, 2.0]), 0.5).tolist()
    [0.0, 0.5, 1.0]
    """,
)


def _clip(*args: Any) -> Any:
    *xs, has_min = args
    values = promote_dtypes(*xs)
    x, *bounds = values
    if is_complex(x.aval.dtype):
        msg = f"clip: complex numbers have no order, got {x.aval.str_short()}"
        raise UnsupportedDtypeError(msg, hint="clip the real and the imaginary part")
    if has_min:
        x = lax.max(*broadcast_operands("clip", bounds[0], x))
    if len(bounds) > has_min:
        x = lax.min(*broadcast_operands("clip", bounds[-1], x))
    return x


_clip_planned = Planned(_clip, "clip")


def clip(arr: Any = None, /, min: Any = None, max: Any = None) -> Any:
    """``arr`` limited to the range from ``min`` to ``max``; NaN stays.

    Args:
        arr: array, promoted together with the limits.
        min: lower limit, a number or an array that broadcasts; ``None`` for none.
        max: upper limit; it wins where the lower one is larger.

    Raises:
        UnsupportedDtypeError: complex numbers.

    >>> import tracebridge.numpy as tnp
    >>> tnp.clip(tnp.array([1, 5, 9]), 2, 7).tolist()
    [2, 5, 7]
    """
    try:
        bounds = [b for b in (min, max) if b is not None]
        return _clip_planned((arr, *bounds), (min is not None,))
    except Exception as error:
        hide_internal_frames(error)
        raise


def _angle(z: Any, deg: bool) -> Any:
    (z,) = promote_inexact(z)
    if is_complex(z.aval.dtype):
        result = lax.atan2(lax.imag(z), lax.real(z))
    else:
        result = lax.atan2(lax.zeros_of(z.aval), z)
    return lax.mul(result, 180.0 / math.pi) if deg else result


_angle_planned = Planned(_angle, "angle")


def angle(z: Any, deg: bool = False) -> Any:
    """The angle of complex numbers in the plane, in ``(-pi, pi]`` or degrees, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.angle(1j, deg=True))
    90.0
    """
    return _angle_planned((z,), (bool(deg),))
