"""Promotion of operands: dtypes by the lattice, shapes by broadcasting.

These run while a function is staged, once per kind of argument, so they may be plain.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.config.values import option
from tracebridge.core.dtypes.canonicalize import default_int, to_inexact
from tracebridge.core.dtypes.dtypes import is_bool, is_inexact
from tracebridge.core.dtypes.finfo import iinfo
from tracebridge.core.dtypes.promotion import promote
from tracebridge.core.errors.argument_errors import (
    ArgumentValueError,
    UnsupportedArgumentError,
    index_of,
)
from tracebridge.core.errors.shape_errors import AxisError, BroadcastError, ShapeMismatchError
from tracebridge.core.errors.user_warnings import warn_user
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.families import is_narrow
from tracebridge.core.runtime.arrays.argument_types import DType
from tracebridge.core.runtime.arrays.array import Array


def promote_dtypes(*xs: Any) -> list[Any]:
    """Operands of one dtype, that of the lattice."""
    dtype, weak = promote(tuple([(x.aval.dtype, x.aval.weak_type) for x in xs]))
    return [as_dtype(x, dtype, weak) for x in xs]


def factors(a: Any, b: Any, preferred: Any) -> tuple[Any, Any, Any]:
    """Operands of ``dot_general`` and the dtype of its result.

    It takes two dtypes as they are: converted operands would be arrays of their own.
    """
    if a.aval.dtype == b.aval.dtype or a.aval.weak_type or b.aval.weak_type:
        a, b = promote_dtypes(a, b)
        # A dtype that was asked for is no weak one.
        return (a, b, None) if preferred is None else (as_strong(a), b, preferred)
    dtype, _ = promote(((a.aval.dtype, False), (b.aval.dtype, False)))
    return a, b, dtype if preferred is None else preferred


def promote_inexact(*xs: Any) -> list[Any]:
    """Operands of one float or complex dtype."""
    dtype, weak = promote(tuple([(x.aval.dtype, x.aval.weak_type) for x in xs]))
    if not is_inexact(dtype):
        dtype = to_inexact(dtype)
    return [as_dtype(x, dtype, weak) for x in xs]


def promote_numeric(*xs: Value) -> list[Any]:
    """Operands of one dtype other than bool (bools become the default integer)."""
    xs = tuple(promote_dtypes(*xs))
    if is_bool(xs[0].aval.dtype):
        return [lax.convert_dtype(x, np.dtype(np.int32)) for x in xs]
    return list(xs)


def as_dtype(x: Value, dtype: DType, weak: bool = False) -> Any:
    """``x`` converted; ``x`` itself where nothing changes that matters for the result."""
    if (
        x.aval.dtype == dtype
        and (x.aval.weak_type or not weak)
        and (x.aval.weak_type == weak or (x.aval.ndim == 0 and not is_bool(dtype)))
    ):
        return x
    return lax.convert_dtype(x, dtype, weak)


def strongly(operation: Callable[..., Any]) -> Callable[..., Any]:
    """``operation``, whose results decide about dtypes also where its operands do not."""

    def run(*operands: Any) -> Any:
        result = operation(*operands)
        if isinstance(result, list):
            return [as_strong(x) for x in result]
        return as_strong(result)

    return run


def widened(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` in float32 where operands have 16 bits; results have their dtype."""

    @functools.wraps(function)
    def run(*xs: Array) -> Any:
        dtype = xs[0].aval.dtype
        if not is_narrow(dtype):
            return function(*xs)
        out = function(*[lax.convert_dtype(x, np.dtype(np.float32)) for x in xs])
        if isinstance(out, tuple | list):
            return [lax.convert_dtype(v, dtype) for v in out]
        return lax.convert_dtype(out, dtype)

    return run


def as_strong(x: Value) -> Any:
    """``x`` without its weak type."""
    return lax.convert_dtype(x, x.aval.dtype) if x.aval.weak_type else x


def strong_array(x: Value) -> Any:
    """``x``, without its weak type if it has axes: numbers yield, arrays do not."""
    return as_strong(x) if x.aval.ndim else x


def broadcast_operands(name: str, *xs: Any) -> list[Any]:
    """Operands of one shape; those without axes stay as they are."""
    shapes = [x.aval.shape for x in xs if x.aval.ndim]
    if len(shapes) <= 1 or all([s == shapes[0] for s in shapes]):
        return list(xs)
    shape = broadcast_shape(name, [x.aval.shape for x in xs])
    _check_rank_promotion(name, shapes)
    return [x if not x.aval.ndim else broadcast_to(x, shape) for x in xs]


