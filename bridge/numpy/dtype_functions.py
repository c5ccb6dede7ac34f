"""Scalar types that make arrays, questions about dtypes, constants, sizes of array-likes."""

from __future__ import annotations

__all__ = [
    "ComplexWarning", "bfloat16", "bool", "bool_", "can_cast", "cdouble", "character",
    "complex64", "complex128", "complex_", "complexfloating", "csingle", "double", "dtype", "e",
    "euler_gamma", "finfo", "flexible", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn",
    "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz",
    "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float16", "float32", "float64",
    "float_", "floating", "generic", "iinfo", "inexact", "inf", "int1", "int2", "int4", "int8",
    "int16", "int32", "int64", "int_", "integer", "isdtype", "issubdtype", "iterable", "nan",
    "ndarray", "ndim", "newaxis", "number", "object_", "pi", "promote_types", "result_type",
    "shape", "signedinteger", "single", "size", "uint", "uint1", "uint2", "uint4", "uint8",
    "uint16", "uint32", "uint64", "unsignedinteger",
]  # fmt: skip

from typing import Any, SupportsIndex, cast

import numpy as np

import tracebridge.core.dtypes.dtypes as known
from tracebridge.core.dtypes import promotion
from tracebridge.core.dtypes.canonicalize import canonicalize, default_float
from tracebridge.core.dtypes.finfo import finfo, iinfo
from tracebridge.core.ir.operators import EngineValue
from tracebridge.core.runtime.arrays.argument_types import DType
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike, DTypeLike
from tracebridge.numpy._promote import members, normalize_axes
from tracebridge.numpy._staging import shape_of
from tracebridge.numpy.conversion import asarray

# scalar types ------------------------------------------------------------------------------------


class _ScalarType(type):
    """The class of ``float32`` and its kin: each has a dtype, and makes arrays when called."""

    dtype: np.dtype[Any]

    def __call__(cls, x: Any) -> Any:
        """``x`` as an array of this dtype."""
        return asarray(x, dtype=cls.dtype)

    def __hash__(cls) -> int:
        return hash(cls.dtype.type)

    def __eq__(cls, other: object) -> bool:
        if isinstance(other, _ScalarType):
            return cls.dtype == other.dtype
        if isinstance(other, np.dtype):
            return cls.dtype == other
        return isinstance(other, type) and other is cls.dtype.type

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.dtype.type)

    def __repr__(cls) -> str:
        return f"<class 'tracebridge.numpy.{cls.__name__}'>"


def _scalar_type(dtype: DType, name: str = "") -> Any:
    """The scalar type of a dtype: stands for it wherever a dtype is asked for."""
    label = name or dtype.name
    doc = f"""The dtype ``{label}``; called, it makes an array of it.

    >>> import tracebridge.numpy as tnp
    >>> tnp.dtype(tnp.{label}).itemsize
    {dtype.itemsize}
    """
    members = {"dtype": dtype, "__module__": "tracebridge.numpy", "__doc__": doc}
    return _ScalarType(label, (), members)


bool_ = _scalar_type(known.bool_, "bool")
int1 = _scalar_type(known.int1)
int2 = _scalar_type(known.int2)
int4 = _scalar_type(known.int4)
int8 = _scalar_type(known.int8)
int16 = _scalar_type(known.int16)
int32 = _scalar_type(known.int32)
int64 = _scalar_type(known.int64)
uint1 = _scalar_type(known.uint1)
uint2 = _scalar_type(known.uint2)
uint4 = _scalar_type(known.uint4)
uint8 = _scalar_type(known.uint8)
uint16 = _scalar_type(known.uint16)
uint32 = _scalar_type(known.uint32)
uint64 = _scalar_type(known.uint64)
float4_e2m1fn = _scalar_type(known.float4_e2m1fn)
float6_e2m3fn = _scalar_type(known.float6_e2m3fn)
float6_e3m2fn = _scalar_type(known.float6_e3m2fn)
float8_e3m4 = _scalar_type(known.float8_e3m4)
float8_e4m3 = _scalar_type(known.float8_e4m3)
float8_e4m3b11fnuz = _scalar_type(known.float8_e4m3b11fnuz)
float8_e4m3fn = _scalar_type(known.float8_e4m3fn)
float8_e4m3fnuz = _scalar_type(known.float8_e4m3fnuz)
float8_e5m2 = _scalar_type(known.float8_e5m2)
float8_e5m2fnuz = _scalar_type(known.float8_e5m2fnuz)
float8_e8m0fnu = _scalar_type(known.float8_e8m0fnu)
bfloat16 = _scalar_type(known.bfloat16)
float16 = _scalar_type(known.float16)
float32 = _scalar_type(known.float32)
float64 = _scalar_type(known.float64)
complex64 = _scalar_type(known.complex64)
complex128 = _scalar_type(known.complex128)
bool = bool_
single = float32
double = float64
csingle = complex64
cdouble = complex128
int_ = int64
uint = uint64
float_ = float64
complex_ = complex128

