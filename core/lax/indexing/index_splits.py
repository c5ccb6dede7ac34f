"""How gathered and scattered arrays are split over Explicit axes: where no device needs another.

Batching axes go in step. Windows that are as long as their axis keep its split. All other axes
that positions select from, and the axes of index vectors, have to be whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracebridge.core.errors.transform_errors import ShardingTypeError
from tracebridge.core.ir.splits import Entries, entries_of

if TYPE_CHECKING:
    from tracebridge.core.ir.aval import ShapedArray


def gathered_entries(avals: Sequence[ShapedArray], out: ShapedArray, params: Any) -> Entries:
    """The entries of the result of ``gather``.

    Raises:
        ShardingTypeError: they are undecided, or devices would have to exchange elements.
    """
    x, indices = avals
    numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
    entries, rows = entries_of(x), [*entries_of(indices)]
    batching = numbers.operand_batching_dims
    in_step = dict(zip(batching, numbers.start_indices_batching_dims, strict=True))
    partial = [i for i in numbers.start_index_map if sizes[i] != x.shape[i]]
    loose = [e for i, e in enumerate(rows) if i not in in_step.values()]
    way = ".at[...].get(out_sharding=)"
    if any([entries[i] is not None for i in partial]) or any([e is not None for e in loose]):
        raise _undecided("gather", way, avals)
    for axis, row in in_step.items():
        rows[row] = _one_of(entries[axis], rows[row], "gather", way, avals)
    dropped = (*numbers.collapsed_slice_dims, *batching)
    windows = iter([e for i, e in enumerate(entries) if i not in dropped])
    others = iter(rows)
    return tuple([next(windows if i in numbers.offset_dims else others) for i in range(out.ndim)])


def scattered_entries(avals: Sequence[ShapedArray], params: Any) -> Entries:
    """The entries of the result of a scatter.

    Raises:
        ShardingTypeError: they are undecided, or devices would have to exchange elements.
    """
    x, indices, updates = avals
    numbers = params["dimension_numbers"]
    entries = [*entries_of(x)]
    rows, given = entries_of(indices), entries_of(updates)
    way = ".at[...].set/add/mul/...(out_sharding=)"
    inserted, batching = numbers.inserted_window_dims, numbers.operand_batching_dims
    in_step = numbers.scatter_indices_batching_dims
    # Axes of the updates beside the window are those of the index vectors, in their order.
    beside = [i for i in range(updates.ndim) if i not in numbers.update_window_dims]
    loose = [
        *[entries[i] for i in inserted],
        rows[-1],
        *[rows[i] for i in range(indices.ndim - 1) if i not in in_step],
        *[given[axis] for i, axis in enumerate(beside) if i not in in_step],
    ]
    window = [i for i in range(x.ndim) if i not in inserted and i not in batching]
    for axis, own in zip(window, numbers.update_window_dims, strict=True):
        # Each device cuts its part out of a window that no axis of the mesh splits.
        if updates.shape[own] != x.shape[axis] or given[own] not in (None, entries[axis]):
            loose += [given[own], entries[axis]]
    if any([e is not None for e in loose]):
        raise _undecided("scatter", way, avals)
    for axis, row in zip(batching, in_step, strict=True):
        both = _one_of(rows[row], given[beside[row]], "scatter", way, avals)
        entries[axis] = _one_of(entries[axis], both, "scatter", way, avals)
    return tuple(entries)


def _one_of(a: Any, b: Any, name: str, way: str, avals: Sequence[ShapedArray]) -> Any:
    """The entry of axes that go in step."""
    if a is not None and b is not None and a != b:
        raise _undecided(name, way, avals)
    return b if a is None else a


def _undecided(name: str, way: str, avals: Sequence[ShapedArray]) -> ShardingTypeError:
    got = ", ".join([a.str_short() for a in avals])
    return ShardingTypeError(
        f"{name} of {got}: devices would have to exchange elements, or how the result is split "
        "remains open",
        hint=f"say it: {way}",
    )
