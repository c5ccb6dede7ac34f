"""Functions applied to chosen elements one after another, so that repeated positions count."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.value import Value
from tracebridge.numpy._promote import broadcast_to

_INT32 = np.dtype(np.int32)
# A position behind the end of every array, with which reads are clamped and updates dropped.
NOWHERE = 2**31 - 1


def positions_in(x: Value) -> Any:
    """The position of each element of ``x`` in its flat form, as an array like ``x``."""
    return lax.reshape(lax.iota(_INT32, x.aval.size), x.aval.shape)


def apply_in_turn(
    x: Value, positions: Value, function: Callable[..., Any], values: Value | None = None
) -> Any:
    """``x`` with ``function(element, value)`` put at flat ``positions``, one after another.

    ``values`` are broadcast to the shape of ``positions``; without them the function takes the
    element alone. Positions out of bounds are left out.
    """
    if not x.aval.size:
        return x
    flat = lax.reshape(x, (x.aval.size,))
    rows = [lax.reshape(positions, (positions.aval.size,))]
    if values is not None:
        rows.append(lax.reshape(broadcast_to(values, positions.aval.shape), rows[0].aval.shape))
    numbers = lax.ScatterDimensionNumbers((), (0,), (0,))

    def step(elements: Value, row: Value) -> tuple[Any, None]:
        position, *value = row
        old = lax.dynamic_index_in_dim(elements, position, 0, keepdims=False)
        new = lax.convert_dtype(as_value(function(old, *value)), elements.aval.dtype)
        place = lax.reshape(position, (1,))
        return lax.scatter(elements, place, new, numbers, mode="drop"), None

    # Loops are modules of their own, which updates of single elements do not need.
    scan = importlib.import_module("tracebridge.core.control.scan.forward").scan
    flat, _ = scan(step, flat, tuple(rows))
    return lax.reshape(flat, x.aval.shape)


def known_distinct(x: Any, index: Any) -> bool:
    """Whether an index is known to choose each element of ``x`` at most once."""
    entries = index if isinstance(index, tuple) else (index,)
    several = [isinstance(e, list | tuple) or (hasattr(e, "dtype") and np.ndim(e)) for e in entries]
    if not any(several):
        return True  # integers, slices and new axes
    if any([isinstance(e, Tracer) for e in entries]) or type(x.aval.size) is not int:
        return False
    known = tuple([np.asarray(e) if hasattr(e, "dtype") else e for e in entries])
    try:
        chosen = np.arange(x.aval.size).reshape(x.aval.shape)[known]
    except IndexError:
        return False  # out of bounds: clipped positions may meet
    return len(np.unique(chosen)) == chosen.size
