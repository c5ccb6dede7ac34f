"""Weak types: what Python scalars bring into promotion, and (dtype, weak) pairs of values."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tracebridge.core.config.values import option
from tracebridge.core.config.wide import INTEGERS
from tracebridge.core.dtypes import dtypes
from tracebridge.core.dtypes.canonicalize import canonicalize
from tracebridge.core.dtypes.extended import ExtendedDType
from tracebridge.core.errors.shown import attribute

Pair = tuple[Any, bool]

# bool is strong: True + 1 is an integer, but True never changes another operand's dtype anyway.
_WIDE: Final[dict[type, Pair]] = {
    bool: (dtypes.bool_, False),
    int: (dtypes.int64, True),
    float: (dtypes.float64, True),
    complex: (dtypes.complex128, True),
}
_NARROW: Final[dict[type, Pair]] = {
    bool: (dtypes.bool_, False),
    int: (dtypes.int32, True),
    float: (dtypes.float32, True),
    complex: (dtypes.complex64, True),
}
_BY_OPTION: Final = {
    False: _NARROW,
    INTEGERS: {**_NARROW, int: _WIDE[int]},
    True: _WIDE,
}


def scalar_dtype(scalar_type: type) -> Pair:
    """``(dtype, weak)`` of a Python scalar class: int is the default int, weakly typed.

    Raises:
        TypeError: not bool, int, float, complex or a subclass of them.
    """
    table = _BY_OPTION[option("enable_x64")]
    found = table.get(scalar_type)
    if found is not None:
        return found
    for base in scalar_type.__mro__:
        if base in table:
            return table[base]
    msg = f"{scalar_type.__name__} is no Python scalar class; expected bool, int, float or complex"
    raise TypeError(msg)


def is_python_scalar(x: object) -> bool:
    """Whether ``x`` is a Python bool, int, float or complex, not a NumPy scalar."""
    return isinstance(x, dtypes.PYTHON_SCALARS) and not isinstance(x, np.generic)


def dtype_of(x: object) -> Any:
    """The dtype that value ``x`` has in the engine.

    Arrays and tracers keep theirs; NumPy values and Python scalars follow the 64-bit rule.

    Raises:
        TypeError: ``x`` is no array and no scalar.
    """
    return pair_of(x)[0]


def is_weak(x: object) -> bool:
    """Whether value ``x`` is weakly typed."""
    return pair_of(x)[1]


def pair_of(x: object) -> Pair:
    """``(dtype, weak)`` of a value: array, tracer, NumPy value or Python scalar."""
    # On the class: objects that forward attributes to an array are no arrays.
    if hasattr(type(x), "aval"):
        aval = attribute(x, "aval")
        dtype = getattr(aval, "dtype", None)  # of another library's array it may be anything
        if isinstance(dtype, np.dtype | ExtendedDType):
            return dtype, bool(getattr(aval, "weak_type", False))
    if isinstance(x, np.ndarray | np.generic):
        return canonicalize(x.dtype), False
    if isinstance(x, dtypes.PYTHON_SCALARS):
        return scalar_dtype(type(x))
    dtype = getattr(x, "dtype", None)
    if isinstance(dtype, np.dtype | ExtendedDType):
        return dtype, bool(getattr(x, "weak_type", False))
    msg = (
        f"got a value of type {type(x).__name__}, which has no dtype; expected an array or a "
        f"scalar. Make an array of it first"
    )
    raise TypeError(msg)
