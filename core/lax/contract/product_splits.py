"""How products of arrays are split over Explicit axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracebridge.core.errors.transform_errors import ShardingTypeError
from tracebridge.core.ir.splits import Entries, entries_of

if TYPE_CHECKING:
    from tracebridge.core.ir.aval import ShapedArray


def product_entries(x: ShapedArray, y: ShapedArray, numbers: Any) -> Entries:
    """The entries of ``dot_general`` of two operands.

    Raises:
        ShardingTypeError: batch axes are split in two ways, or contracting axes of both operands
            are split, so that each device has a part of the sums.
    """
    (xc, yc), (xb, yb) = numbers
    left, right = entries_of(x), entries_of(y)
    batch = _agreed(
        "batch",
        [left[i] for i in xb],
        [right[i] for i in yb],
    )
    summed = [left[i] for i in xc], [right[i] for i in yc]
    _agreed("contracting", *summed)
    if sums_in_parts(x, y, numbers):
        raise ShardingTypeError(
            f"dot_general: Contracting dimensions are sharded, {tuple(summed[0])} and "
            f"{tuple(summed[1])}, "
            "which leaves open whether the sums are split too",
            hint="say it: out_sharding=",
        )
    return (
        *batch,
        *[entry for i, entry in enumerate(left) if i not in (*xc, *xb)],
        *[entry for i, entry in enumerate(right) if i not in (*yc, *yb)],
    )


def sums_in_parts(x: ShapedArray, y: ShapedArray, numbers: Any) -> bool:
    """Whether contracting axes of both operands are split: ``dot_general`` asks then how."""
    (xc, yc), _ = numbers
    left, right = entries_of(x), entries_of(y)
    return any([left[i] is not None and right[j] is not None for i, j in zip(xc, yc, strict=True)])


def _agreed(kind: str, left: list[Any], right: list[Any]) -> list[Any]:
    """The entries of axes that go in step."""
    pairs = list(zip(left, right, strict=True))
    if any([a is not None and b is not None and a != b for a, b in pairs]):
        raise ShardingTypeError(
            f"dot_general: {kind} dimensions of the operands need consistent sharding, got "
            f"{tuple(left)} and {tuple(right)}",
            hint="reshard an operand first: tracebridge.sharding.reshard",
        )
    return [b if a is None else a for a, b in pairs]
