"""Coordinates: which are valid, their order, equal ones among them.

Arrays of coordinates have shape ``(*batch, nse, n_sparse)``. Coordinates outside of the shape are
padding: all of them are the same to every function here, and the last in every order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge.experimental.sparse._base import Shape
from tracebridge.experimental.sparse._bcoo.array import BCOO


def sparse_sizes(mat: BCOO) -> Shape:
    """The sizes of the axes with coordinates."""
    return mat.shape[mat.n_batch : mat.n_batch + mat.n_sparse]


def batch_sizes(mat: BCOO) -> Shape:
    """The sizes of the axes of batches."""
    return mat.shape[: mat.n_batch]


def dense_sizes(mat: BCOO) -> Shape:
    """The sizes of the axes along which elements are stored whole."""
    return mat.shape[mat.n_batch + mat.n_sparse :]


def widened(mat: BCOO) -> BCOO:
    """The array with an element and coordinates for each batch, none shared by all."""
    batch = batch_sizes(mat)
    if mat.data.shape[: mat.n_batch] == mat.indices.shape[: mat.n_batch] == batch:
        return mat
    return BCOO(
        (
            tnp.broadcast_to(mat.data, (*batch, *mat.data.shape[mat.n_batch :])),
            tnp.broadcast_to(mat.indices, (*batch, *mat.indices.shape[mat.n_batch :])),
        ),
        shape=mat.shape,
        indices_sorted=mat.indices_sorted,
        unique_indices=mat.unique_indices,
    )


def columns(indices: Any) -> list[Any]:
    """The coordinates of each axis: arrays of shape ``(*batch, nse)``."""
    return [indices[..., k] for k in range(indices.shape[-1])]


def joined(found: Sequence[Any], like: Any) -> Any:
    """Coordinates from those of each axis; ``like``: others of the same elements."""
    if not found:
        return tnp.zeros((*like.shape[:-1], 0), like.dtype)
    return tnp.stack([c.astype(like.dtype) for c in found], axis=-1)


def valid(indices: Any, sizes: Shape) -> Any:
    """Whether coordinates lie within the shape: booleans of shape ``(*batch, nse)``."""
    limits = np.asarray(sizes, indices.dtype)
    return tnp.all((indices >= 0) & (indices < limits), axis=-1)


def not_negative(indices: Any, sizes: Shape) -> Any:
    """The coordinates; negative ones, which an index would count from the end, are padding."""
    return tnp.where(indices < 0, np.asarray(sizes, indices.dtype), indices)


def padding(sizes: Shape, dtype: Any) -> Any:
    """Coordinates outside of the shape: one vector."""
    return tnp.asarray(np.asarray(sizes, dtype))


def with_padding(indices: Any, sizes: Shape, keep: Any) -> Any:
    """The coordinates, of padding where ``keep`` is false."""
    return tnp.where(keep[..., None], indices, padding(sizes, indices.dtype))


def along_data(flags: Any, data: Any) -> Any:
    """Flags of elements, with the axes that dense axes of the data need to broadcast."""
    return flags.reshape((*flags.shape, *[1] * (data.ndim - flags.ndim)))


def cleared(data: Any, keep: Any) -> Any:
    """The data, zero where ``keep`` is false."""
    return tnp.where(along_data(keep, data), data, tnp.zeros((), data.dtype))


def without_padding(mat: BCOO) -> Any:
    """The data, zeros at padding: for operations after which its coordinates are valid ones."""
    return cleared(mat.data, valid(mat.indices, sparse_sizes(mat)))


def batch_index(shape: Sequence[int]) -> list[Any]:
    """For each axis of batches its numbers, to be indexed with beside arrays ``(*batch, nse)``."""
    n = len(shape)
    return [
        tnp.arange(size, dtype="int32").reshape((*[1] * k, size, *[1] * (n - k)))
        for k, size in enumerate(shape)
    ]


def keys_of(indices: Any, sizes: Shape) -> list[Any]:
    """What to sort by: one number per element if it fits into 32 bits, else one for each axis."""
    keep = valid(indices, sizes)
    if not sizes:
        return [tnp.zeros(keep.shape, "int32")]
    total = math.prod(sizes)
    if total < np.iinfo(np.int32).max:
        number = tnp.zeros(keep.shape, "int32")
        for column, size in zip(columns(indices), sizes, strict=True):
            number = number * np.int32(size) + column.astype("int32")
        return [tnp.where(keep, number, np.int32(total))]
    limits = np.asarray(sizes, indices.dtype)
    return [tnp.where(keep, c, n) for c, n in zip(columns(indices), limits, strict=True)]


def order_of(keys: Sequence[Any]) -> list[Any]:
    """The keys in order, and the positions from which they come; equal ones keep their order."""
    positions = tnp.broadcast_to(tnp.arange(keys[0].shape[-1], dtype="int32"), keys[0].shape)
    return list(lax.sort((*keys, positions), dimension=-1, num_keys=len(keys)))


def taken(x: Any, positions: Any) -> Any:
    """Elements of the axis of elements of ``x``, in each batch those at its own positions."""
    axis = positions.ndim - 1
    return tnp.take_along_axis(x, along_data(positions, x), axis=axis, mode="clip")


def first_of_equals(keys: Sequence[Any]) -> Any:
    """Whether sorted keys differ from the one before."""
    differs = [k[..., 1:] != k[..., :-1] for k in keys]
    changed = differs[0]
    for d in differs[1:]:
        changed = changed | d
    if keys[0].shape[-1] == 0:
        return tnp.zeros(keys[0].shape, bool)
    return tnp.concatenate([tnp.ones((*changed.shape[:-1], 1), bool), changed], axis=-1)


def matches(wanted: Any, among: Any, sizes: Shape) -> tuple[Any, Any]:
    """For coordinates ``wanted`` the position of equal ones in ``among``, and whether there are.

    Where several are equal it is the last one. Batches of both have the same sizes.
    """
    count = among.shape[-2]
    both = tnp.concatenate([among, wanted], axis=-2)
    keys = keys_of(both, sizes)
    *ordered, positions = order_of(keys)
    # The sort is stable: equal ones of `among` stand before those that look for them.
    own = positions < count
    last = lax.cummax(tnp.where(own, tnp.arange(own.shape[-1], dtype="int32"), -1), own.ndim - 1)
    at = tnp.maximum(last, 0)
    equal = (last >= 0) & ~own
    for key in ordered:
        equal = equal & (taken(key, at) == key)
    found = taken(positions, at)
    back = order_of([positions])[-1]
    equal, found = [taken(x, back)[..., count:] for x in (equal, found)]
    return found, equal & valid(wanted, sizes)
