"""Sums, products and extremes of the elements with the same number."""

from __future__ import annotations

from typing import Any

import numpy as np

import tracebridge.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.errors.argument_errors import ArgumentValueError, size_of
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.lax.ad_util import full_of
from tracebridge.core.lax.families import is_narrow
from tracebridge.core.lax.reduce.extremes import largest, smallest
from tracebridge.core.lax.shape.axes import surely_less
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.core.symbolic.compare import at_least, is_empty
from tracebridge.numpy._staging import concrete


def segment_sum(
    data: ArrayLike,
    segment_ids: ArrayLike,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: object = None,
    out_sharding: object = None,
) -> Array:
    """Sums of the rows with the same number.

    Args:
        data: array of shape ``(n, *rest)``; a number, or a single row, is that of each number.
        segment_ids: integers of shape ``(n,)``: the segment of each row. Rows of negative
            numbers, and of numbers from ``num_segments`` on, take no part.
        num_segments: how many segments there are; default: the largest number plus 1, which has
            to be known when a program is traced.
        indices_are_sorted: whether ``segment_ids`` ascend.
        unique_indices: whether no segment has two rows.
        bucket_size: combine so many rows at a time, then the results: better rounding.
        mode: what happens to rows of other numbers, see ``GatherScatterMode``.
        out_sharding: how to split the result.

    Returns:
        Array of shape ``(num_segments, *rest)``; a segment without rows gives 0.

    Raises:
        ArgumentValueError: a negative number of segments.
        ConcretizationTypeError: ``num_segments`` is not given, and ``segment_ids`` are traced.
        ShapeMismatchError: ``segment_ids`` are not one for each row.

    >>> import tracebridge as tb
    >>> tb.ops.segment_sum(tb.numpy.arange(5), tb.numpy.array([0, 0, 1, 1, 2])).tolist()
    [1, 5, 4]
    """
    return _segments("sum", data, segment_ids, num_segments, indices_are_sorted, unique_indices,
                     bucket_size, mode, out_sharding)  # fmt: skip


def segment_prod(
    data: ArrayLike,
    segment_ids: ArrayLike,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: object = None,
    out_sharding: object = None,
) -> Array:
    """Products of the rows with the same number; arguments as in ``segment_sum``.

    Returns:
        Array of shape ``(num_segments, *rest)``; a segment without rows gives 1.

    >>> import tracebridge as tb
    >>> tb.ops.segment_prod(tb.numpy.arange(5), tb.numpy.array([0, 0, 1, 1, 2])).tolist()
    [0, 6, 4]
    """
    return _segments("prod", data, segment_ids, num_segments, indices_are_sorted, unique_indices,
                     bucket_size, mode, out_sharding)  # fmt: skip


def segment_max(
    data: ArrayLike,
    segment_ids: ArrayLike,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: object = None,
    out_sharding: object = None,
) -> Array:
    """Maxima of the rows with the same number; arguments as in ``segment_sum``.

    Returns:
        Array of shape ``(num_segments, *rest)``; a segment without rows gives minus infinity, or
        the smallest integer.

    >>> import tracebridge as tb
    >>> tb.ops.segment_max(tb.numpy.arange(5), tb.numpy.array([0, 0, 1, 1, 2])).tolist()
    [1, 3, 4]
    """
    return _segments("max", data, segment_ids, num_segments, indices_are_sorted, unique_indices,
                     bucket_size, mode, out_sharding)  # fmt: skip


def segment_min(
    data: ArrayLike,
    segment_ids: ArrayLike,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: object = None,
    out_sharding: object = None,
) -> Array:
    """Minima of the rows with the same number; arguments as in ``segment_sum``.

    Returns:
        Array of shape ``(num_segments, *rest)``; a segment without rows gives infinity, or the
        largest integer.

    >>> import tracebridge as tb
    >>> tb.ops.segment_min(tb.numpy.arange(5), tb.numpy.array([0, 0, 1, 1, 2])).tolist()
    [0, 2, 4]
    """
    return _segments("min", data, segment_ids, num_segments, indices_are_sorted, unique_indices,
                     bucket_size, mode, out_sharding)  # fmt: skip


def _identity(kind: str, dtype: Array) -> Any:
    if kind == "max":
        return smallest(dtype)
    return largest(dtype) if kind == "min" else int(kind == "prod")


