"""What public functions accept as an array and as a dtype, for annotations."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.runtime.array import Array


class SupportsDType(Protocol):
    """An object with a dtype, such as an array."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype."""
        ...


ArrayLike = Array | Tracer | np.ndarray[Any, Any] | np.generic | bool | int | float | complex
"""Arrays, traced values, NumPy arrays and numbers."""

DTypeLike = str | type[Any] | np.dtype[Any] | SupportsDType
"""Dtypes, their names and scalar classes, and objects with a dtype."""
