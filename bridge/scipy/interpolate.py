"""Interpolation on grids, as in ``scipy.interpolate``."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import tracebridge.numpy as tnp
from tracebridge.core.dtypes.dtypes import is_inexact
from tracebridge.core.errors.argument_errors import ArgumentValueError, UnsupportedArgumentError
from tracebridge.core.errors.filtering import shield
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.errors.shown import shown
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.numpy._staging import known_not_to_ascend

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value

__all__ = ["RegularGridInterpolator"]

_METHODS = ("linear", "nearest")


@final
class RegularGridInterpolator:
    """Interpolation between values on a rectangular grid, whose spacing may vary.

    Args:
        points: coordinates along each of ``n`` axes, of lengths ``m_0 ... m_(n-1)``; ascending,
            or, where they are not traced, descending.
        values: array of shape ``(m_0, ..., m_(n-1), ...)``; further axes are interpolated alike.
        method: "linear" or "nearest".
        bounds_error: False; a traced program raises no errors about values.
        fill_value: what points outside the grid give; None continues the outermost cells.

    Raises:
        ArgumentValueError: no such method, or coordinates that do neither ascend nor descend.
        UnsupportedArgumentError: ``bounds_error=True``.
        RankError: more axes of points than of values, or coordinates that are no vector.
        ShapeMismatchError: points and values differ in length.

    >>> import tracebridge as tb
    >>> f = tb.scipy.interpolate.RegularGridInterpolator(
    ...     (tb.numpy.array([0.0, 1.0, 3.0]),), tb.numpy.array([0.0, 10.0, 50.0]))
    >>> f(tb.numpy.array([0.5, 2.0])).tolist()
    [5.0, 30.0]
    """

    def __init__(
        self,
        points: Sequence[ArrayLike],
        values: ArrayLike,
        method: str = "linear",
        bounds_error: bool = False,
        fill_value: ArrayLike | None = math.nan,
    ) -> None:
        call = "RegularGridInterpolator"
        if method not in _METHODS:
            msg = f"{call}: method is {method!r}, expected one of {list(_METHODS)}"
            raise ArgumentValueError(msg)
        if bounds_error:
            msg = f"{call}: bounds_error=True, but a traced program raises no errors about values"
            raise UnsupportedArgumentError(msg, hint="choose a fill_value")
        self.method = method
        self.bounds_error = bounds_error
        self.fill_value = fill_value
        grid_values: Any = tnp.asarray(values)
        if not is_inexact(grid_values.dtype):
            grid_values = grid_values.astype(float)
        if fill_value is not None and not tnp.can_cast(
            tnp.result_type(fill_value), grid_values.dtype, casting="same_kind"
        ):
            msg = f"{call}: fill_value is {shown(fill_value)}, but values are {grid_values.dtype}"
            raise ArgumentValueError(msg, expected="None, or a number that values can hold")
        self.values = grid_values
        self.grid = tuple([tnp.asarray(p) for p in points])
        if len(self.grid) > grid_values.ndim:
            msg = f"{call}: {len(self.grid)} axes of points for values of {grid_values.ndim} axes"
            raise RankError(msg)
        for i, (p, size) in enumerate(zip(self.grid, grid_values.shape, strict=False)):
            if p.ndim != 1:
                msg = f"{call}: points[{i}] has {p.ndim} axes, expected one"
                raise RankError(msg)
            if p.shape[0] != size:
                msg = f"{call}: points[{i}] has length {p.shape[0]}, axis {i} of values {size}"
                raise ShapeMismatchError(msg)
            if known_not_to_ascend(p):
                if known_not_to_ascend(p[::-1]):
                    msg = f"{call}: points[{i}] neither ascend nor descend"
                    raise ArgumentValueError(msg)
                self._turn(i)

    def _turn(self, axis: int) -> None:
        """Make the points of an axis, which descend, ascend."""
        self.values = tnp.flip(self.values, axis)
        self.grid = (*self.grid[:axis], self.grid[axis][::-1], *self.grid[axis + 1 :])

    def __call__(self, xi: Any, method: str | None = None) -> Array:
        """Interpolated values.

        Args:
            xi: coordinates of shape ``(..., n)``, or ``n`` arrays that broadcast together.
            method: as in the constructor (default: that one).

        Returns:
            Array of shape ``(..., *further axes of values)``.

        Raises:
            ArgumentValueError: no such method.
            ShapeMismatchError: not ``n`` coordinates.
        """
        call = "RegularGridInterpolator"
        method = self.method if method is None else method
        if method not in _METHODS:
            msg = f"{call}: method is {method!r}, expected one of {list(_METHODS)}"
            raise ArgumentValueError(msg)
        n = len(self.grid)
        where = _coordinates(xi, n)
        if where.shape[-1] != n:
            msg = f"{call}: got points of {where.shape[-1]} coordinates, expected {n}"
            raise ShapeMismatchError(msg)
        flat = where.reshape(-1, n)
        cells: list[tuple[Any, Any]] = []
        outside = tnp.zeros(flat.shape[0], bool)
        isnan = tnp.zeros(flat.shape[0], bool)
        for i, grid in enumerate(self.grid):
            x = flat[:, i]
            isnan |= tnp.isnan(x)
            outside |= (x < grid[0]) | (x > grid[-1])
            cells.append(_cell(grid, x))
        result: Any = self._linear(cells) if method == "linear" else self._nearest(cells)
        extra = (slice(None), *[None] * (result.ndim - 1))
        if self.fill_value is not None:
            result = tnp.where(outside[extra], self.fill_value, result)
        result = tnp.where(isnan[extra], math.nan, result)
        return result.reshape(where.shape[:-1] + self.values.shape[n:])

    def _linear(self, cells: list[tuple[Any, Any]]) -> Any:
        total: Any = 0
        trailing = self.values.ndim - len(cells)
        for corner in itertools.product((0, 1), repeat=len(cells)):
            weight: Any = 1.0
            index: list[Any] = []
            for side, (i, t) in zip(corner, cells, strict=True):
                index.append(tnp.minimum(i + side, self.grid[len(index)].shape[0] - 1))
                weight = weight * (t if side else 1 - t)
            total = total + self.values[tuple(index)] * weight[(..., *[None] * trailing)]
        return total

    def _nearest(self, cells: list[tuple[Any, Any]]) -> Any:
        index = [
            tnp.minimum(tnp.where(t <= 0.5, i, i + 1), grid.shape[0] - 1)
            for (i, t), grid in zip(cells, self.grid, strict=True)
        ]
        return self.values[tuple(index)]


def _coordinates(xi: Any, n: int) -> Any:
    """Points as an array of shape ``(..., n)``."""
    if isinstance(xi, tuple):
        parts = tnp.broadcast_arrays(*[tnp.asarray(p) for p in xi])
        found: Any = tnp.stack(parts, axis=-1)
    else:
        found = tnp.asarray(xi)
        if found.ndim < 2:
            found = found.reshape(-1, n)
    return found if is_inexact(found.dtype) else found.astype(float)


def _cell(grid: Any, x: Value) -> tuple[Any, Any]:
    """The number of the grid cell of ``x``, and where in it ``x`` is, from 0 to 1."""
    last = max(grid.shape[0] - 2, 0)
    i = tnp.clip(tnp.searchsorted(grid, x, side="right") - 1, 0, last)
    width = grid[tnp.minimum(i + 1, grid.shape[0] - 1)] - grid[i]
    is_empty = width == 0
    return i, tnp.where(is_empty, 0, (x - grid[i]) / tnp.where(is_empty, 1, width))


shield(globals(), __name__)
