"""Errors and warnings about sparse arrays, and what primitives know of them."""

from __future__ import annotations

from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.experimental.sparse._base import (
    CuSparseEfficiencyWarning,
    SparseEfficiencyError,
    SparseEfficiencyWarning,
    SparseInfo,
)

__all__ = [
    "CuSparseEfficiencyWarning",
    "SparseEfficiencyError",
    "SparseEfficiencyWarning",
    "SparseInfo",
]

_shield(globals(), "tracebridge.experimental.sparse")
