"""Errors about single arguments that no more special class describes."""

from __future__ import annotations

import operator
from typing import Any

from tracebridge.core.errors.base import TracebridgeError


class ArgumentValueError(TracebridgeError, ValueError):
    """An argument has a value that the function does not take (a mode, a count, an option)."""


class ArgumentTypeError(TracebridgeError, TypeError):
    """An argument has a type that the function does not take, or arguments do not go together."""


class IntegerRangeError(ArgumentValueError, OverflowError):
    """A Python integer is outside the range of the dtype that it should have."""


class UnsupportedArgumentError(ArgumentTypeError, NotImplementedError):
    """An argument of NumPy's function that has no meaning here (``out=``: arrays are immutable)."""


def index_of(value: Any, call: str, what: str) -> int:
    """``value`` as a Python int; ``call`` and ``what`` say in errors where it was given.

    Raises:
        ArgumentTypeError: it is no integer.
        TracerIntegerConversionError: it is traced.
    """
    try:
        return operator.index(value)
    except TypeError as error:
        if isinstance(error, TracebridgeError) and not isinstance(error, ArgumentTypeError):
            if call:
                error.say(call)
            raise
        aval = getattr(value, "aval", None)
        ours = type(aval).__module__.startswith("tracebridge.")
        given = kind_of(value) if ours else f"{value!r} of type {type(value).__name__}"
    at = f"{call}: " if call else ""
    raise ArgumentTypeError(f"{at}{what} is {given}, expected an int")


def kind_of(value: Any) -> str:
    """What a function returned or was given, in a few words: "an array f32[3]", "a tuple of 2"."""
    aval = getattr(value, "aval", None)
    if aval is not None and type(aval).__module__.startswith(
        "tracebridge."
    ):  # else of another library
        return f"an array {aval.str_short()}"
    if value is None:
        return "None"
    if isinstance(value, tuple | list | dict):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a value of type {type(value).__name__}"
