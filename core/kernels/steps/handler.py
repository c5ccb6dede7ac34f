"""What XLA calls of a kernel of steps: a handler of its typed FFI, written as LLVM's text."""

from __future__ import annotations

from collections.abc import Sequence

from tracebridge.core.kernels.interface import BEGINNING, SHARED, attribute_at, pointers
from tracebridge.core.kernels.sharing import (
    HELP,
    LEFT,
    SHARED_OUT,
    STATE_BLOCKS,
    STATE_PER_BLOCK,
    STATE_ROWS,
    arrays_of_block,
    state,
)
from tracebridge.core.kernels.steps.arrays import Arrays
from tracebridge.core.kernels.waiting import ENTRY

_HANDLER = [f"define ptr @{ENTRY}(ptr %frame) {{", "entry:", *BEGINNING, *attribute_at()]


def handler(arrays: Arrays) -> str:
    """One thread does all steps: ``@steps(arrays, 0, length)``."""
    n_in, n = _sizes(arrays)
    found, names = pointers(n_in, n)
    lines = [*_HANDLER, "%length = load i64, ptr %numbers", *found]
    return "\n".join([SHARED, *lines, _steps(names, "0", "%length"), "ret ptr null", "}"])


def handler_of_parts(arrays: Arrays) -> str:
    """Threads share parts: ``@steps(parts of arrays, 0, length)`` for each."""
    n_in, n = _sizes(arrays)
    lines, names = arrays_of_block(n_in, n)
    for i, name in enumerate(names):
        (step,) = arrays.operand_steps(i) if i < n_in else arrays.result_steps(i - n_in)
        lines.append(f"%shift{i} = mul nuw nsw i64 %b, {step}")
        lines.append(f"%part{i} = getelementptr i8, ptr {name}, i64 %shift{i}")
    lines += _number("length", STATE_ROWS)
    call = _steps([f"%part{i}" for i in range(n)], "0", "%length")
    # How many parts there are is found when the text is written: whoever calls does not know.
    (count,) = arrays.counts
    at = f"%blocks.at = getelementptr i8, ptr %state, i64 {STATE_BLOCKS}"
    return _shared(n_in, n, [*lines, call], [at, f"store i64 {count}, ptr %blocks.at"])


def handler_of_tiles(arrays: Arrays) -> str:
    """Threads share tiles: ``@steps(arrays, number of the tile, length)`` for each."""
    n_in, n = _sizes(arrays)
    lines, names = arrays_of_block(n_in, n)
    lines += _number("length", STATE_ROWS)
    return _shared(n_in, n, [*lines, _steps(names, "%b", "%length")])


def handler_of_blocks(arrays: Arrays) -> str:
    """Threads share blocks of steps: ``@steps(arrays, first, number)`` for each."""
    n_in, n = _sizes(arrays)
    lines, names = arrays_of_block(n_in, n)
    lines += [*_number("all", STATE_ROWS), *_number("per_block", STATE_PER_BLOCK)]
    lines += [
        "%first = mul nuw nsw i64 %b, %per_block",
        "%rest = sub nsw i64 %all, %first",
        "%is_last = icmp ult i64 %rest, %per_block",
        "%length = select i1 %is_last, i64 %rest, i64 %per_block",
    ]
    return _shared(n_in, n, [*lines, _steps(names, "%first", "%length")])


def _sizes(arrays: Arrays) -> tuple[int, int]:
    n_in = len(arrays.in_avals)
    return n_in, n_in + len(arrays.out_avals)


def _number(name: str, place: int) -> list[str]:
    at = f"%{name}.at = getelementptr i8, ptr %state, i64 {place}"
    return [at, f"%{name} = load i64, ptr %{name}.at"]


def _steps(names: list[str], first: str, length: str) -> str:
    given = [*[f"ptr {name}" for name in names], f"i64 {first}", f"i64 {length}"]
    return f"call void @steps({', '.join(given)})"


def _shared(n_in: int, n: int, block: list[str], begin: Sequence[str] = ()) -> str:
    lines = ["define internal void @block(ptr %state, i64 %b) {", "entry:", *block]
    found, names = pointers(n_in, n)
    lines += ["ret void", "}", SHARED, HELP, *_HANDLER, *found, *state(names), *begin]
    return "\n".join([*lines, SHARED_OUT, LEFT, "ret ptr null", "}"])
