"""What XLA calls of kernels that LLVM is still compiling: functions that go on to them later.

XLA looks for the function of a kernel while it compiles a program that calls it. So it gets one
that is there at once, and goes on to where a place in memory tells. LLVM and XLA then work at the
same time. The detour takes a nanosecond of a call.
"""

from __future__ import annotations

import ctypes

from tracebridge.core.kernels.interface import ANSWERS, BEGINNING, FRAME_EXTENSION
from tracebridge.core.kernels.machine import compile_text

_TOGETHER = 4  # in one text: LLVM takes 3 ms for it, and 1 for each
_free: list[Entry] = []


class Entry:
    """A function for XLA: where it lies, and the kernel that it goes on to."""

    __slots__ = ("_place", "address")

    def __init__(self, address: int, place: int) -> None:
        self.address = address
        self._place = ctypes.c_void_p.from_address(place)

    def leads_to(self, kernel: int) -> None:
        """Let it go on to a kernel, whose machine code stays."""
        self._place.value = kernel


def new_entries(n: int) -> list[Entry]:
    """So many that no kernel has yet. Whoever calls has a lock."""
    missing = n - len(_free)
    if missing > 0:
        _free.extend(_made(max(missing, _TOGETHER)))
    taken, _free[:n] = _free[:n], []
    return taken


def _made(n: int) -> list[Entry]:
    places = (ctypes.c_void_p * n)()
    # A program may still run when the interpreter ends and frees what modules have.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(places))
    size, first = ctypes.sizeof(ctypes.c_void_p), ctypes.addressof(places)
    at = [first + k * size for k in range(n)]
    names = [f"entry{k}" for k in range(n)]
    text = "\n".join([ANSWERS, *_ANSWERED, *map(_text, names, at)])
    return list(map(Entry, compile_text(text, names, by_itself=True), at))


def _text(name: str, place: int) -> str:
    """A function that hands calls on to a kernel."""
    lines = [
        f"define ptr @{name}(ptr %frame) {{",
        "entry:",
        f"%extension.at = getelementptr i8, ptr %frame, i64 {FRAME_EXTENSION}",
        "%extension = load ptr, ptr %extension.at",
        "%is_plain = icmp eq ptr %extension, null",
        "br i1 %is_plain, label %call, label %look",
        "look:",
        "%is_done = call i1 @answered(ptr %frame)",
        "br i1 %is_done, label %end, label %call",
        "call:",
        f"%kernel = load ptr, ptr inttoptr (i64 {place} to ptr)",
        "%error = tail call ptr %kernel(ptr %frame)",
        "ret ptr %error",
        "end:",
        "ret ptr null",
        "}",
    ]
    return "\n".join(lines)


# What XLA asks when a kernel is registered, before there is one.
_ANSWERED = [
    "define internal i1 @answered(ptr %frame) noinline {",
    "entry:",
    *[line.replace("ret ptr null", "ret i1 true") for line in BEGINNING],
    "ret i1 false",
    "}",
]