# NumPy's abstract classes, for issubdtype.
generic = np.generic
number = np.number
integer = np.integer
signedinteger = np.signedinteger
unsignedinteger = np.unsignedinteger
inexact = np.inexact
floating = np.floating
complexfloating = np.complexfloating
flexible = np.flexible
character = np.character
object_ = np.object_
dtype = np.dtype
ndarray = Array
ComplexWarning = np.exceptions.ComplexWarning

# constants ---------------------------------------------------------------------------------------

pi: float = np.pi
e: float = np.e
euler_gamma: float = np.euler_gamma
inf: float = np.inf
nan: float = np.nan
newaxis: None = None


# questions about dtypes --------------------------------------------------------------------------


def result_type(*args: object) -> Any:
    """The dtype of an operation on arrays, numbers and dtypes.

    Raises:
        TypePromotionError: they have no common dtype.

    >>> import tracebridge.numpy as tnp
    >>> tnp.result_type(tnp.float16, 1.0), tnp.result_type("int8", "uint8")
    (dtype('float16'), dtype('int16'))
    """
    # None is the default float, as in NumPy.
    given = [default_float() if a is None else a for a in args]
    found = promotion.result_type(*given)
    return canonicalize(found) if isinstance(found, np.dtype) else found


def promote_types(a: ArrayLike, b: ArrayLike) -> Any:
    """The dtype of an operation on arrays of two dtypes.

    >>> import tracebridge.numpy as tnp
    >>> tnp.promote_types("int32", "float16")
    dtype('float16')
    """
    return promotion.promote_types(a, b)


def issubdtype(arg1: DTypeLike, arg2: DTypeLike) -> bool:
    """Whether a dtype lies below another, or below an abstract class such as ``floating``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.issubdtype(tnp.bfloat16, tnp.floating)
    True
    """
    return known.issubdtype(arg1, arg2)


_KINDS: dict[str, frozenset[Any]] = {
    "bool": known.bools,
    "signed integer": known.signed,
    "unsigned integer": known.unsigned,
    "integral": known.integers,
    "real floating": known.floats,
    "complex floating": known.complexes,
    "numeric": known.numeric,
}


def isdtype(dtype: DTypeLike, kind: DTypeLike) -> bool:
    """Whether a dtype is of a kind of the array API.

    Args:
        dtype: a dtype, its name or a scalar type.
        kind: ``"bool"``, ``"signed integer"``, ``"unsigned integer"``, ``"integral"``,
            ``"real floating"``, ``"complex floating"``, ``"numeric"``, a dtype, or a tuple of
            these.

    >>> import tracebridge.numpy as tnp
    >>> tnp.isdtype(tnp.bfloat16, "real floating"), tnp.isdtype("int8", ("bool", "int8"))
    (True, True)
    """
    known_dtype = known.as_dtype(dtype)
    for k in kind if isinstance(kind, tuple) else (kind,):
        if isinstance(k, str) and k in _KINDS:
            if known_dtype in _KINDS[k]:
                return True
        elif known.as_dtype(k) == known_dtype:
            return True
    return False


def can_cast(from_: Any, to: Any, casting: Any = "safe") -> bool:
    """Whether NumPy would convert one dtype to another; ``casting`` as there.

    >>> import tracebridge.numpy as tnp
    >>> tnp.can_cast("int32", "float64"), tnp.can_cast("float64", "int32")
    (True, False)
    """
    source = from_ if isinstance(from_, np.generic | np.ndarray) else known.as_dtype(from_)
    target = cast("np.dtype[Any]", known.as_dtype(to))
    return np.can_cast(cast("np.dtype[Any]", source), target, casting)


# sizes of array-likes ----------------------------------------------------------------------------


def _shape(a: Any) -> tuple[Any, ...]:
    if a is None:
        return ()  # one object, as NumPy has it: trees of optional arrays are asked so
    return shape_of(asarray(a) if isinstance(a, list | tuple) else a)


def shape(a: object) -> tuple[Any, ...]:
    """The shape of an array or number.

    >>> import tracebridge.numpy as tnp
    >>> tnp.shape(tnp.ones((2, 3))), tnp.shape(1.0)
    ((2, 3), ())
    """
    return _shape(a)


def ndim(a: object) -> int:
    """The number of axes of an array or number.

    >>> import tracebridge.numpy as tnp
    >>> tnp.ndim(tnp.ones((2, 3)))
    2
    """
    return len(_shape(a))


def size(a: object, axis: SupportsIndex | None = None) -> int:
    """The number of elements, in all or along axes.

    >>> import tracebridge.numpy as tnp
    >>> tnp.size(tnp.ones((2, 3))), tnp.size(tnp.ones((2, 3)), 1)
    (6, 3)
    """
    sizes = _shape(a)
    given = range(len(sizes)) if axis is None else members(axis)
    axes = [axis] if given is None else given
    total: Any = 1
    for i in normalize_axes(axes, len(sizes), "size"):
        total = total * sizes[i]
    return total


def iterable(y: Any) -> bool:
    """Whether one can walk through ``y``; an array without axes is not iterable.

    >>> import tracebridge.numpy as tnp
    >>> tnp.iterable(tnp.ones(2)), tnp.iterable(tnp.array(1.0))
    (True, False)
    """
    if issubclass(type(y), EngineValue):
        return len(y.aval.shape) > 0
    return np.iterable(y)
