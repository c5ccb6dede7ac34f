"""Closeness of numbers, and equality of whole arrays."""

from __future__ import annotations

__all__ = ["allclose", "array_equal", "array_equiv", "isclose"]

from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import is_extended, real_of
from tracebridge.core.errors.shape_errors import BroadcastError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.trace import is_eager
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import full_of
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.remembered import remembered
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import (
    as_strong,
    broadcast_operands,
    broadcast_shape,
    broadcast_to,
    promote_dtypes,
    promote_inexact,
)
from tracebridge.numpy._staging import value_of
from tracebridge.numpy.conversion import asarray
from tracebridge.numpy.elementwise_logic import is_finite


def _isclose(a: Value, b: Value, rtol: Any, atol: Any, equal_nan: bool) -> Any:
    rtol, atol = value_of(rtol), value_of(atol)
    if is_extended(a.aval.dtype) or is_extended(b.aval.dtype):
        return lax.eq(*broadcast_operands("isclose", *promote_dtypes(a, b)))
    a, b = broadcast_operands("isclose", *promote_inexact(a, b))
    dtype = real_of(a.aval.dtype)
    rtol, atol = (lax.convert_dtype(t, dtype) for t in (rtol, atol))
    size = lax.abs(b)
    rtol, atol, size = broadcast_operands("isclose", rtol, atol, size)
    limit = lax.add(atol, lax.mul(rtol, size))
    distance, limit = broadcast_operands("isclose", lax.abs(lax.sub(a, b)), limit)
    # Where one is infinite the distance says nothing: then they must be equal.
    close = lax.bitwise_and(lax.le(distance, limit), is_finite(b))
    close = lax.bitwise_or(close, lax.eq(a, b))
    if equal_nan:
        close = lax.bitwise_or(close, lax.bitwise_and(lax.ne(a, a), lax.ne(b, b)))
    return close


_isclose_staged = StagedFunction(_isclose, "isclose")


def _are_constants(rtol: Any, atol: Any) -> bool:
    """Whether the tolerances belong to the program: other ones are given to one for all of them.

    As constants they save 2 us of a call, and cost a compilation. A trace compiles in any case.
    """
    if not (type(rtol) is type(atol) is float):
        return False
    return (rtol, atol) == (1e-05, 1e-08) or not is_eager()


@remembered
def isclose(
    a: ArrayLike,
    b: ArrayLike,
    rtol: ArrayLike = 1e-05,
    atol: ArrayLike = 1e-08,
    equal_nan: bool = False,
) -> Array:
    """Whether ``abs(a - b) <= atol + rtol * abs(b)``, elementwise; equal infinities are close.

    Args:
        a: array.
        b: array that ``a`` is compared with.
        rtol: relative tolerance.
        atol: absolute tolerance.
        equal_nan: whether NaN is close to NaN.

    >>> import tracebridge.numpy as tnp
    >>> tnp.isclose(tnp.array([1.0, 2.0]), tnp.array([1.000001, 2.1])).tolist()
    [True, False]
    """
    if _are_constants(rtol, atol):
        return _isclose_staged((a, b), (rtol, atol, bool(equal_nan)))
    return _isclose_staged((a, b, rtol, atol), (bool(equal_nan),))


def _allclose(a: Value, b: Value, rtol: Any, atol: Any, equal_nan: bool) -> Any:
    close = _isclose(a, b, rtol, atol, equal_nan)
    return lax.reduce_and(close, tuple(range(close.aval.ndim)))


_allclose_staged = StagedFunction(_allclose, "allclose")


@remembered
def allclose(
    a: ArrayLike,
    b: ArrayLike,
    rtol: ArrayLike = 1e-05,
    atol: ArrayLike = 1e-08,
    equal_nan: bool = False,
) -> Array:
    """Whether all elements are close; arguments as of ``isclose``.

    >>> import tracebridge.numpy as tnp
    >>> bool(tnp.allclose(tnp.array([1.0, 2.0]), tnp.array([1.000001, 2.0])))
    True
    """
    if _are_constants(rtol, atol):
        return _allclose_staged((a, b), (rtol, atol, bool(equal_nan)))
    return _allclose_staged((a, b, rtol, atol), (bool(equal_nan),))


def _array_equal(a: Value, b: Value, equal_nan: bool, broadcast: bool) -> Any:
    if a.aval.shape != b.aval.shape:
        if not broadcast:
            return _falsehood()
        try:
            shape = broadcast_shape("array_equiv", [a.aval.shape, b.aval.shape])
        except BroadcastError:
            return _falsehood()
        # Whether they can be broadcast is the question.
        a, b = broadcast_to(a, shape), broadcast_to(b, shape)
    a, b = promote_dtypes(a, b)
    same = as_strong(lax.eq(a, b))
    if equal_nan:
        same = lax.bitwise_or(same, lax.bitwise_and(lax.ne(a, a), lax.ne(b, b)))
    return lax.reduce_and(same, tuple(range(same.aval.ndim)))


def _falsehood() -> Any:
    return full_of(ShapedArray((), np.dtype(np.bool_)), False)


_array_equal_staged = StagedFunction(_array_equal, "array_equal")


def _comparable(*xs: ArrayLike) -> list[Any]:
    # NumPy's functions of this kind are used on lists in tests; so are these.
    return [asarray(x) if isinstance(x, list | tuple) else x for x in xs]


@remembered
def array_equal(a1: ArrayLike, a2: ArrayLike, equal_nan: bool = False) -> Array:
    """Whether two arrays have the same shape and equal elements.

    >>> import tracebridge.numpy as tnp
    >>> bool(tnp.array_equal(tnp.array([1, 2]), tnp.array([1.0, 2.0])))
    True
    """
    return _array_equal_staged(_comparable(a1, a2), (bool(equal_nan), False))


def array_equiv(a1: ArrayLike, a2: ArrayLike) -> Array:
    """Whether two arrays broadcast together and have equal elements then.

    >>> import tracebridge.numpy as tnp
    >>> bool(tnp.array_equiv(tnp.array([1, 1]), 1))
    True
    """
    return _array_equal_staged(_comparable(a1, a2), (False, True))