_SCATTERS = {
    "sum": lax.scatter_add,
    "prod": lax.scatter_mul,
    "max": lax.scatter_max,
    "min": lax.scatter_min,
}
_REDUCTIONS = {
    "sum": lax.reduce_sum,
    "prod": lax.reduce_prod,
    "max": lax.reduce_max,
    "min": lax.reduce_min,
}


def _rows_and_numbers(call: str, data: ArrayLike, segment_ids: ArrayLike) -> tuple[Array, Array]:
    x, ids = tnp.asarray(data), tnp.asarray(segment_ids)
    if ids.ndim == 1 and (x.ndim == 0 or x.shape[0] == 1):
        x = tnp.broadcast_to(x, (ids.shape[0], *x.shape[1:]))
    elif ids.ndim != 1 or x.shape[:1] != ids.shape:
        msg = f"{call}: data has shape {x.shape} and segment_ids {ids.shape}"
        raise ShapeMismatchError(msg, expected="one number for each row of data")
    return x, ids


def _segments(
    kind: str,
    data: ArrayLike,
    segment_ids: ArrayLike,
    num_segments: int | None,
    indices_are_sorted: bool,
    unique_indices: bool,
    bucket_size: int | None,
    mode: object,
    out_sharding: object,
) -> Any:
    call = f"segment_{kind}"
    x, ids = _rows_and_numbers(call, data, segment_ids)
    if num_segments is None:
        known = concrete(ids, f"{call}: the number of segments", "give num_segments")
        # An initial value below 0 would be none of unsigned numbers.
        num_segments = max(int(np.max(known)) + 1, 0) if known.size else 0
    count = size_of(num_segments, call, "num_segments")
    if surely_less(count, 0):
        msg = f"{call}: num_segments is {count}, expected at least 0"
        raise ArgumentValueError(msg)
    if is_empty(count):
        return tnp.zeros((0, *x.shape[1:]), x.dtype)
    flags = bool(indices_are_sorted), bool(unique_indices)
    out = _segments_staged((x, ids), (kind, count, bucket_size, mode, *flags))
    return out if out_sharding is None else lax.with_sharding_constraint(out, out_sharding)


def _reduced(*args: Any) -> Any:
    """The results of all segments; one program where it is called eagerly."""
    x, ids, kind, count, bucket_size, mode, indices_are_sorted, unique_indices = args
    call, dtype, row_shape = f"segment_{kind}", x.aval.dtype, x.aval.shape[1:]
    if kind in ("sum", "prod") and is_narrow(dtype):
        # Not rounded after each row: a sum in bfloat16 stops growing at 256 ones.
        x = lax.convert_element_type(x, np.float32)
    start = _identity(kind, x.aval.dtype)
    rows = (count, *row_shape)
    index = lax.expand_dims(ids, (1,))
    if bucket_size is not None:
        size = size_of(bucket_size, call, "bucket_size")
        if surely_less(size, 1):
            msg = f"{call}: bucket_size is {size}, expected at least 1"
            raise ArgumentValueError(msg)
        # One bucket at least: without rows, too, there are segments. The numbers of buckets need
        # more bits than those of segments may have.
        n, of_ids = ids.aval.shape[0], ids.aval.dtype
        rows = (at_least(-(-n // size), 1), *rows)
        if of_ids.itemsize < 4:
            of_ids = np.dtype(np.int32)
            ids = lax.convert_element_type(ids, of_ids)
        bucket = tnp.arange(n, dtype=of_ids) // size
        index = tnp.stack([bucket, ids], axis=1)
    lead = len(rows) - len(row_shape)
    axes = tuple(range(lead))
    numbers = lax.ScatterDimensionNumbers(tuple(range(1, x.aval.ndim)), axes, axes)
    out = _SCATTERS[kind](
        full_of(x.aval.update(shape=rows, weak_type=False), start),
        index,
        x,
        numbers,
        indices_are_sorted=indices_are_sorted,
        unique_indices=unique_indices,
        mode=mode,
    )
    if bucket_size is not None:
        out = _REDUCTIONS[kind](out, (0,))
    return out if out.aval.dtype == dtype else lax.convert_element_type(out, dtype)


_segments_staged = StagedFunction(_reduced, "segments", judges=False)
