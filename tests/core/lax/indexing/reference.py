"""gather and scatter in plain loops over NumPy arrays, and random geometry for them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from tracebridge import lax


class Geometry(NamedTuple):
    """A gather, or with the same axes a scatter: shapes and dimension numbers."""

    shape: tuple[int, ...]
    indices_shape: tuple[int, ...]
    sizes: tuple[int, ...]
    out_shape: tuple[int, ...]
    numbers: tuple[tuple[int, ...], ...]
    """offset, collapsed, index map, batching axes of the operand and of the indices."""

    @property
    def gather_numbers(self) -> Any:
        """The dimension numbers of a gather."""
        return lax.GatherDimensionNumbers(*self.numbers)

    @property
    def scatter_numbers(self) -> Any:
        """The dimension numbers of the scatter to the same places."""
        return lax.ScatterDimensionNumbers(*self.numbers)


@st.composite
def geometries(draw: st.DrawFn) -> Geometry:
    """Valid geometries of up to three operand axes and two index axes."""
    ndim = draw(st.integers(1, 3))
    shape = [draw(st.integers(1, 4)) for _ in range(ndim)]
    batch_ndim = draw(st.integers(0, 2))
    index_batch = [draw(st.integers(1, 3)) for _ in range(batch_ndim)]
    kinds = draw(st.lists(st.sampled_from("bcw"), min_size=ndim, max_size=ndim))
    operand_batching: list[int] = []
    index_batching: list[int] = []
    free = draw(st.permutations(range(batch_ndim)))
    for axis, kind in enumerate(kinds):
        if kind == "b" and len(index_batching) < batch_ndim:
            of_indices = free[len(index_batching)]
            index_batching.append(of_indices)
            operand_batching.append(axis)
            shape[axis] = index_batch[of_indices]
        elif kind == "b":
            kinds[axis] = "w"
    collapsed = [a for a in range(ndim) if kinds[a] == "c"]
    candidates = [a for a in range(ndim) if a not in operand_batching]
    index_map = draw(st.permutations(candidates))[: draw(st.integers(0, len(candidates)))]
    fixed = {*collapsed, *operand_batching}
    sizes = [1 if a in fixed else draw(st.integers(0, n)) for a, n in enumerate(shape)]
    window = [n for a, n in enumerate(sizes) if a not in fixed]
    out_ndim = len(window) + batch_ndim
    offset = sorted(draw(st.permutations(range(out_ndim)))[: len(window)])
    of_window, of_batch = iter(window), iter(index_batch)
    out = [next(of_window if i in offset else of_batch) for i in range(out_ndim)]
    return Geometry(
        tuple(shape),
        (*index_batch, len(index_map)),
        tuple(sizes),
        tuple(out),
        (
            tuple(offset),
            tuple(collapsed),
            tuple(index_map),
            tuple(operand_batching),
            tuple(index_batching),
        ),
    )


def places(g: Geometry, indices: np.ndarray[Any, Any], mode: str) -> Iterator[tuple[Any, Any]]:
    """Pairs of positions: in the result or the updates, and in the operand or None if outside."""
    offset, collapsed, index_map, of_operand, of_indices = g.numbers
    kept = [a for a in range(len(g.shape)) if a not in collapsed and a not in of_operand]
    for position in itertools.product(*[range(n) for n in g.out_shape]):
        batch = [p for i, p in enumerate(position) if i not in offset]
        start = [0] * len(g.shape)
        for k, axis in enumerate(index_map):
            start[axis] = int(indices[(*batch, k)])
        for axis, i in zip(of_operand, of_indices, strict=True):
            start[axis] = batch[i]
        limits = [n - m for n, m in zip(g.shape, g.sizes, strict=True)]
        inside = all([0 <= s <= n for s, n in zip(start, limits, strict=True)])
        if mode == "clip":
            start = [min(max(s, 0), n) for s, n in zip(start, limits, strict=True)]
        for axis, i in zip(kept, offset, strict=True):
            start[axis] += position[i]
        yield position, tuple(start) if inside or mode == "clip" else None


def gathered(
    x: np.ndarray[Any, Any], indices: np.ndarray[Any, Any], g: Geometry, mode: str, fill: Any
) -> np.ndarray[Any, Any]:
    """What gather gives."""
    out = np.full(g.out_shape, fill, x.dtype)
    for position, source in places(g, indices, mode):
        if source is not None:
            out[position] = x[source]
    return out


def scattered(
    x: np.ndarray[Any, Any],
    indices: np.ndarray[Any, Any],
    updates: np.ndarray[Any, Any],
    g: Geometry,
    mode: str,
    combine: Any,
) -> np.ndarray[Any, Any]:
    """What a scatter with ``combine`` gives."""
    out = x.copy()
    for position, target in places(g, indices, mode):
        if target is not None:
            out[target] = combine(out[target], updates[position])
    return out
