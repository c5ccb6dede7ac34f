"""Floats taken apart: signs, exponents, neighbours, and replacement of NaN and infinity."""

from __future__ import annotations

__all__ = [
    "copysign", "frexp", "isneginf", "isposinf", "ldexp", "modf", "nan_to_num", "nextafter",
    "signbit", "spacing",
]  # fmt: skip

from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import (
    is_bool,
    is_complex,
    is_float,
    is_inexact,
    is_integer,
    is_unsigned,
)
from tracebridge.core.dtypes.finfo import finfo
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.accepted_dtypes import check_ordinary
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.runtime.arrays.argument_types import DType
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.remembered import remembered
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import (
    as_strong,
    broadcast_operands,
    check_no_out,
    promote_inexact,
)
from tracebridge.numpy._staging import binary_function, unary_function

_BOOL = np.dtype(np.bool_)
_BITS = {1: np.dtype(np.int8), 2: np.dtype(np.int16), 4: np.dtype(np.int32), 8: np.dtype(np.int64)}


def _no_complex(name: str, x: Value) -> None:
    if is_complex(x.aval.dtype):
        msg = f"{name} works on real numbers, got {x.aval.str_short()}"
        raise UnsupportedDtypeError(msg)


def _bits(x: Value) -> Any:
    """The bit pattern of floats as signed integers of the same size."""
    return lax.bitcast_convert_type_p.bind(x, new_dtype=_BITS[x.aval.dtype.itemsize])


def _signbit(x: Value) -> Any:
    _no_complex("signbit", x)
    dtype = x.aval.dtype
    if is_float(dtype):
        return lax.lt(_bits(x), 0)
    if is_integer(dtype) and not is_unsigned(dtype):
        return lax.lt(as_strong(x), 0)
    return full_of(x.aval.strong.update(dtype=_BOOL), False)


signbit = unary_function(
    _signbit,
    "signbit",
    """Whether the sign bit is set, elementwise; true for -0.0.

    >>> import tracebridge.numpy as tnp
    >>> tnp.signbit(tnp.array([-0.0, 1.0])).tolist()
    [True, False]
    """,
)


def _copysign(x: Value, y: Value) -> Any:
    x, y = broadcast_operands("copysign", *promote_inexact(x, y))
    _no_complex("copysign", x)
    # The sign only chooses, so the operand that it chooses has the type of both.
    x = lax.convert_dtype(x, x.aval.dtype, x.aval.weak_type and y.aval.weak_type)
    # The size first: x and -x would exchange their derivatives between 0 and -0.
    size = lax.abs(x)
    return lax.select_n(_signbit(y), *_same_shape(size, lax.neg(size), y))


def _same_shape(x: Any, y: Value | None, like: Any) -> list[Any]:
    """``x`` and ``y`` repeated to the shape of ``like`` where that has more axes."""
    if x.aval.ndim or not like.aval.ndim:
        return [x, y]
    return [lax.broadcast_in_dim(v, like.aval.shape, ()) for v in (x, y)]


copysign = binary_function(
    _copysign,
    "copysign",
    """``x1`` with the sign of ``x2``, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.copysign(3.0, -0.0))
    -3.0
    """,
)


def _nextafter(x: Value, y: Value) -> Any:
    x, y = broadcast_operands("nextafter", *promote_inexact(x, y))
    return lax.nextafter(x, y)


nextafter = binary_function(
    _nextafter,
    "nextafter",
    """The next float after ``x1`` towards ``x2``, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.nextafter(1.0, 2.0)) > 1.0
    True
    """,
)


def _spacing(x: Value) -> Any:
    (x,) = promote_inexact(x)
    _no_complex("spacing", x)
    # Made of bits: XLA calculates with subnormal numbers as if they were zero.
    info, kind = finfo(x.aval.dtype), _BITS[x.aval.dtype.itemsize]
    bits = _bits(x)
    exponent = lax.shift_right_logical(_magnitude(bits), info.nmant)
    steps = lax.sub(lax.max(exponent, 1), 1)
    # As a normal number, or as a subnormal one: a single bit.
    normal = lax.shift_left(lax.max(lax.sub(exponent, info.nmant), 0), info.nmant)
    one = full_of(steps.aval.strong, 1)
    tiny = lax.shift_left(one, lax.min(steps, info.nmant))
    size = lax.select_n(lax.lt(steps, info.nmant), normal, tiny)
    distance = lax.bitcast_convert_type_p.bind(
        lax.convert_dtype(size, kind), new_dtype=x.aval.dtype
    )
    largest = lax.eq(lax.abs(x), full_of(x.aval.update(shape=()), float(info.max)))
    distance = lax.select_n(largest, distance, full_of(distance.aval, np.inf))
    negative = lax.bitwise_and(_signbit(x), lax.gt(_magnitude(bits), 0))
    distance = lax.select_n(negative, distance, lax.neg(distance))
    distance = lax.select_n(lax.is_finite(x), full_of(distance.aval, np.nan), distance)
    return lax.convert_dtype(distance, x.aval.dtype)


