"""Powers, hypotenuses, and logarithms of sums of powers, elementwise."""

from __future__ import annotations

__all__ = ["float_power", "hypot", "logaddexp", "logaddexp2", "pow", "power"]

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge._api.custom.custom_jvp import custom_jvp
from tracebridge.core.control.branches.switch import cond
from tracebridge.core.control.loops.while_loop import while_loop
from tracebridge.core.dtypes.dtypes import (
    is_bool,
    is_complex,
    is_inexact,
    is_integer,
    is_unsigned,
    itemsize_bits,
)
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.filtering import hide_internal_frames
from tracebridge.core.ir.operators import EngineValue
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.calls.staged_functions import StagedFunction, binary
from tracebridge.numpy._promote import (
    as_dtype,
    broadcast_operands,
    broadcast_to,
    inexact_operands,
    promote_inexact,
    promote_numeric,
    strong_array,
)
from tracebridge.numpy._staging import binary_function
from tracebridge.numpy._universal import universal_binary


def _power(x: Value, y: Value) -> Any:
    if is_inexact(x.aval.dtype) and is_integer(y.aval.dtype):
        # The derivative at 0**0 is 0 for an integer exponent; as a float it would be 0 * inf.
        dtype = promote_numeric(x, y)[0].aval.dtype
        # An array of exponents decides about the dtype, one exponent does not.
        weak = x.aval.weak_type and (y.aval.weak_type or not y.aval.ndim)
        x, y = broadcast_operands("power", lax.convert_dtype(x, dtype, weak), y)
        return as_dtype(lax.pow(x, y), dtype, weak)
    weak = x.aval.weak_type and y.aval.weak_type and not y.aval.ndim
    x, y = broadcast_operands("power", *promote_numeric(x, y))
    if is_integer(x.aval.dtype):
        return _int_power(x, y, weak)
    return lax.pow(x, y)


def _int_power(x: Value, y: Value, weak: bool) -> Any:
    """Integer power by squaring, for as many bits as the largest exponent has."""
    shape = x.aval.shape if x.aval.ndim else y.aval.shape
    x, y = (lax.convert_dtype(broadcast_to(v, shape), x.aval.dtype, weak) for v in (x, y))
    largest = lax.reduce_max(y, tuple(range(y.aval.ndim)))
    few = lax.lt(largest, full_of(largest.aval, 1 << _FEW_BITS))
    return cond(few, _power_of_few_bits, _power_of_any_bits, x, y)


_FEW_BITS = 6  # of exponents whose steps are written out: one kernel in place of a loop of several


def _power_of_few_bits(x: Value, y: Value) -> Any:
    """Powers whose exponents have at most ``_FEW_BITS`` bits."""
    carry = _start(x, y)
    for _ in range(_FEW_BITS):
        carry = _squared(carry)
    return _or_inverse(carry[0], x, y)


def _power_of_any_bits(x: Value, y: Value) -> Any:
    zero = zeros_of(x.aval.update(shape=()))

    def unfinished(carry: Sequence[Value]) -> Any:
        left = lax.gt(carry[2], zero)
        return lax.reduce_or(left, tuple(range(left.aval.ndim)))

    return _or_inverse(while_loop(unfinished, _squared, _start(x, y))[0], x, y)


def _start(x: Value, y: Value) -> tuple[Any, Any, Any]:
    """The product so far, the square for the next bit, the bits of the exponent that are left."""
    bits = y if is_unsigned(y.aval.dtype) else lax.max(y, zeros_of(y.aval.update(shape=())))
    return full_of(x.aval, 1), x, bits


def _squared(carry: Sequence[Value]) -> tuple[Any, Any, Any]:
    """One bit further."""
    result, square, bits = carry
    one = full_of(bits.aval, 1)
    odd = lax.eq(lax.bitwise_and(bits, one), one)
    result = lax.select_n(odd, result, lax.mul(result, square))
    return result, lax.mul(square, square), lax.shift_right_logical(bits, one)


def _or_inverse(power: Value, x: Value, y: Value) -> Any:
    """``power``, where exponents are not negative. The inverse of 1 and -1 is one, others are 0."""
    if is_unsigned(x.aval.dtype):
        return power
    one = full_of(x.aval, 1)
    odd = lax.eq(lax.bitwise_and(y, one), one)
    inverse = lax.select_n(odd, lax.mul(x, x), x)
    inverse = lax.select_n(lax.eq(lax.abs(x), one), zeros_of(x.aval), inverse)
    return lax.select_n(lax.lt(y, zeros_of(y.aval.update(shape=()))), power, inverse)


_power_staged = binary(StagedFunction(_power, "power"))


_integer_power = StagedFunction(lambda x, n: lax.integer_pow(x, n), "power")


def _dtype_of_base(x: Any) -> np.dtype[Any] | None:
    """The dtype of an array of the library or of NumPy; None for anything else."""
    if issubclass(type(x), EngineValue):
        return x.aval.dtype
    return x.dtype if isinstance(x, np.ndarray | np.generic) else None


def power(x1: Any, x2: Any, /) -> Array:
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
        if type(x2) is type(x1) is int and x2 < 0:
            msg = f"power: integers have no negative powers, got {x1} and {x2}"
            raise UnsupportedDtypeError(msg, hint="write one of them as a float")
        if isinstance(x2, np.integer) and x2.dtype.kind in "iu":
            x2 = int(x2)  # as known as a Python integer, and like it no reason for a wider base
        dtype = _dtype_of_base(x1) if type(x2) is int else None
        if dtype is not None and not is_bool(dtype):
            if x2 < 0 and is_integer(dtype):
                msg = f"power: integers have no negative powers, got {x2}"
                raise UnsupportedDtypeError(msg, hint="convert the array to float first")
            return _integer_power((x1,), (x2,))
        return _power_staged(x1, x2)
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


