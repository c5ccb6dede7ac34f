"""Functions with transformations around them, which can hand further results back."""

from __future__ import annotations

from tracebridge.core.compat.linear_util import (
    Store,
    StoreException,
    WrappedFun,
    cache,
    merge_linear_aux,
    transformation,
    transformation2,
    transformation_with_aux,
    transformation_with_aux2,
    wrap_init,
)
from tracebridge.core.errors.filtering import shield as _shield

__all__ = [
    "Store",
    "StoreException",
    "WrappedFun",
    "cache",
    "merge_linear_aux",
    "transformation",
    "transformation2",
    "transformation_with_aux",
    "transformation_with_aux2",
    "wrap_init",
]

_shield(globals(), __name__)
