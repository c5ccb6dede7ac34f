"""The dtypes of the engine: constants, groups, predicates and names.

A dtype is a ``numpy.dtype`` (those of ml_dtypes included) or an ``ExtendedDType``. Nothing here
depends on an option; what the 64-bit rule decides lives in ``canonicalize.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import ml_dtypes
import numpy as np

from tracebridge.core.dtypes.extended import ExtendedDType, extended
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.shown import shown

DType = np.dtype[Any] | ExtendedDType
if TYPE_CHECKING:

    class HasDType(Protocol):
        """An object with a dtype, such as an array."""

        @property
        def dtype(self) -> Any: ...

    DTypeLike = str | type[Any] | DType | HasDType

bool_: Final = np.dtype(np.bool_)
int1: Final = np.dtype(ml_dtypes.int1)
int2: Final = np.dtype(ml_dtypes.int2)
int4: Final = np.dtype(ml_dtypes.int4)
int8: Final = np.dtype(np.int8)
int16: Final = np.dtype(np.int16)
int32: Final = np.dtype(np.int32)
int64: Final = np.dtype(np.int64)
uint1: Final = np.dtype(ml_dtypes.uint1)
uint2: Final = np.dtype(ml_dtypes.uint2)
uint4: Final = np.dtype(ml_dtypes.uint4)
uint8: Final = np.dtype(np.uint8)
uint16: Final = np.dtype(np.uint16)
uint32: Final = np.dtype(np.uint32)
uint64: Final = np.dtype(np.uint64)
float4_e2m1fn: Final = np.dtype(ml_dtypes.float4_e2m1fn)
float6_e2m3fn: Final = np.dtype(ml_dtypes.float6_e2m3fn)
float6_e3m2fn: Final = np.dtype(ml_dtypes.float6_e3m2fn)
float8_e3m4: Final = np.dtype(ml_dtypes.float8_e3m4)
float8_e4m3: Final = np.dtype(ml_dtypes.float8_e4m3)
float8_e4m3b11fnuz: Final = np.dtype(ml_dtypes.float8_e4m3b11fnuz)
float8_e4m3fn: Final = np.dtype(ml_dtypes.float8_e4m3fn)
float8_e4m3fnuz: Final = np.dtype(ml_dtypes.float8_e4m3fnuz)
float8_e5m2: Final = np.dtype(ml_dtypes.float8_e5m2)
float8_e5m2fnuz: Final = np.dtype(ml_dtypes.float8_e5m2fnuz)
float8_e8m0fnu: Final = np.dtype(ml_dtypes.float8_e8m0fnu)
bfloat16: Final = np.dtype(ml_dtypes.bfloat16)
float16: Final = np.dtype(np.float16)
float32: Final = np.dtype(np.float32)
float64: Final = np.dtype(np.float64)
complex64: Final = np.dtype(np.complex64)
complex128: Final = np.dtype(np.complex128)

# The dtype of tangents of values that cannot move (integers, booleans): it stores nothing.
float0: Final = np.dtype([("float0", np.void, 0)])

# Groups. Narrow integers and floats are kept apart because they take no part in promotion.
bools: Final = frozenset({bool_})
narrow_integers: Final = frozenset({int1, int2, int4, uint1, uint2, uint4})
signed: Final = frozenset({int1, int2, int4, int8, int16, int32, int64})
unsigned: Final = frozenset({uint1, uint2, uint4, uint8, uint16, uint32, uint64})
integers: Final = signed | unsigned
narrow_floats: Final = frozenset(
    {
        float4_e2m1fn,
        float6_e2m3fn,
        float6_e3m2fn,
        float8_e3m4,
        float8_e4m3,
        float8_e4m3b11fnuz,
        float8_e4m3fn,
        float8_e4m3fnuz,
        float8_e5m2,
        float8_e5m2fnuz,
        float8_e8m0fnu,
    }
)
floats: Final = frozenset({bfloat16, float16, float32, float64}) | narrow_floats
complexes: Final = frozenset({complex64, complex128})
inexact: Final = floats | complexes
numeric: Final = integers | inexact
all_dtypes: Final = bools | numeric

PYTHON_SCALARS: Final[tuple[type, ...]] = (bool, int, float, complex)

# numpy.dtype(int) is 64 bits wide on most platforms and 32 on some: never ask it.
_WIDEST: Final[dict[type, np.dtype[Any]]] = {
    bool: bool_,
    int: int64,
    float: float64,
    complex: complex128,
}

_ABSTRACT_OF_GROUP: Final = (
    (signed, np.signedinteger),
    (unsigned, np.unsignedinteger),
    (floats, np.floating),
    (complexes, np.complexfloating),
)
_ABSTRACT: Final[dict[np.dtype[Any], type]] = {
    dtype: abstract for group, abstract in _ABSTRACT_OF_GROUP for dtype in group
}

_BITS: Final[dict[np.dtype[Any], int]] = {
    int1: 1,
    uint1: 1,
    int2: 2,
    uint2: 2,
    int4: 4,
    uint4: 4,
    float4_e2m1fn: 4,
    float6_e2m3fn: 6,
    float6_e3m2fn: 6,
    float0: 0,
}


def _short_name(dtype: np.dtype[Any]) -> str:
    for long, short in (
        ("uint", "u"),
        ("int", "i"),
        ("bfloat", "bf"),
        ("float", "f"),
        ("complex", "c"),
    ):
        if dtype.name.startswith(long):
            return short + dtype.name[len(long) :]
    return dtype.name


_SHORT: Final[dict[Any, str]] = {d: _short_name(d) for d in all_dtypes} | {float0: "float0"}

_COMPLEX_OF: Final = {
    float32: complex64,
    float64: complex128,
    float16: complex64,
    bfloat16: complex64,
}
_REAL_OF: Final = {complex64: float32, complex128: float64}


def as_dtype(dtype: DTypeLike | None) -> DType:
    """A dtype object for what a user may write: a dtype, a scalar class, a name, an array.

    Python scalar classes give their widest dtype; ``canonicalize`` applies the 64-bit rule.

    Raises:
        UnsupportedDtypeError: None, or no dtype at all.
    """
    if isinstance(dtype, np.dtype | ExtendedDType):
        return dtype
    if isinstance(dtype, type) and dtype in _WIDEST:
        return _WIDEST[dtype]
    if dtype is None:
        # numpy.dtype(None) is float64: a forgotten default would silently become 64 bits wide.
        raise UnsupportedDtypeError(
            call="dtype",
            got="None",
            expected="a dtype",
            hint="use the default dtype of the function you call",
        )
    own_dtype = getattr(dtype, "dtype", None)
    if isinstance(own_dtype, np.dtype | ExtendedDType):
        return own_dtype
    try:
        return np.dtype(dtype)
    except (TypeError, ValueError, RecursionError):
        raise UnsupportedDtypeError(
            call="dtype",
            got=f"{shown(dtype)} of type {type(dtype).__name__}",
            expected="a dtype, a scalar class, or a name such as 'float32'",
        ) from None


def native(dtype: DType) -> DType:
    """The dtype in this machine's byte order: the one object that NumPy has for a scalar class."""
    if not isinstance(dtype, np.dtype):
        return dtype
    plain = np.dtype(dtype.type)
    # Strings and records have sizes of their own.
    same = plain.itemsize == dtype.itemsize and dtype.names is None
    return plain if same else dtype.newbyteorder("=")


