"""Tracers: stand-ins for arrays while a function is traced."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from tracebridge.core.errors.argument_errors import ArgumentValueError, no_truth_value
from tracebridge.core.errors.filtering import hide_internal_frames, hiding
from tracebridge.core.errors.tracer_errors import (
    ConcretizationTypeError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
)
from tracebridge.core.ir.foreign import asker, torch_function
from tracebridge.core.ir.late_attributes import set_missing
from tracebridge.core.ir.operators import ArrayOperators
from tracebridge.core.ir.source_info import describe_line
from tracebridge.core.ir.typeof import identity, register_value_type
from tracebridge.core.ir.values import Literal
from tracebridge.core.util.public_path import public_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.trace import Trace
    from tracebridge.core.ir.value import Value


# What arrays have and tracers never will, and what to do about it. These are missing attributes
# (`hasattr` says so), since programs ask by them whether a value is an array that exists.
_MISSING = {
    "block_until_ready": "wait for the results of the traced function, outside of it",
    "copy_to_host_async": "copy the results of the traced function, outside of it",
    "device": "give devices and shardings to device_put or jit",
    "sharding": "tb.typeof(x).sharding is what the type says; tb.lax.with_sharding_constraint sets "
    "how a compiled value is split",
}
# These are there, and raise: nobody takes what they give as optional.
_METHODS_OF_BUFFERS = (
    "addressable_data",
    "delete",
    "devices",
    "is_deleted",
    "on_device_size_in_bytes",
    "tobytes",
    "unsafe_buffer_pointer",
)
_PROPERTIES_OF_BUFFERS = (
    "addressable_shards",
    "committed",
    "global_shards",
    "is_fully_addressable",
    "is_fully_replicated",
)


def shown(value: Value) -> str:
    """A value inside a tracer, for its ``repr``: numbers as they are, of arrays the type."""
    if type(value) is Literal:
        return repr(value.value)
    small = isinstance(value, Tracer) or getattr(value.aval, "ndim", None) == 0
    return str(value) if small else value.aval.str_short()


def known_value(value: object) -> Any:
    """The array or literal that ``value`` is or stands for, None if that is not known."""
    return value.known() if isinstance(value, Tracer) else value


# The path of the class that users ask `isinstance` for; nobody makes these by their path.
@public_path("tracebridge.core")
class Tracer(ArrayOperators):
    """Base of all tracers: an aval and the trace that owns the tracer.

    ``origin`` (a property of subclasses) says where the tracer was made, for error messages.
    """

    __slots__ = ("__weakref__", "_trace", "aval")
    aval: ShapedArray
    _trace: Trace

    def __init__(self, aval: ShapedArray, trace: Trace) -> None:
        self.aval = aval
        self._trace = trace

    @property
    def origin(self) -> Any:
        """Where the tracer came from, as text, or None."""
        return None

    def describe_origin(self) -> str:
        """``origin`` as text for error messages."""
        origin = self.origin
        if origin is None:
            return ""
        return origin if isinstance(origin, str) else describe_line(origin)

    def describe_need(self) -> str:
        """What its value depends on, for errors of those who need it."""
        return self.describe_origin()

    def needs_arguments(self) -> bool:
        """Whether its value depends on arguments, as far as is known."""
        return True

    def known(self) -> Any:
        """The value that is differentiated here, if it is there already; None if it is not.

        Python control flow and ``item`` may look at it. Conversions to floats may not: they would
        lose the derivative without a word.
        """
        return None

    def __bool__(self) -> bool:
        try:
            value = self.known()
            if value is not None:
                return bool(value)
            size = self.aval.size
            if isinstance(size, int) and size != 1:
                # Concrete arrays of this shape have no truth value either.
                raise ArgumentValueError(
                    no_truth_value(size),
                    got=f"a traced value of type {self.aval.str_short()}",
                    hint="use x.any() or x.all()",
                )
            raise TracerBoolConversionError(self)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __index__(self) -> int:
        try:
            value = self.known()
            if value is None:
                raise TracerIntegerConversionError(self)
            return operator.index(value)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __int__(self) -> int:
        try:
            value = self.known()
            if value is None:
                raise _no_python_number(self, "int")
            return int(value)
        except Exception as error:
            hide_internal_frames(error)
            raise

    @hiding
    def __float__(self) -> float:
        raise _no_python_number(self, "float")

    @hiding
    def __complex__(self) -> complex:
        raise _no_python_number(self, "complex")

    @hiding
    def item(self, *index: Any) -> Any:
        """The number, where it is known already; raise otherwise."""
        value = self.known()
        if value is None:
            raise ConcretizationTypeError(self, "item() was called on it.")
        return np.asarray(value).item(*index)

    @hiding
    def tolist(self) -> Any:
        """Raise: the numbers are not known while tracing."""
        raise ConcretizationTypeError(self, "tolist() was called on it.")

    @hiding
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TracerArrayConversionError(self, library=asker())

    @hiding
    def __dlpack__(self, **_: object) -> Any:
        raise TracerArrayConversionError(self, "from_dlpack", library=asker() or "the consumer")

    @hiding
    def __dlpack_device__(self) -> tuple[int, int]:
        raise TracerArrayConversionError(self, "from_dlpack", library=asker() or "the consumer")

    __torch_function__ = classmethod(hiding(torch_function))

    def __iter__(self) -> Iterator[Any]:
        n = len(self)
        return (self[i] for i in range(n))

    @hiding
    def __format__(self, spec: str) -> str:
        if spec:
            raise ConcretizationTypeError(
                self,
                f"format() was called on it with the specification {spec!r}.",
                hint="leave the specification out to see the type, or return the value and "
                "format it outside of the traced function",
            )
        return repr(self)

    def __repr__(self) -> str:
        return f"Traced<{self.aval.str_short()}>{self.details()}"

    def details(self) -> str:
        """What ``repr`` says besides the type."""
        return ""

    def __copy__(self) -> Tracer:
        return self

    def __deepcopy__(self, memo: object) -> Tracer:
        return self

    def __reduce__(self) -> Any:
        raise ConcretizationTypeError(self, "pickle asked for its elements.")


def _no_python_number(tracer: Tracer, kind: str) -> ConcretizationTypeError:
    return ConcretizationTypeError(
        tracer,
        f"{kind}() was called on it.",
        hint=f"try using `x.astype({kind})`, which works on traced values, or make the argument "
        "static (static_argnums, static_argnames)",
    )


def _raising_method(name: str) -> Any:
    def method(self: Tracer, *_: object, **__: object) -> Any:
        raise ConcretizationTypeError(self, f"{name}() was called on it.")

    method.__name__ = name
    method.__qualname__ = f"{Tracer.__qualname__}.{name}"
    method.__doc__ = "Raise: there is no buffer while tracing."
    return method


def _raising_property(name: str) -> Any:
    def read(self: Tracer) -> Any:
        raise ConcretizationTypeError(self, f"Its {name} was asked for.")

    return property(read, doc="Raise: there is no buffer while tracing.")


set_missing(Tracer, _MISSING)
for _name in _METHODS_OF_BUFFERS:
    setattr(Tracer, _name, _raising_method(_name))
for _name in _PROPERTIES_OF_BUFFERS:
    setattr(Tracer, _name, _raising_property(_name))

register_value_type(Tracer, identity)
