"""Arrays in the memory of a kernel: where they begin, and how their elements lie."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tracebridge.core.kernels.text import type_of

SIZES = {"i8": 1, "i32": 4, "float": 4}
"""Bytes of an element, by LLVM's type of it in memory."""
ALIGNED = 64  # bytes, of arrays in memory of a kernel's own


class View(NamedTuple):
    """An array: the memory it is in, its first element there, strides in elements.

    ``base`` is LLVM's name of a pointer.
    """

    base: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any

    @property
    def kind(self) -> str:
        """LLVM's type of an element in memory."""
        return stored(self.dtype)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie one after another."""
        there = zip(self.shape, self.strides, contiguous(self.shape), strict=True)
        return all([n == 1 or a == b for n, a, b in there])

    def transposed(self, axes: Sequence[int]) -> View:
        """The array with its axes in another order."""
        shape = tuple([self.shape[a] for a in axes])
        strides = tuple([self.strides[a] for a in axes])
        return View(self.base, self.offset, shape, strides, self.dtype)

    def part(self, starts: Sequence[int], limits: Sequence[int], steps: Sequence[int]) -> View:
        """A slice."""
        offset = self.offset + sum([a * s for a, s in zip(starts, self.strides, strict=True)])
        bounds = zip(starts, limits, steps, strict=True)
        shape = tuple([max(0, -(-(b - a) // step)) for a, b, step in bounds])
        strides = tuple([s * step for s, step in zip(self.strides, steps, strict=True)])
        return View(self.base, offset, shape, strides, self.dtype)

    def broadcast(self, shape: tuple[int, ...], axes: Sequence[int]) -> View:
        """The array along the axes ``axes`` of ``shape``, the same along the others."""
        strides = [0] * len(shape)
        for i, axis in enumerate(axes):
            strides[axis] = self.strides[i] if self.shape[i] != 1 else 0
        return View(self.base, self.offset, shape, tuple(strides), self.dtype)

    def reshaped(self, shape: tuple[int, ...]) -> View | None:
        """The same elements in another shape; None if they do not lie in such an order."""
        if shape == self.shape:
            return self
        kept = [(n, s) for n, s in zip(self.shape, self.strides, strict=True) if n != 1]
        wanted = [n for n in shape if n != 1]
        strides = _split(kept, wanted)
        if strides is None:
            return None
        found = iter(strides)
        strides_there = tuple([next(found) if n != 1 else 0 for n in shape])
        return View(self.base, self.offset, shape, strides_there, self.dtype)


def whole(base: str, shape: tuple[int, ...], dtype: Any) -> View:
    """An array whose elements lie one after another, from the beginning of its memory on."""
    return View(base, 0, shape, tuple(contiguous(shape)), dtype)


def _split(kept: list[tuple[int, int]], wanted: list[int]) -> list[int] | None:
    """Strides of axes of the sizes ``wanted`` over the axes ``kept`` (sizes, strides)."""
    strides: list[int] = []
    i = j = 0
    while i < len(kept) or j < len(wanted):
        i_end, j_end = i + 1, j + 1
        if i_end > len(kept) or j_end > len(wanted):
            return None
        left, right = kept[i][0], wanted[j]
        while left != right:
            if left < right:
                if i_end == len(kept):
                    return None
                left *= kept[i_end][0]
                i_end += 1
            else:
                if j_end == len(wanted):
                    return None
                right *= wanted[j_end]
                j_end += 1
        group = kept[i:i_end]
        for (_, outer), (n, inner) in itertools.pairwise(group):
            if outer != n * inner:
                return None
        strides += contiguous(tuple(wanted[j:j_end]), group[-1][1])
        i, j = i_end, j_end
    return strides


def contiguous(shape: tuple[int, ...], step: int = 1) -> list[int]:
    """Strides of an array whose elements lie ``step`` apart; of axes of size 1 it is 0."""
    strides: list[int] = []
    for n in reversed(shape):
        strides.insert(0, step if n != 1 else 0)
        step *= n
    return strides


def stored(dtype: Any) -> str:
    """LLVM's type of an element in memory."""
    kind = type_of(dtype)
    return "i8" if kind == "i1" else kind


def without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes that are not 1."""
    return tuple([n for n in shape if n != 1])


def collapsed(
    shape: tuple[int, ...], strides: Sequence[tuple[int, ...]]
) -> tuple[list[int], list[list[int]]]:
    """The fewest axes that go through some arrays of one shape; at least one."""
    sizes: list[int] = []
    found: list[list[int]] = [[] for _ in strides]
    for axis, n in enumerate(shape):
        steps = [s[axis] for s in strides]
        if n == 1:
            continue
        if sizes and all([f[-1] == n * step for f, step in zip(found, steps, strict=True)]):
            sizes[-1] *= n
            for f, step in zip(found, steps, strict=True):
                f[-1] = step
            continue
        sizes.append(n)
        for f, step in zip(found, steps, strict=True):
            f.append(step)
    if not sizes:
        return [1], [[1] for _ in strides]
    return sizes, found


def bytes_of(shape: tuple[int, ...], dtype: Any) -> int:
    """Of an array whose elements lie one after another."""
    return math.prod(shape) * SIZES[stored(np.dtype(dtype))]
