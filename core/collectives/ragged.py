"""all_to_all of parts of different lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracebridge.core import lax
from tracebridge.core.collectives.all_gather import all_gather
from tracebridge.core.collectives.axes import axis_size
from tracebridge.core.collectives.permute import all_to_all
from tracebridge.core.dtypes.dtypes import is_integer
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.ad_util import full_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core.ir.value import Operand, Value

_INT32 = np.dtype(np.int32)


def ragged_all_to_all(
    operand: Operand,
    output: Operand,
    input_offsets: Operand,
    send_sizes: Operand,
    output_offsets: Operand,
    recv_sizes: Operand,
    *,
    axis_name: object,
    axis_index_groups: Sequence[Sequence[int]] | None = None,
) -> Any:
    """Send parts of an array, of any lengths, to the elements of a named axis.

    There are K parts, a multiple of the size of the axis: the first K / size of them go to
    element 0, and so on. Part i is ``operand[input_offsets[i] :][: send_sizes[i]]``, and its
    receiver has it at ``output_offsets[i]`` of its result. Rows outside of an array are neither
    sent nor written.

    Args:
        operand: array of shape ``(N, ...)``, what is sent.
        output: array of shape ``(M, ...)``, the result where nothing is received.
        input_offsets: integers of shape ``(K,)``.
        send_sizes: integers of shape ``(K,)``.
        output_offsets: integers of shape ``(K,)``.
        recv_sizes: integers of shape ``(K,)``, the lengths of the parts that are received:
            ``all_to_all(send_sizes, axis_name, 0, 0, tiled=True)``.
        axis_name: a bound axis name, or a tuple of them, of which the last runs fastest.
        axis_index_groups: as in ``all_to_all``.

    Returns:
        Array of the shape and dtype of ``output``. Every element gathers all operands; where
        received parts overlap, the last one shows.

    Raises:
        UnboundAxisNameError: no surrounding transformation binds the name.
        ShapeMismatchError: the shapes are not as above.
        UnsupportedDtypeError: offsets and sizes are no integers, or ``output`` has another dtype
            than ``operand``.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> def f(x, starts, sizes, ends, received):
    ...     return tb.lax.ragged_all_to_all(
    ...         x, tnp.zeros(4, "int32"), starts, sizes, ends, received, axis_name="i"
    ...     )
    >>> tb.vmap(f, axis_name="i")(
    ...     tnp.array([[1, 2, 2], [3, 4, 0]]),
    ...     tnp.array([[0, 1], [0, 1]]),
    ...     tnp.array([[1, 2], [1, 1]]),
    ...     tnp.array([[0, 0], [1, 2]]),
    ...     tnp.array([[1, 1], [2, 1]]),
    ... ).tolist()
    [[1, 3, 0, 0], [2, 2, 4, 0]]
    """
    x, out = as_value(operand), as_value(output)
    numbers = [as_value(n) for n in (input_offsets, send_sizes, output_offsets, recv_sizes)]
    groups = None if axis_index_groups is None else [list(g) for g in axis_index_groups]
    size = axis_size(axis_name) if groups is None else len(groups[0])
    _check(x, out, numbers, size)
    count = numbers[0].aval.shape[0]
    if not count or not x.aval.shape[0] or not out.aval.shape[0]:
        return out

    def received(n: Value) -> Any:
        """From all senders, what they have for this element."""
        n = lax.convert_dtype(n, _INT32)
        return all_to_all(n, axis_name, 0, 0, axis_index_groups=groups, tiled=True)

    start, length, place, _ = [received(n) for n in numbers]
    rows = all_gather(x, axis_name, axis_index_groups=groups, tiled=True)
    sender = np.repeat(np.arange(size, dtype=np.int32), count // size)
    source, found = _sources(start, length, place, sender, (x.aval.shape[0], out.aval.shape[0]))
    return _taken(rows, source, found, out)


def _check(x: Value, out: Value, numbers: Sequence[Value], size: int) -> None:
    call = "ragged_all_to_all"
    if not x.aval.ndim or not out.aval.ndim or x.aval.shape[1:] != out.aval.shape[1:]:
        raise ShapeMismatchError(
            f"{call}: operand {x.aval.str_short()} and output {out.aval.str_short()} "
            "must have the same axes after the first"
        )
    if x.aval.dtype != out.aval.dtype:
        raise UnsupportedDtypeError(
            f"{call}: output has dtype {out.aval.dtype}, expected {x.aval.dtype} of the operand"
        )
    names = ("input_offsets", "send_sizes", "output_offsets", "recv_sizes")
    for name, n in zip(names, numbers, strict=True):
        if not is_integer(n.aval.dtype):
            msg = f"{call}: {name} must be integers, got {n.aval.str_short()}"
            raise UnsupportedDtypeError(msg)
        if n.aval.ndim != 1 or n.aval.shape != numbers[0].aval.shape or n.aval.shape[0] % size:
            raise ShapeMismatchError(
                f"{call}: {name} has the shape {n.aval.shape}; offsets and sizes must have one "
                f"axis of one length, a multiple of {size}, the number of receivers"
            )


def _sources(
    start: Value, length: Value, place: Value, sender: Any, rows: tuple[int, int]
) -> tuple[Any, Any]:
    """Which row of all senders each row of the result is, and whether it is one.

    Args:
        start: where each of K parts starts, in the rows of its sender.
        length: how many rows each has.
        place: where each goes.
        sender: whose each is.
        rows: how many a sender and the result have.
    """
    n, m = rows
    target = lax.broadcasted_iota(_INT32, (len(sender), m), 1)

    def across(number: Any) -> Any:
        return lax.broadcast_in_dim(as_value(number), target.aval.shape, (0,))

    zero, none = full_of(target.aval, 0), full_of(target.aval, -1)
    inside = lax.sub(target, across(place))
    row = lax.add(inside, across(start))
    fits = lax.bitwise_and(lax.ge(inside, zero), lax.lt(inside, across(length)))
    fits = lax.bitwise_and(fits, lax.ge(row, zero))
    fits = lax.bitwise_and(fits, lax.lt(row, full_of(row.aval, n)))
    # The last part that has something for a row of the result.
    part = lax.broadcasted_iota(_INT32, row.aval.shape, 0)
    chosen = lax.reduce_max(lax.select_n(fits, none, part), (0,))
    mine = lax.eq(part, lax.broadcast_in_dim(chosen, part.aval.shape, (1,)))
    row = lax.add(row, across(sender * np.int32(n)))
    source = lax.reduce_sum(lax.select_n(mine, zero, row), (0,))
    return source, lax.ge(chosen, full_of(chosen.aval, 0))


def _taken(rows: Value, source: Value, found: Value, out: Value) -> Any:
    """``rows[source]`` where ``found``, else ``out``."""
    numbers = lax.GatherDimensionNumbers(
        offset_dims=tuple(range(1, out.aval.ndim)),
        collapsed_slice_dims=(0,),
        start_index_map=(0,),
    )
    indices = lax.reshape(source, (*source.aval.shape, 1))
    taken = lax.gather(rows, indices, numbers, (1, *rows.aval.shape[1:]), mode="clip")
    return lax.select_n(lax.broadcast_in_dim(found, out.aval.shape, (0,)), out, taken)
