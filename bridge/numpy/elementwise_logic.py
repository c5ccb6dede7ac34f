"""Elementwise logic: comparisons, boolean and bitwise operations, tests of numbers."""

from __future__ import annotations

__all__ = [
    "bitwise_and", "bitwise_count", "bitwise_invert", "bitwise_left_shift", "bitwise_not",
    "bitwise_or", "bitwise_right_shift", "bitwise_xor", "equal", "greater", "greater_equal",
    "invert", "iscomplex", "iscomplexobj", "isfinite", "isinf", "isnan", "isreal", "isrealobj",
    "isscalar", "left_shift", "less", "less_equal", "logical_and", "logical_not", "logical_or",
    "logical_xor", "not_equal", "right_shift",
]  # fmt: skip

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import is_bool, is_complex, is_inexact, is_integer, is_unsigned
from tracebridge.core.dtypes.weak_type import dtype_of, is_python_scalar
from tracebridge.core.errors.argument_errors import IntegerRangeError
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.filtering import hide_internal_frames
from tracebridge.core.ir.operators import EngineValue
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.accepted_dtypes import check_ordinary
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.numpy._promote import (
    broadcast_operands,
    promote_dtypes,
    promote_numeric,
    promoted_operands,
)
from tracebridge.numpy._staging import binary_function, unary_by_name, unary_function, unwrapped
from tracebridge.numpy._universal import universal_binary
from tracebridge.numpy.elementwise_extrema import lexicographic

_BOOL = np.dtype(np.bool_)


def truth(x: Any) -> Any:
    """Whether each element is not zero."""
    if is_bool(x.aval.dtype):
        return x
    check_ordinary("truth", x.aval)
    return lax.ne(x, zeros_of(x.aval.update(shape=())))


def _integers(name: str, *xs: Any) -> list[Any]:
    values = broadcast_operands(name, *promote_dtypes(*xs))
    dtype = values[0].aval.dtype
    if not (is_bool(dtype) or is_integer(dtype)):
        msg = f"{name} works on integers and bools, got {dtype.name}"
        raise UnsupportedDtypeError(msg)
    return values


def _ordered(name: str, order: str) -> Any:
    """A comparison by NumPy's order of complex numbers."""

    def run(x: Value, y: Value) -> Any:
        return lexicographic(order, *broadcast_operands(name, *promote_dtypes(x, y)))

    return run


def _comparison(implementation: Any, name: str, doc: str) -> Callable[[Any, Any], Array]:
    """The public comparison; a Python int outside the dtype of the other operand is compared too.

    Arithmetic with such a number is an error, but the result of a comparison fits.
    """
    fits = binary_function(implementation, name, doc)
    order = _ORDERS[name]

    @functools.wraps(fits)
    def compare(x1: ArrayLike, x2: ArrayLike, /) -> Any:
        try:
            return fits(x1, x2)
        except Exception as error:
            if isinstance(error, IntegerRangeError):
                # Zero stands for the elements: it is on the same side of the number as they are.
                if type(x2) is int and issubclass(type(x1), EngineValue):
                    return lax.full_like(x1, order(0, x2), _BOOL)
                if type(x1) is int and issubclass(type(x2), EngineValue):
                    return lax.full_like(x2, order(x1, 0), _BOOL)
            hide_internal_frames(error, name)
            raise

    return compare


_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}


equal = _comparison(
    promoted_operands("equal", lambda x, y: lax.eq(x, y)),
    "equal",
    """``x1 == x2``, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> tnp.equal(tnp.array([1, 2]), 2).tolist()
    [False, True]
    """,
)
not_equal = _comparison(
    promoted_operands("not_equal", lambda x, y: lax.ne(x, y)),
    "not_equal",
    """``x1 != x2``, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> tnp.not_equal(tnp.array([1, 2]), 2).tolist()
    [True, False]
    """,
)
less = _comparison(
    _ordered("less", "lt"),
    "less",
    """``x1 < x2``, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> tnp.less(tnp.array([1, 2]), 2).tolist()
    [True, False]
    """,
)
less_equal = _comparison(
    _ordered("less_equal", "le"),
    "less_equal",
    """``x1 <= x2``, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> tnp.less_equal(tnp.array([1, 3]), 2).tolist()
    [True, False]
    """,
)
greater = _comparison(
    _ordered("greater", "gt"),
    "greater",
    """``x1 > x2``, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> tnp.greater(tnp.array([1, 3]), 2).tolist()
    [False, True]
    """,
)
greater_equal = _comparison(
    _ordered("greater_equal", "ge"),
    "greater_equal",
    """``x1 >= x2``, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> tnp.greater_equal(tnp.array([1, 2]), 2).tolist()
    [False, True]
    """,
)

