"""Arrays that are put together of parts of others, and stand nowhere in memory as a whole.

What is rolled, padded or joined is read where its parts are: loops go box by box.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from tracebridge.core.kernels.steps.views import View, without_ones


class Number(NamedTuple):
    """An array full of one number that stands in the program."""

    value: Any
    shape: tuple[int, ...]
    dtype: Any

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class Box(NamedTuple):
    """A part of an array: where it begins, and its elements."""

    starts: tuple[int, ...]
    source: View | Number

    @property
    def limits(self) -> tuple[int, ...]:
        """Where it ends."""
        return tuple([a + n for a, n in zip(self.starts, self.source.shape, strict=True)])


class Boxes(NamedTuple):
    """An array of parts that cover it, none of them empty."""

    shape: tuple[int, ...]
    dtype: Any
    parts: tuple[Box, ...]

    @property
    def bases(self) -> set[str]:
        """The arrays in memory that it reads."""
        return {view.base for view in self.views()}

    def views(self) -> Iterator[View]:
        """The parts that are in memory."""
        yield from [part.source for part in self.parts if isinstance(part.source, View)]

    def borders(self, axis: int) -> set[int]:
        """Where parts begin and end along an axis."""
        return {at for part in self.parts for at in (part.starts[axis], part.limits[axis])}

    def squeezed(self) -> Boxes:
        """The array without its axes of size 1."""
        if 1 not in self.shape:
            return self
        kept = [i for i, n in enumerate(self.shape) if n != 1]
        parts = [
            Box(tuple([part.starts[i] for i in kept]), _with_axes(part.source, kept))
            for part in self.parts
        ]
        return Boxes(without_ones(self.shape), self.dtype, tuple(parts))


Source = View | Number | Boxes
"""An array whose elements are there."""


def part_of(value: Source, starts: Sequence[int], limits: Sequence[int]) -> Source:
    """A slice."""
    if isinstance(value, View):
        return value.part(starts, limits, [1] * len(starts))
    shape = tuple([b - a for a, b in zip(starts, limits, strict=True)])
    if isinstance(value, Number):
        return value._replace(shape=shape)
    found: list[Box] = []
    for part in value.parts:
        low = [max(a, b) for a, b in zip(part.starts, starts, strict=True)]
        high = [min(a, b) for a, b in zip(part.limits, limits, strict=True)]
        if all([a < b for a, b in zip(low, high, strict=True)]):
            own = [a - b for a, b in zip(low, part.starts, strict=True)]
            ends = [a - b for a, b in zip(high, part.starts, strict=True)]
            source: Any = part_of(part.source, own, ends)
            found.append(Box(tuple([a - b for a, b in zip(low, starts, strict=True)]), source))
    return _simple(Boxes(shape, value.dtype, tuple(found)))


def joined(values: Iterable[Source], axis: int) -> Source:
    """Arrays one after the other along an axis."""
    found: list[Box] = []
    at = 0
    shape: list[int] = []
    dtype: Any = None
    for value in values:
        shape, dtype = list(value.shape), value.dtype
        if not value.shape[axis]:
            continue
        for part in _parts(value):
            starts = list(part.starts)
            starts[axis] += at
            found.append(Box(tuple(starts), part.source))
        at += value.shape[axis]
    shape[axis] = at
    return _simple(Boxes(tuple(shape), dtype, tuple(found)))


def rolled(value: Source, shift: int, axis: int) -> Source:
    """An array with its elements ``shift`` places further, around the end of the axis."""
    if isinstance(value, Number) or (isinstance(value, View) and not value.strides[axis]):
        return value
    size, zeros = value.shape[axis], [0] * len(value.shape)
    cut = [*value.shape]
    cut[axis] = size - shift
    from_cut = [*zeros]
    from_cut[axis] = size - shift
    return joined([part_of(value, from_cut, value.shape), part_of(value, zeros, cut)], axis)


def padded(value: Source, number: Any, config: Sequence[tuple[int, int, int]]) -> Source:
    """An array with so many times the number before and after it, along each axis."""
    for axis, (low, high, _) in enumerate(config):
        edges: list[Source] = []
        for n in (low, high):
            shape = (*value.shape[:axis], n, *value.shape[axis + 1 :])
            edges.append(Number(number, shape, value.dtype))
        if low or high:
            value = joined([edges[0], value, edges[1]], axis)
    return value


def cells(
    shape: Sequence[int], values: Iterable[Boxes]
) -> Iterator[tuple[tuple[tuple[int, int], ...], list[tuple[int, int]]]]:
    """Where each band of an array begins and ends, and the same of its cells along the last axis.

    No part of ``values`` ends within a cell. Bands come as pairs of all axes but the last one.
    """
    cuts: list[list[tuple[int, int]]] = []
    found = list(values)
    for axis, n in enumerate(shape):
        borders = sorted({0, n}.union(*[v.borders(axis) for v in found]))
        cuts.append(list(itertools.pairwise(borders)))
    for band in itertools.product(*cuts[:-1]):
        yield tuple(band), cuts[-1] if cuts else []


def n_cells(shape: Sequence[int], values: Iterable[Boxes]) -> int:
    """How many cells all bands have."""
    return sum([len(inner) for _, inner in cells(shape, values)])


def _parts(value: Source) -> Sequence[Box]:
    if isinstance(value, Boxes):
        return value.parts
    return [Box((0,) * len(value.shape), value)]


def _simple(boxes: Boxes) -> Source:
    """The one part that there is, if there is one."""
    return boxes.parts[0].source if len(boxes.parts) == 1 else boxes


def _with_axes(source: View | Number, kept: Sequence[int]) -> View | Number:
    shape = tuple([source.shape[i] for i in kept])
    if isinstance(source, Number):
        return source._replace(shape=shape)
    return source._replace(shape=shape, strides=tuple([source.strides[i] for i in kept]))
