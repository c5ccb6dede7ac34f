"""Numbers spaced by formula: linspace, logspace, geomspace."""

from __future__ import annotations

__all__ = ["geomspace", "linspace", "logspace"]

from collections.abc import Sequence
from typing import Any, Literal, overload

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.canonicalize import canonicalize_explicit
from tracebridge.core.dtypes.dtypes import is_inexact, is_integer, real_of
from tracebridge.core.dtypes.finfo import finfo
from tracebridge.core.errors.argument_errors import ArgumentValueError, index_of
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.runtime.arrays.argument_types import DeviceLike, DType
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
from tracebridge.numpy.conversion import on_device
from tracebridge.numpy.creation import full


def _count(name: str, num: Dim) -> int:
    count = index_of(num, name, "num")
    if count < 0:
        msg = f"{name}: num={count} is negative"
        raise ArgumentValueError(msg)
    return count


def spread(start: Value, stop: Value, num: int, endpoint: bool, axis: int) -> list[Any]:
    """The numbers, spread along a new axis, and the step."""
    start, stop = broadcast_operands("linspace", *promote_inexact(start, stop))
    start, stop = (lax.convert_dtype(v, v.aval.dtype) for v in (start, stop))
    aval = start.aval if start.aval.ndim else stop.aval
    parts = num - 1 if endpoint else num
    # A single number has no step.
    count = full_of(stop.aval.update(shape=()), parts if parts > 0 else np.nan)
    step = lax.div(lax.sub(stop, start), count)
    axis = axis + aval.ndim + 1 if axis < 0 else axis
    shape = (*aval.shape[:axis], num, *aval.shape[axis:])
    kind = real_of(aval.dtype)
    steps = lax.iota_of(kind, shape, axis)
    weight = lax.div(steps, full_of(steps.aval.update(shape=()), max(parts, 1)))
    weight_of_start = lax.sub(full_of(steps.aval.update(shape=()), 1), weight)
    dims = tuple([i for i in range(len(shape)) if i != axis])
    first, last = (
        lax.broadcast_in_dim(v, shape, dims if v.aval.ndim else ()) for v in (start, stop)
    )
    weight, weight_of_start = (lax.convert_dtype(w, aval.dtype) for w in (weight, weight_of_start))
    values = lax.add(lax.mul(first, weight_of_start), lax.mul(last, weight))
    if endpoint and num > 1:
        # The last number is stop itself, also where start has no weight in it: 0 * inf.
        values = lax.select_n(lax.eq(steps, float(parts)), values, last)
    return [values, step]


_linspace_staged = StagedFunction(spread, "linspace")


@overload
def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    retstep: Literal[False] = False,
    dtype: DTypeLike | None = None,
    axis: int = 0,
    *,
    device: DeviceLike | None = None,
) -> Array: ...


@overload
def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    *,
    retstep: Literal[True],
    dtype: DTypeLike | None = None,
    axis: int = 0,
    device: DeviceLike | None = None,
) -> tuple[Array, Array]: ...


@overload
def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: DTypeLike | None = None,
    axis: int = 0,
    *,
    device: DeviceLike | None = None,
) -> Array | tuple[Array, Array]: ...
def linspace(
    start: ArrayLike | Sequence[ArrayLike],
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: DTypeLike | None = None,
    axis: int = 0,
    *,
    device: DeviceLike | None = None,
) -> Any:
    """``num`` evenly spaced numbers from ``start`` to ``stop``.

    Args:
        start: first number, or an array of them.
        stop: last number, left out unless ``endpoint``.
        num: how many.
        endpoint: whether ``stop`` is one of them.
        retstep: also give the step.
        dtype: dtype of the result; integers are rounded down.
        axis: where the new axis goes.
        device: where to put the array.

    Raises:
        ArgumentValueError: ``num`` is negative.

    >>> import tracebridge.numpy as tnp
    >>> tnp.linspace(0.0, 1.0, 5).tolist()
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    count = _count("linspace", num)
    values, step = _linspace_staged(
        (start, stop), (count, bool(endpoint), index_of(axis, "linspace", "axis"))
    )
    if dtype is not None:
        kind = canonicalize_explicit(dtype, "linspace")
        if is_integer(kind) and is_inexact(values.dtype):
            values = lax.floor(values)
        values = lax.convert_dtype(values, kind)
    values = on_device(values, device)
    if not retstep:
        return values
    return values, step if count > endpoint else full((), np.nan, step.dtype)


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
