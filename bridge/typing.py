"""Types for annotations of functions that take arrays."""

from __future__ import annotations

from tracebridge.core.runtime.arrays.argument_types import Axis, IndexLike, PyTree, ShapeLike
from tracebridge.core.runtime.arrays.array_like import ArrayLike, DTypeLike
from tracebridge.core.util.listing import listing as _listing

__all__ = ["ArrayLike", "Axis", "DTypeLike", "IndexLike", "PyTree", "ShapeLike"]

__dir__ = _listing(globals())
