"""How Python objects become values: one registry, keyed by exact type.

``as_value(x)`` is the door for every operand of the engine. Types that are not known yet are
looked up along their MRO once and then remembered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.ir.eager_slot import EAGER
from tracebridge.core.ir.values import Literal, Value, numpy_scalar_value, scalar_value

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracebridge.core.ir.aval import ShapedArray

# type -> function that makes a Value of an object of that type
_CONVERTERS: dict[type, Callable[[Any], Value]] = {
    bool: scalar_value,
    int: scalar_value,
    float: scalar_value,
    complex: scalar_value,
    np.generic: numpy_scalar_value,
}
_RESOLVED: dict[type, Callable[[Any], Value] | None] = {}


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


def is_array_like(x: Any) -> bool:
    """Whether ``x`` can be an operand."""
    return (
        hasattr(x, "aval")
        or converter_of(type(x)) is not None
        or hasattr(type(x), "__tracebridge_array__")
    )


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
    if hasattr(type(x), "__tracebridge_array__"):
        return as_value(x.__tracebridge_array__())
    if hasattr(x, "aval"):
        return x
    msg = f"{call}: got" if call else "got"
    raise UnsupportedDtypeError(
        f"{msg} {_describe(x)}, expected an array or a Python number",
        hint="convert it with tracebridge.numpy.asarray, or make it a static argument",
    )


def _describe(x: Any) -> str:
    text = repr(x)
    if len(text) > 80:
        text = text[:77] + "..."
    return f"{text} of type {type(x).__name__}"


def typeof(x: Any) -> ShapedArray:
    """The aval of an array, tracer or number.

    >>> import tracebridge as tb
    >>> tb.typeof(1.0)
    ShapedArray(float32[], weak_type=True)
    """
    aval = getattr(x, "aval", None)
    if aval is None:
        # Mutable references are no operands, but have a type.
        aval = getattr(x, "__tracebridge_typeof__", None)
    return as_value(x).aval if aval is None else aval


def identity(x: Value) -> Value:
    """Converter of types whose instances are values already."""
    return x


register_value_type(Literal, identity)
