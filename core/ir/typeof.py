"""How Python objects become values: one registry, keyed by exact type.

``as_value(x)`` is the door for every operand of the engine. Types that are not known yet are
looked up along their MRO once and then remembered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.foreign import way_out_of
from tracebridge.core.errors.shown import attribute, shown
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.eager_slot import EAGER
from tracebridge.core.ir.operators import EngineValue
from tracebridge.core.ir.values import Literal, Value, numpy_scalar_value, scalar_value
from tracebridge.core.util.caching import register_table

if TYPE_CHECKING:
    from collections.abc import Callable

# Methods by which objects of other packages give the array that they stand for; the second is
# the name that the peer library gave it.
ARRAY_METHODS = ("__tracebridge_array__", "__jax_array__")

# type -> function that makes a Value of an object of that type
_CONVERTERS: dict[type, Callable[[Any], Value]] = {
    bool: scalar_value,
    int: scalar_value,
    float: scalar_value,
    complex: scalar_value,
    np.generic: numpy_scalar_value,
}
_RESOLVED: dict[type, Callable[[Any], Value] | None] = register_table("converters of classes", {})


def register_value_type(cls: type, convert: Callable[[Any], Value]) -> None:
    """Let instances of ``cls`` (and of subclasses) be operands; ``convert`` makes the value."""
    _CONVERTERS[cls] = convert
    _RESOLVED.clear()


def unregister_value_type(cls: type) -> None:
    """Let instances of ``cls`` be no operands any more."""
    _CONVERTERS.pop(cls, None)
    _RESOLVED.clear()


def known_value_types() -> tuple[type, ...]:
    """The types whose instances can be operands, without their subclasses."""
    return tuple(_CONVERTERS)


def converter_of(cls: type) -> Callable[[Any], Value] | None:
    """The converter of the nearest registered base of ``cls``, or None."""
    try:
        return _RESOLVED[cls]
    except KeyError:
        pass
    if issubclass(cls, np.ndarray) and np.ndarray not in _CONVERTERS:
        # NumPy arrays become arrays on a device, and the runtime is loaded at first use.
        _ = EAGER.trace
    found = next((_CONVERTERS[base] for base in cls.__mro__ if base in _CONVERTERS), None)
    _RESOLVED[cls] = found
    return found


def is_array_like(x: object) -> bool:
    """Whether ``x`` can be an operand."""
    kind = type(x)
    return (
        issubclass(kind, EngineValue)
        or converter_of(kind) is not None
        or any([hasattr(kind, name) for name in ARRAY_METHODS])
        or is_array_of_another_engine(kind)
    )


def is_array_of_another_engine(kind: type) -> bool:
    """Whether instances of a class are arrays of the peer library, say, in the same process."""
    return (
        hasattr(kind, "aval")
        and (hasattr(kind, "__array__") or hasattr(kind, "__dlpack__"))
        and not issubclass(kind, EngineValue)
    )


def _from_another_engine(x: Any, call: str) -> Value:
    """The value of such an array.

    Raises:
        UnsupportedDtypeError: it has none, as it is being traced there.
    """
    try:
        host = np.asarray(x) if hasattr(type(x), "__array__") else np.from_dlpack(x)
    except Exception as error:
        msg = f"{call}: got" if call else "got"
        raise UnsupportedDtypeError(
            f"{msg} {_describe(x)}, which cannot be read: {type(error).__name__}",
            hint="a value that another library traces is not known yet: give it an array",
        ) from error
    return as_value(host, call)


def as_value(x: Any, call: str = "") -> Value:
    """``x`` as a value: arrays, tracers and literals as they are, other objects converted.

    ``call`` names the function whose argument ``x`` is, for the message.

    Raises:
        UnsupportedDtypeError: ``x`` is no number, array or tracer.
    """
    convert = converter_of(type(x))
    if convert is not None:
        try:
            return convert(x)
        except UnsupportedDtypeError as error:
            if call:
                error.say(call)
            raise
    for name in ARRAY_METHODS:
        method = getattr(x, name) if hasattr(type(x), name) else None
        if method is not None:  # it is where traced values of the peer have none
            return as_value(method())
    if issubclass(type(x), EngineValue):
        return x
    if is_array_of_another_engine(type(x)):
        return _from_another_engine(x, call)
    msg = f"{call}: got" if call else "got"
    raise UnsupportedDtypeError(
        f"{msg} {_describe(x)}, expected an array or a Python number",
        hint=way_out_of(
            x, "convert it with tracebridge.numpy.asarray, or make it a static argument"
        ),
    )


def array_value(x: Any, call: str = "") -> Value:
    """``x`` as a value that operations on arrays take.

    As `as_value`; an object of a type of users that stands for an array becomes that array.
    """
    value = as_value(x, call)
    if value is x and not issubclass(type(x), EngineValue):
        for name in ARRAY_METHODS:
            if hasattr(type(x), name):
                return as_value(getattr(x, name)(), call)
    return value


def _describe(x: object) -> str:
    return f"{shown(x)} of type {type(x).__name__}"


def typeof(x: Any) -> ShapedArray:
    """The aval of an array, tracer or number.

    >>> import tracebridge as tb
    >>> tb.typeof(1.0)
    ShapedArray(float32[], weak_type=True)
    """
    kind = type(x)
    if hasattr(kind, "aval"):
        aval = attribute(x, "aval")
        if isinstance(aval, ShapedArray):
            return aval
    if hasattr(kind, "__tracebridge_typeof__"):
        # Mutable references are no operands, but have a type.
        return x.__tracebridge_typeof__
    return as_value(x).aval


def identity(x: Value) -> Value:
    """Converter of types whose instances are values already."""
    return x


register_value_type(Literal, identity)
