"""What the files of this package share: making staged functions, static arguments, host values.

Importing is cheap: a function is staged when it is first called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracebridge.core.dtypes.canonicalize import canonicalize_explicit
from tracebridge.core.errors.tracer_errors import ConcretizationTypeError
from tracebridge.core.ir.operators import EngineValue
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.typeof import ARRAY_METHODS, array_value
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.accepted_dtypes import check_ordinary
from tracebridge.core.lax.contract.precision import PrecisionLike, canonical_precision
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike, DTypeLike
from tracebridge.core.runtime.calls.staged_functions import StagedFunction, binary, unary


def unary_function(
    implementation: Callable[[Value], Value], name: str, doc: str
) -> Callable[[Any], Array]:
    """The public function of one array that ``implementation`` (on values) describes."""

    def of_numbers(x: Value) -> Value:
        check_ordinary(name, x.aval)
        return implementation(x)

    return named(unary(StagedFunction(of_numbers, name)), name, doc)


def binary_function(
    implementation: Callable[[Any, Any], Any],
    name: str,
    doc: str,
    fitted: Callable[[Any], Any] | None = None,
) -> Callable[[Any, Any], Array]:
    """The public function of two arrays that ``implementation`` (on values) describes.

    ``fitted``: what to do with Python integers that do not fit; as for ``binary``.
    """
    return named(binary(StagedFunction(implementation, name), fitted), name, doc)


def unary_by_name(
    implementation: Callable[[Value], Value], name: str, doc: str
) -> Callable[[Any], Array]:
    """As ``unary_function``; the argument may also be passed by its name, ``x``."""
    plain = unary_function(implementation, name, doc)

    def call(x: ArrayLike) -> Array:
        return plain(x)

    return named(call, name, doc)


def binary_by_name(
    implementation: Callable[[Any, Any], Any], name: str, doc: str
) -> Callable[[Any, Any], Array]:
    """As ``binary_function``; the arguments may also be passed by name, ``x1`` and ``x2``."""
    plain = binary_function(implementation, name, doc)

    def call(x1: ArrayLike, x2: ArrayLike) -> Array:
        return plain(x1, x2)

    return named(call, name, doc)


def named(function: Any, name: str, doc: str) -> Any:
    function.__name__ = function.__qualname__ = name
    function.__module__ = "tracebridge.numpy"
    function.__doc__ = doc
    return function


def static_dtype(name: str, dtype: DTypeLike | None) -> Any:
    """A dtype argument as a static: ``None``, or the dtype that the 64-bit rule leaves."""
    return None if dtype is None else canonicalize_explicit(dtype, name)


def static_precision(name: str, precision: PrecisionLike) -> Any:
    """A precision argument as a static; ``None`` follows the option."""
    return None if precision is None else canonical_precision(precision, name)


def value_of(x: object) -> Any:
    """``x`` as a value (arrays and tracers as they are)."""
    return x if issubclass(type(x), EngineValue) else array_value(x)


def unwrapped(x: Any) -> Any:
    """The value for which an object of another class stands; other objects as they are.

    Where NumPy looks at an argument first: it would make an array of objects of it.
    """
    return value_of(x) if any([hasattr(type(x), name) for name in ARRAY_METHODS]) else x


def settled(x: Any) -> Any:
    """The array that a tracer stands for while it is differentiated at once; ``x`` otherwise.

    For what is decided by elements, but has no derivative in them: sizes and positions.
    """
    known = x.known() if isinstance(x, Tracer) else x
    return x if known is None else known


def concrete(x: Any, context: str, hint: str = "") -> np.ndarray[Any, Any]:
    """The elements of ``x`` on the host.

    Raises:
        ConcretizationTypeError: ``x`` is traced; ``context`` says what its elements decide.
    """
    value = settled(value_of(x))
    if isinstance(value, Tracer):
        raise ConcretizationTypeError(value, context, hint=hint)
    return np.asarray(value)


def is_traced(*xs: object) -> bool:
    """Whether one of the arguments is traced."""
    return any([isinstance(x, Tracer) for x in xs])


def known_not_to_ascend(x: Any) -> bool:
    """Whether the values of a vector are known, and one is not above the one before it.

    On the host: inside of a program operations on known arrays are traced.
    """
    if is_traced(x):
        return False
    values = np.asarray(x)
    return not (values[1:] > values[:-1]).all()


def shape_of(x: Any) -> tuple[Any, ...]:
    """The shape of an array-like."""
    return tuple(x.shape) if hasattr(x, "shape") else value_of(x).aval.shape
