"""Methods of universal functions that no operation has: one element after another."""

from __future__ import annotations

__all__ = ["at", "fold", "fold_segments", "running", "update_in_turn", "vectorize"]

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.control.scan.forward import scan
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import full_of
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.numpy import searching
from tracebridge.numpy._in_turn import NOWHERE, apply_in_turn, positions_in
from tracebridge.numpy._promote import (
    broadcast_to,
    members,
    normalize_axes,
    normalize_axis,
)
from tracebridge.numpy._staging import value_of
from tracebridge.numpy.at_updates import at
from tracebridge.numpy.manipulation import moveaxis, reshape
from tracebridge.numpy.vectorization import vectorize

if TYPE_CHECKING:
    from tracebridge.numpy.ufuncs import ufunc

Function = Callable[..., Any]


def running(function: Function, x: Any, axis: int) -> Any:
    """The results so far of a function folded over an axis."""
    rows = moveaxis(x, axis, 0)
    if type(rows.shape[0]) is int and not rows.shape[0]:
        return x

    def step(total: Value, row: Value) -> tuple[Any, Any]:
        total = lax.convert_dtype(value_of(function(total, row)), total.aval.dtype)
        return total, total

    _, accumulated = scan(step, rows[0], rows[1:])
    return moveaxis(lax.concatenate([rows[:1], accumulated], 0), 0, axis)


def update_in_turn(function: Function, x: Any, indices: Any, b: ArrayLike | None) -> Any:
    """``x`` with the function applied at ``indices``, once for each repetition."""
    chosen = at(positions_in(x))[indices].get(mode="fill", fill_value=NOWHERE)
    return apply_in_turn(x, value_of(chosen), function, None if b is None else value_of(b))


def fold_segments(function: Function, x: Any, starts: Any, axis: int) -> Any:
    """The function folded over segments of an axis, see ``ufunc.reduceat``."""
    rows = moveaxis(x, axis, 0)
    size = rows.shape[0]
    ends = lax.concatenate([starts[1:], full_of(starts.aval.update(shape=(1,)), size)], 0)
    shape = (-1, *(1,) * (rows.ndim - 1))

    def step(totals: Value, row: Value) -> tuple[Any, None]:
        position, values = row
        inside = reshape((starts < position) & (position < ends), shape)
        combined = function(totals, broadcast_to(values, totals.aval.shape))
        kind = totals.aval.dtype, totals.aval.weak_type
        combined = lax.convert_dtype(value_of(combined), *kind)
        return searching.where(inside, combined, totals), None

    numbers = lax.convert_dtype(lax.iota(np.dtype(np.int32), size), starts.aval.dtype)
    return moveaxis(scan(step, rows[starts], (numbers, rows))[0], 0, axis)


def _axes_as_one(x: Any, axes: tuple[int, ...]) -> Any:
    """``x`` with some of its axes made one, the first."""
    rest = [i for i in range(x.aval.ndim) if i not in axes]
    size = math.prod([x.aval.shape[i] for i in axes])
    return reshape(lax.transpose(x, (*axes, *rest)), (size, *[x.aval.shape[i] for i in rest]))


def fold(
    function: ufunc, name: str, x: Any, axis: Any, keepdims: bool, initial: Any, mask: Any
) -> Any:
    """The fold of any binary function, one element after another."""
    ndim = x.aval.ndim
    axes = members(axis)
    if axes is not None and len(axes) > 1 and function.identity is None:
        msg = f"{name}: got axis={axis!r}, expected one axis or None: elements have an order"
        raise ArgumentValueError(msg)
    if mask is not None:
        mask = broadcast_to(value_of(mask), x.aval.shape)
    if axis is None:
        x, where = reshape(x, (-1,)), 0
        mask = None if mask is None else reshape(mask, (-1,))
        kept = (1,) * ndim
    elif axes is not None:
        chosen = normalize_axes(axes, ndim, name)
        kept = tuple([1 if i in chosen else d for i, d in enumerate(x.aval.shape)])
        x, where = _axes_as_one(x, chosen), 0
        mask = None if mask is None else _axes_as_one(mask, chosen)
    else:
        where = normalize_axis(axis, ndim, name)
        kept = (*x.aval.shape[:where], 1, *x.aval.shape[where + 1 :])
    rows = moveaxis(x, where, 0)
    start = function.identity if initial is None else initial
    size = rows.shape[0]
    if start is None and (mask is not None or (type(size) is int and not size)):
        what = "where=" if mask is not None else f"an axis of size {size}"
        msg = f"{name}: {function.__name__} has no identity, so {what} needs initial="
        raise ArgumentValueError(msg)
    if start is None:
        total, rows = rows[0], rows[1:]
    else:
        total = broadcast_to(lax.convert_dtype(value_of(start), x.aval.dtype), rows.shape[1:])
    masks = None if mask is None else moveaxis(mask, where, 0)

    def step(total: Any, row: Any) -> tuple[Any, None]:
        values, inside = row
        folded = lax.convert_dtype(value_of(function(total, values)), total.aval.dtype)
        return folded if inside is None else searching.where(inside, folded, total), None

    folded, _ = scan(step, total, (rows, masks))
    return reshape(folded, kept) if keepdims else folded
