"""Products of sparse matrices with dense ones of several columns.

They have a primitive, because a kernel computes them faster than gathering and adding up. Vectors
have none: for them the two are as fast.
"""

from __future__ import annotations

import math
from typing import Any

import tracebridge.numpy as tnp
from tracebridge.core.dtypes.dtypes import is_bool
from tracebridge.core.products.coordinates import ANY, ENDS, SORTED, sparse_dot_p
from tracebridge.experimental.sparse._base import Shape


def fits(data: Any, shape: Shape, rhs: Any, axis: int) -> bool:
    """Whether a matrix and an array with an axis to contract are such a product."""
    return (
        data.ndim == 1
        and len(shape) == 2
        and rhs.ndim > 1
        and not is_bool(tnp.promote_types(data.dtype, rhs.dtype))
        and shape[axis] == rhs.shape[0]
    )


def of_coordinates(data: Any, indices: Any, shape: Shape, rhs: Any, axis: int, sorted: bool) -> Any:
    """Contract an axis of a matrix in coordinates with the first one of an array."""
    order = SORTED if sorted and axis == 1 else ANY
    return _product(data, indices[:, 1 - axis], indices[:, axis], shape[1 - axis], rhs, order)


def of_compressed(mat: Any, rhs: Any) -> Any:
    """A matrix in compressed rows, times an array along its first axis; None for other arrays."""
    ends = getattr(mat, "indptr", None)
    by_columns = getattr(mat, "_compressed", 0)
    if ends is None or by_columns or not fits(mat.data, mat.shape, rhs, 1):
        return None
    return _product(mat.data, ends, mat.indices, mat.shape[0], rhs, ENDS)


def _product(data: Any, rows: Any, columns: Any, size: int, rhs: Any, order: str) -> Any:
    dtype = tnp.promote_types(data.dtype, rhs.dtype)
    data, rhs = data.astype(dtype), rhs.astype(dtype)
    rest = rhs.shape[1:]
    flat = rhs.reshape((rhs.shape[0], math.prod(rest)))
    out = sparse_dot_p.bind(data, rows, columns, flat, size=size, order=order)
    return out.reshape((size, *rest))
