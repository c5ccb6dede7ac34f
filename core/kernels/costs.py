"""What kernels cost, for XLA's cost analysis, which knows nothing of them.

A call has an array of numbers, of which the first is how many rows or steps there are.
"""

from __future__ import annotations

import math
import re

from tracebridge.core._jaxlib.ffi import KERNEL
from tracebridge.core.kernels.waiting import write_kernel

_CALL = re.compile(
    rf'= (?P<out>.*?) custom-call\(.*custom_call_target="(?P<name>{KERNEL}\w+)".*'
    r"operand_layout_constraints=\{(?P<operands>.*?\})\}.*array<i64: (?P<rows>\d+),",
    re.MULTILINE,
)
_ARRAY = re.compile(r"(f32|s32|pred|f16|bf16)\[([\d,]*)\]")
_SIZES = {"f32": 4, "s32": 4, "pred": 1, "f16": 2, "bf16": 2}
_counts: dict[str, tuple[int, int]] = {}
"""By name: how many operations a row or step takes, cheap ones, and exponentials and the like."""


def remember_costs(name: str, cheap: int, dear: int) -> None:
    """Remember how many operations of a kernel a row or a step takes."""
    _counts[name] = cheap, dear


def _operations(name: str) -> tuple[int, int]:
    """How many they are; a kernel that no program has needed so far is written for that."""
    if name not in _counts:
        write_kernel(name)
    return _counts.get(name, (0, 0))


def with_kernels(costs: dict[str, float], text: str) -> dict[str, float]:
    """XLA's ``costs`` of a program with those of the kernels that the text of its HLO calls.

    XLA takes -1 for what it does not know.
    """
    costs = dict(costs)
    for call in _CALL.finditer(text):
        cheap, dear = _operations(call["name"])
        rows = int(call["rows"])
        moved = sum(
            [_bytes(a) for part in ("out", "operands") for a in _ARRAY.finditer(call[part])]
        )
        more = {"flops": cheap * rows, "bytes accessed": moved}
        for name, count in more.items():
            costs[name] = costs.get(name, -1.0) + 1.0 + count
        costs["transcendentals"] = costs.get("transcendentals", 0.0) + dear * rows
    return costs


def _bytes(array: re.Match[str]) -> int:
    sizes = [int(n) for n in array[2].split(",") if n]
    return _SIZES[array[1]] * math.prod(sizes)
