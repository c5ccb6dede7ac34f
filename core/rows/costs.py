"""What kernels over rows cost, for XLA's cost analysis, which knows nothing of them."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from tracebridge.core._jaxlib.ffi import ROW_KERNEL
from tracebridge.core.rows.functions import EXPENSIVE

if TYPE_CHECKING:
    from tracebridge.core.rows.frame import RowProgram

_CALL = re.compile(
    rf'= (?P<out>.*?) custom-call\(.*custom_call_target="(?P<name>{ROW_KERNEL}\w+)".*'
    r"operand_layout_constraints=\{(?P<operands>.*?\})\}.*array<i64: (?P<rows>\d+),",
    re.MULTILINE,
)
_ARRAY = re.compile(r"(f32|s32|pred|f16|bf16)\[([\d,]*)\]")
_SIZES = {"f32": 4, "s32": 4, "pred": 1, "f16": 2, "bf16": 2}
_counts: dict[str, tuple[int, int]] = {}
"""By name: how many operations a row or step takes, cheap ones, and exponentials and their like."""


def remember_costs(name: str, program: RowProgram) -> None:
    """Count the operations of a kernel over rows."""
    made = [n for n in program.nodes if n.kind not in ("load", "number", "index")]
    along = [n.along or n.kind == "reduce" for n in made]
    dear = sum([a for n, a in zip(made, along, strict=True) if is_dear(n.kind)])
    remember(name, (sum(along) - dear) * program.length, dear * program.length)


def is_dear(kind: str) -> bool:
    """Whether an equation is an exponential or the like."""
    return kind in EXPENSIVE - {"div"}


def remember(name: str, cheap: int, dear: int) -> None:
    """How many operations the kernel ``name`` takes in each row or step."""
    _counts[name] = cheap, dear


def with_kernels(costs: dict[str, float], text: str) -> dict[str, float]:
    """XLA's ``costs`` of a program with those of the kernels that the text of its HLO calls.

    XLA takes -1 for what it does not know.
    """
    costs = dict(costs)
    for call in _CALL.finditer(text):
        cheap, dear = _counts.get(call["name"], (0, 0))
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