bitwise_and = universal_binary(
    lambda x, y: lax.bitwise_and(*_integers("bitwise_and", x, y)),
    "bitwise_and",
    """``x1 & x2``, elementwise, of integers or bools.

    >>> import tracebridge.numpy as tnp
    >>> int(tnp.bitwise_and(6, 3))
    2
    """,
    modular=True,
)
bitwise_or = universal_binary(
    lambda x, y: lax.bitwise_or(*_integers("bitwise_or", x, y)),
    "bitwise_or",
    """``x1 | x2``, elementwise, of integers or bools.

    >>> import tracebridge.numpy as tnp
    >>> int(tnp.bitwise_or(6, 3))
    7
    """,
    modular=True,
)
bitwise_xor = universal_binary(
    lambda x, y: lax.bitwise_xor(*_integers("bitwise_xor", x, y)),
    "bitwise_xor",
    """``x1 ^ x2``, elementwise, of integers or bools.

    >>> import tracebridge.numpy as tnp
    >>> int(tnp.bitwise_xor(6, 3))
    5
    """,
    modular=True,
)
bitwise_not = unary_function(
    lambda x: lax.bitwise_not(*_integers("bitwise_not", x)),
    "bitwise_not",
    """``~x``, elementwise, of integers or bools.

    >>> import tracebridge.numpy as tnp
    >>> int(tnp.bitwise_not(6))
    -7
    """,
)
invert = bitwise_invert = bitwise_not
left_shift = binary_function(
    lambda x, y: lax.shift_left(*promote_numeric(*_integers("left_shift", x, y))),
    "left_shift",
    """``x1 << x2``, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> int(tnp.left_shift(1, 4))
    16
    """,
)
bitwise_left_shift = left_shift


def _right_shift(x: Value, y: Value) -> Any:
    x, y = promote_numeric(*_integers("right_shift", x, y))
    shift = lax.shift_right_logical if is_unsigned(x.aval.dtype) else lax.shift_right_arithmetic
    return shift(x, y)


right_shift = binary_function(
    _right_shift,
    "right_shift",
    """``x1 >> x2``, elementwise; signed integers keep their sign.

    >>> import tracebridge.numpy as tnp
    >>> int(tnp.right_shift(-16, 2))
    -4
    """,
)
bitwise_right_shift = right_shift


def _bitwise_count(x: Value) -> Any:
    (x,) = _integers("bitwise_count", x)
    if is_bool(x.aval.dtype):
        return lax.convert_dtype(x, np.dtype(np.uint8))
    bits = lax.population_count(x if is_unsigned(x.aval.dtype) else lax.abs(x))
    return lax.convert_dtype(bits, np.dtype(np.uint8))


bitwise_count = unary_function(
    _bitwise_count,
    "bitwise_count",
    """Number of one bits of the absolute value, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> int(tnp.bitwise_count(7))
    3
    """,
)


def _logical(name: str, operation: Any) -> Any:
    def run(x: Value | None, y: Value | None) -> Any:
        return operation(*broadcast_operands(name, truth(x), truth(y)))

    return run


logical_and = universal_binary(
    _logical("logical_and", lambda x, y: lax.bitwise_and(x, y)),
    "logical_and",
    """Whether both are not zero, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> bool(tnp.logical_and(1, 0))
    False
    """,
)
logical_or = universal_binary(
    _logical("logical_or", lambda x, y: lax.bitwise_or(x, y)),
    "logical_or",
    """Whether one is not zero, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> bool(tnp.logical_or(1, 0))
    True
    """,
)
logical_xor = universal_binary(
    _logical("logical_xor", lambda x, y: lax.bitwise_xor(x, y)),
    "logical_xor",
    """Whether exactly one is not zero, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> bool(tnp.logical_xor(1, 1))
    False
    """,
)
logical_not = unary_function(
    lambda x: lax.bitwise_not(truth(x)),
    "logical_not",
    """Whether an element is zero, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> bool(tnp.logical_not(0))
    True
    """,
)


