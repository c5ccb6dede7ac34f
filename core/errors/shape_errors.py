"""Errors about shapes, ranks and axes.

Operations in lax raise TypeError and NumPy-level broadcasting raises ValueError in comparable
libraries; the classes below derive from both, so that code that catches either keeps working.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracebridge.core.errors.base import TracebridgeError


class ShapeMismatchError(TracebridgeError, TypeError, ValueError):
    """Shapes that must agree do not."""


class BroadcastError(ShapeMismatchError):
    """Shapes cannot be broadcast together."""


class RankError(ShapeMismatchError):
    """An array has the wrong number of dimensions."""


class AxisError(TracebridgeError, np.exceptions.AxisError):
    """An axis is out of range; also NumPy's AxisError, hence a ValueError and an IndexError."""

    def __init__(self, axis: int | str, ndim: int | None = None, *, call: str = "") -> None:
        if isinstance(axis, str):
            message = axis
        else:
            size = ndim or 0
            allowed = f"an integer from {-size} to {size - 1}" if size else "no axis at all"
            message = (
                f"{call + ': ' if call else ''}axis {axis} is out of bounds for an array of "
                f"dimension {size}, expected {allowed}"
            )
        super().__init__(message)  # reaches NumPy's __init__ with the text, which keeps no args
        self.args = (self._msg,)
        if not isinstance(axis, str):
            self.axis, self.ndim = axis, ndim

    def __reduce__(self) -> tuple[Any, ...]:
        rebuild, (cls, args, state) = super().__reduce__()
        # NumPy's class has these three as slots.
        slots = {"_msg": self._msg, "axis": self.axis, "ndim": self.ndim}
        return rebuild, (cls, args, {**state, **slots})


class IndexingError(TracebridgeError, IndexError):
    """An index has too many entries, or a static index is out of range."""


class InconclusiveDimensionError(TracebridgeError, ValueError):
    """A comparison of symbolic dimensions has no answer that holds for all their values."""
