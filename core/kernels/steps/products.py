"""Matrix products of a step: blocks of rows and columns, whose sums are in registers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, final

from tracebridge.core.kernels.steps.code import Code
from tracebridge.core.kernels.steps.elementwise import pieces
from tracebridge.core.kernels.steps.views import View

_MOST_ROWS = 8


class Product(NamedTuple):
    """``out[..., i, j] = sum over k of x[..., i, k] * y[..., k, j]``; j is contiguous.

    Leading axes are the same ones in all three. ``adds``: to what is there.
    """

    x: View
    y: View
    out: View
    adds: bool = False


def write_product(code: Code, product: Product, lanes: int) -> None:
    """The loops of a product."""
    lead = product.out.shape[:-2]
    code.nest(lead, lambda at: _Writer(code, product, lanes, at).write())


def lines_of_product(n_rows: int, n_columns: int, lanes: int) -> int:
    """About how many lines are written for a product of these sizes."""
    return sum(
        [20 + 8 * rows + 2 * n + 6 * rows * n for rows, n in _blocks(n_rows, n_columns, lanes)]
    )


def _blocks(n_rows: int, n_columns: int, lanes: int) -> list[tuple[int, int]]:
    """The blocks that are written: rows, and vectors in each."""
    vectors = _vectors(lanes)
    rest = pieces(n_columns % (vectors * lanes), lanes)
    found = []
    for n in ([vectors] if n_columns >= vectors * lanes else []) + ([len(rest)] if rest else []):
        rows = _rows(n, n_rows, lanes)
        found += [(rows, n)] + ([(n_rows % rows, n)] if n_rows % rows else [])
    return found


def _vectors(lanes: int) -> int:
    """Vectors of a row of a block."""
    return 4 if lanes == 16 else 2


def _rows(vectors: int, n_rows: int, lanes: int) -> int:
    """Rows of a block. Its sums in registers take half of these, or a little more."""
    return max(1, min((16 if lanes == 16 else 8) // vectors, _MOST_ROWS, n_rows))


@final
class _Writer:
    def __init__(self, code: Code, product: Product, lanes: int, lead: Sequence[str]) -> None:
        self.code, self.lanes = code, lanes
        self.views = product
        self.n_rows, self.n_terms = product.x.shape[-2:]
        self.n_columns = product.y.shape[-1]
        self.starts = [code.offset(lead, v.strides[:-2], v.offset) for v in product[:3]]

    def write(self) -> None:
        vectors = _vectors(self.lanes)
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
        rows = _rows(len(columns), self.n_rows, self.lanes)
        whole = self.n_rows // rows * rows
        self.code.loop(whole, rows, lambda i, _: self._block(i, j, rows, columns))
        if whole < self.n_rows:
            self._block(str(whole), j, self.n_rows - whole, columns)
        return ()

    def _block(
        self, i: str, j: str, rows: int, columns: Sequence[tuple[int, int]]
    ) -> Sequence[str]:
        code, (x, y, out, adds) = self.code, self.views
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
                if adds:
                    before = code.line(f"load {kinds[c]}, ptr {place}, align 4")
                    found = code.line(f"fadd {kinds[c]} {before}, {found}")
                code.lines.append(f"store {kinds[c]} {found}, ptr {place}, align 4")
        return ()

    def _element(self, which: int, indices: Sequence[str], strides: Sequence[int]) -> str:
        view, start = self.views[:3][which], self.starts[which]
        if start.isdecimal():
            offset = self.code.offset(indices, strides, int(start))
        else:
            offset = self.code.offset([start, *indices], [1, *strides])
        return self.code.element("float", view.base, offset)

    def _vector(self, row: str, at: int, width: int) -> str:
        place = self.code.element("float", row, str(at))
        return self.code.line(f"load <{width} x float>, ptr {place}, align 4")
