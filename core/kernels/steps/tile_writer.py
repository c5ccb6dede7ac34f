"""The function of a kernel for one tile of its arrays: ``@steps(arrays, number, length)``.

A tile has copies of the rows that it begins with, and writes the rows that it answers for.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, final

from tracebridge.core.kernels.steps.views import ALIGNED, SIZES, View, stored
from tracebridge.core.kernels.steps.writer import Writer

if TYPE_CHECKING:
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.kernels.steps.plan import Plan
    from tracebridge.core.kernels.steps.tiles import Tiles


def tile_function(plan: Plan, tiles: Tiles, reverse: bool, lanes: int) -> str:
    """The text of the function. ``plan`` is that of one tile."""
    return _OfTile(plan, tiles, reverse, lanes).text()


def bytes_of_copies(plan: Plan, tiles: Tiles) -> int:
    """What a tile needs besides the memory of its plan."""
    n_fixed = plan.n_consts + plan.n_carry
    ins = enumerate(zip(plan.arrays.in_avals, tiles.ins, strict=True))
    found = [a for i, (a, has) in ins if has and not plan.n_consts <= i < n_fixed]
    outs = list(zip(plan.arrays.out_avals, tiles.outs, strict=True))[plan.n_carry :]
    found += [a for a, has in outs if has]
    return sum([_whole_lines(tiles.rows * _row(a)) for a in found])


@final
class _OfTile(Writer):
    names = "%arg", "%res"

    def __init__(self, plan: Plan, tiles: Tiles, reverse: bool, lanes: int) -> None:
        super().__init__(plan, lanes)
        self.tiles, self.reverse = tiles, reverse
        self.own = 0
        self.index = ""

    def before_loop(self) -> int:
        self._find_window()
        plan, tiles = self.plan, self.tiles
        n_fixed = plan.n_consts + plan.n_carry
        for i, aval in enumerate(plan.arrays.in_avals):
            if i >= n_fixed and tiles.ins[i]:
                self._reserve(f"%x{i - n_fixed}", aval)
            elif i < plan.n_consts and tiles.ins[i]:
                self._reserve(f"%in{i}", aval)
                self._copy_in(f"%in{i}", f"%arg{i}", aval)
            elif i < plan.n_consts:
                self.code.lines.append(f"%in{i} = getelementptr i8, ptr %arg{i}, i64 0")
        for k, aval in enumerate(plan.arrays.out_avals[plan.n_carry :]):
            if tiles.outs[plan.n_carry + k]:
                self._reserve(f"%y{k}", aval)
        return self.own

    def _find_window(self) -> None:
        """Where the tile begins, and how many rows it has before the end of the axis."""
        tiles = self.tiles
        n, wide, margin = tiles.n, tiles.rows, tiles.margin
        self.code.needs |= {f"declare i64 @llvm.{name}.i64(i64, i64)" for name in ("smin", "smax")}
        lines = [f"%start = mul nuw nsw i64 %first, {tiles.own}"]
        if tiles.goes_around:
            lines += [
                f"%begun = add nuw nsw i64 %start, {n - margin}",
                f"%window = urem i64 %begun, {n}",
                f"%into = add nuw nsw i64 {margin}, 0",
            ]
        else:
            lines += [
                f"%begun = sub nsw i64 %start, {margin}",
                "%low = call i64 @llvm.smax.i64(i64 %begun, i64 0)",
                f"%window = call i64 @llvm.smin.i64(i64 %low, i64 {n - wide})",
                "%into = sub nsw i64 %start, %window",
            ]
        self.code.lines += [
            *lines,
            f"%left = sub nsw i64 {n}, %start",
            f"%rows = call i64 @llvm.smin.i64(i64 %left, i64 {tiles.own})",
            f"%until = sub nsw i64 {n}, %window",
            f"%before = call i64 @llvm.smin.i64(i64 %until, i64 {wide})",
            f"%around = sub nsw i64 {wide}, %before",
        ]

    def take(self, k: int, carry: View) -> None:
        i = self.plan.n_consts + k
        aval = self.plan.arrays.in_avals[i]
        if self.tiles.ins[i]:
            self._copy_in(carry.base, f"%arg{i}", aval)
        else:
            self._copy(carry.base, f"%arg{i}", str(_bytes(aval)))

    def give(self, k: int, carry: View) -> None:
        aval = self.plan.arrays.out_avals[k]
        if self.tiles.outs[k]:
            self._copy_out(f"%res{k}", carry.base, aval)
        else:
            self._copy(f"%res{k}", carry.base, str(_bytes(aval)))

    def before_step(self, index: str) -> None:
        if self.reverse:
            last = self.code.line("sub nsw i64 %length, 1")
            index = self.code.line(f"sub nsw i64 {last}, {index}")
        self.index = index
        plan, n_fixed = self.plan, self.plan.n_consts + self.plan.n_carry
        for k, aval in enumerate(plan.arrays.in_avals[n_fixed:]):
            at = self._slice(f"%arg{n_fixed + k}", aval, self.tiles.ins[n_fixed + k])
            if self.tiles.ins[n_fixed + k]:
                self._copy_in(f"%x{k}", at, aval)
            else:
                self.code.lines.append(f"%x{k} = getelementptr i8, ptr {at}, i64 0")
        for k, aval in enumerate(plan.arrays.out_avals[plan.n_carry :]):
            if not self.tiles.outs[plan.n_carry + k]:
                at = self._slice(f"%res{plan.n_carry + k}", aval, has_rows=False)
                self.code.lines.append(f"%y{k} = getelementptr i8, ptr {at}, i64 0")

    def after_step(self) -> None:
        plan = self.plan
        for k, aval in enumerate(plan.arrays.out_avals[plan.n_carry :]):
            if self.tiles.outs[plan.n_carry + k]:
                at = self._slice(f"%res{plan.n_carry + k}", aval, has_rows=True)
                self._copy_out(at, f"%y{k}", aval)

    def _slice(self, base: str, aval: ShapedArray, has_rows: bool) -> str:
        """Where the slice of a step begins in an array of all steps."""
        size = self.tiles.n * _row(aval) if has_rows else _bytes(aval)
        at = self.code.line(f"mul nsw i64 {self.index}, {size}")
        return self.code.line(f"getelementptr i8, ptr {base}, i64 {at}")

    def _reserve(self, name: str, aval: ShapedArray) -> None:
        place = self.plan.scratch + self.own
        self.code.lines.append(f"{name} = getelementptr i8, ptr %scratch.first, i64 {place}")
        self.own += _whole_lines(_bytes(aval))

    def _copy_in(self, to: str, array: str, aval: ShapedArray) -> None:
        """The rows of the tile; they may go around the end of the array."""
        code, row = self.code, _row(aval)
        at, first, rest = [
            code.line(f"mul nsw i64 %{name}, {row}") for name in ("window", "before", "around")
        ]
        self._copy(to, code.line(f"getelementptr i8, ptr {array}, i64 {at}"), first)
        self._copy(code.line(f"getelementptr i8, ptr {to}, i64 {first}"), array, rest)

    def _copy_out(self, array: str, tile: str, aval: ShapedArray) -> None:
        """The rows that the tile answers for."""
        code, row = self.code, _row(aval)
        at, into, size = [
            code.line(f"mul nsw i64 %{name}, {row}") for name in ("start", "into", "rows")
        ]
        to = code.line(f"getelementptr i8, ptr {array}, i64 {at}")
        self._copy(to, code.line(f"getelementptr i8, ptr {tile}, i64 {into}"), size)

    def _copy(self, to: str, source: str, size: str) -> None:
        self.code.lines.append(
            f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 {size}, i1 false)"
        )


def _row(aval: ShapedArray) -> int:
    """Bytes of a row."""
    return math.prod(aval.shape[1:]) * SIZES[stored(aval.dtype)]


def _bytes(aval: ShapedArray) -> int:
    return aval.size * SIZES[stored(aval.dtype)]


def _whole_lines(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED
