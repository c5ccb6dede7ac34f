"""Elementwise logic: comparisons, boolean and bitwise operations, tests of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import is_bool, is_complex, is_inexact, is_integer, is_unsigned
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.numpy._promote import broadcast_operands, promote_dtypes
from tracebridge.numpy.elementwise_math import _binary, _binary_promoted, _unary

_BOOL = np.dtype(np.bool_)


def _truth(x: Any) -> Any:
    """Whether each element is not zero."""
    if is_bool(x.aval.dtype):
        return x
    return lax.ne(x, lax.zeros_of(x.aval.update(shape=())))


def _integers(name: str, *xs: Any) -> list[Any]:
    values = broadcast_operands(name, *promote_dtypes(*xs))
    dtype = values[0].aval.dtype
    if not (is_bool(dtype) or is_integer(dtype)):
        msg = f"{name} works on integers and bools, got {dtype.name}"
        raise UnsupportedDtypeError(msg)
    return values


def _lexicographic(strict: str) -> Any:
    """Complex numbers are ordered by real part, then by imaginary part, as NumPy orders them."""

    def run(x: Any, y: Any) -> Any:
        x, y = broadcast_operands(strict, *promote_dtypes(x, y))
        compare = getattr(lax, strict)
        if not is_complex(x.aval.dtype):
            return compare(x, y)
        parts = lax.eq(lax.real(x), lax.real(y))
        first = getattr(lax, strict[0] + "t")(lax.real(x), lax.real(y))
        return lax.bitwise_or(first, lax.bitwise_and(parts, compare(lax.imag(x), lax.imag(y))))

    return run


equal = _binary(
    _binary_promoted("equal", lambda x, y: lax.eq(x, y)),
    "equal",
    """``x == y``, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> tnp.equal(tnp.array([1, 2]), 2).tolist()
    [False, True]
    """,
)
not_equal = _binary(
    _binary_promoted("not_equal", lambda x, y: lax.ne(x, y)),
    "not_equal",
    """``x != y``, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> tnp.not_equal(tnp.array([1, 2]), 2).tolist()
    [True, False]
    """,
)
less = _binary(
    _lexicographic("lt"),
    "less",
    """``x < y``, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> tnp.less(tnp.array([1, 2]), 2).tolist()
    [True, False]
    """,
)
less_equal = _binary(
    _lexicographic("le"),
    "less_equal",
    """``x <= y``, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> tnp.less_equal(tnp.array([1, 3]), 2).tolist()
    [True, False]
    """,
)
greater = _binary(
    _lexicographic("gt"),
    "greater",
    """``x > y``, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> tnp.greater(tnp.array([1, 3]), 2).tolist()
    [False, True]
    """,
)
greater_equal = _binary(
    _lexicographic("ge"),
    "greater_equal",
    """``x >= y``, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> tnp.greater_equal(tnp.array([1, 2]), 2).tolist()
    [False, True]
    """,
)

bitwise_and = _binary(
    lambda x, y: lax.bitwise_and(*_integers("bitwise_and", x, y)),
    "bitwise_and",
    """``x & y``, elementwise, of integers or bools.

    >>> import tracebridge.numpy as tnp
    >>> int(tnp.bitwise_and(6, 3))
    2
    """,
)
bitwise_or = _binary(
    lambda x, y: lax.bitwise_or(*_integers("bitwise_or", x, y)),
    "bitwise_or",
    """``x | y``, elementwise, of integers or bools.

    >>> import tracebridge.numpy as tnp
    >>> int(tnp.bitwise_or(6, 3))
    7
    """,
)
bitwise_xor = _binary(
    lambda x, y: lax.bitwise_xor(*_integers("bitwise_xor", x, y)),
    "bitwise_xor",
    """``x ^ y``, elementwise, of integers or bools.

    >>> import tracebridge.numpy as tnp
    >>> int(tnp.bitwise_xor(6, 3))
    5
    """,
)
bitwise_not = _unary(
    lambda x: lax.bitwise_not(*_integers("bitwise_not", x)),
    "bitwise_not",
    """``~x``, elementwise, of integers or bools.

    >>> import tracebridge.numpy as tnp
    >>> int(tnp.bitwise_not(6))
    -7
    """,
)
invert = bitwise_invert = bitwise_not
left_shift = _binary(
    lambda x, y: lax.shift_left(*_integers("left_shift", x, y)),
    "left_shift",
    """``x << y``, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> int(tnp.left_shift(1, 4))
    16
    """,
)
bitwise_left_shift = left_shift


def _right_shift(x: Any, y: Any) -> Any:
    x, y = _integers("right_shift", x, y)
    shift = (
        lax.shift_right_logical if is_unsigned(x.aval.dtype) else lax.shift_right_arithmetic
    )
    return shift(x, y)


right_shift = _binary(
    _right_shift,
    "right_shift",
    """``x >> y``, elementwise; signed integers keep their sign.

    >>> import tracebridge.numpy as tnp
    >>> int(tnp.right_shift(-16, 2))
    -4
    """,
)
bitwise_right_shift = right_shift
bitwise_count = _unary(
    lambda x: lax.population_count(lax.abs(x) if not is_unsigned(x.aval.dtype) else x),
    "bitwise_count",
    """Number of one bits of the absolute value, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> int(tnp.bitwise_count(7))
    3
    """,
)


def _logical(name: str, operation: Any) -> Any:
    def run(x: Any, y: Any) -> Any:
        return operation(*broadcast_operands(name, _truth(x), _truth(y)))

    return run


logical_and = _binary(
    _logical("logical_and", lambda x, y: lax.bitwise_and(x, y)),
    "logical_and",
    """Whether both are not zero, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> bool(tnp.logical_and(1, 0))
    False
    """,
)
logical_or = _binary(
    _logical("logical_or", lambda x, y: lax.bitwise_or(x, y)),
    "logical_or",
    """Whether one is not zero, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> bool(tnp.logical_or(1, 0))
    True
    """,
)
logical_xor = _binary(
    _logical("logical_xor", lambda x, y: lax.bitwise_xor(x, y)),
    "logical_xor",
    """Whether exactly one is not zero, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> bool(tnp.logical_xor(1, 1))
    False
    """,
)
logical_not = _unary(
    lambda x: lax.bitwise_not(_truth(x)),
    "logical_not",
    """Whether an element is zero, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> bool(tnp.logical_not(0))
    True
    """,
)


def _isnan(x: Any) -> Any:
    if not is_inexact(x.aval.dtype):
        return lax.full_of(x.aval.strong.update(dtype=_BOOL), False)
    return lax.ne(x, x)


def _isfinite(x: Any) -> Any:
    dtype = x.aval.dtype
    if is_complex(dtype):
        return lax.bitwise_and(lax.is_finite(lax.real(x)), lax.is_finite(lax.imag(x)))
    if not is_inexact(dtype):
        return lax.full_of(x.aval.strong.update(dtype=_BOOL), True)
    return lax.is_finite(x)


def _isinf(x: Any) -> Any:
    dtype = x.aval.dtype
    if is_complex(dtype):
        return lax.bitwise_or(_isinf(lax.real(x)), _isinf(lax.imag(x)))
    if not is_inexact(dtype):
        return lax.full_of(x.aval.strong.update(dtype=_BOOL), False)
    return lax.eq(lax.abs(x), lax.full_of(x.aval.update(shape=()), np.inf))


isnan = _unary(
    _isnan,
    "isnan",
    """Whether an element is NaN.

    >>> import tracebridge.numpy as tnp
    >>> tnp.isnan(tnp.array([1.0, tnp.nan])).tolist()
    [False, True]
    """,
)
isfinite = _unary(
    _isfinite,
    "isfinite",
    """Whether an element is neither infinite nor NaN.

    >>> import tracebridge.numpy as tnp
    >>> tnp.isfinite(tnp.array([1.0, tnp.inf])).tolist()
    [True, False]
    """,
)
isinf = _unary(
    _isinf,
    "isinf",
    """Whether an element is infinite.

    >>> import tracebridge.numpy as tnp
    >>> tnp.isinf(tnp.array([1.0, -tnp.inf])).tolist()
    [False, True]
    """,
)
