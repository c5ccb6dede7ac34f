"""Histograms, and reductions of runs of elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.ir.value import Value
from tracebridge.ops.segments import segment_max, segment_min, segment_prod, segment_sum
from tracebridge.torch._translate.numbers import Operator, axis_of, cast

_INT64: Final = np.dtype(np.int64)

# histograms -----------------------------------------------------------------------------------


def _edges(x: Value, count: int, low: Any, high: Any) -> Any:
    """Edges of bins of one size; without given ends, from the least to the largest element."""
    if low is None:
        low, high = (tnp.min(x), tnp.max(x)) if math.prod(x.shape) else (0.0, 1.0)
    low, high = cast(low, x.dtype), cast(high, x.dtype)
    half = tnp.where(low == high, cast(0.5, x.dtype), cast(0, x.dtype))
    return tnp.linspace(low - half, high + half, count + 1, dtype=x.dtype)


def _counts(rows: Value, edges: Sequence[Any], weight: Value | None, density: bool) -> Any:
    """How many rows of coordinates lie in each bin; the last bin has its upper edge too."""
    sizes = [e.shape[0] - 1 for e in edges]
    inside, place = tnp.ones(rows.shape[:1], bool), tnp.zeros(rows.shape[:1], _INT64)
    for axis, (edge, size) in enumerate(zip(edges, sizes, strict=True)):
        x = rows[:, axis]
        inside = inside & (x >= edge[0]) & (x <= edge[-1])
        bin_of = cast(tnp.searchsorted(edge, x, side="right"), _INT64) - 1
        place = place * size + tnp.clip(bin_of, 0, size - 1)
    each = cast(1, rows.dtype) if weight is None else tnp.reshape(weight, (-1,))
    total = tnp.zeros((math.prod(sizes),), rows.dtype)
    total = total.at[place].add(tnp.where(inside, each, cast(0, rows.dtype)))
    total = tnp.reshape(total, sizes)
    if density:
        total = total / tnp.sum(total)
        for axis, edge in enumerate(edges):
            shape = [1] * len(sizes)
            shape[axis] = -1
            total = total / tnp.reshape(tnp.diff(edge), shape)
    return total


def _apart(x: Value, weight: Value | None) -> tuple[Any, Any]:
    """Numbers and weights, by which torch has no derivatives here."""
    return lax.stop_gradient(x), None if weight is None else lax.stop_gradient(weight)


def _histogram_by(
    x: Value, edges: Value, *, weight: Value | None = None, density: bool = False
) -> tuple[Any, Any]:
    x, weight = _apart(x, weight)
    return _counts(tnp.reshape(x, (-1, 1)), [edges], weight, density), edges


def _histogram(
    x: Value,
    bins: int = 100,
    *,
    range: Sequence[float] | None = None,
    weight: Value | None = None,
    density: bool = False,
) -> tuple[Any, Any]:
    edges = _edges(lax.stop_gradient(x), bins, *(range or (None, None)))
    return _histogram_by(x, edges, weight=weight, density=density)


def _edges_of_each(
    x: Value, bins: Sequence[int], *, range: Sequence[float] | None = None, **_: object
) -> list[Any]:
    rows = tnp.reshape(lax.stop_gradient(x), (-1, x.shape[-1]))
    ends = list(range) if range else [None] * (2 * len(bins))
    return [_edges(rows[:, i], n, *ends[2 * i : 2 * i + 2]) for i, n in enumerate(bins)]


def _histogram_of_rows_by(
    x: Value, edges: Sequence[Any], *, weight: Value | None = None, density: bool = False
) -> Any:
    x, weight = _apart(x, weight)
    return _counts(tnp.reshape(x, (-1, x.shape[-1])), edges, weight, density)


def _histogram_of_rows(
    x: Value,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: Value | None = None,
    density: bool = False,
) -> Any:
    edges = _edges_of_each(x, bins, range=range)
    return _histogram_of_rows_by(x, edges, weight=weight, density=density)


# runs -----------------------------------------------------------------------------------------

_RUNS: Final[dict[str, tuple[Any, Any, Operator]]] = {
    # What reduces, what an empty run gives, and how a given start takes part.
    "sum": (segment_sum, 0, tnp.add),
    "mean": (segment_sum, 0, tnp.add),
    "prod": (segment_prod, 1, tnp.multiply),
    "max": (segment_max, -math.inf, lambda y, start: tnp.where(start > y, start, y)),
    "min": (segment_min, math.inf, lambda y, start: tnp.where(start < y, start, y)),
}


def _reduced_runs(
    data: Value,
    reduce: str,
    *,
    lengths: Value | None = None,
    indices: Value | None = None,
    offsets: Value | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> Any:
    """The elements of each run along an axis in one; axes before it have runs of their own."""
    del indices, unsafe  # torch has no use of the first yet
    axis = axis_of(axis, data.ndim)
    lead, rest, size = data.shape[:axis], data.shape[axis + 1 :], data.shape[axis]
    batch = math.prod(lead)
    if offsets is None:
        assert lengths is not None  # torch has looked
        ends = tnp.cumsum(cast(lengths, _INT64), -1)
        offsets = tnp.concatenate([tnp.zeros_like(ends[..., :1]), ends], -1)
    offsets = tnp.reshape(cast(offsets, _INT64), (batch, -1))
    count = offsets.shape[1] - 1
    # The run of each element is the number of ends at or before it.
    here = tnp.arange(size, dtype=_INT64)
    run = tnp.sum(offsets[:, None, 1:] <= here[:, None], -1)
    inside = (run < count) & (here >= offsets[:, :1])
    numbers = tnp.arange(batch, dtype=_INT64)[:, None] * count + run
    numbers = tnp.where(inside, numbers, batch * count)
    fun, empty, combine = _RUNS[reduce]
    flat = tnp.reshape(data, (batch * size, *rest))
    y = fun(flat, tnp.reshape(numbers, (-1,)), batch * count)
    y = tnp.reshape(y, (*lead, count, *rest))
    length = tnp.reshape(tnp.diff(offsets), (*lead, count) + (1,) * len(rest))
    y = tnp.where(length > 0, y, cast(empty, y.dtype))
    if initial is not None:
        y = combine(y, cast(initial, y.dtype))
    if reduce != "mean":
        return y
    mean = y / cast(tnp.maximum(length, 1), y.dtype)
    return mean if initial is not None else tnp.where(length > 0, mean, cast(math.nan, y.dtype))


ROWS: Final[dict[str, Operator]] = {
    "histogram.bin_ct": _histogram,
    "histogram.bins_tensor": _histogram_by,
    "_histogramdd_bin_edges.default": _edges_of_each,
    "_histogramdd_from_bin_cts.default": _histogram_of_rows,
    "_histogramdd_from_bin_tensors.default": _histogram_of_rows_by,
    "segment_reduce.default": _reduced_runs,
}
