"""Reductions that run along rows, as cumulative sums, as LLVM's text.

A vector is combined with itself, shifted by 1, 2, 4 and so on places, then with what was before it;
what follows waits for one operation of each vector only. Places that make no whole vector are done
one by one, and so are those of a vector where a sum or a product leaves the range of float32, which
one of some places in the middle may do where none from the beginning does.
"""

from __future__ import annotations

from typing import final

import numpy as np

from tracebridge.core.kernels.text import Text

_NOTHING = {"add": 0.0, "mul": 1.0, "max": float("-inf"), "min": float("inf")}
_GIVEN = "ptr noalias readonly %in0, ptr noalias %out0, i64 %from, i64 %to, ptr noalias %columns"
_COMBINED = {"add": "fadd", "mul": "fmul"}
_LARGEST, _SMALLEST = float(np.finfo(np.float32).max), float(np.finfo(np.float32).tiny)


def rows_function(kind: str, length: int, reverse: bool, lanes: int) -> str:
    """LLVM's text of ``@rows``, as ``emitter.Writer.text`` has it.

    ``kind``: add, mul, max or min. ``reverse``: from the end of each row.
    """
    return _Writer(kind, length, reverse, lanes).text()


@final
class _Writer:
    def __init__(self, kind: str, length: int, reverse: bool, lanes: int) -> None:
        self.kind, self.length, self.reverse, self.width = kind, length, reverse, lanes
        self.names = [0]
        self.needs: set[str] = set()

    def text(self) -> str:
        whole = self.length // self.width * self.width
        lines = [
            f"define internal void @rows({_GIVEN}) alwaysinline {{",
            "entry:", "br label %row", "row:",
            "%r = phi i64 [%from, %entry], [%r.next, %done]",
            f"%offset = mul nuw nsw i64 %r, {self.length}",
            "%x.row = getelementptr float, ptr %in0, i64 %offset",
            "%y.row = getelementptr float, ptr %out0, i64 %offset",
            "br label %vectors.begin", "vectors.begin:",
        ]  # fmt: skip
        vectors, kind = Text(self.names, self.width), f"<{self.width} x float>"
        nothing = vectors.constant(_NOTHING[self.kind])
        lines += self._loop("vectors", whole, self.width, kind, nothing)
        if whole < self.length:
            lines.append(f"%total = extractelement {kind} %vectors.result, i32 0")
            lines += ["br label %numbers.begin", "numbers.begin:"]
            lines += self._loop("numbers", self.length - whole, 1, "float", "%total", whole)
        lines += [
            "br label %done", "done:",
            "%r.next = add nuw nsw i64 %r, 1",
            "%r.more = icmp slt i64 %r.next, %to",
            "br i1 %r.more, label %row, label %end",
            "end:", "ret void", "}",
        ]  # fmt: skip
        return "\n".join([*sorted(self.needs), *lines])

    def _loop(
        self, name: str, n: int, step: int, kind: str, before: str, first: int = 0
    ) -> list[str]:
        """The loop over ``n`` places behind the first ones, so many at a time.

        ``before``: the combination of all places before, everywhere in a vector; afterwards it is
        ``%name.result``.
        """
        to = Text(self.names, self.width if step > 1 else 0)
        place = f"%{name}.j"
        if self.reverse:
            end = self.length - first - step
            place = to.line(f"sub nuw nsw i64 {end}, %{name}.j")
        elif first:
            place = to.line(f"add nuw nsw i64 {first}, %{name}.j")
        at = to.line(f"getelementptr float, ptr %x.row, i64 {place}")
        x = to.line(f"load {kind}, ptr {at}, align 4")
        before_this = f"%{name}.before"
        if step > 1:
            made, after, last = self._vector(to, x, before_this, name)
        else:
            made, last = self._combined(to, before_this, x), name
            after = made
        at = to.line(f"getelementptr float, ptr %y.row, i64 {place}")
        to.lines.append(f"store {kind} {made}, ptr {at}, align 4")
        self.needs |= to.needs
        return [
            f"br label %{name}", f"{name}:",
            f"%{name}.j = phi i64 [0, %{name}.begin], [%{name}.next, %{last}]",
            f"{before_this} = phi {kind} [{before}, %{name}.begin], [{after}, %{last}]",
            *to.lines,
            f"%{name}.next = add nuw nsw i64 %{name}.j, {step}",
            f"%{name}.more = icmp ult i64 %{name}.next, {n}",
            f"br i1 %{name}.more, label %{name}, label %{name}.end", f"{name}.end:",
            f"%{name}.result = phi {kind} [{after}, %{last}]",
        ]  # fmt: skip

    def _vector(self, to: Text, x: str, before: str, block: str) -> tuple[str, str, str]:
        """The combinations up to each place, the last one everywhere, and the block that has them.

        ``x``: the vector. ``block``: where ``to`` is.
        """
        within, fits = self._within(to, x)
        made = self._combined(to, before, within)
        after = self._combined(to, before, self._last(to, within))
        if self.kind not in _COMBINED:
            return made, after, block
        fits = [*fits, *self._in_range(to, made)]
        flags, function = to.type("i1"), f"@llvm.vector.reduce.and.v{self.width}i1"
        to.needs.add(f"declare i1 {function}({flags})")
        every = fits[0]
        for flag in fits[1:]:
            every = to.op("and", every, flag, "i1")
        every = to.line(f"call i1 {function}({flags} {every})")
        slow, done, kind = f"{block}.slow", f"{block}.done", to.type("float")
        to.lines += [f"br i1 {every}, label %{done}, label %{slow}", f"{slow}:"]
        by_one = self._one_by_one(to, x, before)
        last = self._last(to, by_one)
        to.lines += [f"br label %{done}", f"{done}:"]
        results = [
            to.line(f"phi {kind} [{fast}, %{block}], [{other}, %{slow}]")
            for fast, other in ((made, by_one), (after, last))
        ]
        return results[0], results[1], done

    def _in_range(self, to: Text, x: str) -> list[str]:
        """Where sums are finite, and products have all their digits, too."""
        size = to.call("fabs", x)
        found = [to.compare("ole", size, to.constant(_LARGEST))]
        if self.kind == "mul":
            found.append(to.compare("oge", size, to.constant(_SMALLEST)))
        return found

    def _one_by_one(self, to: Text, x: str, before: str) -> str:
        """The combinations up to each place, in their order."""
        kind, made = to.type("float"), "poison"
        total = to.line(f"extractelement {kind} {before}, i32 0")
        for place in reversed(range(self.width)) if self.reverse else range(self.width):
            number = to.line(f"extractelement {kind} {x}, i32 {place}")
            total = to.line(f"{_COMBINED[self.kind]} float {total}, {number}")
            made = to.line(f"insertelement {kind} {made}, float {total}, i32 {place}")
        return made

    def _within(self, to: Text, x: str) -> tuple[str, list[str]]:
        """Each place of a vector with all those before it in the vector; where that is in range.

        What is no finite number is none in the result. A product that has lost its digits may be
        an ordinary number there.
        """
        nothing, shift, fits = to.constant(_NOTHING[self.kind]), 1, list[str]()
        while shift < self.width:
            x = self._combined(to, self._shifted(to, x, nothing, shift), x)
            shift *= 2
            if self.kind == "mul":
                fits.append(self._in_range(to, x)[1])
        return x, fits

    def _shifted(self, to: Text, x: str, nothing: str, shift: int) -> str:
        """A vector whose places come from ``shift`` places before, or are nothing."""
        n = self.width
        if self.reverse:
            places = [i + shift for i in range(n)]
            first, second = x, nothing
        else:
            places = [n - shift + i for i in range(n)]
            first, second = nothing, x
        return self._shuffled(to, first, second, places)

    def _last(self, to: Text, x: str) -> str:
        """The last place that is reached, everywhere."""
        place = 0 if self.reverse else self.width - 1
        return self._shuffled(to, x, "poison", [place] * self.width)

    def _shuffled(self, to: Text, x: str, y: str, places: list[int]) -> str:
        kind, taken = to.type("float"), ", ".join([f"i32 {i}" for i in places])
        return to.line(f"shufflevector {kind} {x}, {kind} {y}, {to.type('i32')} <{taken}>")

    def _combined(self, to: Text, x: str, y: str) -> str:
        if self.kind in _COMBINED:
            return to.op(_COMBINED[self.kind], x, y)
        return to.call(f"{self.kind}imum", x, y, flags="nsz ")
