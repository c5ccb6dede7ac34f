"""What methods of BCOO arrays call: the functions by the names under which they are looked up."""

from __future__ import annotations

from tracebridge.experimental.sparse._bcoo.conversion import bcoo_fromdense, from_scipy
from tracebridge.experimental.sparse._bcoo.layouts import bcoo_update_layout
from tracebridge.experimental.sparse._bcoo.moves import reshaped, transposed
from tracebridge.experimental.sparse._bcoo.sorting import bcoo_sort_indices, without_duplicates

__all__ = [
    "bcoo_fromdense",
    "bcoo_sort_indices",
    "bcoo_update_layout",
    "from_scipy",
    "reshaped",
    "transposed",
    "without_duplicates",
]
