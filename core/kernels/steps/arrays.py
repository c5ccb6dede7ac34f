"""Operands and results of a kernel that does the same for each of many parts of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tracebridge.core.kernels.steps.views import View, bytes_of, whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core.ir.aval import ShapedArray

Cut = tuple[int | None, ...]
"""The axes along which an array is cut, one for each number of parts; None: it is not."""


class Place(NamedTuple):
    """Where an operand begins in the array that it is a part of, and its strides; in elements."""

    offset: int
    strides: tuple[int, ...]


class Arrays(NamedTuple):
    """``counts``: the numbers of parts; what is cut of operands and results, and how.

    Of what a loop takes or makes by steps, the avals are those of a slice. ``by_rows``: the last
    number is that of parts of one part of the others, which come one after another.
    """

    counts: tuple[int, ...]
    in_avals: tuple[ShapedArray, ...]
    out_avals: tuple[ShapedArray, ...]
    ins: tuple[Cut, ...]
    outs: tuple[Cut, ...]
    by_rows: bool = False
    totals: frozenset[int] = frozenset()
    """The results that are sums over the rows of one part."""
    places: tuple[Place | None, ...] = ()
    """Of operands that are slices of the arrays that the kernel is given; none at all: ``()``."""

    def is_fixed(self, i: int) -> bool:
        """Whether an operand is the same for all rows."""
        return self.by_rows and self.ins[i][-1] is None

    def operand(self, i: int, base: str) -> View:
        """The first part of an operand, whose memory begins at ``base``."""
        aval, cut, place = self.in_avals[i], self.ins[i], self._place(i)
        if place is None:
            return self._part(aval, cut, base)
        shape = cut_shape(aval.shape, cut, self.counts)
        return View(base, place.offset, shape, place.strides, aval.dtype)

    def result(self, i: int, base: str) -> View:
        """As `operand`, of a result."""
        return self._part(self.out_avals[i], self.outs[i], base)

    def operand_steps(self, i: int) -> list[int]:
        """Bytes from one part of an operand to the next, for each number of parts."""
        aval, cut, place = self.in_avals[i], self.ins[i], self._place(i)
        if place is None:
            return self._steps(aval, cut)
        bytes_of_one = bytes_of((), aval.dtype)
        return [
            0 if a is None else place.strides[a] * bytes_of_one * (aval.shape[a] // n)
            for a, n in zip(cut, self.counts, strict=True)
        ]

    def result_steps(self, i: int) -> list[int]:
        """As `operand_steps`, of a result."""
        return self._steps(self.out_avals[i], self.outs[i])

    def _place(self, i: int) -> Place | None:
        return self.places[i] if self.places else None

    def _part(self, aval: ShapedArray, cut: Cut, base: str) -> View:
        view, shape = whole(base, aval.shape, aval.dtype), cut_shape(aval.shape, cut, self.counts)
        return view if shape == view.shape else View(base, 0, shape, view.strides, view.dtype)

    def _steps(self, aval: ShapedArray, cut: Cut) -> list[int]:
        pairs = zip(cut, self.counts, strict=True)
        return [0 if a is None else bytes_of(aval.shape[a:], aval.dtype) // n for a, n in pairs]


def not_cut(in_avals: Sequence[ShapedArray], out_avals: Sequence[ShapedArray]) -> Arrays:
    """Arrays that are one part."""
    nothing: tuple[Cut, ...] = ((),)
    ins, outs = nothing * len(in_avals), nothing * len(out_avals)
    return Arrays((), tuple(in_avals), tuple(out_avals), ins, outs)


def cut_shape(shape: Sequence[int], cut: Cut, counts: Sequence[int]) -> tuple[int, ...]:
    """The shape of a part."""
    sizes = list(shape)
    for axis, n in zip(cut, counts, strict=True):
        if axis is not None:
            sizes[axis] //= n
    return tuple(sizes)
