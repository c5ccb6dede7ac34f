"""Values that flow through primitives: what a Literal is, and how Python objects become values.

A value is an Array, a Tracer or a Literal. Each has ``aval`` and ``_trace`` (``None`` but for
tracers), so that interpreters need no type tests.
"""

from __future__ import annotations

import math
import operator
import struct
from typing import Any, final

import numpy as np

from tracebridge.core.dtypes.canonicalize import canonicalize
from tracebridge.core.dtypes.weak_type import scalar_dtype
from tracebridge.core.errors.argument_errors import IntegerRangeError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.eager_slot import EAGER
from tracebridge.core.ir.operators import ArrayOperators
from tracebridge.core.ir.value import Value

__all__ = [
    "Literal",
    "Value",
    "check_int_range",
    "literal",
    "numpy_scalar_value",
    "python_scalar",
    "scalar_value",
]


_BITS = struct.Struct("d")


@final
class Literal(ArrayOperators):
    """A scalar constant of a traced program. Never a device buffer while tracing.

    It has the operators of arrays, because traced code may get one as the result of a
    transformation (the gradient of ``x + 1`` is the constant 1).
    """

    # _sig and _buf are set by the eager trace at first use, so that a literal in a staged rule
    # that is replayed eagerly looks like an array from then on.
    __slots__ = ("__weakref__", "_buf", "_sig", "aval", "value")
    _trace = None
    _buf: Any
    _sig: Any

    def __init__(self, value: Any, aval: ShapedArray) -> None:
        self.value = value
        self.aval = aval

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.aval.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    @property
    def ndim(self) -> int:
        return 0

    def key(self) -> tuple[Any, ...]:
        """A dict key that keeps 0.0 and -0.0, and 1 and True, apart, and finds NaN again."""
        value = self.value
        if type(value) is float:
            return (self.aval, _BITS.pack(value))
        if type(value) is complex:
            return (self.aval, np.asarray(value).tobytes())
        return (self.aval, type(value), value)

    def __repr__(self) -> str:
        return f"Literal({self.value!r}, {self.aval.str_short()})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        host = np.asarray(self.value).astype(self.aval.dtype)
        return host if dtype is None else host.astype(dtype)

    def item(self) -> Any:
        """The Python scalar."""
        return self.value

    def __bool__(self) -> bool:
        return bool(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __complex__(self) -> complex:
        return complex(self.value)

    def __index__(self) -> int:
        return operator.index(self.value)


def _of_array(name: str) -> property:
    """An attribute that literals have as arrays: as long as it is not asked for, none is made."""

    def read(self: Literal) -> Any:
        return getattr(EAGER.trace.to_array(Literal(self.value, self.aval)), name)

    return property(read, doc=f"``{name}`` of the array of this value.")


# Constants of traced programs are known, and code that meets one may take it for an array.
for _name in (
    "__dlpack__",
    "__dlpack_device__",
    "__format__",
    "__iter__",
    "addressable_data",
    "addressable_shards",
    "block_until_ready",
    "committed",
    "copy_to_host_async",
    "device",
    "devices",
    "global_shards",
    "is_deleted",
    "is_fully_addressable",
    "is_fully_replicated",
    "is_ready",
    "on_device_size_in_bytes",
    "sharding",
    "tobytes",
    "tolist",
    "unsafe_buffer_pointer",
):
    setattr(Literal, _name, _of_array(_name))


def literal(value: object, dtype: Any, weak_type: bool = False) -> Literal:
    """A Literal of ``dtype`` that holds a Python scalar."""
    dtype = np.dtype(dtype)
    return Literal(python_scalar(value, dtype), ShapedArray((), dtype, weak_type))


def python_scalar(value: Any, dtype: np.dtype[Any]) -> Any:
    """``value`` as the Python scalar nearest to what ``dtype`` stores."""
    kind = dtype.kind
    if kind == "b":
        return bool(value)
    if kind in "iu":
        return _python_int(value, dtype)
    if kind == "c":
        return complex(value)
    if kind == "V" and dtype.name.startswith(("int", "uint")):
        return int(value)
    if kind == "V" and dtype.fields is not None:
        return False  # float0, which programs hold as booleans
    return float(value)


def _python_int(value: Any, dtype: np.dtype[Any]) -> int:
    if isinstance(value, float):
        # Follow C conversion instead of raising for nan and inf, as convert_element_type does.
        return int(np.asarray(value).astype(dtype)) if math.isfinite(value) else 0
    return int(value)


def check_int_range(value: int, dtype: np.dtype[Any]) -> None:
    """Raise IntegerRangeError where a Python int does not fit ``dtype``."""
    bits = dtype.itemsize * 8
    low, high = (0, 2**bits - 1) if dtype.kind == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if not low <= value <= high:
        hint = (
            "; enable 64-bit types with tracebridge.config.update('enable_x64', True) "
            "or pass a float"
            if bits < 64
            else ""
        )
        msg = f"Python integer {value} does not fit {dtype.name}{hint}"
        raise IntegerRangeError(msg)


def scalar_value(x: Any) -> Literal:
    """A weakly typed Literal for a Python bool, int, float or complex."""
    dtype, weak = scalar_dtype(type(x))
    if dtype.kind == "i":
        check_int_range(x, dtype)
    return Literal(x, ShapedArray((), dtype, weak))


def numpy_scalar_value(x: Any) -> Literal:
    """A strongly typed Literal for a NumPy scalar, canonicalised by the 64-bit rule."""
    dtype = canonicalize(x.dtype)
    return Literal(python_scalar(x, dtype), ShapedArray((), dtype))
