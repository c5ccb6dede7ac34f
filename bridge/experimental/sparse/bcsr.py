"""The BCSR format: compressed rows, with axes of batches and dense ones."""

from __future__ import annotations

from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.experimental.sparse._bcsr import (
    BCSR,
    bcsr_dot_general,
    bcsr_dot_general_p,
    bcsr_extract,
    bcsr_extract_p,
    bcsr_fromdense,
    bcsr_fromdense_p,
    bcsr_todense,
    bcsr_todense_p,
)
from tracebridge.experimental.sparse._bcsr_moves import (
    bcsr_broadcast_in_dim,
    bcsr_concatenate,
    bcsr_sum_duplicates,
)

__all__ = [
    "BCSR",
    "bcsr_broadcast_in_dim",
    "bcsr_concatenate",
    "bcsr_dot_general",
    "bcsr_dot_general_p",
    "bcsr_extract",
    "bcsr_extract_p",
    "bcsr_fromdense",
    "bcsr_fromdense_p",
    "bcsr_sum_duplicates",
    "bcsr_todense",
    "bcsr_todense_p",
]

_shield(globals(), "tracebridge.experimental.sparse")
