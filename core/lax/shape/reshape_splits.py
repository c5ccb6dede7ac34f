"""How reshaped arrays are split over Explicit axes: where it follows without an exchange."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracebridge.core.errors.transform_errors import ShardingTypeError
from tracebridge.core.ir.splits import Entries, entries_of
from tracebridge.core.sharding.partition_spec import entry_names

if TYPE_CHECKING:
    from tracebridge.core.ir.aval import ShapedArray


def reshaped_entries(x: ShapedArray, sizes: Sequence[Any]) -> Entries:
    """The entries of ``x`` with the shape ``sizes``: groups of axes become groups of axes.

    Raises:
        ShardingTypeError: elements of one device would go to several.
    """
    entries = entries_of(x)
    found: list[Any] = []
    groups = _groups(x, sizes)
    if any([len(old) > 1 and len(new) > 1 for old, new in groups]):
        raise _undecided(x, sizes)
    for word, side in (("Splitting", 1), ("Merging", 0)):
        if len([pair for pair in groups if len(pair[side]) > 1]) > 1:
            raise ShardingTypeError(
                f"reshape of {x.str_short()} to the shape {tuple(sizes)}: {word} on more than 1 "
                "axis does not decide how the result is split",
                hint="say it: reshape(..., out_sharding=)",
            )
    for old, new in groups:
        if len(old) == 1 and len(new) == 1:
            found.append(entries[old[0]])
            continue
        names = _leading([entries[i] for i in old])
        if names is None:
            raise _undecided(x, sizes)
        found += _over(names, [sizes[i] for i in new], x, sizes)
    return tuple(found)


def _groups(x: ShapedArray, sizes: Sequence[Any]) -> list[tuple[list[int], list[int]]]:
    """Axes of the operand, and those of the result with the same elements.

    Axes of size 1 of the result stand alone; those of the operand hold no split that matters.
    """
    pairs: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while j < len(sizes) or i < x.ndim:
        if i < x.ndim and x.shape[i] == 1:
            i += 1
            continue
        if j < len(sizes) and sizes[j] == 1:
            pairs.append(([], [j]))
            j += 1
            continue
        if i >= x.ndim or j >= len(sizes):
            raise _undecided(x, sizes)
        old, new = [i], [j]
        left, right = x.shape[i], sizes[j]
        i, j = i + 1, j + 1
        while left != right:
            if i < x.ndim and _is_part(left, right):
                left, i = left * x.shape[i], _into(old, i)
            elif j < len(sizes) and _is_part(right, left):
                right, j = right * sizes[j], _into(new, j)
            else:
                raise _undecided(x, sizes)
        pairs.append((old, new))
    return pairs


def _is_part(size: Any, whole: Any) -> bool:
    """Whether axes of ``size`` elements may be the first ones of some that have ``whole``."""
    if type(size) is int and type(whole) is int:
        return size < whole
    # Which symbolic size is the larger one may be open; that one divides the other is enough.
    rest = whole % size
    return type(rest) is int and rest == 0


def _into(axes: list[int], axis: int) -> int:
    axes.append(axis)
    return axis + 1


def _leading(entries: Sequence[Any]) -> tuple[Any, ...] | None:
    """The names of merged axes, if those that are split stand before those that are not."""
    rows = [entry_names(e) for e in entries]
    while rows and not rows[-1]:
        rows.pop()
    return None if not all(rows) else tuple([n for row in rows for n in row])


def _over(
    names: tuple[Any, ...], sizes: Sequence[Any], x: ShapedArray, whole: Sequence[Any]
) -> list[Any]:
    """Entries of axes that one split axis becomes: its names go to the first of them."""
    if not names:
        return [None] * len(sizes)
    axes: Any = x.sharding.mesh.shape
    left = [*names]
    found: list[Any] = []
    for size in sizes:
        own: list[Any] = []
        rest = size
        while left and rest > 1:
            rest, uneven = divmod(rest, axes[left[0]])
            if uneven:
                raise _undecided(x, whole)
            own.append(left.pop(0))
        found.append(tuple(own))
    if left:
        raise _undecided(x, whole)
    return found


def _undecided(x: ShapedArray, sizes: Sequence[Any]) -> ShardingTypeError:
    return ShardingTypeError(
        f"reshape of {x.str_short()} to the shape {tuple(sizes)} does not decide how the result is "
        "split",
        hint="say it: reshape(..., out_sharding=)",
    )
