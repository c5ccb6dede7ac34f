"""Positions of nonzero elements: nonzero, flatnonzero, argwhere."""

from __future__ import annotations

__all__ = ["argwhere", "flatnonzero", "nonzero"]

from collections.abc import Sequence
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.canonicalize import default_int
from tracebridge.core.errors.argument_errors import ArgumentValueError, size_of
from tracebridge.core.errors.shape_errors import RankError
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import full_of
from tracebridge.core.lax.reduce.positions import true_positions
from tracebridge.core.runtime.arrays.argument_types import DimLike
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.arrays.transfer import put_numpy
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import promote_dtypes
from tracebridge.numpy._staging import concrete, value_of
from tracebridge.numpy.elementwise_logic import truth

_INT32 = np.dtype(np.int32)


def _nonzero(*args: Any) -> list[Any]:
    x, *fills, size = args
    dtype = default_int()
    flat, total = true_positions(truth(x), size)
    missing = lax.ge(lax.iota(_INT32, size), total)
    coordinates: list[Any] = []
    for d in reversed(x.aval.shape):
        step = d if type(d) is not int else max(d, 1)
        coordinates.append(lax.rem(flat, full_of(flat.aval, step)))
        flat = lax.div(flat, full_of(flat.aval, step))
    out: list[Any] = []
    for c, fill in zip(reversed(coordinates), fills, strict=True):
        # As of where(missing, fill, c): a NaN stays one, and makes floats of the positions.
        found, value = promote_dtypes(lax.convert_dtype(c, dtype), fill)
        filler = lax.broadcast_in_dim(value, (size,), ()) if not value.aval.ndim else value
        out.append(lax.select_n(missing, found, filler))
    return out


_nonzero_staged = StagedFunction(_nonzero, "nonzero")


def _with_fills(*args: Value) -> list[Any]:
    half = len(args) // 2
    return [promote_dtypes(c, fill)[0] for c, fill in zip(args[:half], args[half:], strict=True)]


_with_fills_staged = StagedFunction(_with_fills, "nonzero")


def _fills_of(fill_value: Any, ndim: int) -> Sequence[Any]:
    """What to fill with along each axis."""
    if not isinstance(fill_value, tuple | list):
        return (fill_value,) * ndim
    if len(fill_value) != ndim:
        msg = f"nonzero: got {len(fill_value)} fill values for {ndim} axes"
        raise ArgumentValueError(msg)
    return fill_value


def nonzero(
    a: ArrayLike, *, size: DimLike | None = None, fill_value: ArrayLike | None = None
) -> tuple[Array, ...]:
    """Positions of the elements that are not zero: one array for each axis.

    Args:
        a: array with at least one axis.
        size: how many positions to give; needed while tracing, where the number is not known.
            Further ones are left out, missing ones are filled.
        fill_value: what to fill with (default 0): a number, or one for each axis. Positions get
            the dtype that they and it have in arithmetic.

    Raises:
        ConcretizationTypeError: ``a`` is traced and ``size`` is not given.
        RankError: the array has no axes.
        ArgumentValueError: ``size`` is negative, or ``fill_value`` has not one number for each
            axis.

    >>> import tracebridge.numpy as tnp
    >>> [p.tolist() for p in tnp.nonzero(tnp.array([[0, 5], [6, 0]]))]
    [[0, 1], [1, 0]]
    >>> tnp.nonzero(tnp.array([0, 5]), size=3, fill_value=-1)[0].tolist()
    [1, -1, -1]
    """
    value = value_of(a)
    if value.aval.ndim == 0:
        msg = "nonzero: got an array without axes, expected at least one axis"
        raise RankError(msg, hint="call nonzero(atleast_1d(x))")
    if size is None:
        host = concrete(
            value,
            "The number of nonzero elements is the size of the result",
            "pass size=, or use the form where(condition, x, y)",
        )
        places = [put_numpy(p.astype(default_int())) for p in host.nonzero()]
        if fill_value is None:
            return tuple(places)
        return tuple(_with_fills_staged((*places, *_fills_of(fill_value, value.aval.ndim))))
    fills = _fills_of(0 if fill_value is None else fill_value, value.aval.ndim)
    count = size_of(size, "nonzero", "size")
    if type(count) is int and count < 0:
        msg = f"nonzero: size must not be negative, got {count}"
        raise ArgumentValueError(msg)
    return tuple(_nonzero_staged((value, *fills), (count,)))


def flatnonzero(
    a: ArrayLike, *, size: DimLike | None = None, fill_value: ArrayLike | None = None
) -> Array:
    """Positions of nonzero elements of the flattened array; arguments as of ``nonzero``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.flatnonzero(tnp.array([[0, 5], [6, 0]])).tolist()
    [1, 2]
    """
    return nonzero(_flat_staged((a,)), size=size, fill_value=fill_value)[0]


_flat_staged = StagedFunction(lambda x: lax.reshape(x, (x.aval.size,)), "ravel")


def _rows(*xs: Value) -> Any:
    columns = [lax.reshape(x, (x.aval.size, 1)) for x in promote_dtypes(*xs)]
    return lax.concatenate(columns, 1) if len(columns) > 1 else columns[0]


_rows_staged = StagedFunction(_rows, "argwhere")


def argwhere(
    a: ArrayLike, *, size: DimLike | None = None, fill_value: ArrayLike | None = None
) -> Array:
    """Positions of nonzero elements, one in each row; arguments as of ``nonzero``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.argwhere(tnp.array([[0, 5], [6, 0]])).tolist()
    [[0, 1], [1, 0]]
    """
    value = value_of(a)
    if value.aval.ndim == 0:
        rows = flatnonzero(value, size=size, fill_value=fill_value).shape[0]
        return put_numpy(np.zeros((rows, 0), default_int()))
    return _rows_staged(nonzero(value, size=size, fill_value=fill_value))
