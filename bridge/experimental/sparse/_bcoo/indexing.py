"""Indices of BCOO arrays: ``mat[index]``."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

import tracebridge.numpy as tnp
from tracebridge.core.compat.traces import is_concrete
from tracebridge.core.errors.argument_errors import ArgumentTypeError, kind_of
from tracebridge.core.errors.shape_errors import IndexingError
from tracebridge.core.ir.typeof import is_array_like
from tracebridge.core.lax.indexing.modes import GatherDimensionNumbers
from tracebridge.experimental.sparse._bcoo.array import BCOO
from tracebridge.experimental.sparse._bcoo.moves import (
    bcoo_broadcast_in_dim,
    bcoo_rev,
    bcoo_squeeze,
)
from tracebridge.experimental.sparse._bcoo.slices import (
    bcoo_dynamic_slice,
    bcoo_gather,
    bcoo_slice,
)


def indexed(mat: BCOO, index: Any) -> BCOO:
    """The part of an array that an index names, with the axes that NumPy gives it."""
    entries = _entries(mat, index)
    arrays = [k for k, e in enumerate(entries) if _is_array(e)]
    axis = 0
    starts: list[Any] = [0] * mat.ndim
    sizes, steps, flipped = list(mat.shape), [1] * mat.ndim, list[int]()
    dynamic = False
    for entry in entries:
        if entry is None:
            continue
        if isinstance(entry, slice):
            begin, end, step = entry.indices(mat.shape[axis])
            count = len(range(begin, end, step))
            if step < 0:
                flipped.append(axis)
                begin, step = begin + (count - 1) * step if count else 0, -step
            starts[axis], sizes[axis], steps[axis] = begin if count else 0, count, step
        elif not arrays:
            starts[axis], sizes[axis] = _number(entry, mat, axis), 1
            dynamic = dynamic or not isinstance(starts[axis], int)
        axis += 1
    out = _cut(mat, starts, sizes, steps, dynamic)
    if flipped:
        out = bcoo_rev(out, flipped)
    if arrays:
        return _at_arrays(out, entries)
    gone: list[int] = []
    axes = iter(range(out.ndim))
    kept: list[int] = []
    for entry in entries:
        if entry is None:
            kept.append(-1)
        elif isinstance(entry, slice):
            kept.append(next(axes))
        else:
            gone.append(next(axes))
    if gone:
        out = bcoo_squeeze(out, dimensions=gone)
    return _with_new_axes(out, [a < 0 for a in kept])


def _with_new_axes(mat: BCOO, new: list[bool]) -> BCOO:
    """The array with axes of size 1 where ``new`` says so."""
    if not any(new):
        return mat
    places = [k for k, is_new in enumerate(new) if not is_new]
    sizes = [1] * len(new)
    for k, n in zip(places, mat.shape, strict=True):
        sizes[k] = n
    return bcoo_broadcast_in_dim(mat, shape=sizes, broadcast_dimensions=places)


def _entries(mat: BCOO, index: Any) -> list[Any]:
    """One entry for each axis, and None for new ones; masks as the positions of what is true."""
    entries: list[Any] = []
    for entry in index if isinstance(index, tuple) else (index,):
        if isinstance(entry, list):
            entry = np.asarray(entry)  # noqa: PLW2901 - a list is an array
        if is_array_like(entry) and tnp.asarray(entry).dtype == bool:
            entries += tnp.nonzero(tnp.asarray(entry))
        else:
            entries.append(entry)
    dots = [k for k, e in enumerate(entries) if e is Ellipsis]
    named = len([e for e in entries if e is not None and e is not Ellipsis])
    if len(dots) > 1 or named > mat.ndim:
        msg = f"index {index!r} of a BCOO array with {mat.ndim} axes"
        raise IndexingError(msg, expected="an entry for each axis, and at most one ...")
    rest = [slice(None)] * (mat.ndim - named)
    if dots:
        entries[dots[0] : dots[0] + 1] = rest
    else:
        entries += rest
    for entry in entries:
        if entry is None or isinstance(entry, slice):
            continue
        if not is_array_like(entry) or not np.issubdtype(tnp.asarray(entry).dtype, np.integer):
            msg = f"index of a BCOO array: got {kind_of(entry)}"
            raise ArgumentTypeError(msg, expected="integers, slices, None, ... and integer arrays")
    return entries


def _is_array(entry: Any) -> bool:
    return entry is not None and not isinstance(entry, slice) and tnp.ndim(entry) > 0


def _number(entry: Any, mat: BCOO, axis: int) -> Any:
    """A position along an axis, an int where it is known."""
    if not is_concrete(entry):
        return entry
    found = operator.index(entry)
    size = mat.shape[axis]
    if not -size <= found < size:
        msg = f"index {found} is out of bounds for axis {axis} of size {size}"
        raise IndexingError(msg)
    return found % size


def _cut(mat: BCOO, starts: list[Any], sizes: list[int], steps: list[int], dynamic: bool) -> BCOO:
    if dynamic:
        static = [0 if not isinstance(s, int) else s for s in starts]
        full = [
            n if not isinstance(s, int) else k
            for s, n, k in zip(starts, mat.shape, sizes, strict=True)
        ]
        out = _cut(mat, static, full, steps, False)
        moving = [0 if isinstance(s, int) else s for s in starts]
        return bcoo_dynamic_slice(out, moving, sizes)
    limits = [
        min(s + (n - 1) * c + 1, whole) if n else s
        for s, n, c, whole in zip(starts, sizes, steps, mat.shape, strict=True)
    ]
    if not any(starts) and limits == list(mat.shape) and steps == [1] * mat.ndim:
        return mat
    return bcoo_slice(mat, start_indices=starts, limit_indices=limits, strides=steps)


def _at_arrays(mat: BCOO, entries: list[Any]) -> BCOO:
    """The parts at arrays of integers; single numbers count as arrays beside them."""
    places = [k for k, e in enumerate(entries) if e is not None and not isinstance(e, slice)]
    # As in NumPy, a new axis between two arrays separates them like a slice does.
    together = places == list(range(places[0], places[0] + len(places)))
    front = places[0] if together else 0
    new = [e is None for e in entries if e is None or isinstance(e, slice)]
    entries = [e for e in entries if e is not None]
    axes = [k for k, e in enumerate(entries) if not isinstance(e, slice)]
    arrays = [
        tnp.where(a < 0, a + mat.shape[k], a) for k in axes for a in [tnp.asarray(entries[k])]
    ]
    arrays = tnp.broadcast_arrays(*arrays)
    parts = arrays[0].ndim
    first = axes[0] if together else 0
    n = mat.ndim - len(axes) + parts
    numbers = GatherDimensionNumbers(
        offset_dims=tuple([a for a in range(n) if not first <= a < first + parts]),
        collapsed_slice_dims=tuple(axes),
        start_index_map=tuple(axes),
    )
    sizes = [1 if k in axes else size for k, size in enumerate(mat.shape)]
    out = bcoo_gather(mat, tnp.stack(arrays, axis=-1), numbers, sizes, mode="clip")
    return _with_new_axes(out, [*new[:front], *[False] * parts, *new[front:]])
