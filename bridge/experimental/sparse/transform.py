"""Functions of dense arrays, applied to sparse ones."""

from __future__ import annotations

from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.experimental.sparse._sparsify import (
    SparseTracer,
    sparsify,
)

__all__ = [
    "SparseTracer",
    "sparsify",
]

_shield(globals(), "tracebridge.experimental.sparse")
