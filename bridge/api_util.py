"""From functions of trees to functions of leaves: what code needs that traces functions itself."""

from __future__ import annotations

from tracebridge.core.compat.flat_functions import (
    argnums_partial,
    debug_info,
    donation_vector,
    flatten_axes,
    flatten_fun,
    flatten_fun_nokwargs,
    rebase_donate_argnums,
    safe_map,
    shaped_abstractify,
)
from tracebridge.core.errors.filtering import shield as _shield

__all__ = [
    "argnums_partial",
    "debug_info",
    "donation_vector",
    "flatten_axes",
    "flatten_fun",
    "flatten_fun_nokwargs",
    "rebase_donate_argnums",
    "safe_map",
    "shaped_abstractify",
]

_shield(globals(), __name__)
