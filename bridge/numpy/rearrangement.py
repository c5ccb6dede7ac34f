"""Elements in another order: flipping, rolling, tiling, rotating."""

from __future__ import annotations

__all__ = ["flip", "fliplr", "flipud", "roll", "rot90", "tile"]

import itertools
from collections.abc import Sequence
from typing import Any, SupportsIndex

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.errors.argument_errors import ArgumentValueError, index_of
from tracebridge.core.ir.value import Value
from tracebridge.core.runtime.arrays.argument_types import Axis
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.remembered import remembered
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import hashable_axis, normalize_axes, normalize_axis
from tracebridge.numpy.manipulation import shape_argument


def _flip(x: Value, axis: Axis) -> Any:
    return lax.rev(x, normalize_axes(axis, x.aval.ndim, "flip"))


_flip_staged = StagedFunction(_flip, "flip")


@remembered
def flip(m: ArrayLike, axis: Axis = None) -> Array:
    """``m`` with the order of elements reversed along axes.

    >>> import tracebridge.numpy as tnp
    >>> tnp.flip(tnp.array([1, 2, 3])).tolist()
    [3, 2, 1]
    """
    return _flip_staged((m,), (hashable_axis(axis, "flip"),))


def fliplr(m: ArrayLike) -> Array:
    """``m`` reversed along axis 1.

    >>> import tracebridge.numpy as tnp
    >>> tnp.fliplr(tnp.array([[1, 2]])).tolist()
    [[2, 1]]
    """
    return flip(m, 1)


def flipud(m: ArrayLike) -> Array:
    """``m`` reversed along axis 0.

    >>> import tracebridge.numpy as tnp
    >>> tnp.flipud(tnp.array([[1], [2]])).tolist()
    [[2], [1]]
    """
    return flip(m, 0)


def _roll(x: Any, shift: ArrayLike | Sequence[SupportsIndex], axis: Any) -> Any:
    if axis is None:
        flat = lax.reshape(x, (x.aval.size,))
        return lax.reshape(_roll(flat, shift, 0), x.aval.shape)
    axes = axis if isinstance(axis, tuple) else (axis,)
    shifts: tuple[Any, ...] = shift if isinstance(shift, tuple) else (shift,)
    for a, s in _paired(axes, shifts):
        x = lax.roll(x, s, normalize_axis(a, x.aval.ndim, "roll"))
    return x


def _paired(axes: tuple[Any, ...], shifts: tuple[Any, ...]) -> list[tuple[Any, Any]]:
    """Axes with their shifts: one of either kind goes with all of the other."""
    if len(axes) == 1 or len(shifts) == 1:
        return list(itertools.product(axes, shifts))
    return list(zip(axes, shifts, strict=True))


_roll_staged = StagedFunction(_roll, "roll")


@remembered
def roll(a: ArrayLike, shift: ArrayLike | Sequence[SupportsIndex], axis: Axis = None) -> Array:
    """Elements moved along axes; those that leave at the end come back at the start.

    ``shift`` is an int or a tuple of ints, or an array of integers, which may be traced: one for
    all axes, or one for each; several shifts of one axis add up.

    >>> import tracebridge.numpy as tnp
    >>> tnp.roll(tnp.arange(4), 1).tolist()
    [3, 0, 1, 2]
    """
    if isinstance(shift, int | np.integer | tuple | list):
        return _roll_staged((a,), (hashable_axis(shift, "roll"), hashable_axis(axis, "roll")))
    return _roll_dynamic_staged((a, shift), (hashable_axis(axis, "roll"),))


def _roll_dynamic(x: Value, shift: Any, axis: int | None) -> Any:
    if axis is None:
        flat = lax.reshape(x, (x.aval.size,))
        return lax.reshape(_roll_dynamic(flat, shift, 0), x.aval.shape)
    axes = axis if isinstance(axis, tuple) else (axis,)
    if shift.aval.ndim > 1:
        msg = (
            f"roll: shift is an array of shape {shift.aval.shape}, expected an integer or an array "
            "of one axis, with one integer per rolled axis\n    way out: flatten it"
        )
        raise ArgumentValueError(msg)
    shifts = (shift,)
    if shift.aval.ndim:
        count = shift.aval.shape[0]
        shifts = tuple([lax.index_in_dim(shift, i, 0, keepdims=False) for i in range(count)])
    for a, s in _paired(axes, shifts):
        i = normalize_axis(a, x.aval.ndim, "roll")
        size = x.aval.shape[i]
        s = lax.convert_dtype(s, np.dtype(np.int32))  # noqa: PLW2901 (the same shift)
        start = lax.rem(lax.add(lax.rem(lax.neg(s), size), size), size)
        x = lax.dynamic_slice_in_dim(lax.concatenate([x, x], i), start, size, i)
    return x


_roll_dynamic_staged = StagedFunction(_roll_dynamic, "roll")


def _tile(x: Value, reps: tuple[int, ...]) -> Any:
    n = max(x.aval.ndim, len(reps))
    shape = (*(1,) * (n - x.aval.ndim), *x.aval.shape)
    counts = (*(1,) * (n - len(reps)), *reps)
    spread = tuple([v for r, d in zip(counts, shape, strict=True) for v in (r, d)])
    dims = tuple(range(1, 2 * n, 2))
    repeated = lax.broadcast_in_dim(lax.reshape(x, shape), spread, dims)
    return lax.reshape(repeated, tuple([r * d for r, d in zip(counts, shape, strict=True)]))


_tile_staged = StagedFunction(_tile, "tile")


@remembered
def tile(A: ArrayLike, reps: ArrayLike | Sequence[SupportsIndex]) -> Array:
    """``A`` repeated ``reps`` times along each axis.

    >>> import tracebridge.numpy as tnp
    >>> tnp.tile(tnp.array([1, 2]), 2).tolist()
    [1, 2, 1, 2]
    """
    return _tile_staged((A,), (shape_argument("tile", reps),))


def _rot90(x: Value, k: int, axes: tuple[int, int]) -> Any:
    n = x.aval.ndim
    if len(axes) != 2:
        msg = f"rot90: axes={axes}, expected a pair"
        raise ArgumentValueError(msg)
    i, j = normalize_axis(axes[0], n, "rot90"), normalize_axis(axes[1], n, "rot90")
    if i == j:
        msg = f"rot90: axes must differ, got {axes}"
        raise ArgumentValueError(msg)
    if k == 0:
        return x
    if k == 2:
        return lax.rev(x, (i, j))
    order = list(range(n))
    order[i], order[j] = order[j], order[i]
    if k == 1:
        return lax.transpose(lax.rev(x, (j,)), tuple(order))
    return lax.rev(lax.transpose(x, tuple(order)), (j,))


_rot90_staged = StagedFunction(_rot90, "rot90")


@remembered
def rot90(m: ArrayLike, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Array:
    """``m`` turned by ``k`` quarter turns, from the first axis towards the second.

    >>> import tracebridge.numpy as tnp
    >>> tnp.rot90(tnp.array([[1, 2], [3, 4]])).tolist()
    [[2, 4], [1, 3]]
    """
    return _rot90_staged((m,), (index_of(k, "rot90", "k") % 4, hashable_axis(tuple(axes), "rot90")))
