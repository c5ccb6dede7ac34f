"""Functions that take positions are one program each when users call them eagerly."""

from __future__ import annotations

from tracebridge.core.lax.indexing import dynamic_slice as functions
from tracebridge.core.runtime.calls.positions import takes_positions


def _mark() -> None:
    for function, n in (
        (functions.dynamic_slice, 2),
        (functions.dynamic_slice_in_dim, 2),
        (functions.dynamic_index_in_dim, 2),
        (functions.dynamic_update_slice, 3),
        (functions.dynamic_update_slice_in_dim, 3),
        (functions.dynamic_update_index_in_dim, 3),
    ):
        takes_positions(function, range(n))


_mark()
