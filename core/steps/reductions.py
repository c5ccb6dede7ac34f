"""Sums, maxima and minima of a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tracebridge.core.rows.functions import Text, float_text
from tracebridge.core.steps.code import Code
from tracebridge.core.steps.elementwise import floor_of_two, load, pieces, store
from tracebridge.core.steps.views import View

_FIRST = {"sum": 0.0, "max": float("-inf"), "min": float("inf")}


class Reduction(NamedTuple):
    """``kind`` of ``x`` over its last axes, as many as ``out`` has not."""

    kind: str
    x: View
    out: View


def write_reduction(code: Code, reduction: Reduction, lanes: int) -> None:
    """The loops of a reduction."""
    kind, x, out = reduction
    n = len(out.shape)
    inner, steps = x.shape[n:], x.strides[n:]
    if n and out.strides[-1] == 1 and x.strides[n - 1] == 1 and out.shape[-1] > 1:
        _by_columns(code, reduction, lanes)
        return

    def one(at: list[str]) -> None:
        start = code.offset(at, x.strides[:n], x.offset)
        base = code.element("float", x.base, start)
        total = _along(code, kind, base, inner, steps, lanes)
        place = code.element("float", out.base, code.offset(at, out.strides, out.offset))
        code.lines.append(f"store float {total}, ptr {place}, align 4")

    code.nest(out.shape, one)


def _by_columns(code: Code, reduction: Reduction, lanes: int) -> None:
    """Elements that lie one after another belong to different results."""
    kind, x, out = reduction
    n = len(out.shape)
    size = out.shape[-1]
    width = min(2 * lanes, floor_of_two(size))
    whole = size // width * width

    def row(at: list[str]) -> None:
        from_start = code.offset(at, x.strides[: n - 1], x.offset)
        to_start = code.offset(at, out.strides[:-1], out.offset)
        source = code.element("float", x.base, from_start)
        target = code.element("float", out.base, to_start)

        def columns(j: str, wide: int) -> None:
            to = code.text(wide)
            base = code.element("float", source, j)

            def add(offset: str, total: str) -> str:
                place = code.element("float", base, offset)
                return _combined(to, kind, total, load(to, place, "float", "0", 1))

            first = to.constant(_FIRST[kind])
            total = _nest(code, x.shape[n:], x.strides[n:], add, (to.type("float"), first))
            store(to, target, "float", total, j, 1)

        def body(j: str, _: Sequence[str]) -> Sequence[str]:
            columns(j, width)
            return ()

        code.loop(whole, width, body)
        for j, wide in pieces(size - whole, width):
            columns(str(whole + j), wide)

    code.nest(out.shape[:-1], row)


def _nest(code, sizes, strides, add, first):  # type: ignore[no-untyped-def]
    """``add(offset, total) -> total`` over all places; the last total."""
    kind, start = first

    def inner(found: list[str], total: str) -> str:
        if len(found) == len(sizes):
            return add(code.offset(found, strides), total)

        def one(i: str, values: Sequence[str]) -> Sequence[str]:
            return [inner([*found, i], values[0])]

        return code.loop(sizes[len(found)], 1, one, [(kind, total)])[0]

    return inner([], start)


def _along(
    code: Code, kind: str, base: str, sizes: tuple[int, ...], steps: tuple[int, ...], lanes: int
) -> str:
    """The reduction of all elements of an array, to one number."""
    n = sizes[-1]
    width = min(2 * lanes, floor_of_two(n))
    whole = n // width * width
    totals: list[str] = []
    for start, wide, count in [(0, width, whole), *[(whole + j, w, w) for j, w in pieces(n - whole, width)]]:
        to = code.text(wide)

        def add(offset: str, total: str, to: Text = to, start: int = start, count: int = count, wide: int = wide) -> str:
            row = code.element("float", base, offset)

            def one(j: str, values: Sequence[str]) -> Sequence[str]:
                at = str(int(j) + start) if j.isdecimal() else j
                return [_combined(to, kind, values[0], load(to, row, "float", at, steps[-1]))]

            return code.loop(count, wide, one, [(to.type("float"), total)])[0]

        first = to.constant(_FIRST[kind])
        total = _nest(code, sizes[:-1], steps[:-1], add, (to.type("float"), first))
        totals.append(to_number(code, kind, total, wide))
    result, to = totals[0], code.text(0)
    for other in totals[1:]:
        result = _combined(to, kind, result, other)
    return result


def _combined(to: Text, kind: str, x: str, y: str) -> str:
    if kind == "sum":
        return to.op("fadd reassoc", x, y)
    return to.call(f"{kind}imum", x, y, flags="nsz ")


def to_number(code: Code, kind: str, vector: str, width: int) -> str:
    """The reduction of a vector."""
    if width == 1:
        return code.line(f"extractelement <1 x float> {vector}, i32 0")
    kinds = f"<{width} x float>"
    if kind == "sum":
        function = f"@llvm.vector.reduce.fadd.v{width}f32"
        code.needs.add(f"declare float {function}(float, {kinds})")
        zero = float_text(-0.0)
        return code.line(f"call reassoc float {function}(float {zero}, {kinds} {vector})")
    function = f"@llvm.vector.reduce.f{kind}imum.v{width}f32"
    code.needs.add(f"declare float {function}({kinds})")
    return code.line(f"call float {function}({kinds} {vector})")