def _magnitude(bits: Value) -> Any:
    """Bit patterns without the sign."""
    return lax.bitwise_and(bits, int(np.iinfo(bits.aval.dtype).max))


spacing = unary_function(
    _spacing,
    "spacing",
    """The distance to the next float further from zero, with the sign of ``x``, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.spacing(1.0))
    1.1920929e-07
    """,
)


# exponents ---------------------------------------------------------------------------------------


def _power_of_two(n: Value, dtype: DType) -> Any:
    """``2.0 ** n`` by its bits, for ``n`` within the exponents of normal numbers."""
    info = finfo(dtype)
    kind = _BITS[dtype.itemsize]
    biased = lax.add(lax.convert_dtype(n, kind), info.maxexp - 1)
    return lax.bitcast_convert_type_p.bind(lax.shift_left(biased, info.nmant), new_dtype=dtype)


def _scale(x: Value, n: Value) -> Any:
    """``x * 2.0 ** n`` in three steps, so that no factor leaves the range of the dtype."""
    info = finfo(x.aval.dtype)
    low, high = info.minexp, info.maxexp - 1
    n = lax.convert_dtype(n, np.dtype(np.int32))
    for _ in range(3):
        part = lax.max(lax.min(n, high), low)
        x = lax.mul(x, _power_of_two(part, x.aval.dtype))
        n = lax.sub(n, part)
    return x


def _ldexp(x: Value, n: Value) -> Any:
    if is_bool(n.aval.dtype) or (is_integer(n.aval.dtype) and n.aval.dtype.itemsize == 1):
        # Eight bits hold exponents only up to that of float32, and not the negative of -128.
        n = lax.convert_dtype(n, np.dtype(np.int32))
    if not is_integer(n.aval.dtype):
        msg = f"ldexp: the exponent must be an integer, got {n.aval.str_short()}"
        raise UnsupportedDtypeError(msg)
    _no_complex("ldexp", x)
    (x,) = promote_inexact(x)
    x, n = broadcast_operands("ldexp", x, n)
    # Beyond these the result is 0 or infinite in every dtype.
    limit = 32000
    n = lax.min(n, limit) if is_unsigned(n.aval.dtype) else lax.max(lax.min(n, limit), -limit)
    return _scale(x, n)


ldexp = binary_function(
    _ldexp,
    "ldexp",
    """``x1 * 2 ** x2`` for integers ``x2``, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.ldexp(1.5, 3))
    12.0
    """,
)


def _frexp(x: Value) -> list[Any]:
    (x,) = promote_inexact(x)
    _no_complex("frexp", x)
    info = finfo(x.aval.dtype)
    # Subnormal numbers are scaled first: their exponent field is zero.
    size = _magnitude(_bits(x))
    field = lax.shift_right_logical(size, info.nmant)
    # Subnormal numbers, whose exponent field is zero, are made of bits: XLA calculates with them
    # as if they were zero. Their highest bit goes where the hidden one of normal numbers is.
    small = lax.bitwise_and(lax.eq(field, 0), lax.gt(size, 0))
    lift = lax.sub(lax.clz(size), x.aval.dtype.itemsize * 8 - 1 - info.nmant)
    lift = lax.select_n(small, zeros_of(lift.aval), lift)
    fraction = lax.bitwise_and(lax.shift_left(size, lift), 2**info.nmant - 1)
    half = lax.bitwise_or(fraction, (info.maxexp - 2) << info.nmant)
    half = lax.bitcast_convert_type_p.bind(half, new_dtype=x.aval.dtype)
    half = lax.select_n(_signbit(x), half, lax.neg(half))
    exponent = lax.convert_dtype(lax.sub(lax.max(field, 1), lift), np.dtype(np.int32))
    exponent = lax.sub(exponent, info.maxexp - 2)
    plain = lax.bitwise_and(lax.is_finite(x), lax.gt(size, 0))
    exponent = lax.select_n(plain, zeros_of(exponent.aval), exponent)
    half = lax.convert_dtype(half, x.aval.dtype, x.aval.weak_type)
    return [lax.select_n(small, _scale(x, lax.neg(exponent)), half), exponent]


_frexp_staged = StagedFunction(_frexp, "frexp")


@remembered
def frexp(x: ArrayLike, /) -> tuple[Array, Array]:
    """``(m, n)`` with ``x == m * 2 ** n`` and ``0.5 <= abs(m) < 1``, elementwise.

    Zero, infinities and NaN are their own mantissa with exponent 0; ``n`` has dtype int32.

    >>> import tracebridge.numpy as tnp
    >>> m, n = tnp.frexp(12.0)
    >>> float(m), int(n)
    (0.75, 4)
    """
    mantissa, exponent = _frexp_staged((x,))
    return mantissa, exponent


