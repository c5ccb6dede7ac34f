"""The frame of a program over rows: which elements of large arrays are one row.

Arrays of a frame have the same elements in the same order, perhaps in several shapes that differ by
reshapes. Their axes, cut where any of the shapes has a border, are the axes of the frame. Some of
them are the row; the others count the rows. So a row of a group normalisation is several channels
of an image, each with a scale of its own, and one of a batch normalisation is a channel of all
images, which do not lie one after another.

Vectors have elements of one row where the last axis belongs to it. Where it does not, as in a
softmax over channels, they have the same place of neighbouring rows: they go across rows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

_SINGLE, _DOUBLE = np.dtype(np.float32), np.dtype(np.float64)

Shape = tuple[int, ...]


class Frame(NamedTuple):
    """Sizes of axes in the order of memory, none of them 1, and which of them are the row.

    ``shapes``: those that arrays of the frame have. ``doubles``: whether the kernel computes in
    float64.
    """

    sizes: Shape
    along: tuple[bool, ...]
    shapes: frozenset[Shape]
    doubles: bool = False

    @property
    def real(self) -> str:
        """LLVM's type of the numbers."""
        return "double" if self.doubles else "float"

    @property
    def dtype(self) -> np.dtype[Any]:
        """The same for NumPy."""
        return _DOUBLE if self.doubles else _SINGLE

    @property
    def lead(self) -> list[int]:
        """The axes that count the rows."""
        return [i for i, along in enumerate(self.along) if not along]

    @property
    def row(self) -> list[int]:
        """The axes of a row."""
        return [i for i, along in enumerate(self.along) if along]

    @property
    def is_across(self) -> bool:
        """Whether vectors go across rows."""
        return not self.along[-1]

    @property
    def of_vectors(self) -> list[int]:
        """The axes along which vectors may go: the row, or those after it."""
        if not self.is_across:
            return self.row
        last = self.row[-1]
        return [i for i in self.lead if i > last]

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return math.prod([n for n, along in zip(self.sizes, self.along, strict=True) if not along])

    @property
    def length(self) -> int:
        """Elements of a row."""
        return math.prod([n for n, along in zip(self.sizes, self.along, strict=True) if along])

    @property
    def n_elements(self) -> int:
        """Elements of an array."""
        return math.prod(self.sizes)

    def contiguous(self, axes: Iterable[int]) -> Shape:
        """Steps along all axes of an array that has only these, one after another."""
        steps, step = [0] * len(self.sizes), 1
        for i in sorted(axes, reverse=True):
            steps[i] = step
            step *= self.sizes[i]
        return tuple(steps)

    @property
    def whole(self) -> Shape:
        """Steps along the axes in an array of the frame."""
        return self.contiguous(range(len(self.sizes)))

    @property
    def by_row(self) -> Shape:
        """Steps in an array of one number for each row."""
        return self.contiguous(self.lead)

    def axes_of(self, shape: Sequence[int]) -> list[list[int]]:
        """The axes of the frame that make up each axis of one of its shapes."""
        found, next_one = [], 0
        for size in shape:
            axes, rest = [], size
            while rest > 1:
                axes.append(next_one)
                rest //= self.sizes[next_one]
                next_one += 1
            found.append(axes)
        return found

    def steps(self, operand: Sequence[int], places: Sequence[int], shape: Sequence[int]) -> Shape:
        """Steps of an operand whose axes run along the axes ``places`` of one of the shapes."""
        axes = self.axes_of(shape)
        steps, step = [0] * len(self.sizes), 1
        for size, place in reversed(list(zip(operand, places, strict=True))):
            if size != 1:
                for i in reversed(axes[place]):
                    steps[i] = step
                    step *= self.sizes[i]
        return tuple(steps)

    def strided(self, shape: Sequence[int], strides: Sequence[int]) -> Shape:
        """Steps in an array whose axes are those of one of the shapes, with these strides."""
        steps = [0] * len(self.sizes)
        for axes, stride in zip(self.axes_of(shape), strides, strict=True):
            step = stride
            for i in reversed(axes):
                steps[i] = step
                step *= self.sizes[i]
        return tuple(steps)

    def tail(self, steps: Sequence[int]) -> int:
        """How many elements at the end an operand has one after another, or all equal.

        The end of a row, or of the rows that vectors go across.
        """
        equal, following = 1, 1
        for i in reversed(self.of_vectors):
            if steps[i] != 0:
                break
            equal *= self.sizes[i]
        for i in reversed(self.of_vectors):
            if steps[i] != following:
                break
            following *= self.sizes[i]
        return max(equal, following)

    def summed(self, shape: Sequence[int], axes: Sequence[int]) -> list[int]:
        """The axes over which a reduction of one of the shapes goes."""
        of_shape = self.axes_of(shape)
        return sorted([i for axis in axes for i in of_shape[axis]])

    def end(self, summed: Sequence[int]) -> list[int]:
        """The last axes of a row that are all summed."""
        found: list[int] = []
        for i in reversed(self.row):
            if i not in summed:
                break
            found.insert(0, i)
        return found

    def is_by_row(self, shape: Sequence[int]) -> bool:
        """Whether an array has one number for each row, in their order."""
        return math.prod(shape) == self.n_rows


def frame_over(
    shape: Shape, axes: Sequence[int], shapes: Iterable[Shape], doubles: bool = False
) -> Frame:
    """The frame of these shapes, with rows that are some axes of one of them."""
    every = frozenset({shape, *shapes})
    borders = _borders(every)
    sizes = tuple([b // a for a, b in itertools.pairwise(borders)][::-1])
    frame = Frame(sizes, (False,) * len(sizes), every)
    row = frame.summed(shape, axes)
    along = tuple([i in row for i in range(len(sizes))])
    return Frame(sizes, along, every | {sizes}, doubles)


def fit_together(shapes: Iterable[Shape]) -> bool:
    """Whether axes can be cut so that all these shapes, of one size, are made of the same ones."""
    borders = _borders(shapes)
    return all([b % a == 0 for a, b in itertools.pairwise(borders)])


def _borders(shapes: Iterable[Shape]) -> list[int]:
    found = {1}
    for shape in shapes:
        step = 1
        for size in reversed(shape):
            step *= size
            found.add(step)
    return sorted(found)
