"""Where something lies in memory, from the number of a row, or of a part of a row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, final

from tracebridge.core.kernels.text import Text


@final
class Counter:
    """The places along some axes, from a number that counts all of them, the last ones fastest.

    ``sizes``: of the axes. ``known``: what has been written into ``to`` already.
    """

    def __init__(self, to: Text, name: str, sizes: Sequence[int], known: dict[Any, str]) -> None:
        self.to, self.counted, self.sizes, self.known = to, name, sizes, known

    def offset(self, steps: Sequence[int]) -> str:
        """How many elements lie before, of an array with these steps along the axes."""
        total, after = "0", math.prod(self.sizes)
        for i, (size, step) in enumerate(_joined(self.sizes, steps)):
            after //= size
            if not step:
                continue
            place = self._place(after, 0 if i == 0 else size)
            part = self.to.line(f"mul nuw nsw i64 {place}, {step}") if step > 1 else place
            total = self.to.line(f"add nuw nsw i64 {total}, {part}") if total != "0" else part
        return total

    def _place(self, after: int, size: int) -> str:
        """The place along an axis; ``size``: 0 of the first one."""
        key = self.counted, after, size
        if key not in self.known:
            place = self.counted
            if after > 1:
                place = self.to.line(f"udiv i64 {place}, {after}")
            self.known[key] = self.to.line(f"urem i64 {place}, {size}") if size else place
        return self.known[key]


def _joined(sizes: Sequence[int], steps: Sequence[int]) -> list[tuple[int, int]]:
    """Sizes and steps, those of neighbours joined that are walked through as one axis."""
    found: list[tuple[int, int]] = []
    for size, step in zip(sizes, steps, strict=True):
        if found and found[-1][1] == step * size:
            found[-1] = found[-1][0] * size, step
        else:
            found.append((size, step))
    return found