def _modf(x: Value) -> list[Any]:
    (x,) = promote_inexact(x)
    _no_complex("modf", x)
    # Both parts have the sign of x, zeros too: the parts of the size of x, with that sign.
    negative = _signbit(x)
    size = lax.select_n(negative, x, lax.neg(x))
    whole = lax.floor(size)
    infinite = lax.eq(size, full_of(x.aval.update(shape=()), np.inf))
    rest = lax.sub(lax.select_n(infinite, size, zeros_of(x.aval)), whole)
    rest = lax.select_n(infinite, rest, zeros_of(x.aval))
    return [lax.select_n(negative, part, lax.neg(part)) for part in (rest, whole)]


_modf_staged = StagedFunction(_modf, "modf")


@remembered
def modf(x: ArrayLike, /, out: None = None) -> tuple[Array, Array]:
    """The fractional and the whole part, both with the sign of ``x``, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> part, whole = tnp.modf(-2.5)
    >>> float(part), float(whole)
    (-0.5, -2.0)
    """
    check_no_out("modf", out)
    part, whole = _modf_staged((x,))
    return part, whole


# NaN and infinity --------------------------------------------------------------------------------


def _nan_to_num(*args: Value) -> Any:
    x, nan, *replacements = args
    *limits, has_posinf, has_neginf = replacements
    dtype = x.aval.dtype
    check_ordinary("nan_to_num", x.aval)
    if not is_inexact(dtype):
        return x
    if is_complex(dtype):
        statics = (*limits, has_posinf, has_neginf)
        return lax.complex(
            _nan_to_num(lax.real(x), nan, *statics), _nan_to_num(lax.imag(x), nan, *statics)
        )
    info = finfo(dtype)
    low: Any = limits[-1] if has_neginf else full_of(x.aval, float(info.min))
    high: Any = limits[0] if has_posinf else full_of(x.aval, float(info.max))
    scalar = x.aval.update(shape=())
    for where, value in (
        (lax.ne(x, x), nan),
        (lax.eq(x, full_of(scalar, np.inf)), high),
        (lax.eq(x, full_of(scalar, -np.inf)), low),
    ):
        new = lax.convert_dtype(value, dtype, x.aval.weak_type)
        where, old, new = broadcast_operands("nan_to_num", where, x, new)  # noqa: PLW2901 (the same mask, repeated)
        x = lax.select_n(where, old, new)
    return x


def _numbers(x: Value, *args: Value) -> Any:
    # Integers have nothing to replace, and stay as weak as they are.
    numbers = _nan_to_num(x, *args)
    return as_strong(numbers) if is_inexact(x.aval.dtype) else numbers


_nan_to_num_staged = StagedFunction(_numbers, "nan_to_num")


@remembered
def nan_to_num(
    x: ArrayLike,
    copy: bool = True,
    nan: ArrayLike = 0.0,
    posinf: ArrayLike | None = None,
    neginf: ArrayLike | None = None,
) -> Array:
    """``x`` with NaN and infinities replaced by numbers.

    Args:
        x: array; integers are unchanged, complex numbers are treated by part.
        copy: ignored: arrays are immutable.
        nan: what replaces NaN.
        posinf: what replaces infinity (default: the largest number of the dtype).
        neginf: what replaces minus infinity (default: the smallest number of the dtype).

    >>> import tracebridge.numpy as tnp
    >>> tnp.nan_to_num(tnp.array([1.0, tnp.nan, tnp.inf]), posinf=9.0).tolist()
    [1.0, 0.0, 9.0]
    """
    limits = [v for v in (posinf, neginf) if v is not None]
    return _nan_to_num_staged((x, nan, *limits), (posinf is not None, neginf is not None))


def _is_infinite(name: str, x: Value, value: float) -> Any:
    _no_complex(name, x)
    if not is_inexact(x.aval.dtype):
        return full_of(x.aval.strong.update(dtype=_BOOL), False)
    return lax.eq(x, full_of(x.aval.strong.update(shape=()), value))


_isposinf_staged = StagedFunction(lambda x: _is_infinite("isposinf", x, np.inf), "isposinf")
_isneginf_staged = StagedFunction(lambda x: _is_infinite("isneginf", x, -np.inf), "isneginf")


def isposinf(x: ArrayLike, /, out: None = None) -> Array:
    """Whether an element is plus infinity; complex numbers are an error.

    >>> import tracebridge.numpy as tnp
    >>> tnp.isposinf(tnp.array([1.0, tnp.inf, -tnp.inf])).tolist()
    [False, True, False]
    """
    check_no_out("isposinf", out)
    return _isposinf_staged((x,))


def isneginf(x: ArrayLike, /, out: None = None) -> Array:
    """Whether an element is minus infinity; complex numbers are an error.

    >>> import tracebridge.numpy as tnp
    >>> tnp.isneginf(tnp.array([1.0, tnp.inf, -tnp.inf])).tolist()
    [False, False, True]
    """
    check_no_out("isneginf", out)
    return _isneginf_staged((x,))