def _isnan(x: Value) -> Any:
    if not is_inexact(x.aval.dtype):
        return full_of(x.aval.strong.update(dtype=_BOOL), False)
    return lax.ne(x, x)


def is_finite(x: Value) -> Any:
    """Where numbers are finite; integers always are."""
    dtype = x.aval.dtype
    if is_complex(dtype):
        return lax.bitwise_and(lax.is_finite(lax.real(x)), lax.is_finite(lax.imag(x)))
    if not is_inexact(dtype):
        return full_of(x.aval.strong.update(dtype=_BOOL), True)
    return lax.is_finite(x)


def _isinf(x: Value) -> Any:
    dtype = x.aval.dtype
    if is_complex(dtype):
        return lax.bitwise_or(_isinf(lax.real(x)), _isinf(lax.imag(x)))
    if not is_inexact(dtype):
        return full_of(x.aval.strong.update(dtype=_BOOL), False)
    return lax.eq(lax.abs(x), full_of(x.aval.strong.update(shape=()), np.inf))


isnan = unary_function(
    _isnan,
    "isnan",
    """Whether an element is NaN.

    >>> import tracebridge.numpy as tnp
    >>> tnp.isnan(tnp.array([1.0, tnp.nan])).tolist()
    [False, True]
    """,
)
isfinite = unary_function(
    is_finite,
    "isfinite",
    """Whether an element is neither infinite nor NaN.

    >>> import tracebridge.numpy as tnp
    >>> tnp.isfinite(tnp.array([1.0, tnp.inf])).tolist()
    [True, False]
    """,
)
isinf = unary_function(
    _isinf,
    "isinf",
    """Whether an element is infinite.

    >>> import tracebridge.numpy as tnp
    >>> tnp.isinf(tnp.array([1.0, -tnp.inf])).tolist()
    [False, True]
    """,
)


# real and complex --------------------------------------------------------------------------------


def _has_imaginary_part(x: Value) -> Any:
    if not is_complex(x.aval.dtype):
        return full_of(x.aval.strong.update(dtype=_BOOL), False)
    part = lax.imag(x)
    return lax.ne(part, zeros_of(part.aval.update(shape=())))


iscomplex = unary_by_name(
    _has_imaginary_part,
    "iscomplex",
    """Whether an element has an imaginary part that is not zero.

    >>> import tracebridge.numpy as tnp
    >>> tnp.iscomplex(tnp.array([1 + 1j, 2 + 0j])).tolist()
    [True, False]
    """,
)
isreal = unary_by_name(
    lambda x: lax.bitwise_not(_has_imaginary_part(x)),
    "isreal",
    """Whether an element has no imaginary part, or one of zero.

    >>> import tracebridge.numpy as tnp
    >>> tnp.isreal(tnp.array([1 + 1j, 2 + 0j])).tolist()
    [False, True]
    """,
)


def iscomplexobj(x: object) -> bool:
    """Whether the dtype of ``x`` is complex, whatever its elements.

    >>> import tracebridge.numpy as tnp
    >>> tnp.iscomplexobj(tnp.array([1 + 0j]))
    True
    """
    x = unwrapped(x)
    found = dtype_of(x) if hasattr(x, "dtype") or is_python_scalar(x) else np.asarray(x).dtype
    return found.kind != "O" and is_complex(found)


def isrealobj(x: object) -> bool:
    """Whether the dtype of ``x`` is not complex.

    >>> import tracebridge.numpy as tnp
    >>> tnp.isrealobj(tnp.array([1.0]))
    True
    """
    return not iscomplexobj(x)


def isscalar(element: Any) -> bool:
    """Whether ``element`` is a number: a Python or NumPy scalar, or an array without axes.

    >>> import tracebridge.numpy as tnp
    >>> tnp.isscalar(3.0), tnp.isscalar(tnp.array(3.0)), tnp.isscalar(tnp.array([3.0]))
    (True, True, False)
    """
    if np.isscalar(element):
        return True
    if isinstance(element, np.ndarray):
        return element.ndim == 0
    if issubclass(type(element), EngineValue):
        return element.aval.ndim == 0
    return hasattr(element, "__jax_array__") and isscalar(element.__jax_array__())
