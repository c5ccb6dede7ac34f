"""LLVM's text of loops within loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from tracebridge.core.kernels.text import Text

Carried = Sequence[tuple[str, str]]
"""Types and first values of what a loop hands on from one round to the next."""


@final
class Code:
    """A function while it is written."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.needs: set[str] = set()
        self.block = "entry"
        """The label that the next line stands under."""
        self._names = [0]
        self._texts: dict[int, Text] = {}
        self.line = self.text(0).line
        """``line(text)``: a line that makes a value; its name."""

    def text(self, width: int) -> Text:
        """What writes values, vectors of ``width``, at the end of the function."""
        to = self._texts.get(width)
        if to is None:
            to = self._texts[width] = Text(self._names, width)
            to.lines, to.needs = self.lines, self.needs
        return to

    def loop(
        self,
        count: int | str,
        step: int,
        body: Callable[[str, Sequence[str]], Sequence[str]],
        carried: Carried = (),
    ) -> Sequence[str]:
        """``body(index, values) -> values`` for each index below ``count``, in steps.

        There is at least one round; a ``str`` is the name of the count.
        """
        if isinstance(count, int) and count <= step:
            return body("0", [first for _, first in carried])
        self._names[0] += 1
        number, before = self._names[0], self.block
        head, after, index = f"loop{number}", f"after{number}", f"%i{number}"
        names = [f"%p{number}.{k}" for k in range(len(carried))]
        self.lines += [f"br label %{head}", f"{head}:"]
        self.block = head
        at = len(self.lines)
        made = body(index, names)
        last = self.block
        phis = [f"{index} = phi i64 [0, %{before}], [{index}.next, %{last}]"]
        for name, (kind, first), new in zip(names, carried, made, strict=True):
            phis.append(f"{name} = phi {kind} [{first}, %{before}], [{new}, %{last}]")
        self.lines[at:at] = phis
        self.lines += [
            f"{index}.next = add nuw nsw i64 {index}, {step}",
            f"{index}.more = icmp ult i64 {index}.next, {count}",
            f"br i1 {index}.more, label %{head}, label %{after}",
            f"{after}:",
        ]
        self.block = after
        return made

    def when(self, flag: str, body: Callable[[], None]) -> None:
        """``body()`` only where ``flag`` is true."""
        self._names[0] += 1
        then, after = f"then{self._names[0]}", f"after{self._names[0]}"
        self.lines += [f"br i1 {flag}, label %{then}, label %{after}", f"{then}:"]
        self.block = then
        body()
        self.lines += [f"br label %{after}", f"{after}:"]
        self.block = after

    def nest(self, sizes: Sequence[int], body: Callable[[list[str]], None]) -> None:
        """``body(indices)`` for all places of an array."""

        def inner(found: list[str]) -> None:
            if len(found) == len(sizes):
                body(found)
                return

            def one(i: str, _: Sequence[str]) -> Sequence[str]:
                inner([*found, i])
                return ()

            self.loop(sizes[len(found)], 1, one)

        inner([])

    def offset(self, indices: Sequence[str], strides: Sequence[int], first: int = 0) -> str:
        """``first`` and the indices times their strides."""
        total, constant = "", first
        for i, stride in zip(indices, strides, strict=True):
            if i.isdecimal():
                constant += int(i) * stride
            elif stride:
                part = i if stride == 1 else self.line(f"mul nsw i64 {i}, {stride}")
                total = self.line(f"add nsw i64 {total}, {part}") if total else part
        if not total:
            return str(constant)
        return self.line(f"add nsw i64 {total}, {constant}") if constant else total

    def element(self, kind: str, base: str, offset: str) -> str:
        """The address of an element."""
        if offset == "0":
            return base
        return self.line(f"getelementptr {kind}, ptr {base}, i64 {offset}")