def is_supported(dtype: object) -> bool:
    """Whether arrays of ``dtype`` exist in the engine."""
    return dtype in _SHORT or isinstance(dtype, ExtendedDType)


def is_bool(dtype: object) -> bool:
    """Whether ``dtype`` is the boolean dtype."""
    return dtype in bools or _is_spelled(dtype, bools)


def is_signed(dtype: object) -> bool:
    """Whether ``dtype`` is a signed integer dtype."""
    return dtype in signed or _is_spelled(dtype, signed)


def is_unsigned(dtype: object) -> bool:
    """Whether ``dtype`` is an unsigned integer dtype."""
    return dtype in unsigned or _is_spelled(dtype, unsigned)


def is_integer(dtype: object) -> bool:
    """Whether ``dtype`` is an integer dtype, of any width; booleans are none."""
    return dtype in integers or _is_spelled(dtype, integers)


def is_float(dtype: object) -> bool:
    """Whether ``dtype`` is a real floating dtype, the narrow ones included."""
    return dtype in floats or _is_spelled(dtype, floats)


def is_complex(dtype: object) -> bool:
    """Whether ``dtype`` is complex."""
    return dtype in complexes or _is_spelled(dtype, complexes)


def is_inexact(dtype: object) -> bool:
    """Whether ``dtype`` is floating or complex: the dtypes that carry derivatives."""
    return dtype in inexact or _is_spelled(dtype, inexact)


