"""Interpolation between pixels, as in ``scipy.ndimage``."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import tracebridge.numpy as tnp
from tracebridge.core.dtypes.dtypes import is_inexact
from tracebridge.core.errors.argument_errors import (
    ArgumentTypeError,
    UnsupportedArgumentError,
    index_of,
)
from tracebridge.core.errors.filtering import shield
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.remembered import remembered
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import members

__all__ = ["map_coordinates"]


def _mirrored(index: Array, size: int) -> Any:
    """Reflected about the centres of the outermost pixels."""
    last = size - 1
    return tnp.abs((index + last) % (2 * last) - last) if last else tnp.zeros_like(index)


def _reflected(index: Array, size: int) -> Any:
    """Reflected about the outer edges of the outermost pixels."""
    return tnp.floor_divide(_mirrored(2 * index + 1, 2 * size + 1), 2)


_INSIDE: dict[str, Callable[[Any, int], Any]] = {
    "constant": lambda index, size: tnp.clip(index, 0, size - 1),
    "nearest": lambda index, size: tnp.clip(index, 0, size - 1),
    "wrap": lambda index, size: index % size,
    "mirror": _mirrored,
    "reflect": _reflected,
}


def _away_from_zero(x: Array) -> Any:
    return tnp.where(x < 0, tnp.ceil(x - 0.5), tnp.floor(x + 0.5))


def _neighbours(x: Array, order: int) -> list[tuple[Any, Any]]:
    """Indices of the pixels on both sides of a coordinate, and their weights."""
    if order == 0:
        return [(_as_index(_away_from_zero(x)), 1)]
    if not is_inexact(x.dtype):
        return [(_as_index(x), 1)]
    below = tnp.floor(x)
    above = x - below
    index = _as_index(below)
    return [(index, 1 - above), (index + 1, above)]


def _as_index(x: Array) -> Any:
    return x.astype("int32") if is_inexact(x.dtype) else x


def _map_coordinates(image: Array, fill: Array, *coordinates_and_statics: Any) -> Any:
    *coordinates, order, mode = coordinates_and_statics
    image, fill = tnp.asarray(image), tnp.asarray(fill)
    coordinates = [tnp.asarray(c) for c in coordinates]
    inside = _INSIDE[mode]
    per_axis: list[list[tuple[Any, Any, Any]]] = []
    for x, size in zip(coordinates, image.shape, strict=True):
        neighbours: list[tuple[Any, Any, Any]] = []
        for index, weight in _neighbours(x, order):
            valid = (index >= 0) & (index < size) if mode == "constant" else None
            neighbours.append((inside(index, size), valid, weight))
        per_axis.append(neighbours)
    total: Any = 0
    for corner in itertools.product(*per_axis):
        value = image[tuple([index for index, _, _ in corner])]
        for _, valid, _ in corner:
            if valid is not None:
                value = tnp.where(valid, value, fill.astype(image.dtype))
        for _, _, weight in corner:
            value = weight * value
        total = total + value
    if not is_inexact(image.dtype) and is_inexact(total.dtype):
        total = _away_from_zero(total)
    return total.astype(image.dtype)


_staged = StagedFunction(_map_coordinates, "map_coordinates", judges=False)


@remembered
def map_coordinates(
    input: ArrayLike,
    coordinates: Sequence[ArrayLike],
    order: int,
    mode: str = "constant",
    cval: ArrayLike = 0.0,
) -> Array:
    """Values of an image between its pixels.

    Args:
        input: array of ``n`` axes.
        coordinates: ``n`` arrays of one shape (or an array with a first axis of ``n``): where to
            evaluate, in pixels.
        order: 0 for the nearest pixel, 1 for linear interpolation.
        mode: how the image continues: "constant" (``cval``), "nearest" (the outermost pixel),
            "wrap" (periodic; SciPy's "grid-wrap"), "mirror" (reflected about the outermost
            pixels) or "reflect" (about their outer edges).
        cval: value outside for "constant". As with SciPy's "grid-constant", values between the
            outermost pixels and those outside are interpolated.

    Returns:
        Array of the shape of the coordinates and the dtype of ``input``; integers are rounded.

    Raises:
        ShapeMismatchError: not one array of coordinates per axis, or an image without pixels in
            another mode than "constant".
        ArgumentTypeError: ``coordinates`` is no sequence, or ``order`` no integer.
        UnsupportedArgumentError: splines of an order above 1, or another mode.

    >>> import tracebridge as tb
    >>> x = tb.numpy.arange(12.0).reshape(3, 4)
    >>> tb.scipy.ndimage.map_coordinates(x, [[0.5, 1.5], [1.5, 2.5]], order=1).tolist()
    [3.5, 8.5]
    """
    image = tnp.asarray(input)
    coordinate_arrays = coordinates if hasattr(coordinates, "shape") else members(coordinates)
    if coordinate_arrays is None:
        msg = f"map_coordinates: coordinates is {coordinates!r}, expected a sequence of arrays"
        raise ArgumentTypeError(msg)
    where = [tnp.asarray(c) for c in coordinate_arrays]
    if len(where) != image.ndim:
        msg = f"map_coordinates: got {len(where)} coordinates for an image of {image.ndim} axes"
        raise ShapeMismatchError(msg, expected="one array of coordinates per axis")
    degree = index_of(order, "map_coordinates", "order")
    if degree not in (0, 1):
        msg = f"map_coordinates: order is {degree}, expected 0 or 1"
        raise UnsupportedArgumentError(msg, hint="splines of higher order are not there")
    if mode not in _INSIDE:
        msg = f"map_coordinates: mode is {mode!r}, expected one of {list(_INSIDE)}"
        raise UnsupportedArgumentError(msg)
    if image.size == 0:
        return _of_nothing(image, where, mode, cval)
    return _staged((image, cval, *where), (degree, mode))


def _of_nothing(image: Array, where: Sequence[Array], mode: str, cval: ArrayLike) -> Array:
    """Values of an image without pixels: all are outside."""
    shape = tnp.broadcast_shapes(*[c.shape for c in where])
    if mode != "constant" and 0 not in shape:
        msg = f"map_coordinates: an image of shape {image.shape} has no pixels to continue"
        raise ShapeMismatchError(msg, expected="mode='constant', or an image with pixels")
    return tnp.broadcast_to(tnp.asarray(cval).astype(image.dtype), shape)


shield(globals(), __name__)
