"""What an index means for a shape: one entry per axis."""

from __future__ import annotations

from typing import Any, final

from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.shape_errors import IndexingError
from tracebridge.core.symbolic.compare import assume_at_least, is_negative
from tracebridge.core.symbolic.dims import max_dim, min_dim
from tracebridge.numpy._index_parts import ELLIPSIS, ArrayPart


@final
class Axis:
    """What happens to one axis of the operand: ``kind`` is "int", "slice", "array" or "full".

    ``span``: for slices of a symbolic axis, the lowest position and how many it steps over.
    """

    __slots__ = ("axis", "kind", "part", "span")

    def __init__(self, axis: int, kind: str, part: Any, span: Any = None) -> None:
        self.axis = axis
        self.kind = kind
        self.part = part
        self.span = span


@final
class Geometry:
    """An index resolved for a shape: one ``Axis`` per operand axis, new axes by position.

    ``entries``: Axis objects and None (new axes) in the order of the index.
    """

    __slots__ = ("entries", "has_arrays")

    def __init__(self, entries: list[Axis | None]) -> None:
        self.entries = entries
        self.has_arrays = any([e is not None and e.kind == "array" for e in entries])


def resolve(static: tuple[Any, ...], shape: tuple[Any, ...], text: str = "x") -> Geometry:
    """Match a static index with the axes of ``shape``.

    Raises:
        IndexingError: too many indices, or more than one Ellipsis.
    """
    used = len([e for e in static if e is not None and e != ELLIPSIS])
    if used > len(shape):
        msg = f"too many indices: {text} has {len(shape)} axes, the index has {used}"
        raise IndexingError(msg)
    if len([e for e in static if e == ELLIPSIS]) > 1:
        msg = "an index has at most one Ellipsis (...)"
        raise IndexingError(msg)
    if ELLIPSIS not in static:
        static = (*static, ELLIPSIS)
    entries: list[Axis | None] = []
    axis = 0
    for e in static:
        if e is None:
            entries.append(None)
        elif isinstance(e, ArrayPart):
            entries.append(Axis(axis, "array", e.position))
            axis += 1
        elif e == ELLIPSIS:
            for _ in range(len(shape) - used):
                entries.append(Axis(axis, "full", None))
                axis += 1
        elif isinstance(e, tuple):
            entries.append(_slice_axis(axis, e, shape[axis]))
            axis += 1
        else:
            entries.append(Axis(axis, "int", _wrap_int(e, shape[axis])))
            axis += 1
    return Geometry(entries)


def _wrap_int(i: int, size: Any) -> Any:
    """A position inside the axis: negative ones count from the end, others are clamped."""
    if type(size) is not int:
        return i if i >= 0 else size + i
    if size == 0:
        msg = f"index {i} into an axis of size 0"
        raise IndexingError(msg)
    position = i + size if i < 0 else i
    return min(max(position, 0), size - 1)


def _slice_axis(axis: int, part: tuple[Any, ...], size: Any) -> Axis:
    _, start, stop, step = part
    if step is not None and step == 0:
        msg = "slice step cannot be zero"
        raise ArgumentValueError(msg)
    if type(size) is int and not any([getattr(b, "is_symbolic_dim", False) for b in (start, stop)]):
        first, last, stride = slice(start, stop, step).indices(size)
        count = len(range(first, last, stride))
        if count == size and stride == 1:
            return Axis(axis, "full", None)
        return Axis(axis, "slice", (first, count, stride))
    return _symbolic_slice(axis, start, stop, 1 if step is None else step, size)


def _symbolic_slice(axis: int, start: Any, stop: Any, step: int, size: Any) -> Axis:
    if start is None and stop is None and step in (1, -1):
        return Axis(axis, "full", None) if step == 1 else Axis(axis, "slice", (size - 1, size, -1))
    if step > 0:
        first = 0 if start is None else _inside(start, size, 0)
        last = size if stop is None else _inside(stop, size, 0)
        low, length = first, _distance(start, first, last, size)
    else:
        first = size - 1 if start is None else _inside(start, size, -1)
        last = -1 if stop is None else _inside(stop, size, -1)
        length = max_dim(0, first - last)
        low = first - length + 1
    count = length if abs(step) == 1 else (length + (abs(step) - 1)) // abs(step)
    return Axis(axis, "slice", (first, count, step), (low, length))


def _inside(bound: Any, size: Any, low: int) -> Any:
    """A bound of a slice as a position in ``[low, size + low]``."""
    if is_negative(bound) or (type(bound) is int and bound < 0):
        return max_dim(low, size + bound)
    if type(bound) is not int:
        # Where nobody knows the sign, programs count from the start, and are for such sizes only.
        assume_at_least(bound, 0)
    found = min_dim(bound, size + low)
    return found if type(bound) is int else max_dim(low, found)


def _distance(start: Any, first: Any, last: Any, size: Any) -> Any:
    """How many positions lie between two bounds, in the simplest form."""
    if type(start) is int and start < 0 and last is size:
        return min_dim(-start, size)
    # A start behind the end makes the difference negative, so it need not be moved inside.
    return max_dim(0, last - (start if type(start) is int and start >= 0 else first))


def extent(e: Axis, shape: tuple[Any, ...]) -> tuple[Any, Any, int]:
    if e.kind == "int":
        return e.part, 1, 1
    return (0, shape[e.axis], 1) if e.kind == "full" else e.part


def extents_of(geometry: Geometry, shape: tuple[Any, ...]) -> list[tuple[Any, Any, int]]:
    return [extent(e, shape) for e in geometry.entries if e is not None]


def is_empty_shape(shape: tuple[Any, ...]) -> bool:
    """Whether an array of this shape certainly has no elements."""
    return any([type(d) is int and d == 0 for d in shape])


def static_shape(geometry: Geometry, shape: tuple[Any, ...]) -> tuple[Any, ...]:
    sizes: list[Any] = []
    for e in geometry.entries:
        if e is None:
            sizes.append(1)
        elif e.kind != "int":
            sizes.append(extent(e, shape)[1])
    return tuple(sizes)
