"""Axes of batches under vmap, for the formats that have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tracebridge.numpy as tnp
from tracebridge._api.vectorize.vmappable import register_vmappable
from tracebridge.core.errors.transform_errors import AxisSpecError


def register_batches(kind: type[Any]) -> None:
    """Let vmap map over the axes of batches of a format."""
    register_vmappable(kind, int, int, _element, _batch, None)


def _axis_of(mat: Any, axis: int, n_batch: int) -> int:
    found = axis + n_batch if axis < 0 else axis
    if not 0 <= found < n_batch:
        kind = type(mat).__name__
        msg = f"vmap: axis {axis} of a {kind} array with {mat.n_batch} axes of batches"
        hint = "make one: n_batch=... of fromdense, or of bcoo_update_layout"
        raise AxisSpecError(msg, expected="an axis of batches", hint=hint)
    return found


def _element(part: Callable[..., Any], index: object, mat: Any, axis: int | None) -> Any:
    """What a mapped function sees of an array with batches."""
    del index
    if axis is None:
        return mat
    axis = _axis_of(mat, axis, mat.n_batch)
    arrays, (shape, *facts) = mat.tree_flatten()

    def of(x: Any) -> Any:
        # A batch axis of size 1 in the arrays alone means the same for all.
        return part(x, axis) if x.shape[axis] == shape[axis] else tnp.squeeze(x, axis)

    rest = ((*shape[:axis], *shape[axis + 1 :]), *facts)
    return type(mat).tree_unflatten(rest, [of(x) for x in arrays])


def _batch(whole: Callable[..., Any], size: int, mat: Any, axis: int | None) -> Any:
    """The results of a mapped function with another axis of batches."""
    arrays, (shape, *facts) = mat.tree_flatten()
    if axis is not None:
        axis = _axis_of(mat, axis, mat.n_batch + 1)
        shape = (*shape[:axis], size, *shape[axis:])
    return type(mat).tree_unflatten((shape, *facts), [whole(size, x, axis) for x in arrays])