@custom_jvp
def _length(x: Any, y: Any) -> Any:
    """The hypotenuse of finite sides that are not negative."""
    big, small = lax.max(x, y), lax.min(x, y)
    zero = lax.eq(big, 0.0)
    ratio = lax.div(small, lax.select_n(zero, big, full_of(big.aval, 1)))
    return lax.mul(big, lax.sqrt(lax.add(1.0, lax.mul(ratio, ratio))))


@_length.defjvp
def _length_jvp(primals: Any, tangents: Any) -> Any:
    """By the sides over the hypotenuse: the formula has no second derivatives where they are equal.

    Where both are 0 each has the slope of a half.
    """
    ans = _length(*primals)
    zero = lax.eq(ans, 0.0)
    half, safe = full_of(ans.aval, 0.5), lax.select_n(zero, ans, full_of(ans.aval, 1))
    slopes = [lax.select_n(zero, lax.div(side, safe), half) for side in primals]
    return ans, lax.add(*[lax.mul(*pair) for pair in zip(slopes, tangents, strict=True)])


def _hypot(x: Value, y: Value) -> Any:
    x, y = broadcast_operands("hypot", *promote_inexact(x, y))
    if is_complex(x.aval.dtype):
        msg = f"hypot: got {x.aval.str_short()} and {y.aval.str_short()}, expected real numbers"
        raise UnsupportedDtypeError(msg)
    shape = x.aval.shape if x.aval.ndim else y.aval.shape
    x, y = (lax.abs(broadcast_to(v, shape)) for v in (x, y))
    # Infinite if one side is, also beside NaN.
    infinity = full_of(x.aval.update(shape=()), math.inf)
    first = lax.eq(x, infinity)
    infinite = lax.bitwise_or(first, lax.eq(y, infinity))
    longest = lax.select_n(first, y, x)
    x, y = (lax.select_n(infinite, v, full_of(v.aval, 1)) for v in (x, y))
    return strong_array(lax.select_n(infinite, _length(x, y), longest))


hypot = binary_function(
    _hypot,
    "hypot",
    """``sqrt(x1*x1 + x2*x2)`` without overflow, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.hypot(3.0, 4.0))
    5.0
    """,
)


def _complex_logaddexp(x: Value, y: Value, exp: Callable[[Value], Value], scale: float) -> Any:
    """The sum in the logarithm, relative to the term of larger real part."""
    shape = lax.ne(x, y).aval.shape
    x, y = broadcast_to(x, shape), broadcast_to(y, shape)
    first = lax.ge(lax.real(x), lax.real(y))
    big, small = lax.select_n(first, y, x), lax.select_n(first, x, y)
    total = lax.add(big, lax.mul(lax.log1p(exp(lax.sub(small, big))), scale))
    # Of all logarithms the principal one; ``big`` may have any imaginary part.
    angle, turn = lax.imag(total), 2.0 * math.pi * scale
    turns = lax.round(lax.div(angle, turn), lax.RoundingMethod.TO_NEAREST_EVEN)
    return strong_array(lax.complex(lax.real(total), lax.sub(angle, lax.mul(turns, turn))))


def _ordered(x: Value, y: Value) -> tuple[Any, Any]:
    """The larger and ``smaller - larger``, which is 0 between infinities of one sign.

    Chosen by one comparison, so that their derivatives at ties are those of the same operands.
    """
    less = lax.lt(x, y)
    big, small = lax.select_n(less, x, y), lax.select_n(less, y, x)
    infinity = full_of(big.aval.update(shape=()), math.inf)
    same = lax.bitwise_and(lax.eq(x, y), lax.eq(lax.abs(x), infinity))
    zeros = zeros_of(big.aval)
    return big, lax.sub(lax.select_n(same, small, zeros), lax.select_n(same, big, zeros))


def _logaddexp(x: Value, y: Value) -> Any:
    x, y = broadcast_operands("logaddexp", *promote_inexact(x, y))
    if is_complex(x.aval.dtype):
        return _complex_logaddexp(x, y, lambda v: lax.exp(v), 1.0)
    return _in_float32(lambda big, delta: lax.add(big, lax.log1p(lax.exp(delta))), x, y)


def _in_float32(formula: Callable[[Any, Any], Any], x: Value, y: Value) -> Any:
    """A formula of the larger and a difference, whose sum may cancel: not in 16 bits."""
    dtype, weak = x.aval.dtype, x.aval.weak_type and y.aval.weak_type
    if itemsize_bits(dtype) < 32:
        x, y = (lax.convert_dtype(v, np.dtype(np.float32), weak) for v in (x, y))
    return as_dtype(formula(*_ordered(x, y)), dtype, weak)


logaddexp = universal_binary(
    _logaddexp,
    "logaddexp",
    """``log(exp(x1) + exp(x2))`` without overflow, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> round(float(tnp.logaddexp(0.0, 0.0)), 4)
    0.6931
    """,
)


def _logaddexp2(x: Value, y: Value) -> Any:
    x, y = broadcast_operands("logaddexp2", *promote_inexact(x, y))
    if is_complex(x.aval.dtype):
        return _complex_logaddexp(x, y, lambda v: lax.exp2(v), 1.0 / math.log(2.0))
    scale = 1.0 / math.log(2.0)
    return strong_array(
        _in_float32(
            lambda big, delta: lax.add(big, lax.mul(lax.log1p(lax.exp2(delta)), scale)), x, y
        )
    )


logaddexp2 = universal_binary(
    _logaddexp2,
    "logaddexp2",
    """``log2(2**x1 + 2**x2)`` without overflow, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.logaddexp2(3.0, 3.0))
    4.0
    """,
)
