"""Copies of arrays whose elements lie one after another along another axis than those of the copy.

Blocks of as many rows as a vector has elements are transposed in registers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tracebridge.core.kernels.steps.code import Code
from tracebridge.core.kernels.steps.views import SIZES, View, collapsed

_SMALLEST = 4


class Transpose(NamedTuple):
    """A copy, over the fewest axes: ``axis`` is that of elements of the source in a row.

    Those of the target lie in a row along the last axis.
    """

    source: View
    target: View
    axis: int
    width: int


def transpose_of(source: View, target: View, lanes: int) -> Transpose | None:
    """The transpose that a copy is, if there are blocks of it."""
    sizes, strides = collapsed(source.shape, [source.strides, target.strides])
    if strides[0][-1] == 1 or strides[1][-1] != 1 or 1 not in strides[0] or source.kind == "i8":
        return None
    axis = strides[0].index(1)
    least = min(lanes, sizes[axis], sizes[-1])
    width = 1 << (least.bit_length() - 1)
    if width < _SMALLEST:
        return None
    views = zip((source, target), strides, strict=True)
    a, b = [v._replace(shape=tuple(sizes), strides=tuple(steps)) for v, steps in views]
    return Transpose(a, b, axis, width)


def write_transpose(code: Code, found: Transpose) -> None:
    """The loops over whole blocks."""
    source, target, axis, width = found
    last = len(source.shape) - 1
    sizes = list(source.shape)
    n, m = sizes[axis] // width * width, sizes[-1] // width * width
    outer = [i for i in range(last) if i != axis]

    def one(at: list[str]) -> None:
        starts = [
            code.offset(at, [v.strides[i] for i in outer], v.offset) for v in (source, target)
        ]
        bases = [
            code.element(source.kind, v.base, s)
            for v, s in zip((source, target), starts, strict=True)
        ]

        def row(i: str, _: Sequence[str]) -> Sequence[str]:
            def block(j: str, _: Sequence[str]) -> Sequence[str]:
                _block(code, found, bases, i, j)
                return ()

            code.loop(m, width, block)
            return ()

        code.loop(n, width, row)

    code.nest([sizes[i] for i in outer], one)


def edges(found: Transpose) -> Iterable[tuple[View, View]]:
    """What whole blocks leave of the source and the target."""
    source, target, axis, width = found
    sizes = list(source.shape)
    last = len(sizes) - 1
    n, m = sizes[axis] // width * width, sizes[-1] // width * width
    for first, limits in (({axis: n}, sizes), ({last: m}, [*sizes])):
        if first.get(axis, 0) == sizes[axis] or first.get(last, 0) == sizes[-1]:
            continue
        ends = list(limits)
        if last in first:
            ends[axis] = n
        starts = [first.get(i, 0) for i in range(len(sizes))]
        ones = [1] * len(sizes)
        yield source.part(starts, ends, ones), target.part(starts, ends, ones)


def _block(code: Code, found: Transpose, bases: Sequence[str], i: str, j: str) -> None:
    source, target, axis, width = found
    kind, size = source.kind, SIZES[source.kind]
    vector = f"<{width} x {kind}>"

    def address(which: int, view: View, shift: Sequence[str], steps: Sequence[int]) -> str:
        return code.element(
            kind,
            bases[which],
            code.offset([i, j, *shift], [view.strides[axis], view.strides[-1], *steps]),
        )

    rows = []
    for c in range(width):
        at = address(0, source, [str(c)], [source.strides[-1]])
        rows.append(code.line(f"load {vector}, ptr {at}, align {size}"))
    for r, row in enumerate(_transposed(code, rows, vector, width)):
        at = address(1, target, [str(r)], [target.strides[axis]])
        code.lines.append(f"store {vector} {row}, ptr {at}, align {size}")


def _transposed(code: Code, rows: list[str], vector: str, width: int) -> list[str]:
    """Each round deals the elements of two rows alternately to two new ones."""
    half = width // 2
    low = [k // 2 + width * (k % 2) for k in range(width)]
    masks = [", ".join([f"i32 {k + shift}" for k in low]) for shift in (0, half)]
    for _ in range(width.bit_length() - 1):
        new: list[str] = []
        for k in range(half):
            for mask in masks:
                pair = f"{vector} {rows[k]}, {vector} {rows[k + half]}"
                new.append(code.line(f"shufflevector {pair}, <{width} x i32> <{mask}>"))
        rows = new
    return rows
