"""Matrix products of a step: blocks of rows and columns, whose sums are in registers.

Where columns lie one after another, a vector is a part of a row of the result. Where terms do, a
vector is a part of the terms of one element.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, final

from tracebridge.core.kernels.steps.code import Code
from tracebridge.core.kernels.steps.elementwise import floor_of_two, pieces
from tracebridge.core.kernels.steps.reductions import to_number
from tracebridge.core.kernels.steps.views import View

_MOST_ROWS = 8
_MOST_DOTS = 2  # rows of a matrix that are read at the same time: its rows may meet in the cache


class Product(NamedTuple):
    """``out[..., i, j] = sum over k of x[..., i, k] * y[..., k, j]``.

    Columns j of y and out are contiguous; or terms k of x and y are, where columns of y are not.
    Leading axes are the same ones in all three.
    """

    x: View
    y: View
    out: View


def write_product(code: Code, product: Product, lanes: int) -> None:
    """The loops of a product."""
    lead = product.out.shape[:-2]
    has_columns = product.y.strides[-1] == 1 or product.y.shape[-1] == 1

    def one(at: list[str]) -> None:
        writer = _Writer(code, product, lanes, at)
        if has_columns:
            writer.write()
        else:
            writer.write_dots()

    code.nest(lead, one)


@final
class _Writer:
    def __init__(self, code: Code, product: Product, lanes: int, lead: Sequence[str]) -> None:
        self.code, self.lanes = code, lanes
        self.views = product
        self.n_rows, self.n_terms = product.x.shape[-2:]
        self.n_columns = product.y.shape[-1]
        self.starts = [code.offset(lead, v.strides[:-2], v.offset) for v in product]
        # Sums in registers: half of them, or a little more.
        self.most = 16 if lanes == 16 else 8

    def write(self) -> None:
        vectors = 4 if self.lanes == 16 else 2
        width = vectors * self.lanes
        whole = self.n_columns // width * width
        full = [(k * self.lanes, self.lanes) for k in range(vectors)]
        if whole:
            self.code.loop(whole, width, lambda j, _: self._columns(j, full))
        rest = pieces(self.n_columns - whole, self.lanes)
        if rest:
            self._columns(str(whole), rest)

    def _columns(self, j: str, columns: Sequence[tuple[int, int]]) -> Sequence[str]:
        """All rows of some columns."""
        rows = max(1, min(self.most // len(columns), _MOST_ROWS, self.n_rows))
        whole = self.n_rows // rows * rows
        self.code.loop(whole, rows, lambda i, _: self._block(i, j, rows, columns))
        if whole < self.n_rows:
            self._block(str(whole), j, self.n_rows - whole, columns)
        return ()

    def _block(
        self, i: str, j: str, rows: int, columns: Sequence[tuple[int, int]]
    ) -> Sequence[str]:
        code, (x, y, out) = self.code, self.views
        xs = [self._element(0, [i, str(r)], [x.strides[-2]] * 2) for r in range(rows)]
        first = self._element(1, [j], [y.strides[-1]])
        kinds = [code.text(width).type("float") for _, width in columns]
        zeros = [(kind, "zeroinitializer") for _ in range(rows) for kind in kinds]

        def term(k: str, sums: Sequence[str]) -> Sequence[str]:
            row = code.element("float", first, code.offset([k], [y.strides[-2]]))
            ys = [self._vector(row, at, width) for at, width in columns]
            along = code.offset([k], [x.strides[-1]])
            found: list[str] = []
            for r, start in enumerate(xs):
                at = code.element("float", start, along)
                number = code.line(f"load float, ptr {at}, align 4")
                for c, (_, width) in enumerate(columns):
                    to = code.text(width)
                    spread = to.splat(number, "float")
                    found.append(to.fma(spread, ys[c], sums[r * len(columns) + c]))
            return found

        sums = code.loop(self.n_terms, 1, term, zeros)
        for r in range(rows):
            to = self._element(2, [i, str(r), j], [out.strides[-2]] * 2 + [out.strides[-1]])
            for c, (at, _) in enumerate(columns):
                place = code.element("float", to, str(at))
                found = sums[r * len(columns) + c]
                code.lines.append(f"store {kinds[c]} {found}, ptr {place}, align 4")
        return ()

    def write_dots(self) -> None:
        """Each element is the sum of a vector of products; some columns at a time."""
        code, n = self.code, self.n_columns
        columns = min(_MOST_DOTS, n)
        whole = n // columns * columns

        def row(i: str, _: Sequence[str]) -> Sequence[str]:
            code.loop(whole, columns, lambda j, _: self._dots(i, j, columns))
            if whole < n:
                self._dots(i, str(whole), n - whole)
            return ()

        code.loop(self.n_rows, 1, row)

    def _dots(self, i: str, j: str, columns: int) -> Sequence[str]:
        code, (x, y, out) = self.code, self.views
        row = self._element(0, [i], [x.strides[-2]])
        starts = [self._element(1, [j, str(c)], [y.strides[-1]] * 2) for c in range(columns)]
        width = min(self.lanes, floor_of_two(self.n_terms))
        whole = self.n_terms // width * width
        totals = [""] * columns
        for at, wide, count in [
            (0, width, whole),
            *[(whole + k, w, w) for k, w in pieces(self.n_terms - whole, width)],
        ]:
            sums = self._sums([row, *starts], at, wide, count)
            for c, part in enumerate(sums):
                number = to_number(code, "sum", part, wide)
                totals[c] = code.text(0).op("fadd", totals[c], number) if totals[c] else number
        for c, total in enumerate(totals):
            strides = [out.strides[-2], out.strides[-1], out.strides[-1]]
            place = self._element(2, [i, j, str(c)], strides)
            code.lines.append(f"store float {total}, ptr {place}, align 4")
        return ()

    def _sums(self, starts: Sequence[str], at: int, width: int, count: int) -> Sequence[str]:
        """Of ``count`` terms from ``at`` on: vectors of products of a row and of columns."""
        code, to = self.code, self.code.text(width)

        def term(k: str, sums: Sequence[str]) -> Sequence[str]:
            k = str(int(k) + at) if k.isdecimal() else k
            first, *others = [self._vector(code.element("float", s, k), 0, width) for s in starts]
            return [to.fma(first, y, total) for y, total in zip(others, sums, strict=True)]

        kind = to.type("float")
        return code.loop(count, width, term, [(kind, "zeroinitializer")] * (len(starts) - 1))

    def _element(self, which: int, indices: Sequence[str], strides: Sequence[int]) -> str:
        view, start = self.views[which], self.starts[which]
        if start.isdecimal():
            offset = self.code.offset(indices, strides, int(start))
        else:
            offset = self.code.offset([start, *indices], [1, *strides])
        return self.code.element("float", view.base, offset)

    def _vector(self, row: str, at: int, width: int) -> str:
        place = self.code.element("float", row, str(at))
        return self.code.line(f"load <{width} x float>, ptr {place}, align 4")
