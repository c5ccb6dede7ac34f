"""Errors about single arguments that no more special class describes."""

from __future__ import annotations

import operator
from typing import Any

from tracebridge.core.errors.base import TracebridgeError
from tracebridge.core.errors.shown import attribute, shown


class ArgumentValueError(TracebridgeError, ValueError):
    """An argument has a value that the function does not take (a mode, a count, an option).

    An argument has a value that the function does not take: a mode that does not exist, a
    negative size, an axis that is named twice, no array where one is needed. The message says
    which argument, what it was and which values there are. It is a `ValueError` too.

    Wrong::

        tnp.concatenate([])

    Right::

        tnp.concatenate([tnp.zeros(0), tnp.ones(3)])
    """


def no_truth_value(size: int) -> str:
    """Why an array of ``size`` elements cannot decide ``if x:``, in NumPy's words."""
    kind = "an array with more than one element" if size else "an empty array"
    return f"The truth value of {kind} is ambiguous"


class ArgumentTypeError(TracebridgeError, TypeError):
    """An argument has a type that the function does not take, or arguments do not go together.

    An argument has a type that the function does not take: a string where a size is expected, a
    float as an axis. The message says which argument, what it was and what is expected. It is a
    `TypeError` too.

    Wrong::

        tnp.reshape(tnp.ones(6), "2, 3")

    Right::

        tnp.reshape(tnp.ones(6), (2, 3))
    """


class TreeDepthError(TracebridgeError, RecursionError):
    """A tree of containers is deeper than Python's recursion limit allows, or contains itself.

    A tree of lists, tuples and dicts is deeper than Python's recursion limit allows, or
    contains itself. It is a `RecursionError` too.

    Wrong::

        x = [1.0]
        x.append(x)
        tb.tree.leaves(x)

    Right::

        x = [1.0, [2.0]]
        tb.tree.leaves(x)
    """


class IntegerRangeError(ArgumentValueError, OverflowError):
    """A Python integer is outside the range of the dtype that it should have.

    A Python integer is outside the range of the dtype that it should have: Python's integers have
    no size, those of arrays have. Nothing wraps around silently, except where NumPy does it too
    (`where`, `select`, `choose`, `pad`), where a dtype is asked for (`full`, `full_like`), and in
    sums, products and bitwise operations, which are modulo the range of the dtype anyway
    (`x & ~3`); `clip`, `isin`, `searchsorted`, `digitize` and comparisons take such numbers for
    what they are. It is an `OverflowError` and a `ValueError` too.

    Wrong::

        tnp.array([1, 300], dtype="int8")

    Right::

        tnp.array([1, 300], dtype="int16")
        tnp.array([1, 300]).astype("int8")  # wraps around, as asked
    """


class UnsupportedArgumentError(ArgumentTypeError, ArgumentValueError, NotImplementedError):
    """An argument of NumPy's function that has no meaning here (``out=``: arrays are immutable).

    The function has this argument for NumPy's sake, but arrays here are immutable, so there is
    nothing that it could do: `out=` asks a function to write into an array that exists already.
    It is a `TypeError`, a `ValueError` and a `NotImplementedError` too.

    Wrong::

        total = tnp.zeros(3)
        tnp.sum(tnp.ones((2, 3)), axis=0, out=total)

    Right::

        total = tnp.sum(tnp.ones((2, 3)), axis=0)
    """


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
        aval = attribute(value, "aval")
        ours = type(aval).__module__.startswith("tracebridge.")
        description = kind_of(value) if ours else f"{shown(value)} of type {type(value).__name__}"
    at = f"{call}: " if call else ""
    raise ArgumentTypeError(f"{at}{what} is {description}, expected an int")


def size_of(value: Any, call: str, what: str) -> Any:
    """``value`` as a size: a Python int, as ``index_of`` gives it, or a symbolic dimension."""
    return value if getattr(value, "is_symbolic_dim", False) else index_of(value, call, what)


def kind_of(value: object) -> str:
    """What a function returned or was given, in a few words: "an array f32[3]", "a tuple of 2"."""
    aval = attribute(value, "aval")
    if aval is not None and type(aval).__module__.startswith(
        "tracebridge."
    ):  # else of another library
        return f"an array {aval.str_short()}"
    if value is None:
        return "None"
    if isinstance(value, tuple | list | dict):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a value of type {type(value).__name__}"
