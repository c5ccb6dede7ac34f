"""Products of a step of a vector with rows of a matrix that lie in memory as the vector does.

Each row is summed up along itself: a product of matrices would need the matrix transposed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tracebridge.core.kernels.steps.code import Code
from tracebridge.core.kernels.steps.elementwise import floor_of_two, pieces
from tracebridge.core.kernels.steps.reductions import to_number
from tracebridge.core.kernels.steps.views import View

_MOST_ROWS = 4
_MOST_SUMS = 8  # vectors in registers


class Dots(NamedTuple):
    """``out[..., 0, i] = sum over k of vector[..., 0, k] * matrix[..., i, k]``; k is contiguous."""

    matrix: View
    vector: View
    out: View


def dots_of(x: View, y: View, out: View) -> Dots:
    """The product of matrices ``x`` and ``y``, a row of ``x`` at a time."""
    *lead, rows, terms = x.shape
    columns = y.shape[-1]
    return Dots(
        y._replace(
            shape=(*lead, rows, columns, terms),
            strides=(*y.strides[:-2], 0, y.strides[-1], y.strides[-2]),
        ),
        x._replace(shape=(*lead, rows, 1, terms), strides=(*x.strides[:-1], 0, x.strides[-1])),
        out._replace(
            shape=(*lead, rows, 1, columns), strides=(*out.strides[:-1], 0, out.strides[-1])
        ),
    )


def write_dots(code: Code, dots: Dots, lanes: int) -> None:
    """The loops of such products."""
    matrix, vector, out = dots
    n, terms = matrix.shape[-2:]
    together = min(_MOST_ROWS, n)
    whole = n // together * together

    def lead(at: list[str]) -> None:
        first, along, target = [
            code.element("float", v.base, code.offset(at, v.strides[:-2], v.offset)) for v in dots
        ]

        def some(i: str, count: int) -> Sequence[str]:
            places = [[i, str(r)] for r in range(count)]
            steps = [matrix.strides[-2]] * 2
            rows = [code.element("float", first, code.offset(p, steps)) for p in places]
            for p, total in zip(places, _sums(code, rows, along, terms, lanes), strict=True):
                place = code.element("float", target, code.offset(p, [out.strides[-1]] * 2))
                code.lines.append(f"store float {total}, ptr {place}, align 4")
            return ()

        code.loop(whole, together, lambda i, _: some(i, together))
        if whole < n:
            some(str(whole), n - whole)

    code.nest(vector.shape[:-2], lead)


def _sums(code: Code, rows: Sequence[str], vector: str, terms: int, lanes: int) -> list[str]:
    """Of the products of each row with the vector."""
    width = min(lanes, floor_of_two(terms))
    parts = min(_MOST_SUMS // len(rows), 4, terms // width)
    whole = terms // (width * parts) * width * parts
    kind = code.text(width).type("float")

    def term(k: str, sums: Sequence[str]) -> Sequence[str]:
        found: list[str] = []
        for part in range(parts):
            at = code.offset([k, str(part * width)], [1, 1])
            y = _vector(code, vector, at, width)
            for r, row in enumerate(rows):
                x = _vector(code, row, at, width)
                found.append(code.text(width).fma(x, y, sums[part * len(rows) + r]))
        return found

    sums = code.loop(whole, width * parts, term, [(kind, "zeroinitializer")] * (parts * len(rows)))
    totals: list[str] = []
    for r in range(len(rows)):
        total, *others = sums[r :: len(rows)]
        for other in others:
            total = code.text(width).op("fadd", total, other)
        totals.append(to_number(code, "sum", total, width))
    for at, wide in pieces(terms - whole, width):
        y, to = _vector(code, vector, str(whole + at), wide), code.text(wide)
        for r, row in enumerate(rows):
            made = to.op("fmul", _vector(code, row, str(whole + at), wide), y)
            totals[r] = code.text(0).op("fadd", totals[r], to_number(code, "sum", made, wide))
    return totals


def _vector(code: Code, row: str, at: str, width: int) -> str:
    place = code.element("float", row, at)
    return code.line(f"load <{width} x float>, ptr {place}, align 4")
