"""Numbers spaced by formula: logspace, geomspace."""

from __future__ import annotations

__all__ = ["geomspace", "logspace"]

from typing import Any

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import is_inexact
from tracebridge.core.dtypes.finfo import finfo
from tracebridge.core.errors.argument_errors import ArgumentValueError, index_of
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import zeros_of
from tracebridge.core.runtime.arrays.argument_types import DType
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike, DTypeLike
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.core.symbolic.dims import Dim
from tracebridge.numpy._promote import (
    broadcast_operands,
    broadcast_shape,
    broadcast_to,
    promote_inexact,
)
from tracebridge.numpy._staging import static_dtype
from tracebridge.numpy.creation import spread


def _in_dtype(x: Value, dtype: DType | None) -> Any:
    if dtype is None:
        return x
    if is_inexact(dtype):
        return lax.convert_dtype(x, dtype)
    # Integers are rounded down, as those of linspace, but for what a power misses of whole numbers.
    whole = lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)
    slack = lax.mul(lax.abs(whole), 16 * float(finfo(x.aval.dtype).eps))
    near = lax.le(lax.abs(lax.sub(x, whole)), slack)
    return lax.convert_dtype(lax.select_n(near, lax.floor(x), whole), dtype)


def _count(name: str, num: Dim) -> int:
    count = index_of(num, name, "num")
    if count < 0:
        msg = f"{name}: num={count} is negative"
        raise ArgumentValueError(msg)
    return count


def _logspace(
    start: Value, stop: Value, base: Value, num: int, endpoint: bool, axis: int, dtype: DType
) -> Any:
    if base.aval.weak_type:
        # The default base is no operand that the user mixes with integers.
        start, stop = promote_inexact(start, stop)
    start, stop, base = promote_inexact(start, stop, base)
    exponents, _ = spread(start, stop, num, endpoint, axis)
    if base.aval.ndim:
        shape = broadcast_shape("logspace", [base.aval.shape, exponents.aval.shape])
        base, exponents = broadcast_to(base, shape), broadcast_to(exponents, shape)
    return _in_dtype(lax.pow(base, exponents), dtype)


_logspace_staged = StagedFunction(_logspace, "logspace")


def logspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    base: ArrayLike = 10.0,
    dtype: DTypeLike | None = None,
    axis: int = 0,
) -> Array:
    """``base`` to the power of ``num`` evenly spaced numbers from ``start`` to ``stop``.

    Args:
        start: first exponent, or an array of them.
        stop: last exponent, left out unless ``endpoint``.
        num: how many.
        endpoint: whether ``stop`` is one of the exponents.
        base: what is raised to the powers.
        dtype: dtype of the result; integers are rounded down.
        axis: where the new axis goes.

    >>> import tracebridge.numpy as tnp
    >>> tnp.logspace(0.0, 2.0, 3).tolist()
    [1.0, 10.0, 100.0]
    """
    statics = (
        _count("logspace", num),
        bool(endpoint),
        index_of(axis, "logspace", "axis"),
        static_dtype("logspace", dtype),
    )
    return _logspace_staged((start, stop, base), statics)


def _geomspace(start: Value, stop: Value, num: int, endpoint: bool, axis: int, dtype: DType) -> Any:
    start, stop = broadcast_operands("geomspace", *promote_inexact(start, stop))
    ratio = lax.log(lax.div(stop, start))
    exponents, _ = spread(zeros_of(ratio.aval), ratio, num, endpoint, axis)
    axis = axis + exponents.aval.ndim if axis < 0 else axis
    dims = tuple([i for i in range(exponents.aval.ndim) if i != axis])
    first, last = (
        lax.broadcast_in_dim(v, exponents.aval.shape, dims if v.aval.ndim else ())
        for v in (start, stop)
    )
    values = lax.mul(first, lax.exp(exponents))
    # Exactly the ends, without the error of the exponential, also where no ratio leads from one
    # to the other.
    ends = [(0, first), (num - 1, last)] if endpoint and num > 1 else [(0, first)]
    steps = lax.broadcasted_iota("int32", values.aval.shape, axis)
    for step, end in ends:
        values = lax.select_n(lax.eq(steps, step), values, end)
    return _in_dtype(lax.convert_dtype(values, values.aval.dtype), dtype)


_geomspace_staged = StagedFunction(_geomspace, "geomspace")


def geomspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    dtype: DTypeLike | None = None,
    axis: int = 0,
) -> Array:
    """``num`` numbers from ``start`` to ``stop``, each the same multiple of the one before.

    Args:
        start: first number, or an array of them; not zero.
        stop: last number, of the same sign, left out unless ``endpoint``.
        num: how many.
        endpoint: whether ``stop`` is one of them.
        dtype: dtype of the result; integers are rounded down.
        axis: where the new axis goes.

    >>> import tracebridge.numpy as tnp
    >>> tnp.geomspace(1.0, 100.0, 3).tolist()
    [1.0, 10.0, 100.0]
    """
    statics = (
        _count("geomspace", num),
        bool(endpoint),
        index_of(axis, "geomspace", "axis"),
        static_dtype("geomspace", dtype),
    )
    return _geomspace_staged((start, stop), statics)
