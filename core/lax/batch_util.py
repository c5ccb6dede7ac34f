"""What batching rules and the batching interpreter do with the batch axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracebridge.core import lax

if TYPE_CHECKING:
    from tracebridge.core.ir.values import Value


def broadcast_batch(x: Value, size: Any, dim: int) -> Value:
    """``x`` repeated along a new axis ``dim`` of ``size``."""
    shape = x.aval.shape
    new_shape = (*shape[:dim], size, *shape[dim:])
    dims = tuple([i if i < dim else i + 1 for i in range(len(shape))])
    return lax.broadcast_in_dim(x, new_shape, dims)


def move_batch_axis(x: Value, source: int, target: int) -> Value:
    """``x`` with axis ``source`` moved to ``target``."""
    if source == target:
        return x
    order = [i for i in range(x.aval.ndim) if i != source]
    order.insert(target, source)
    return lax.transpose(x, tuple(order))


def to_front(x: Value, dim: int | None, size: Any) -> Value:
    """``x`` with its batch axis in front; repeated if it has none."""
    return broadcast_batch(x, size, 0) if dim is None else move_batch_axis(x, dim, 0)
