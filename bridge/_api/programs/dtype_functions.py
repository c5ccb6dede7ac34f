"""Questions about dtypes, as ``tracebridge.dtypes`` answers them."""

from __future__ import annotations

from typing import Any

from tracebridge.core.dtypes import dtypes
from tracebridge.core.dtypes import promotion as rules
from tracebridge.core.dtypes.canonicalize import canonicalize
from tracebridge.core.dtypes.weak_type import scalar_dtype
from tracebridge.core.errors.argument_errors import ArgumentTypeError
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError


def canonicalize_dtype(dtype: Any, allow_extended_dtype: bool = False) -> Any:
    """The dtype that arrays get for ``dtype``: 64 bits become 32 unless they are enabled.

    Args:
        dtype: a dtype, its name, a scalar class or an array; None means float64, as in NumPy.
        allow_extended_dtype: whether ``dtype`` may be an extended one, such as that of keys.

    Raises:
        UnsupportedDtypeError: no array has such a dtype.

    >>> from tracebridge import dtypes
    >>> dtypes.canonicalize_dtype('float64')
    dtype('float32')
    """
    canonical = canonicalize(float if dtype is None else dtype)
    if dtypes.is_extended(canonical) and not allow_extended_dtype:
        msg = f"canonicalize_dtype: got the extended dtype {canonical}"
        raise UnsupportedDtypeError(msg, hint="pass allow_extended_dtype=True")
    return canonical


def issubdtype(a: Any, b: Any) -> bool:
    """Whether ``a`` lies below ``b`` in the hierarchy of dtypes.

    Args:
        a: a dtype, its name or scalar class, or an abstract class.
        b: the same; abstract classes are those of NumPy (``numpy.floating``) and ``extended``.

    >>> import numpy as np
    >>> from tracebridge import dtypes
    >>> dtypes.issubdtype('bfloat16', np.floating), dtypes.issubdtype('int8', np.floating)
    (True, False)
    """
    return dtypes.issubdtype(a, b)


def itemsize_bits(dtype: Any) -> int:
    """Bits of one element: 4 for int4, although it takes a byte in NumPy.

    Args:
        dtype: a dtype, its name or scalar class.

    >>> from tracebridge import dtypes
    >>> dtypes.itemsize_bits('int4'), dtypes.itemsize_bits('float32')
    (4, 32)
    """
    return dtypes.itemsize_bits(dtype)


def result_type(*args: object, return_weak_type_flag: bool = False) -> Any:
    """The dtype of an operation on ``args``, by the rules of promotion.

    Args:
        *args: arrays, numbers and dtypes.
        return_weak_type_flag: also give whether the result is weakly typed.

    Raises:
        TypePromotionError: there is no implicit promotion between the dtypes.

    >>> from tracebridge import dtypes
    >>> dtypes.result_type('bfloat16', 1.0), dtypes.result_type('int8', 'uint8')
    (dtype(bfloat16), dtype('int16'))
    """
    return rules.result_type(*args, return_weak_type=return_weak_type_flag)


def scalar_type_of(x: object) -> type:
    """The Python class of one element of ``x``: bool, int, float or complex.

    Args:
        x: array, number, or an object with a dtype.

    Raises:
        TypeError: ``x`` has no such dtype.
        ArgumentTypeError: it is no number and no array of numbers.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge import dtypes
    >>> dtypes.scalar_type_of(tnp.arange(3))
    <class 'int'>
    """
    dtype = getattr(x, "dtype", None)
    if dtype is None:
        dtype = scalar_dtype(type(x))[0]
    for test, result in (
        (dtypes.is_bool, bool),
        (dtypes.is_integer, int),
        (dtypes.is_float, float),
        (dtypes.is_complex, complex),
    ):
        if test(dtype):
            return result
    msg = f"scalar_type_of: got {x!r} of dtype {dtype}, expected a number or an array of numbers"
    raise ArgumentTypeError(msg)
