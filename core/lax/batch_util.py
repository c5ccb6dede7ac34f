"""What batching rules and the batching interpreter do with the batch axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracebridge.core import lax
from tracebridge.core.ir.user_type import is_user_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core.ir.values import Value


def broadcast_batch(x: Value, size: object, dim: int) -> Value:
    """``x`` repeated along a new axis ``dim`` of ``size``."""
    shape = x.aval.shape
    new_shape = (*shape[:dim], size, *shape[dim:])
    dims = tuple([i if i < dim else i + 1 for i in range(len(shape))])
    return lax.broadcast_in_dim(x, new_shape, dims)


def move_batch_axis(x: Value, source: int, target: int) -> Value:
    """``x`` with axis ``source`` moved to ``target``."""
    if source == target or is_user_type(x.aval):
        return x  # values of types of users stay as they lie
    order = [i for i in range(x.aval.ndim) if i != source]
    order.insert(target, source)
    return lax.transpose(x, tuple(order))


def to_front(x: Value, dim: int | None, size: object) -> Value:
    """``x`` with its batch axis in front; repeated if it has none."""
    return broadcast_batch(x, size, 0) if dim is None else move_batch_axis(x, dim, 0)


def mapped_to_front(
    args: Sequence[Value], dims: Sequence[int | None]
) -> tuple[list[Value], tuple[int | None, ...]]:
    """Operands with their batch axes, where they have one, in front; and their dims then."""
    moved = [a if d is None else move_batch_axis(a, d, 0) for a, d in zip(args, dims, strict=True)]
    return moved, tuple([0 if type(d) is int else d for d in dims])


def to_one_axis(
    args: Sequence[Value], dims: Sequence[int | None], size: object
) -> tuple[list[Value], int]:
    """Operands with their batch axes at the place that the first of them has; and this place."""
    at = next(d for d in dims if d is not None)
    moved = [
        broadcast_batch(a, size, at) if d is None else move_batch_axis(a, d, at)
        for a, d in zip(args, dims, strict=True)
    ]
    return moved, at