def _is_spelled(dtype: Any, group: frozenset[np.dtype[Any]]) -> bool:
    """Look again for a name or scalar class; a dtype object was decided by its hash."""
    return not isinstance(dtype, np.dtype | ExtendedDType) and as_dtype(dtype) in group


def is_extended(dtype: object) -> bool:
    """Whether ``dtype`` is an extended dtype such as ``key<fry>``."""
    return isinstance(dtype, ExtendedDType)


def itemsize_bits(dtype: DTypeLike) -> int:
    """Bits of one element: 4 for int4, although it lies in a byte of its own in NumPy."""
    dtype = as_dtype(dtype)
    bits = _BITS.get(dtype) if isinstance(dtype, np.dtype) else None
    return 8 * dtype.itemsize if bits is None else bits


def short_name(dtype: Any) -> str:
    """The abbreviation of printed Jaxprs: ``f32``, ``i32``, ``bool``, ``bf16``, ``f8_e4m3fn``."""
    name = _SHORT.get(dtype)
    return dtype.name if name is None else name


def real_of(dtype: Any) -> Any:
    """The dtype of the real part: float32 for complex64; a real dtype is its own."""
    return _REAL_OF.get(dtype, dtype)


def complex_of(dtype: Any) -> Any:
    """The complex dtype that holds values of the real floating ``dtype``.

    Raises:
        UnsupportedDtypeError: the dtype has no complex counterpart (integers, narrow floats).
    """
    if dtype in complexes:
        return dtype
    found = _COMPLEX_OF.get(dtype)
    if found is None:
        names = ", ".join(sorted(d.name for d in _COMPLEX_OF))
        msg = f"complex_of: {dtype} has no complex counterpart; expected one of {names}"
        raise UnsupportedDtypeError(msg)
    return found


def tangent_dtype(primal_dtype: object) -> Any:
    """The dtype of tangents of values of ``primal_dtype``: itself if inexact, else float0.

    >>> import numpy as np
    >>> from tracebridge.extend import core
    >>> core.primal_dtype_to_tangent_dtype(np.dtype("float32"))
    dtype('float32')
    """
    if isinstance(primal_dtype, ExtendedDType):
        return primal_dtype.tangent_dtype or float0
    return primal_dtype if primal_dtype in inexact else float0


def _abstract_class(x: Any) -> type:
    """The scalar class of ``x`` in NumPy's class tree; ``x`` may be an abstract class itself."""
    if isinstance(x, type) and issubclass(x, np.generic) and x.__module__ != "ml_dtypes":
        return x
    if isinstance(x, type) and x in _WIDEST:
        return _WIDEST[x].type
    return as_dtype(x).type


def issubdtype(a: Any, b: object) -> bool:
    """Whether ``a`` lies below ``b`` in the dtype hierarchy, ml_dtypes and extended included.

    Args:
        a: a dtype, a scalar class or a name.
        b: the same, or an abstract class such as ``numpy.floating`` or ``extended``.

    None is ``float64``, as for ``numpy.dtype``.
    """
    a, b = (float64 if dtype is None else dtype for dtype in (a, b))
    low, high = _abstract_class(a), _abstract_class(b)
    if low is high or issubclass(low, high):
        # Structured voids share one class; float0 is the only one that the engine knows.
        return not (low is np.void and high is np.void) or _same_void(a, b)
    if isinstance(a, type) and low is a:
        abstract_class = low in _ABSTRACT_CLASSES or issubclass(low, extended)
        dtype = None if abstract_class else np.dtype(low)
    else:
        dtype = as_dtype(a)
    abstract = _ABSTRACT.get(dtype) if isinstance(dtype, np.dtype) else None
    return abstract is not None and issubclass(abstract, high)


_ABSTRACT_CLASSES: Final = frozenset(
    {
        np.generic,
        np.number,
        np.integer,
        np.signedinteger,
        np.unsignedinteger,
        np.inexact,
        np.floating,
        np.complexfloating,
        np.flexible,
        np.character,
    }
)


def _same_void(a: Any, b: Any) -> bool:
    return b is np.void or as_dtype(a) == as_dtype(b)