def broadcast_shape(name: str, shapes: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
    """The common shape by NumPy's rules.

    Raises:
        BroadcastError: two sizes differ and neither is 1.
    """
    ndim = max([len(s) for s in shapes], default=0)
    result: list[Any] = []
    for i in range(-ndim, 0):
        size: Any = 1
        for s in shapes:
            if -i <= len(s) and not _is_one(s[i]):
                if not _is_one(size) and size != s[i]:
                    got = ", ".join([str(tuple(t)) for t in shapes])
                    msg = f"{name} got incompatible shapes for broadcasting: {got}."
                    hint = f"sizes must be equal or 1, counted from the last axis; see axis {i}"
                    raise BroadcastError(msg, hint=hint)
                size = s[i]
        result.append(size)
    return tuple(result)


def _is_one(d: object) -> bool:
    return type(d) is int and d == 1


def broadcast_to(x: Any, shape: tuple[object, ...]) -> Any:
    """``x`` repeated to ``shape`` by NumPy's rules."""
    n = x.aval.ndim
    if x.aval.shape == shape:
        return x
    if n > len(shape):
        msg = f"broadcast_to: an array of shape {x.aval.shape} has more axes than shape {shape}"
        raise BroadcastError(msg)
    lead = len(shape) - n
    if not all([d == s or _is_one(d) for d, s in zip(x.aval.shape, shape[lead:], strict=True)]):
        msg = f"an array of shape {x.aval.shape} cannot be broadcast to shape {shape}"
        raise BroadcastError(msg, hint="sizes must be equal or 1, counted from the last axis")
    return lax.broadcast_in_dim(x, shape, tuple(range(lead, len(shape))))


def select(which: Value, on_true: Value, on_false: Value) -> Any:
    """A select whose cases may be scalars beside an array."""
    shape = which.aval.shape
    return lax.select_n(which, broadcast_to(on_false, shape), broadcast_to(on_true, shape))


def _check_rank_promotion(name: str, shapes: Sequence[Sequence[Any]]) -> None:
    mode = option("numpy_rank_promotion")
    if mode == "allow" or len({len(s) for s in shapes}) == 1:
        return
    got = ", ".join([str(tuple(s)) for s in shapes])
    msg = f"{name}: shapes {got} differ in rank, and option numpy_rank_promotion is {mode!r}"
    if mode == "raise":
        raise BroadcastError(msg, hint="add axes with x[None] or reshape")
    got = " ".join([str(tuple(s)) for s in shapes])
    warn_user(
        f"Following NumPy automatic rank promotion for {name} on shapes {got}; option "
        f"numpy_rank_promotion is {mode!r}"
    )


def dtype_of_positions(call: str, size: Any, narrow: DType | None = None) -> DType:
    """The dtype of positions along an axis: the default integer, or ``narrow`` where it is enough.

    Raises:
        ShapeMismatchError: the axis has more elements than the default integer can count.
    """
    kind = default_int()
    if narrow is not None and (type(size) is not int or size - 1 <= iinfo(narrow).max):
        return narrow
    if type(size) is int and size - 1 > iinfo(kind).max:
        msg = f"{call}: positions along an axis with {size} elements do not fit {kind.name}"
        raise ShapeMismatchError(msg, hint="enable 64-bit types, or take parts first")
    return kind


def normalize_axis(axis: Any, ndim: int, name: str = "") -> int:
    """A non-negative axis.

    Raises:
        AxisError: ``axis`` is not in ``[-ndim, ndim)``.
    """
    index = axis if type(axis) is int else index_of(axis, name, "axis")
    if not -ndim <= index < ndim:
        raise AxisError(index, ndim, call=name)
    return index + ndim if index < 0 else index


def normalize_axes(axis: object, ndim: int, name: str = "") -> tuple[int, ...]:
    """Non-negative, sorted, distinct axes; ``None`` means all."""
    if axis is None:
        return tuple(range(ndim))
    given = members(axis)
    axes = [normalize_axis(a, ndim, name) for a in ((axis,) if given is None else given)]
    if len(set(axes)) != len(axes):
        msg = f"{name}: repeated axis in {axis}"
        raise ArgumentValueError(msg)
    return tuple(sorted(axes))


def hashable_axis(axis: object, name: str = "") -> Any:
    """An axis argument of function ``name`` as a static: None, int or tuple of ints."""
    if axis is None or type(axis) is int:
        return axis
    given = members(axis)
    if given is not None:
        return tuple([index_of(a, name, "an axis") for a in given])
    return index_of(axis, name, "axis")


def members(x: object) -> Sequence[Any] | None:
    """What a list, range, set, array of one axis, iterator, ... holds; None for a single thing."""
    if isinstance(x, tuple | list):
        return x
    if isinstance(x, str) or getattr(x, "ndim", None) == 0 or not isinstance(x, Iterable):
        return None
    # An element of a known array would be traced inside a trace, and is no index then.
    known = not isinstance(x, Tracer) and isinstance(x, Array)
    return tuple(np.asarray(x) if known else x)


def check_no_out(name: str, out: object) -> None:
    """Raise where ``out=`` is given: arrays are immutable."""
    if out is not None:
        msg = f"{name}: out= is not supported, arrays are immutable; use the result instead"
        raise UnsupportedArgumentError(msg)


def inexact_operands(name: str, operation: Callable[[Value, Value], Value]) -> Callable[..., Any]:
    """``operation`` on operands promoted to a float or complex dtype and to one shape."""

    def run(x: Value, y: Value) -> Any:
        return operation(*broadcast_operands(name, *promote_inexact(x, y)))

    return run


def promoted_operands(name: str, operation: Callable[[Value, Value], Value]) -> Callable[..., Any]:
    """``operation`` on operands promoted to one dtype and shape."""

    def run(x: Value, y: Value) -> Any:
        return operation(*broadcast_operands(name, *promote_dtypes(x, y)))

    return run


def numeric_operands(name: str, operation: Callable[[Value, Value], Value]) -> Callable[..., Any]:
    """``operation`` on operands promoted to one dtype other than bool, and to one shape."""

    def run(x: Value, y: Value) -> Any:
        return operation(*broadcast_operands(name, *promote_numeric(x, y)))

    return run
